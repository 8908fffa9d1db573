//! What becomes of a key: under a panic, under an older fingerprint, at the end of its retention, under the purge.
//! CONFORMANCE.md's cases 27, 33, 44 and 45. And of the counts of its replays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx;
use oncebook::clock::Clock;
use oncebook::command::block::Block;
use oncebook::command::ground::Fresh;
use oncebook::command::registry::Registry;
use oncebook::command::{Command, Decision, Moment, claim};
use oncebook::domain::access::Permission;
use oncebook::domain::fingerprint::Fingerprint;
use oncebook::domain::problem::Code;
use oncebook::domain::refusal::Refusal;
use oncebook::domain::time::Span;
use oncebook::janitor::{Flusher, Janitor};
use oncebook::store::look::Question;
use oncebook::worker::{Did, Worker};
use serde_json::json;
use sqlx::PgConnection;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::{Setup, Trial, Visit, asked, slot, step};
use crate::clean::{done_by, hash, stored};
use crate::client::Call;
use crate::faults::at_once;
use crate::hold::Hold;

/// A block whose decision panics, once, when so many wait for it.
#[derive(Clone)]
struct Stumbling {
    block: Block,
    stumbles: Arc<AtomicBool>,
    registry: Registry,
    waiters: usize,
}

impl Command for Stumbling {
    type Ground = Fresh;

    fn operation(&self) -> &'static str {
        "stumble"
    }

    fn permission(&self) -> Permission {
        self.block.permission()
    }

    fn lane(&self) -> Uuid {
        self.block.lane()
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        self.block.fields(fingerprint);
    }

    fn look(&self) -> Question {
        self.block.look()
    }

    fn decide(&self, ground: &Fresh, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        if self.stumbles.swap(false, Ordering::SeqCst) {
            // A decision does not wait, and a thread of the runtime that did would keep others from coming.
            tokio::task::block_in_place(|| {
                while self.registry.load().1 < self.waiters {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            panic!("a decision that panics, as a trial wants it");
        }
        self.block.decide(ground, moment)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_27_a_panic_is_500_for_all_who_wait_and_the_key_is_free() {
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    let block = Block {
        clinic_id: trial.demo.clinic_id,
        practitioner_id: Some(trial.demo.practitioner_ids[0]),
        operatory_id: None,
        during: Span { start: slot(0), end: slot(2) },
        reason: None,
    };
    let registry = app.commands.registry.clone();
    let command = Stumbling { block, stumbles: Arc::new(AtomicBool::new(true)), registry, waiters: 7 };
    let request = asked(&trial.demo.api_keys.front_desk, "stumbling");
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let (app, request, command) = (Arc::clone(&app), request.clone(), command.clone());
        asking.spawn(async move { app.commands.execute(request, command).await });
    }
    for answer in asking.join_all().await {
        assert_eq!(answer.expect_err("it panicked").code, Code::Internal);
    }
    let mut connection = trial.connect().await;
    assert_eq!(stored(&mut connection, "stumbling").await, None);
    assert!(app.commands.lanes.is_empty());
    let answer = app.commands.execute(request.clone(), command.clone()).await.expect("it executes");
    assert_eq!((answer.reply.status, answer.replayed), (201, false));
    assert!(app.commands.execute(request, command).await.expect("it is there").replayed);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_33_a_row_of_an_older_fingerprint_still_replays() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let mut connection = trial.connect().await;
    let block = |reason: &str| {
        let (start, end) = (slot(0), slot(1));
        let (clinic, practitioner) = (trial.demo.clinic_id, trial.demo.practitioner_ids[0]);
        let during = Span { start, end };
        let reason = Some(reason.to_owned());
        let command =
            Block { clinic_id: clinic, practitioner_id: Some(practitioner), operatory_id: None, during, reason };
        let body = json!({
            "clinic_id": clinic, "practitioner_id": practitioner, "start": start, "end": end, "reason": command.reason,
        });
        (command, Call::post("/v1/blocks", body).key("older"))
    };
    let (command, call) = block("lunch");
    trial.desk().say(&call).await.expect(201, "");
    let request = asked(&trial.demo.api_keys.front_desk, "older");
    let older = claim::fingerprint(&command, &request, 1).expect("version 1 is known");
    let statement = "update idempotency_keys set fingerprint = $1, fingerprint_version = $2 where key_hash = $3";
    let as_if = async |connection: &mut PgConnection, fingerprint: &[u8], version: i16| {
        let update = sqlx::query(statement).bind(fingerprint).bind(version).bind(hash("older"));
        assert_eq!(update.execute(connection).await.expect("aged").rows_affected(), 1);
    };
    as_if(&mut connection, &older, 1).await;
    assert!(trial.desk().say(&call).await.expect(201, "").replayed());
    trial.desk().say(&block("leave").1).await.expect(409, "idempotency_key_reused");
    // One of a newer release is that release's to answer.
    as_if(&mut connection, &older, 99).await;
    trial.desk().say(&call).await.expect(503, "unavailable");
    drop(connection);
    trial.end().await;
}

/// Moves a key's end.
async fn expires(connection: &mut PgConnection, key: &str, at: Timestamp) {
    let update = sqlx::query("update idempotency_keys set expires_at = $1 where key_hash = $2");
    let done = update.bind(at.to_sqlx()).bind(hash(key)).execute(connection).await.expect("moved");
    assert_eq!(done.rows_affected(), 1);
}

#[tokio::test]
async fn case_44_a_key_ends_when_its_retention_does_by_both_clocks() {
    let mut trial = Trial::new().await;
    trial.keys_expire();
    let now = Clock::system().now();
    let moment = SignedDuration::from_micros(1);
    let clock = Clock::frozen(now);
    for _ in 0..2 {
        trial.serve(Setup { clock: clock.clone(), ..trial.setup() }).await;
    }
    let desks: Vec<_> = trial.services().iter().map(|it| trial.desk_at(&it.base)).collect();
    let mut connection = trial.connect().await;
    let call = trial.book(Visit::default()).key("ending");
    let first = desks[0].say(&call).await.expect(201, "");
    // The same body would find its own first visit there.
    desks[0].say(&step(first.id(), "cancel")).await.expect(200, "");

    // An hour ago for the database; for the process, a moment from now.
    let end = now - SignedDuration::from_hours(1);
    expires(&mut connection, "ending", end).await;
    clock.set(end - moment);
    assert!(desks[0].say(&call).await.expect(201, "").replayed(), "just before");
    // And the other way round: the process's clock is ahead of the database's, which does not agree.
    expires(&mut connection, "ending", now + SignedDuration::from_hours(1)).await;
    clock.set(now + SignedDuration::from_hours(2));
    assert!(desks[0].say(&call).await.expect(201, "").replayed(), "one clock is not enough");

    expires(&mut connection, "ending", end).await;
    clock.set(end);
    let mut asking = JoinSet::new();
    for n in 0..20 {
        let (desk, call) = (desks[n % 2].clone(), call.clone());
        asking.spawn(async move { desk.say(&call).await.expect(201, "") });
    }
    let heard = asking.join_all().await;
    let owners: Vec<_> = heard.iter().filter(|heard| !heard.replayed()).collect();
    assert_eq!(owners.len(), 1);
    assert_ne!(owners[0].id(), first.id(), "a new command");
    assert!(heard.iter().all(|heard| heard.body == owners[0].body));
    assert_eq!(done_by(&mut connection, "ending").await, 2);

    // A refusal ends too, and the corrected circumstances count.
    let refused = trial.book(Visit { patient: 1, ..Visit::default() }).key("refused");
    desks[0].say(&refused).await.expect(409, "slot_taken");
    desks[1].say(&step(owners[0].id(), "cancel")).await.expect(200, "");
    desks[0].say(&refused).await.expect(409, "slot_taken");
    expires(&mut connection, "refused", end).await;
    assert!(!desks[0].say(&refused).await.expect(201, "").replayed());
    drop(connection);
    trial.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_45_the_purge_runs_while_keys_are_used() {
    let mut trial = Trial::new().await;
    trial.keys_expire();
    let app = trial.serve(trial.setup()).await;
    let mut connection = trial.connect().await;
    // More than a step of the purge takes, all of them past their time, and none of them a booking: those of the keys in use
    // are moved below, and what is being moved is not purged.
    let aged = "insert into idempotency_keys select tenant_id, clinic_id, sha256(n::text::bytea), fingerprint,
                  fingerprint_version, 'cancel', status, headers, body, created_at, '2020-01-01'
                from (select * from idempotency_keys limit 1) as one, generate_series(1, 2500) as n";
    let calls: Vec<_> = (0..8).map(|practitioner| trial.book(Visit { practitioner, ..Visit::default() })).collect();
    at_once(&trial.desk(), calls.clone()).await.into_iter().for_each(|heard| drop(heard.expect(201, "")));
    sqlx::query(aged).execute(&mut connection).await.expect("aged keys");

    let (busy, steps) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let mut purging = JoinSet::new();
    for _ in 0..2 {
        let (janitor, busy, steps) = (Janitor(Arc::clone(&app)), Arc::clone(&busy), Arc::clone(&steps));
        purging.spawn(async move {
            while busy.load(Ordering::SeqCst) {
                let did = janitor.step().await.expect("a step");
                steps.fetch_add(usize::from(did == Did::Work), Ordering::SeqCst);
            }
        });
    }
    let desk = trial.desk();
    for round in 0..10 {
        // Keys in use end at every moment: before, during and after the look, the purge and the forgetting.
        sqlx::query(
            "update idempotency_keys set expires_at = statement_timestamp() + n * interval '1 millisecond'
                     from (select key_hash as k, row_number() over () % 20 as n from idempotency_keys) as ends
                     where key_hash = k and operation = 'book'",
        )
        .execute(&mut connection)
        .await
        .expect("ending");
        for heard in at_once(&desk, calls.iter().chain(&calls).cloned()).await {
            // A replay, or a new command that finds the visit there.
            let fine = heard.status == 201 || heard.gist() == (409, "duplicate_intent".to_owned());
            assert!(fine, "{round}: {heard:?}");
        }
    }
    busy.store(false, Ordering::SeqCst);
    purging.join_all().await;
    assert!(steps.load(Ordering::SeqCst) >= 2, "full batches were purged");
    let left: i64 = sqlx::query_scalar("select count(*) from idempotency_keys where expires_at < '2021-01-01'")
        .fetch_one(&mut connection)
        .await
        .expect("a count");
    assert_eq!(left, 0);

    // A key somebody is at is left for the next time, and the others are not kept waiting for it.
    for key in ["at-work", "idle"] {
        trial.desk().say(&trial.book(Visit { slot: 9, ..Visit::default() }).key(key)).await;
        expires(&mut connection, key, "2020-01-01T00:00:00Z".parse().expect("a time")).await;
    }
    let hold = Hold::key(&trial, "at-work").await;
    tokio::time::timeout(Duration::from_secs(1), Janitor(app).step()).await.expect("at once").expect("a step");
    assert!(stored(&mut connection, "idle").await.is_none() && stored(&mut connection, "at-work").await.is_some());
    hold.let_go().await;
    drop(connection);
    trial.end().await;
}

async fn sum_of_counts(connection: &mut PgConnection) -> i64 {
    let sum = sqlx::query_scalar("select coalesce(sum(replayed), 0) from replay_counts").fetch_one(connection);
    sum.await.expect("a sum")
}

#[tokio::test]
async fn replays_are_counted_though_a_flush_fails_and_forgotten_after_a_year() {
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    trial.tolerate("relation \"replay_counts\" does not exist");
    let mut connection = trial.connect().await;
    let call = trial.book(Visit::default());
    trial.desk().say(&call).await.expect(201, "");
    let flusher = Flusher(Arc::clone(&app));
    for flushed in [false, true] {
        assert!(trial.desk().say(&call).await.expect(201, "").replayed());
        if flushed {
            flusher.step().await.expect("a step");
            continue;
        }
        trial.change("alter table replay_counts rename to out_of_reach").await;
        flusher.step().await.expect_err("nowhere to write");
        trial.change("alter table out_of_reach rename to replay_counts").await;
    }
    assert_eq!(sum_of_counts(&mut connection).await, 2);

    // More than a step takes, beyond what is kept; and one just within.
    let aged = "insert into replay_counts select tenant_id, clinic_id, minute - n * interval '1 minute', 1
                from replay_counts, generate_series(399 * 1440, 401 * 1440) as n where n > 400 * 1440 or n = 399 * 1440";
    sqlx::query(aged).execute(&mut connection).await.expect("aged counts");
    let janitor = Janitor(app);
    assert_eq!(janitor.step().await.expect("a step"), Did::Work, "a full batch");
    while janitor.step().await.expect("a step") == Did::Work {}
    assert_eq!(sum_of_counts(&mut connection).await, 3);
    drop(connection);
    trial.end().await;
}
