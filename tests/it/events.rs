//! From commit to effect: what the relay moves and what consumers do with it, however often and in whatever order it comes.
//! CONFORMANCE.md's cases 53 to 55.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use oncebook::app::App;
use oncebook::config::Role;
use oncebook::consumer::{Consumer, Handler};
use oncebook::domain::event::{Logged, Place};
use oncebook::hint::Hint;
use oncebook::log::postgres::PostgresLog;
use oncebook::log::{Away, Batch, EventLog};
use oncebook::store::StoreError;
use oncebook::store::log::Moved;
use oncebook::worker::{Did, Worker};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::time::sleep;
use uuid::Uuid;

use crate::app::{Setup, Trial, Visit, eventually, reschedule, step};
use crate::client::{Call, Desk};

/// A consumer whose effect is a row an event, in a table without any constraint: what is done twice shows.
#[derive(Default)]
pub(crate) struct Tell<const IN_ORDER: bool> {
    /// Fails at this subject's events, so many times.
    pub(crate) poison: Option<(Uuid, Arc<AtomicUsize>)>,
}

impl<const IN_ORDER: bool> Handler for Tell<IN_ORDER> {
    const CONSUMER: &'static str = if IN_ORDER { "in order" } else { "any order" };
    const IN_ORDER: bool = IN_ORDER;

    async fn apply(&self, connection: &mut PgConnection, events: &[&Logged], _: Timestamp) -> Result<(), StoreError> {
        let of = |part: fn(&Logged) -> Uuid| events.iter().map(|logged| part(logged)).collect::<Vec<_>>();
        let sequences: Vec<i32> = events.iter().map(|logged| logged.event.sequence).collect();
        let told = "insert into told (consumer, event_id, subject_id, sequence)
                    select $1, * from unnest($2::uuid[], $3::uuid[], $4::int[])";
        let told = sqlx::query(told).bind(Self::CONSUMER).bind(of(|it| it.event.id)).bind(of(|it| it.event.subject_id));
        told.bind(sequences).execute(&mut *connection).await?;
        let mut poison =
            self.poison.iter().filter(|(id, _)| events.iter().any(|logged| logged.event.subject_id == *id));
        if poison
            .any(|(_, left)| left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok())
        {
            sqlx::query("select 1 / 0").execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// A log that brings every batch twice, and the second time backwards.
struct Stutters(PostgresLog);

impl EventLog for Stutters {
    async fn relay(&self) -> Result<Moved, Away> {
        self.0.relay().await
    }

    async fn join(&self, group: &str) -> Result<(), Away> {
        self.0.join(group).await
    }

    async fn read(&self, group: &str) -> Result<Batch, Away> {
        let mut batch = self.0.read(group).await?;
        let again: Vec<_> = batch.events.iter().rev().cloned().collect();
        batch.events.extend(again);
        Ok(batch)
    }

    async fn commit(&self, group: &str, batch: &Batch) -> Result<bool, Away> {
        let half = batch.events.len() / 2;
        self.0.commit(group, &Batch { token: batch.token, events: batch.events[..half].to_vec() }).await
    }

    async fn find(&self, places: &[Place]) -> Result<Vec<Logged>, Away> {
        self.0.find(places).await
    }

    async fn lag(&self, group: &str) -> Result<Vec<(i16, i64)>, Away> {
        self.0.lag(group).await
    }

    async fn oldest(&self, group: &str) -> Result<Option<Timestamp>, Away> {
        self.0.oldest(group).await
    }
}

pub(crate) const TOLD: &str =
    "create table told (consumer text, event_id uuid, subject_id uuid, sequence int, at bigserial);
  create index on told (consumer, subject_id)";

fn log_of(app: &App) -> PostgresLog {
    PostgresLog::of(app)
}

/// Steps until there is nothing left to do.
pub(crate) async fn settle(worker: &impl Worker) {
    while Box::pin(worker.step()).await.expect("a step") == Did::Work {}
}

/// Books so many visits and moves each, cancels every third; tells their ids.
async fn busy(trial: &Trial, visits: usize) -> Vec<Uuid> {
    busy_at(trial, &trial.desk(), visits).await
}

/// The same at a desk of the caller's choice.
pub(crate) async fn busy_at(trial: &Trial, desk: &Desk, visits: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..visits {
        let id = desk.say(&trial.book(Visit { slot: n * 2, ..Visit::default() })).await.expect(201, "").id();
        desk.say(&reschedule(id, n * 2 + 1)).await.expect(200, "");
        if n % 3 == 0 {
            desk.say(&step(id, "cancel")).await.expect(200, "");
        }
        ids.push(id);
    }
    ids
}

pub(crate) async fn count(connection: &mut PgConnection, of: &'static str) -> i64 {
    sqlx::query_scalar(of).fetch_one(connection).await.expect("a count")
}

/// The feed of changes, in pages, to its end.
pub(crate) async fn read_all(trial: &Trial, desk: &Desk) -> Vec<Value> {
    let (mut changes, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/changes?clinic_id={}&limit=10{after}", trial.demo.clinic_id);
        let page = desk.say(&Call::get(path)).await.expect(200, "").json();
        let items = page["items"].as_array().expect("items").clone();
        if items.is_empty() {
            return changes;
        }
        changes.extend(items);
        after = format!("&after={}", page["next"].as_str().expect("where to go on"));
    }
}

/// Effects that are still to come.
pub(crate) const LEFT: &str = "select (select count(*) from outbox) + (
  select count(*) from event_log l cross join consumers c
  where not exists (
    select from inbox i
    where i.event_id = l.event_id and i.logical_consumer_id = c.logical_consumer_id and i.state = 'PROCESSED'))";

pub(crate) const TWICE: &str =
    "select count(*) from (select from told group by consumer, event_id having count(*) > 1) as twice";
pub(crate) const UNTOLD: &str = "select count(*) from event_log l where not exists (
  select from told t where t.event_id = l.event_id and t.consumer = 'in order')";
pub(crate) const BACKWARDS: &str = "select count(*) from told a join told b
  on b.consumer = a.consumer and b.subject_id = a.subject_id and b.at > a.at and b.sequence < a.sequence
  where a.consumer = 'in order'";

#[tokio::test]
async fn what_is_committed_reaches_its_consumer() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    busy(&trial, 12).await;
    let mut connection = trial.connect().await;
    eventually("every event is processed", async || {
        count(&mut connection, "select count(*) from inbox where state = 'PROCESSED'").await == 84
    })
    .await;
    assert_eq!(count(&mut connection, "select count(*) from outbox").await, 0);
    let untrue = "select count(*) from notification_intents n join appointments a
      on a.tenant_id = n.tenant_id and a.id = n.appointment_id
      where (n.state = 'PENDING') <> (n.schedule_version = a.schedule_version)";
    assert_eq!(count(&mut connection, untrue).await, 0, "what was overtaken is not told, and what was not is");
    let changes = read_all(&trial, &trial.desk()).await;
    assert_eq!(changes.len(), 28);
    let mut last = std::collections::HashMap::new();
    for change in &changes {
        let (subject, sequence) = (change["subject"].to_string(), change["sequence"].as_i64().expect("a number"));
        assert_eq!(last.insert(subject, sequence).unwrap_or(0) + 1, sequence, "{change}");
        assert_eq!((&change["specversion"], &change["clinicid"]), (&"1.0".into(), &json!(trial.demo.clinic_id)));
        assert!(change["data"].get("note").is_none() && change["data"].get("patient_id").is_none(), "{change}");
    }
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_53_killed_at_any_moment_every_event_has_its_effect_once() {
    let trial = Trial::new().await;
    let all = [("ONCEBOOK_ROLES", "api,relay,consumers")];
    let visit = AtomicUsize::new(0);
    for round in 0..4 {
        let process = trial.process_with(&trial.url(), &all).await;
        let desk = trial.desk_at(&process.base);
        let killed = async {
            let enough = visit.load(Ordering::SeqCst) + 10;
            eventually("some are booked", async || visit.load(Ordering::SeqCst) >= enough).await;
            sleep(Duration::from_millis(130 * round)).await;
            process.kill().await;
        };
        let busy = async {
            // Until nobody answers any more.
            loop {
                let slot = visit.fetch_add(1, Ordering::SeqCst);
                let Ok(heard) = desk.try_say(&trial.book(Visit { slot, ..Visit::default() })).await else { break };
                heard.expect(201, "");
            }
        };
        tokio::join!(killed, busy);
    }
    let process = trial.process_with(&trial.url(), &all).await;
    let mut connection = trial.connect().await;
    eventually("every event is processed by both", async || count(&mut connection, LEFT).await == 0).await;
    let doubled = "select count(*) from (select from changes group by event_id having count(*) > 1) as doubled";
    assert_eq!(count(&mut connection, doubled).await, 0);
    let missing =
        "select count(*) from event_log l where not exists (select from changes c where c.event_id = l.event_id)";
    assert_eq!(count(&mut connection, missing).await, 0);
    assert!(count(&mut connection, "select count(*) from changes").await > 30);
    process.stop().await;
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_54_delivered_twice_and_backwards_it_is_done_once_and_in_order() {
    let mut trial = Trial::new().await;
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    busy(&trial, 12).await;
    let log = log_of(&app);
    while log.relay().await.expect("relayed").events > 0 {}
    let any = Consumer::of(&app, Stutters(log.clone()), Tell::<false>::default(), Hint::default());
    let ordered = Consumer::of(&app, Stutters(log.clone()), Tell::<true>::default(), Hint::default());
    // Two of each at once, as two processes would be.
    let other = Consumer::of(&app, Stutters(log), Tell::<true>::default(), Hint::default());
    tokio::join!(settle(&any), settle(&ordered), settle(&other));
    settle(&ordered).await;
    let mut connection = trial.connect().await;
    assert_eq!(count(&mut connection, TWICE).await, 0);
    assert_eq!(count(&mut connection, UNTOLD).await, 0);
    assert_eq!(count(&mut connection, BACKWARDS).await, 0);
    assert_eq!(count(&mut connection, "select count(*) from told").await, 56);
    drop(connection);
    trial.end().await;
}

/// As if a day had passed for whatever waits to be tried again.
pub(crate) async fn a_day_passes(trial: &Trial) {
    trial
        .change("update inbox set next_attempt_at = next_attempt_at - interval '1 day' where state = 'RETRYABLE'")
        .await;
}

#[tokio::test]
async fn case_55_a_poisoned_event_holds_back_its_own_subject_only_and_then_is_a_task() {
    let mut trial = Trial::new().await;
    trial.tolerate("division by zero");
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    let ids = busy(&trial, 6).await;
    let log = log_of(&app);
    while log.relay().await.expect("relayed").events > 0 {}
    let poison = || Some((ids[0], Arc::new(AtomicUsize::new(usize::MAX))));
    let ordered = Consumer::of(&app, log.clone(), Tell::<true> { poison: poison() }, Hint::default());
    settle(&ordered).await;
    let mut connection = trial.connect().await;
    let mut of = async |state: &str, reason: &str| -> i64 {
        let of = "select count(*) from inbox where logical_consumer_id = 'in order' and state = $1
          and coalesce(reason_code, '') = $2";
        sqlx::query_scalar(of).bind(state).bind(reason).fetch_one(&mut connection).await.expect("a count")
    };
    assert_eq!(of("PROCESSED", "").await, 11, "all others");
    assert_eq!((of("RETRYABLE", "handler_failed").await, of("RETRYABLE", "held_behind").await), (1, 2));
    for _ in 0..7 {
        a_day_passes(&trial).await;
        settle(&ordered).await;
    }
    assert_eq!((of("QUARANTINED", "handler_failed").await, of("RETRYABLE", "held_behind").await), (1, 2));
    assert_eq!(
        count(&mut connection, "select count(*) from staff_tasks where reason_code = 'handler_failed'").await,
        1
    );
    assert_eq!(count(&mut connection, "select attempts::bigint from inbox where state = 'QUARANTINED'").await, 8);
    assert_eq!(
        count(&mut connection, "select max(attempts)::bigint from inbox where reason_code = 'held_behind'").await,
        0
    );
    assert_eq!(count(&mut connection, TWICE).await, 0, "what a try that failed did is undone");
    // The one that wants no order does the same event's successors meanwhile, and the event itself once it can.
    let any = Consumer::of(
        &app,
        log,
        Tell::<false> { poison: Some((ids[0], Arc::new(AtomicUsize::new(2)))) },
        Hint::default(),
    );
    settle(&any).await;
    for _ in 0..3 {
        a_day_passes(&trial).await;
        settle(&any).await;
    }
    assert_eq!(count(&mut connection, "select count(*) from told where consumer = 'any order'").await, 14);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn what_is_not_what_it_should_be_is_quarantined_at_once() {
    let mut trial = Trial::new().await;
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    busy(&trial, 5).await;
    let log = log_of(&app);
    while log.relay().await.expect("relayed").events > 0 {}
    trial
        .change(
            "update event_log set type = 'appointment.teleported' where event_id = (select event_id from event_log where type = 'appointment.cancelled' order by event_id limit 1);
             update event_log set payload = payload - 'start' where event_id = (select event_id from event_log where type = 'appointment.rescheduled' order by event_id limit 1);
             update event_log set tenant_id = gen_random_uuid() where event_id = (select event_id from event_log where type = 'appointment.booked' order by event_id limit 1);
             update event_log set clinic_id = gen_random_uuid() where event_id = (select event_id from event_log where type = 'appointment.booked' order by event_id desc limit 1)",
        )
        .await;
    let any = Consumer::of(&app, log, Tell::<false>::default(), Hint::default());
    settle(&any).await;
    let mut connection = trial.connect().await;
    let reasons: Vec<String> = sqlx::query_scalar("select reason_code from staff_tasks order by reason_code")
        .fetch_all(&mut connection)
        .await
        .expect("tasks");
    assert_eq!(reasons, ["bad_schema", "no_such_version", "unknown_type", "wrong_clinic"]);
    assert_eq!(count(&mut connection, "select count(*) from told").await, 8);
    drop(connection);
    trial.abandon();
}
