//! What a consumer does when things go wrong at the second event of a subject, in the middle of two, or to the database.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::consumer::Consumer;
use oncebook::hint::Hint;
use oncebook::log::EventLog;
use oncebook::log::postgres::PostgresLog;
use oncebook::store::StoreError;
use oncebook::store::inbox::{self, Arrival, Taking};
use sqlx::{Connection, PgConnection, Row};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::{Trial, Visit, eventually, reschedule, step};
use crate::events::{TOLD, Tell, a_day_passes, count, settle};
use crate::hold::waiting;

/// A visit of three versions, whose events are in the log; nobody has read them.
async fn three_versions(trial: &Trial, app: &Arc<App>) -> (Uuid, PostgresLog) {
    let desk = trial.desk();
    let id = desk.say(&trial.book(Visit::default())).await.expect(201, "").id();
    desk.say(&reschedule(id, 1)).await.expect(200, "");
    desk.say(&step(id, "cancel")).await.expect(200, "");
    let log = PostgresLog::of(app);
    while log.relay().await.expect("relayed").events > 0 {}
    (id, log)
}

/// State, reason and tries of each version's event.
async fn states(connection: &mut PgConnection) -> Vec<(String, String, i32)> {
    let states = "select state, coalesce(reason_code, ''), attempts from inbox order by sequence";
    let rows = sqlx::query(states).fetch_all(connection).await.expect("an inbox");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

fn state(state: &str, reason: &str, attempts: i32) -> (String, String, i32) {
    (state.to_owned(), reason.to_owned(), attempts)
}

/// As `POST /v1/staff/quarantine/…/skip` will.
const SKIPPED: &str = "update inbox set state = 'PROCESSED', reason_code = 'skipped' where state = 'QUARANTINED'";

#[tokio::test]
async fn what_was_held_back_has_eight_tries_of_its_own_and_is_looked_for_in_the_log() {
    let mut trial = Trial::new().await;
    trial.tolerate("division by zero");
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    let (id, log) = three_versions(&trial, &app).await;
    let poison = Some((id, Arc::new(AtomicUsize::new(usize::MAX))));
    let ordered = Consumer::of(&app, log, Tell::<true> { poison }, Hint::default());
    let mut connection = trial.connect().await;
    let eight_tries = async || {
        settle(&ordered).await;
        for _ in 0..8 {
            a_day_passes(&trial).await;
            settle(&ordered).await;
        }
    };
    eight_tries().await;
    let behind = || state("RETRYABLE", "held_behind", 0);
    let failed = || state("QUARANTINED", "handler_failed", 8);
    assert_eq!(states(&mut connection).await, [failed(), behind(), behind()]);
    trial.change(SKIPPED).await;
    eight_tries().await;
    let skipped = state("PROCESSED", "skipped", 8);
    assert_eq!(states(&mut connection).await, [skipped.clone(), failed(), behind()]);
    trial.change(SKIPPED).await;
    trial.change("delete from event_log where sequence = 3").await;
    a_day_passes(&trial).await;
    settle(&ordered).await;
    let gone = state("QUARANTINED", "gone_from_log", 1);
    assert_eq!(states(&mut connection).await, [skipped.clone(), skipped, gone]);
    assert_eq!(count(&mut connection, "select count(*) from staff_tasks").await, 3);
    assert_eq!(count(&mut connection, "select count(*) from told").await, 0);
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn an_event_whose_workers_never_come_back_is_a_task() {
    let mut trial = Trial::new().await;
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    let (_, log) = three_versions(&trial, &app).await;
    let any = Consumer::of(&app, log, Tell::<false>::default(), Hint::default());
    settle(&any).await;
    trial
        .change(
            "update inbox set state = 'PROCESSING', attempts = 8, token = gen_random_uuid(), decided_at = null,
               lease_until = clock_timestamp() - interval '1 second' where sequence = 2",
        )
        .await;
    settle(&any).await;
    let mut connection = trial.connect().await;
    assert_eq!(states(&mut connection).await[1], state("QUARANTINED", "ended_its_workers", 9));
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn what_an_outage_ended_was_no_try() {
    let mut trial = Trial::new().await;
    trial.tolerate("canceling statement");
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    trial.desk().say(&trial.book(Visit::default())).await.expect(201, "");
    let log = PostgresLog::of(&app);
    while log.relay().await.expect("relayed").events > 0 {}
    let any = Consumer::of(&app, log, Tell::<false>::default(), Hint::default());
    let mut holder = trial.connect().await;
    sqlx::raw_sql("begin; lock table told").execute(&mut holder).await.expect("locked");
    settle(&any).await;
    let mut connection = trial.connect().await;
    assert_eq!(states(&mut connection).await, [state("RETRYABLE", "database_away", 0)]);
    holder.close().await.expect("closed");
    a_day_passes(&trial).await;
    settle(&any).await;
    assert_eq!(states(&mut connection).await, [state("PROCESSED", "", 1)]);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn who_judged_an_event_without_the_one_that_a_twin_took_in_judges_again() {
    const CONSUMER: &str = "twins";
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    let (_, log) = three_versions(&trial, &app).await;
    log.join(CONSUMER).await.expect("joined");
    let events = log.read(CONSUMER).await.expect("read").events;
    let (now, ids) = (Clock::system().now(), Ids::random());
    let taking = move |own_try| Taking { consumer: CONSUMER, in_order: true, now, held: Duration::ZERO, own_try };
    let arrival = |logged| Arrival { logged, fault: None, task_id: Uuid::nil() };
    let mut twin = trial.connect().await;
    sqlx::raw_sql("begin").execute(&mut twin).await.expect("begun");
    let own_try = Some((ids.uuid(now), Duration::from_secs(9)));
    inbox::receive(&mut twin, taking(own_try), &[arrival(&events[0])]).await.expect("taken in");
    let (both, url) = (events[..2].to_vec(), trial.url());
    let mut judging = JoinSet::new();
    judging.spawn(async move {
        let named = url.parse::<sqlx::postgres::PgConnectOptions>().expect("a URL").application_name("oncebook");
        let mut connection = sqlx::ConnectOptions::connect(&named).await.expect("connected");
        let arrivals: Vec<Arrival<'_>> =
            both.iter().map(|logged| Arrival { logged, fault: None, task_id: Uuid::nil() }).collect();
        inbox::receive(&mut connection, taking(None), &arrivals).await
    });
    let mut eyes = trial.connect().await;
    eventually("it waits for the twin", async || waiting(&mut eyes).await.len() == 1).await;
    sqlx::raw_sql("commit").execute(&mut twin).await.expect("committed");
    let judged = judging.join_next().await.expect("one").expect("it ends");
    assert!(matches!(judged, Err(StoreError::Again(_))), "{judged:?}");
    drop((twin, eyes));
    trial.abandon();
}
