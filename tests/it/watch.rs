//! Who watches over the service: `/readyz` tells which worker is behind, `/metrics` how the database stands, cheaply
//! however much is in it, and what the alerts name is there.

use std::time::Duration;

use oncebook::clock::Clock;
use oncebook::store::{session, watch};
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::Instant;

use crate::app::{Trial, Visit, eventually};
use crate::events::count;
use crate::plans::fetched;
use crate::process::Process;

/// What `/readyz` says, and with which status.
async fn readiness(process: &Process) -> (u16, Value) {
    let answer = reqwest::get(format!("{}/readyz", process.base)).await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

fn worker<'a>(told: &'a Value, name: &str) -> &'a Value {
    let workers = told["workers"].as_array().expect("a list");
    workers.iter().find(|worker| worker["name"] == name).unwrap_or_else(|| panic!("no {name} in {told}"))
}

#[tokio::test]
async fn a_worker_that_is_behind_is_told_and_decides_where_there_is_no_api() {
    let mut trial = Trial::new().await;
    trial.tolerate("statement timeout");
    trial.tolerate("does not exist");
    let bound = ("ONCEBOOK_READY_BEHIND", "1");
    let serving = trial.process_with(&trial.url(), &[("ONCEBOOK_ROLES", "api,relay,consumers"), bound]).await;
    let admin = ("ONCEBOOK_ADMIN_LISTEN", "127.0.0.1:0");
    let relaying = trial.process_with(&trial.url(), &[("ONCEBOOK_ROLES", "relay"), admin, bound]).await;
    let desk = trial.desk_at(&serving.base);
    desk.say(&trial.book(Visit::default())).await.expect(201, "");
    eventually("both are ready", async || {
        let told = [readiness(&serving).await, readiness(&relaying).await];
        told.iter().all(|(status, told)| *status == 200 && worker(told, "relay")["behind"]["items"] == 0)
    })
    .await;
    let (_, told) = readiness(&serving).await;
    for name in ["flusher", "relay", "notifications", "changes"] {
        let worker = worker(&told, name);
        assert!(worker["ok"] == true && worker["last_ok_seconds"].as_f64().is_some(), "{worker}");
        assert!(worker.get("failing_since").is_none(), "{worker}");
        assert_eq!(worker.get("behind").is_some(), name != "flusher", "{worker}");
    }

    // The log takes nothing in.
    let mut holder = trial.connect().await;
    sqlx::raw_sql("begin; lock table event_log in share mode").execute(&mut holder).await.expect("held");
    desk.say(&trial.book(Visit { slot: 8, ..Visit::default() })).await.expect(201, "");
    eventually("the one that has nothing else to do is not ready", async || readiness(&relaying).await.0 == 503).await;
    let (_, told) = readiness(&relaying).await;
    assert_eq!((&told["checks"]["database"]["ok"], &told["ready"]), (&true.into(), &false.into()));
    eventually("what waits is told", async || {
        let told = readiness(&relaying).await.1["workers"].clone();
        let behind =
            told.as_array().expect("a list").iter().find(|it| it["name"] == "relay").expect("it")["behind"].clone();
        behind["items"] == 1 && behind["seconds"].as_f64().is_some_and(|seconds| seconds > 1.0)
    })
    .await;
    eventually("the other says so too, and answers requests", async || {
        let (status, told) = readiness(&serving).await;
        status == 200 && told["ready"] == true && worker(&told, "relay")["ok"] == false
    })
    .await;
    holder.close().await.expect("closed");
    eventually("both are ready again", async || {
        let (serving, relaying) = (readiness(&serving).await, readiness(&relaying).await);
        relaying.0 == 200 && worker(&serving.1, "relay")["ok"] == true
    })
    .await;

    trial.change("alter table event_log rename to elsewhere").await;
    eventually("it fails, and that is told", async || {
        let (status, told) = readiness(&relaying).await;
        let relay = worker(&told, "relay");
        status == 503 && relay["failing_since"].is_string() && relay["failing_code"] == "unavailable"
    })
    .await;
    let failures = "oncebook_worker_failures_total{worker=\"relay\",code=\"unavailable\"}";
    assert_ne!(figure(&scraped(&relaying).await, failures), "0");
    trial.change("alter table elsewhere rename to event_log").await;
    eventually("it recovers", async || readiness(&relaying).await.0 == 200).await;
    serving.stop().await;
    relaying.stop().await;
    trial.end().await;
}

async fn scraped(process: &Process) -> String {
    reqwest::get(format!("{}/metrics", process.base)).await.expect("an answer").text().await.expect("text")
}

/// A figure by its name and labels, as it is written.
fn figure<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn seconds(text: &str, name: &str) -> f64 {
    figure(text, name).parse().expect("a number")
}

/// Rows of an inbox in a state, whoever's they are.
fn inbox(from: i32, to: i32, state: &str) -> String {
    format!(
        "insert into inbox (logical_consumer_id, event_id, tenant_id, clinic_id, partition, \"offset\", subject_kind, subject_id,
           sequence, received_at, state, attempts, reason_code, next_attempt_at, token, lease_until)
         select 'told', ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), gen_random_uuid(), 0, n,
           'appointment', gen_random_uuid(), 1, now(), {state} from generate_series({from}, {to}) as n;"
    )
}

/// State, attempts, reason, next attempt, token, lease.
const PROCESSED: &str = "'PROCESSED', 1, null, null::timestamptz, null::uuid, null::timestamptz";
const HELD: &str = "'RETRYABLE', 0, 'held_behind', now(), null::uuid, null::timestamptz";
const LATER: &str = "'RETRYABLE', 1, 'x', now() + interval '1 hour', null::uuid, null::timestamptz";
const DUE: &str = "'RETRYABLE', 1, 'x', now() - interval '100 s', null::uuid, null::timestamptz";
const LATE: &str = "'PROCESSING', 1, null, null::timestamptz, gen_random_uuid(), now() - interval '200 s'";
const QUARANTINED: &str = "'QUARANTINED', 1, 'x', null::timestamptz, null::uuid, null::timestamptz";

/// A consumer with rows in every state: 50 done, 2 held, 3 due later, 4 due, 1 whose worker is gone, 5 for a person.
fn every_state() -> String {
    let rows = [(50, PROCESSED), (2, HELD), (3, LATER), (4, DUE), (1, LATE), (5, QUARANTINED)];
    let mut statements = "insert into consumers values ('told', now());".to_owned();
    let mut from = 1;
    for (many, set) in rows {
        statements += &inbox(from, from + many - 1, set);
        from += many;
    }
    statements
}

/// What the janitor has before it: of all keys as they are, and as if their retention were over.
async fn past_retention(connection: &mut PgConnection) -> (u64, u64) {
    let now = Clock::system().now();
    let before = watch::expired_keys(connection, now).await.expect("a look");
    let over = "begin; update idempotency_keys set expires_at = statement_timestamp() - interval '100 s'";
    sqlx::raw_sql(over).execute(&mut *connection).await.expect("over");
    let after = watch::expired_keys(connection, now).await.expect("a look");
    assert!(before.oldest.is_none() && after.oldest.is_some_and(|oldest| oldest < now));
    sqlx::raw_sql("rollback").execute(connection).await.expect("undone");
    (before.items, after.items)
}

#[tokio::test]
async fn the_figures_are_those_of_the_database() {
    let trial = Trial::new().await;
    trial.change(&every_state()).await;
    trial
        .change(
            "insert into staff_tasks select t.id, gen_random_uuid(), c.id, 'quarantined_event', 'told', gen_random_uuid(),
               'appointment', c.id, 'x', now(), done, case when done is not null then 'desk' end, case when done is not null then 'skip' end
             from tenants t join clinics c on c.tenant_id = t.id, (values (null::timestamptz), (now())) as d(done) limit 6",
        )
        .await;
    let mut connection = trial.connect().await;
    let open = count(&mut connection, "select count(*) from staff_tasks where resolved_at is null").await;
    assert!(open > 0 && open < count(&mut connection, "select count(*) from staff_tasks").await);
    // Nobody relays yet.
    let process = trial.process_with(&trial.url(), &[("ONCEBOOK_ROLES", "api")]).await;
    let desk = trial.desk_at(&process.base);
    for slot in 0..3 {
        desk.say(&trial.book(Visit { slot: 8 * slot, ..Visit::default() })).await.expect(201, "");
    }
    let text = scraped(&process).await;
    let told = |state: &str| {
        figure(&text, &format!("oncebook_inbox_events{{consumer=\"told\",state=\"{state}\"}}")).to_owned()
    };
    assert_eq!(["HELD", "RETRYABLE", "PROCESSING", "QUARANTINED"].map(told), ["2", "7", "1", "5"]);
    let due = seconds(&text, "oncebook_inbox_oldest_due_seconds{consumer=\"told\"}");
    assert!((200.0..260.0).contains(&due), "the lease that is up, not the try that is due: {due}");
    let figures = ["oncebook_database_up", "oncebook_outbox_events", "oncebook_staff_tasks_open"];
    assert_eq!(figures.map(|name| figure(&text, name)), ["1", "3", &open.to_string()]);
    assert!((0.0..60.0).contains(&seconds(&text, "oncebook_outbox_oldest_seconds")));
    process.stop().await;
    assert_eq!(past_retention(&mut connection).await, (0, 3));

    let process = trial.process_with(&trial.url(), &[("ONCEBOOK_ROLES", "api,relay,consumers")]).await;
    eventually("all is processed", async || {
        let done = "select count(*) from inbox where logical_consumer_id = 'changes' and state = 'PROCESSED'";
        count(&mut connection, done).await == 3
    })
    .await;
    let took = "oncebook_commit_to_processed_seconds_count{consumer=\"changes\"}";
    eventually("its time is told", async || scraped(&process).await.contains(took)).await;
    assert_eq!(figure(&scraped(&process).await, took), "3");
    eventually("there is no lag", async || {
        let text = scraped(&process).await;
        let lags: Vec<&str> =
            text.lines().filter(|line| line.starts_with("oncebook_log_lag_events{group=\"changes\"")).collect();
        lags.len() == 16 && lags.iter().all(|line| line.ends_with("} 0"))
    })
    .await;
    let text = scraped(&process).await;
    assert_eq!(figure(&text, "oncebook_worker_ok{worker=\"relay\"}"), "1");
    assert_ne!(figure(&text, "oncebook_worker_step_seconds_count{worker=\"relay\"}"), "0");
    process.stop().await;
    trial.change("delete from inbox where logical_consumer_id = 'told'; delete from staff_tasks").await;
    drop(connection);
    trial.end().await;
}

/// Pages that one look may fetch: an index's few, or of ten thousand rows each one.
const FEW: i64 = 200;
const MOST: i64 = 3 * watch::MOST + 2_000;

/// A session as the service's are, whose plans were made while the tables were empty.
async fn early(trial: &Trial) -> PgConnection {
    let options: PgConnectOptions = trial.url().parse().expect("a URL");
    let mut connection = options.options(session(Duration::from_mins(5))).connect().await.expect("connected");
    for _ in 0..2 {
        watch::standing(&mut connection).await.expect("a look");
        watch::expired_keys(&mut connection, Clock::system().now()).await.expect("a look");
    }
    connection
}

/// Pages read by a look at everything, and how long it took.
async fn look(connection: &mut PgConnection) -> (watch::Standing, i64, Duration) {
    sqlx::raw_sql("begin").execute(&mut *connection).await.expect("begun");
    let before: i64 = fetched(connection).await.values().sum();
    let began = Instant::now();
    let standing = watch::standing(connection).await.expect("a look");
    let took = began.elapsed();
    let after: i64 = fetched(connection).await.values().sum();
    sqlx::raw_sql("rollback").execute(connection).await.expect("ended");
    (standing, after - before, took)
}

async fn costs_little(rows: i32) {
    let trial = Trial::new().await;
    let mut connection = early(&trial).await;
    trial.change("insert into consumers values ('told', now())").await;
    trial.change(&inbox(1, rows, PROCESSED)).await;
    let (standing, pages, took) = look(&mut connection).await;
    println!("{rows} rows done: {pages} pages, {took:?}");
    assert!(pages < FEW, "{pages} pages for nothing");
    assert_eq!(standing.inboxes[0].due.items, 0);
    for (state, set) in [("held", HELD), ("quarantined", QUARANTINED)] {
        trial.change(&inbox(rows + 1, 2 * rows, set)).await;
        let (standing, pages, took) = look(&mut connection).await;
        println!("and {rows} {state}: {pages} pages, {took:?}");
        assert!(pages < MOST, "{pages} pages");
        let inbox = &standing.inboxes[0];
        assert_eq!(inbox.held + inbox.quarantined, watch::MOST.unsigned_abs().min(u64::from(rows.unsigned_abs())));
        trial.change("delete from inbox where state <> 'PROCESSED'").await;
    }
    connection.close().await.expect("closed");
    trial.change("delete from inbox; delete from consumers").await;
    trial.end().await;
}

#[tokio::test]
async fn a_look_at_the_figures_costs_little_however_much_is_done_or_waits() {
    costs_little(20_000).await;
}

#[tokio::test]
#[ignore = "a million rows: a minute or two"]
async fn a_look_at_a_million_rows_costs_as_little() {
    costs_little(1_000_000).await;
}
