//! Nonsense of every kind: bodies, headers, paths, queries, request lines. Each request has at least one fault that must be
//! refused, so not one may be answered with 2xx or 5xx, nothing may be written, and memory may not grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebook::clock::Ids;
use sqlx::{AssertSqlSafe, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::app::{Trial, Visit};

/// Connections that talk nonsense at the same time.
const VOICES: u64 = 16;

/// The request that the faults are put into.
const POST: &str = "POST /v1/appointments HTTP/1.1";

/// Growth of the service's memory, once it is warm, that is no growth: buffers of the voices, the allocator's habits.
const FLAT_KIB: u64 = 12 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_of_every_kind_is_refused() {
    nonsense(3_000, 7).await;
}

/// So many malformed requests against a process of its own.
pub(crate) async fn nonsense(count: u64, seed: u64) {
    let trial = Trial::new().await;
    let service = trial.process().await;
    let address = Arc::new(service.base.trim_start_matches("http://").to_owned());
    let speech = Arc::new(Speech {
        token: trial.demo.api_keys.front_desk.clone(),
        clinic: trial.demo.clinic_id.to_string(),
        booking: trial.body(Visit::default()).to_string(),
    });
    let rows_before = rows(&trial).await;
    let mut heard = BTreeMap::new();
    let mut warm = 0;
    for part in 0..2 {
        // The second part is as long as the first, on a process that has seen it all.
        let mut voices = JoinSet::new();
        for voice in 0..VOICES {
            let (address, speech) = (Arc::clone(&address), Arc::clone(&speech));
            let ids = Ids::seeded(seed * 1000 + part * VOICES + voice);
            voices.spawn(async move { speak(&address, &speech, &ids, count / 2 / VOICES).await });
        }
        while let Some(statuses) = voices.join_next().await {
            for (status, times) in statuses.expect("no panic") {
                *heard.entry(status).or_insert(0) += times;
            }
        }
        if part == 0 {
            warm = service.memory();
        }
    }
    let grown = service.memory().saturating_sub(warm);
    println!("{count} malformed requests, seed {seed}: {heard:?}, memory {warm} KiB and {grown} KiB more");
    assert!(heard.len() > 5, "nonsense of one kind only: {heard:?}");
    assert!(grown < FLAT_KIB, "memory grew by {grown} KiB");
    assert_eq!(rows(&trial).await, rows_before, "something was written");
    service.stop().await;
    trial.end().await;
}

/// Rows of every table a command or a put could write. The audit is left out: a signed-in caller's 403 belongs there.
async fn rows(trial: &Trial) -> Vec<i64> {
    let mut connection = trial.connect().await;
    let mut counts = Vec::new();
    for table in [
        "appointments",
        "appointment_history",
        "idempotency_keys",
        "notification_intents",
        "outbox",
        "clinics",
        "patients",
        "credentials",
    ] {
        let count =
            sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {table}"))).fetch_one(&mut connection);
        counts.push(count.await.expect("counted"));
    }
    connection.close().await.expect("closed");
    counts
}

struct Speech {
    token: String,
    clinic: String,
    booking: String,
}

/// Sends requests one after the other and counts the statuses; 0 stands for a connection closed without an answer.
async fn speak(address: &str, speech: &Speech, ids: &Ids, count: u64) -> BTreeMap<u16, u64> {
    let mut heard = BTreeMap::new();
    let mut open = None;
    for _ in 0..count {
        let stream = match open.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.expect("the service is there"),
        };
        let request = speech.request(ids);
        let (status, stream) = exchange(stream, &request).await;
        assert!(status == 0 || (400..500).contains(&status), "{status} for {}", String::from_utf8_lossy(&request));
        *heard.entry(status).or_insert(0) += 1;
        open = stream;
    }
    heard
}

/// One request, one answer; the stream comes back if it can be used again.
async fn exchange(mut stream: TcpStream, request: &[u8]) -> (u16, Option<TcpStream>) {
    if stream.write_all(request).await.is_err() {
        return (0, None);
    }
    let mut answer = Vec::new();
    loop {
        if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
            let field =
                |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
            let length: usize = field("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0);
            while answer.len() < end + 4 + length {
                if !matches!(stream.read_buf(&mut answer).await, Ok(1..)) {
                    return (status, None);
                }
            }
            return (status, Some(stream).filter(|_| field("connection:").is_none()));
        }
        if !matches!(stream.read_buf(&mut answer).await, Ok(1..)) {
            return (0, None);
        }
    }
}

/// A request in its parts, whole until a fault is put in.
struct Draft {
    line: String,
    headers: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl Draft {
    fn header(&mut self, line: impl Into<Vec<u8>>) {
        self.headers.push(line.into());
    }

    fn without(&mut self, name: &str) {
        self.headers.retain(|line| !line.starts_with(name.as_bytes()));
    }

    fn bytes(mut self) -> Vec<u8> {
        let length = self.body.len();
        self.header(format!("Content-Length: {length}"));
        let mut bytes = self.line.into_bytes();
        for header in self.headers {
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&header);
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Speech {
    fn request(&self, ids: &Ids) -> Vec<u8> {
        let mut draft = Draft { line: POST.to_owned(), headers: Vec::new(), body: self.booking.clone().into_bytes() };
        draft.header("Host: nonsense");
        draft.header(format!("Authorization: Bearer {}", self.token));
        draft.header("Content-Type: application/json");
        draft.header(format!("Idempotency-Key: nonsense-{}", ids.below(u64::MAX)));
        match ids.below(4) {
            0 => self.body(&mut draft, ids),
            1 => header(&mut draft, ids),
            2 => path(&mut draft, ids),
            _ => self.query(&mut draft, ids),
        }
        // One fault in three has another beside it.
        if ids.below(3) == 0 {
            header(&mut draft, ids);
        }
        draft.bytes()
    }

    fn body(&self, draft: &mut Draft, ids: &Ids) {
        let whole = &self.booking;
        let put =
            |member: &str, value: &str| format!("{},\"{member}\":{value}}}", whole.trim_end_matches('}')).into_bytes();
        draft.body = match ids.below(16) {
            0 => whole.as_bytes()[..usize::try_from(1 + ids.below(whole.len() as u64 - 1)).expect("small")].to_vec(),
            1 => (0..=ids.below(300)).map(|_| u8::try_from(ids.below(256)).expect("a byte")).collect::<Vec<_>>(),
            2 => [b"[".repeat(10_000), b"]".repeat(10_000)].concat(),
            3 => put("clinic_id", "null"),
            4 => put("surprise", "1"),
            5 => put("note", "\"a\\u0000b\""),
            6 => put("note", &format!("\"{}\"", "x".repeat(4001))),
            7 => put("external", "{\"system\":1e999999999,\"id\":\"1\"}"),
            8 => put("external", &format!("{{\"system\":{},\"id\":\"1\"}}", "9".repeat(50_000))),
            9 => put("note", "\"\\ud800\""),
            10 => [put("note", "\"").as_slice(), b"\xff\"}"].concat(),
            11 => format!("{whole} true").into_bytes(),
            12 => vec![b' '; 65 * 1024],
            13 => whole.replace("\"start\":\"2", "\"start\":\"x").into_bytes(),
            14 => Vec::new(),
            _ => whole.replace(&self.clinic, "not-an-id").into_bytes(),
        };
    }

    fn query(&self, draft: &mut Draft, ids: &Ids) {
        let clinic = &self.clinic;
        let asked = [
            "/v1/appointments".to_owned(),
            format!("/v1/appointments?clinic_id={clinic}&limit=0"),
            format!("/v1/appointments?clinic_id={clinic}&limit=1e9"),
            format!("/v1/appointments?clinic_id={clinic}&clinic_id={clinic}"),
            format!("/v1/appointments?clinic_id={clinic}&after=%00"),
            format!("/v1/appointments?clinic_id={clinic}&after=bm90LW9uZS1vZi1vdXJz"),
            format!("/v1/appointments?clinic_id={clinic}&from=yesterday"),
            format!("/v1/appointments?clinic_id={clinic}&status=gone"),
            format!("/v1/appointments?clinic_id={clinic}&surprise=1"),
            format!("/v1/appointments?clinic_id=%ff%fe{clinic}"),
            format!("/v1/availability?clinic_id={clinic}&from=2027-01-01T00:00:00Z&to=2099-01-01T00:00:00Z"),
            format!(
                "/v1/availability?clinic_id={clinic}&service_id={clinic}&from=2027-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"
            ),
            "/v1/patients?birth_date=1999-02-30".to_owned(),
            "/v1/patients?q=a%00b".to_owned(),
            format!("/v1/patients?limit={}", "9".repeat(400)),
            "/v1/commands?clinic_id=x".to_owned(),
        ];
        let which = usize::try_from(ids.below(asked.len() as u64)).expect("small");
        draft.line = format!("GET {} HTTP/1.1", asked[which]);
        draft.body.clear();
    }
}

fn header(draft: &mut Draft, ids: &Ids) {
    match ids.below(16) {
        0 => draft.without("Authorization"),
        1 => draft.header("Authorization: Basic Zm9vOmJhcg=="),
        2 => {
            draft.without("Authorization");
            draft.header("Authorization: Bearer ob_00000000000000000000000000000000_x");
        }
        3 => {
            draft.without("Content-Type");
            draft.header("Content-Type: text/plain");
            draft.body.push(b' ');
            POST.clone_into(&mut draft.line);
        }
        4 => {
            draft.header("Content-Encoding: gzip");
            draft.body.push(b' ');
            POST.clone_into(&mut draft.line);
        }
        5 => key(draft, b"Idempotency-Key:"),
        6 => key(draft, b"Idempotency-Key: \"half"),
        7 => key(draft, b"Idempotency-Key: caf\xc3\xa9"),
        8 => key(draft, b"Idempotency-Key: a\tb"),
        9 => key(draft, format!("Idempotency-Key: {}", "k".repeat(256)).as_bytes()),
        10 => key(draft, b"Idempotency-Key: one\r\nIdempotency-Key: one"),
        11 => draft.header("a line without a colon"),
        12 => draft.header(b"X-Odd: \x01\x02".to_vec()),
        13 => draft.header(format!("X-Large: {}", "x".repeat(600_000))),
        14 => draft.header("Transfer-Encoding: surprise"),
        _ => draft.line = draft.line.replace("HTTP/1.1", "HTTP/9.9"),
    }
}

/// A key that is none, where one is needed.
fn key(draft: &mut Draft, line: &[u8]) {
    draft.without("Idempotency-Key");
    draft.header(line);
    POST.clone_into(&mut draft.line);
}

fn path(draft: &mut Draft, ids: &Ids) {
    let lines = [
        "POST /v1/appointments/not-an-id/cancel HTTP/1.1".to_owned(),
        "POST /v1/appointments/00000000-0000-0000-0000-000000000000/cancel HTTP/1.1".to_owned(),
        "GET /v1/appointments/%00 HTTP/1.1".to_owned(),
        "GET /v1/appointments/%ff%fe HTTP/1.1".to_owned(),
        "GET /v1/appointments/../../etc/passwd HTTP/1.1".to_owned(),
        format!("GET /v1/appointments/{} HTTP/1.1", "a".repeat(5000)),
        "GET //v1//appointments HTTP/1.1".to_owned(),
        "POST /v1/appointments/ HTTP/1.1".to_owned(),
        "DELETE /v1/appointments HTTP/1.1".to_owned(),
        "PUT /v1/clinics HTTP/1.1".to_owned(),
        "POST /v1/blocks/x HTTP/1.1".to_owned(),
        "FROBNICATE /v1/appointments HTTP/1.1".to_owned(),
        "GET /v1/nowhere HTTP/1.1".to_owned(),
        "POST v1/appointments HTTP/1.1".to_owned(),
        "POST /v1/appointments".to_owned(),
        "GET /problems/no_such_problem HTTP/1.1".to_owned(),
    ];
    draft.line.clone_from(&lines[usize::try_from(ids.below(lines.len() as u64)).expect("small")]);
}
