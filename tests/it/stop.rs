//! A process is asked to go while its workers are in the middle of something: what is in hand is finished, once; what cannot
//! be is let go in bounded time, and nothing of it is lost.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::app::{Trial, Visit, eventually};
use crate::events::{LEFT, count};
use crate::hold::waiting;
use crate::process::Process;

const ROLES: [(&str, &str); 1] = [("ONCEBOOK_ROLES", "api,relay,consumers")];

/// A step in hand has 8 seconds, its connections and the last counts a few more.
const BOUNDED: Duration = Duration::from_secs(15);

/// What the relay waits for: the log takes nothing in.
const LOG: &str = "begin; lock table event_log in share mode";
/// What the consumer of changes waits for: the row of the clinic's feed.
const FEED: &str = "begin; select from change_feeds for update";

const IN_LOG: &str = "select count(*) from event_log";
const CHANGED: &str = "select count(*) from changes";
const LEASED: &str = "select count(*) from log_groups where token is not null";

/// A process that has booked once, and whose next step is held up by what another session holds.
struct Held {
    trial: Trial,
    process: Process,
    holder: PgConnection,
    watching: PgConnection,
}

impl Held {
    async fn by(what: &'static str) -> Self {
        let trial = Trial::new().await;
        let process = trial.process_with(&trial.url(), &ROLES).await;
        let (mut holder, mut watching) = (trial.connect().await, trial.connect().await);
        let desk = trial.desk_at(&process.base);
        desk.say(&trial.book(Visit::default())).await.expect(201, "");
        // The feed has a row once it has a change.
        all_done(&mut watching, 1).await;
        sqlx::raw_sql(what).execute(&mut holder).await.expect("held");
        for n in 1..6 {
            desk.say(&trial.book(Visit { slot: 8 * n, ..Visit::default() })).await.expect(201, "");
        }
        eventually("a step waits", async || !waiting(&mut watching).await.is_empty()).await;
        Self { trial, process, holder, watching }
    }

    async fn let_go(holder: PgConnection) {
        // Its transaction ends with it.
        holder.close().await.expect("closed");
    }
}

async fn all_done(connection: &mut PgConnection, bookings: i64) {
    eventually("every event has its effects", async || count(connection, LEFT).await == 0).await;
    eventually("nobody is at work", async || count(connection, LEASED).await == 0).await;
    assert_eq!((count(connection, IN_LOG).await, count(connection, CHANGED).await), (bookings, bookings));
    assert_eq!(count(connection, "select count(*) from outbox").await, 0);
    assert_eq!(count(connection, "select count(distinct event_id) from changes").await, bookings);
}

/// How often anything was tried, or came again, in a process that has just started and settled.
async fn repeated(process: &Process) -> Vec<String> {
    let text = reqwest::get(format!("{}/metrics", process.base)).await.expect("an answer").text().await.expect("text");
    let repeats = text.lines().filter(|line| line.contains("DUPLICATE") || line.contains("attempts_total{"));
    repeats.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_step_in_hand_is_finished_and_not_done_again() {
    for what in [LOG, FEED] {
        let Held { trial, process, holder, mut watching } = Held::by(what).await;
        let written = if what == LOG { IN_LOG } else { CHANGED };
        let before = count(&mut watching, written).await;
        process.signal("TERM").await;
        // It has heard by now, and goes on waiting.
        eventually("it takes no more requests", async || reqwest::get(&process.base).await.is_err()).await;
        assert!(!waiting(&mut watching).await.is_empty(), "{what}");
        Held::let_go(holder).await;
        let began = Instant::now();
        process.gone().await;
        assert!(began.elapsed() < BOUNDED, "{what}: {:?}", began.elapsed());

        assert!(count(&mut watching, written).await > before, "{what}: what was in hand stands");
        assert_eq!(count(&mut watching, LEASED).await, 0, "{what}: the batch was moved past, not left to its lease");
        let process = trial.process_with(&trial.url(), &ROLES).await;
        all_done(&mut watching, 6).await;
        assert_eq!(repeated(&process).await, Vec::<String>::new(), "{what}");
        process.stop().await;
        drop(watching);
        trial.end().await;
    }
}

#[tokio::test]
async fn a_step_that_cannot_end_is_let_go_and_nothing_is_lost() {
    for what in [LOG, FEED] {
        let Held { mut trial, process, holder, mut watching } = Held::by(what).await;
        // Below the workers' own bounds there is Postgres's.
        trial.tolerate("canceling statement due to statement timeout");
        let written = if what == LOG { IN_LOG } else { CHANGED };
        let before = count(&mut watching, written).await;
        process.signal("TERM").await;
        let began = Instant::now();
        process.gone().await;
        assert!(began.elapsed() < BOUNDED, "{what}: {:?}", began.elapsed());
        eventually("its sessions are gone", async || waiting(&mut watching).await.is_empty()).await;
        assert_eq!(count(&mut watching, written).await, before, "{what}: nothing stands of what could not end");
        Held::let_go(holder).await;
        // A try that was let go is taken up when its lease is over, ten seconds after it began.
        trial.change("update inbox set lease_until = clock_timestamp() where state = 'PROCESSING'").await;
        let process = trial.process_with(&trial.url(), &ROLES).await;
        all_done(&mut watching, 6).await;
        process.stop().await;
        drop(watching);
        trial.end().await;
    }
}
