//! Requests as values, so that a check can send the very same one again.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::answer::{Answer, shortened};
use super::case::{Failure, Stop, Verdict, failed, skip};
use super::raw;
use super::seen::Seen;

/// Longer than any command may take (5 s), so that a hang shows as one.
const PATIENCE: Duration = Duration::from_secs(30);

/// One credential at one service, of one or two processes.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    bases: Arc<[String]>,
    turn: Arc<AtomicUsize>,
    spread: bool,
    api_key: Arc<str>,
    seen: Arc<Seen>,
}

impl Client {
    /// A client for these processes; the first is the one ordinary requests go to.
    pub(super) fn new(bases: Vec<String>, api_key: &str, seen: Arc<Seen>) -> anyhow::Result<Self> {
        // Fails only if one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()?;
        Ok(Self { http, bases: bases.into(), turn: Arc::default(), spread: false, api_key: api_key.into(), seen })
    }

    /// The same service under another credential.
    pub(super) fn with_key(&self, api_key: &str) -> Self {
        Self { api_key: api_key.into(), ..self.clone() }
    }

    /// Takes turns between both processes, where there are two.
    pub(super) fn spread(&self) -> Self {
        Self { spread: true, ..self.clone() }
    }

    /// Only the other process, where there is one.
    pub(super) fn peer(&self) -> Self {
        let last = self.bases.last().cloned().into_iter().collect();
        Self { bases: last, spread: false, ..self.clone() }
    }

    /// How many processes answer.
    pub(super) fn processes(&self) -> usize {
        self.bases.len()
    }

    /// A request with the credential and nothing else.
    pub(super) fn call(&self, method: &'static str, path: impl Into<String>) -> Call {
        let call = Call { client: self.clone(), method, path: path.into(), headers: vec![], body: None };
        call.header("Authorization", format!("Bearer {}", self.api_key))
    }

    /// A GET.
    pub(super) fn get(&self, path: impl Into<String>) -> Call {
        self.call("GET", path)
    }

    /// A POST.
    pub(super) fn post(&self, path: impl Into<String>) -> Call {
        self.call("POST", path)
    }

    /// A PUT.
    pub(super) fn put(&self, path: impl Into<String>) -> Call {
        self.call("PUT", path)
    }

    fn base(&self) -> &str {
        let turn = if self.spread { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        self.bases.get(turn % self.bases.len().max(1)).map_or("", String::as_str)
    }
}

/// A request that can be sent any number of times.
#[derive(Clone)]
pub(super) struct Call {
    client: Client,
    method: &'static str,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Call {
    /// Adds a header line, beside any of the same name.
    pub(super) fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Takes every header line of this name away.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the idempotency key, in place of any before.
    pub(super) fn key(&self, key: &str) -> Self {
        self.clone().without("idempotency-key").header("Idempotency-Key", key)
    }

    /// Sets the JSON body, in place of any before.
    pub(super) fn json(self, body: &Value) -> Self {
        self.text(body.to_string())
    }

    /// Sets a body said to be JSON, whatever it is.
    pub(super) fn text(self, body: impl Into<Vec<u8>>) -> Self {
        self.typed("application/json", body)
    }

    /// Sets a body of this media type.
    pub(super) fn typed(self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut call = self.without("content-type").header("Content-Type", media_type);
        call.body = Some(body.into());
        call
    }

    /// The same body, said to be of this media type.
    pub(super) fn retyped(&self, media_type: &str) -> Self {
        self.clone().without("content-type").header("Content-Type", media_type)
    }

    /// The same with so much white space after the body.
    pub(super) fn padded(&self, spaces: usize) -> Self {
        let mut call = self.clone();
        call.body.get_or_insert_default().extend(std::iter::repeat_n(b' ', spaces));
        call
    }

    /// The same under another credential, wherever that one sends its requests.
    pub(super) fn under(&self, client: &Client) -> Self {
        let call = Self { client: client.clone(), ..self.clone() };
        call.without("authorization").header("Authorization", format!("Bearer {}", client.api_key))
    }

    /// The same, in turns between both processes.
    pub(super) fn spread(&self) -> Self {
        Self { client: self.client.spread(), ..self.clone() }
    }

    /// The same at the other process.
    pub(super) fn at_peer(&self) -> Self {
        Self { client: self.client.peer(), ..self.clone() }
    }

    /// The same at another path.
    pub(super) fn at(&self, path: impl Into<String>) -> Self {
        Self { path: path.into(), ..self.clone() }
    }

    /// The same with one member of the JSON body set.
    pub(super) fn with(&self, member: &str, value: impl Into<Value>) -> Self {
        let mut body = self.body_json();
        body[member] = value.into();
        self.clone().json(&body)
    }

    /// The same with one member of the JSON body left out.
    pub(super) fn leaving_out(&self, member: &str) -> Self {
        let mut body = self.body_json();
        if let Some(members) = body.as_object_mut() {
            members.remove(member);
        }
        self.clone().json(&body)
    }

    /// The body as JSON; `{}` where there is none.
    pub(super) fn body_json(&self) -> Value {
        let body = self.body.as_deref().and_then(|body| serde_json::from_slice(body).ok());
        body.unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }

    /// The path with its query.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Sends it through an ordinary HTTP client.
    pub(super) async fn send(&self) -> Verdict<Answer> {
        let base = self.client.base();
        let lost = |error: &dyn std::error::Error| self.lost(base, error);
        let method = reqwest::Method::from_bytes(self.method.as_bytes()).map_err(|error| lost(&error))?;
        let mut request = self.client.http.request(method, format!("{base}{}", self.path));
        for (name, value) in &self.headers {
            let value = reqwest::header::HeaderValue::from_bytes(value).map_err(|error| lost(&error))?;
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let started = std::time::Instant::now();
        let response = request.send().await.map_err(|error| lost(&error))?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let body = response.bytes().await.map_err(|error| lost(&error))?.to_vec();
        let took = started.elapsed();
        Ok(self.answered(Answer { status, headers, body, took, request: self.describe(base) }))
    }

    /// Writes it byte by byte, as no HTTP client would.
    pub(super) async fn send_raw(&self) -> Verdict<Answer> {
        let base = self.client.base();
        let started = std::time::Instant::now();
        let bytes = self.wire_bytes(base)?;
        let reply = raw::exchange(base, &bytes, PATIENCE).await.map_err(|error| self.lost(base, &*error))?;
        let raw::Reply { status, headers, body } = reply;
        let took = started.elapsed();
        Ok(self.answered(Answer { status, headers, body, took, request: self.describe(base) }))
    }

    /// Writes it, waits for `until`, and hangs up without reading an answer.
    pub(super) async fn send_and_hang_up(&self, until: impl Future<Output = Verdict>) -> Verdict {
        let base = self.client.base();
        let bytes = self.wire_bytes(base)?;
        let open = raw::write(base, &bytes).await.map_err(|error| self.lost(base, &*error))?;
        let outcome = until.await;
        drop(open);
        outcome
    }

    /// The request as a person would read it; of the credential only the public part.
    fn describe(&self, base: &str) -> String {
        let mut text = format!("{} {base}{}", self.method, self.path);
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value);
            let shown = if name == "Authorization" { without_secret(&value) } else { value.into_owned() };
            let _ = write!(text, "\n{name}: {}", shortened(&shown.replace(char::is_control, "\u{fffd}")));
        }
        if let Some(body) = &self.body {
            let _ = write!(text, "\n\n{}", shortened(&String::from_utf8_lossy(body)));
        }
        text
    }

    fn wire_bytes(&self, base: &str) -> Verdict<Vec<u8>> {
        let Some(host) = base.strip_prefix("http://") else {
            return skip("the request is written byte by byte, so the base URL must be http://");
        };
        Ok(raw::request(self.method, host, &self.path, &self.headers, self.body.as_deref()))
    }

    fn answered(&self, answer: Answer) -> Answer {
        self.client.seen.note(self.method, &self.path, &answer);
        answer
    }

    fn lost(&self, base: &str, error: &dyn std::error::Error) -> Stop {
        let mut came = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(came, ": {error}");
            cause = error.source();
        }
        Stop::Failed(Failure { expected: "an answer".to_owned(), came, request: self.describe(base) })
    }
}

/// Sends all of them at one moment; answers in the order of the calls.
pub(super) async fn all_at_once(calls: Vec<Call>) -> Verdict<Vec<Answer>> {
    let start = Arc::new(Barrier::new(calls.len()));
    let mut running = JoinSet::new();
    let mut answers: Vec<Option<Answer>> = vec![None; calls.len()];
    for (at, call) in calls.into_iter().enumerate() {
        let start = Arc::clone(&start);
        running.spawn(async move {
            start.wait().await;
            (at, call.send().await)
        });
    }
    while let Some(joined) = running.join_next().await {
        let Ok((at, answer)) = joined else { return failed("an answer", "the client's task ended without one") };
        answers[at] = Some(answer?);
    }
    Ok(answers.into_iter().flatten().collect())
}

fn without_secret(authorization: &str) -> String {
    match authorization.rfind('_') {
        Some(at) if authorization.starts_with("Bearer ob_") && at > "Bearer ob_".len() => {
            format!("{}_…", &authorization[..at])
        }
        _ => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(without_secret("Bearer ob_abc_s3cret"), "Bearer ob_abc_…");
        assert_eq!(without_secret("Bearer s3cret"), "…");
        assert_eq!(without_secret("Bearer ob_s3cret"), "…");
    }
}
