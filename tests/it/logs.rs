//! What every event log must keep: one suite for both of them, through the trait. Each case asks for as many logs as it wants;
//! each is another process's.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use oncebook::app::App;
#[cfg(feature = "kafka")]
use oncebook::config::{Kafka, Properties};
use oncebook::domain::event::{Logged, Place};
#[cfg(feature = "kafka")]
use oncebook::hint::Hint;
#[cfg(feature = "kafka")]
use oncebook::log::kafka::{KafkaLog, Link};
use oncebook::log::postgres::PostgresLog;
use oncebook::log::{Batch, EventLog};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::app::{Trial, Visit, eventually};
use crate::events::busy_at;

/// Where a case gets its logs.
trait Logs {
    type Log: EventLog + Clone;

    async fn new() -> Self;

    fn log(&self, app: &App) -> Self::Log;

    /// Before a trial ends.
    async fn done(self, trial: &Trial);
}

struct OnPostgres;

impl Logs for OnPostgres {
    type Log = PostgresLog;

    async fn new() -> Self {
        Self
    }

    fn log(&self, app: &App) -> PostgresLog {
        PostgresLog::of(app)
    }

    async fn done(self, _: &Trial) {}
}

#[cfg(feature = "kafka")]
struct OnKafka(Kafka);

#[cfg(feature = "kafka")]
impl Logs for OnKafka {
    type Log = KafkaLog;

    async fn new() -> Self {
        let way = crate::broker::shared().await;
        // This broker says that a topic ends behind the first event of its last batch, and lag is counted from the end: here a
        // batch is one event. Batches are the trials' of `kafka.rs`.
        let alone = Properties(vec![("batch.num.messages".to_owned(), "1".to_owned())]);
        Self(Kafka { properties: Some(alone), ..way })
    }

    fn log(&self, app: &App) -> KafkaLog {
        KafkaLog::of(app, Link::of(&self.0), Hint::default())
    }

    async fn done(self, trial: &Trial) {
        let mut connection = trial.connect().await;
        crate::broker::bring_home(&mut connection, &self.0).await;
    }
}

macro_rules! on_both {
    ($($case:ident)*) => {
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                super::$case::<super::OnPostgres>().await;
            })*
        }

        #[cfg(feature = "kafka")]
        mod on_kafka {
            $(#[tokio::test]
            async fn $case() {
                super::$case::<super::OnKafka>().await;
            })*
        }
    };
}

on_both! {
    every_event_comes_once_and_in_the_order_of_its_subject
    rival_relays_lose_nothing
    a_lower_position_that_commits_late_is_neither_lost_nor_late
    a_group_goes_on_where_it_committed
    what_one_holds_another_does_not_get_until_it_is_dead
    a_late_commit_moves_nothing
    reads_by_place_move_nobody
    each_group_is_on_its_own_and_begins_with_the_oldest
}

/// Moves all there is.
async fn relay_all(log: &impl EventLog) {
    while log.relay().await.expect("relayed").events > 0 {}
}

/// Reads until so many different events have come; commits as it goes. Longer than `eventually`: while one reader leaves and
/// another joins, a broker may give both of them a session's time, and again.
async fn read_on(log: &impl EventLog, group: &str, events: usize) -> Vec<Logged> {
    let (mut read, patience) = (Vec::new(), Instant::now() + Duration::from_mins(1));
    while ids(&read).len() < events {
        assert!(Instant::now() < patience, "{} of {events} have come", ids(&read).len());
        let batch = log.read(group).await.expect("read");
        if batch.events.is_empty() {
            sleep(Duration::from_millis(2)).await;
            continue;
        }
        assert!(log.commit(group, &batch).await.expect("committed"), "nobody else reads");
        read.extend(batch.events);
    }
    read
}

/// Reads whatever comes within a second, and holds it.
async fn hold(log: &impl EventLog, group: &str) -> Vec<Batch> {
    let (mut held, until) = (Vec::new(), Instant::now() + Duration::from_secs(1));
    while Instant::now() < until {
        let batch = log.read(group).await.expect("read");
        if batch.events.is_empty() {
            sleep(Duration::from_millis(20)).await;
        } else {
            held.push(batch);
        }
    }
    held
}

fn ids<'a>(events: impl IntoIterator<Item = &'a Logged>) -> HashSet<Uuid> {
    events.into_iter().map(|logged| logged.event.id).collect()
}

async fn lag(log: &impl EventLog, group: &str) -> i64 {
    log.lag(group).await.expect("told").iter().map(|(_, lag)| lag).sum()
}

/// Each event, where it first came, is the next of its subject; and their offsets rise.
fn in_order(events: &[Logged]) {
    let (mut sequences, mut offsets) = (HashMap::new(), HashMap::new());
    for Logged { place, event } in events {
        let last = offsets.insert(place.partition, place.offset);
        assert!(last.is_none_or(|last| last < place.offset), "{place:?} after {last:?}");
        let known = sequences.entry(event.subject_id).or_insert(0);
        assert!(event.sequence <= *known + 1, "{event:?} after {known}");
        *known = event.sequence.max(*known);
    }
}

async fn every_event_comes_once_and_in_the_order_of_its_subject<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 12).await;
    let log = logs.log(&app);
    relay_all(&log).await;
    log.join("all").await.expect("joined");
    assert_eq!(lag(&log, "all").await, 28);
    let read = read_on(&log, "all", 28).await;
    in_order(&read);
    assert_eq!((read.len(), ids(&read).len()), (28, 28), "without rivals nothing comes twice");
    assert_eq!(lag(&log, "all").await, 0);
    assert!(hold(&log, "all").await.is_empty(), "nothing is left");
    drop(log);
    logs.done(&trial).await;
    trial.end().await;
}

async fn rival_relays_lose_nothing<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    let (one, other) = (logs.log(&app), logs.log(&app));
    let relays = async {
        let rounds = async |log: &L::Log| {
            for _ in 0..40 {
                log.relay().await.expect("relayed");
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::join!(rounds(&one), rounds(&other));
    };
    let desk = trial.desk();
    tokio::join!(busy_at(&trial, &desk, 18), relays);
    eventually("the outbox is empty", async || {
        let both = tokio::join!(one.relay(), other.relay());
        both.0.expect("relayed").events + both.1.expect("relayed").events == 0
    })
    .await;
    one.join("all").await.expect("joined");
    let read = read_on(&one, "all", 42).await;
    in_order(&read);
    assert_eq!(ids(&read).len(), 42);
    drop((one, other));
    logs.done(&trial).await;
    trial.end().await;
}

async fn a_lower_position_that_commits_late_is_neither_lost_nor_late<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    // Of 17 subjects, two share a partition.
    for slot in 0..17 {
        trial.desk().say(&trial.book(Visit { slot, ..Visit::default() })).await.expect(201, "");
    }
    let mut late = trial.connect().await;
    sqlx::raw_sql(
        "create table late as select * from outbox o
         where exists (select from outbox h where h.partition = o.partition and h.position > o.position);
         delete from outbox where position in (select position from late)",
    )
    .execute(&mut late)
    .await
    .expect("as if they were not committed yet");
    sqlx::raw_sql(
        "begin;
         insert into outbox (position, event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, occurred_at)
         overriding system value
         select position, event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, occurred_at from late",
    )
    .execute(&mut late)
    .await
    .expect("lower positions, not committed yet");
    let log = logs.log(&app);
    relay_all(&log).await;
    log.join("all").await.expect("joined");
    let first = log.lag("all").await.expect("told").iter().map(|(_, lag)| *lag).sum::<i64>();
    assert!((1..17).contains(&first), "{first} are there already");
    let early = read_on(&log, "all", usize::try_from(first).expect("a few")).await;
    sqlx::raw_sql("commit").execute(&mut late).await.expect("committed");
    // At once, with the next step, and behind what was read already.
    log.relay().await.expect("relayed");
    let rest = read_on(&log, "all", 17 - early.len()).await;
    assert_eq!(ids(early.iter().chain(&rest)).len(), 17);
    drop((log, late));
    logs.done(&trial).await;
    trial.end().await;
}

async fn a_group_goes_on_where_it_committed<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 6).await;
    let log = logs.log(&app);
    relay_all(&log).await;
    log.join("all").await.expect("joined");
    let before = read_on(&log, "all", 14).await;
    drop(log);
    for slot in 40..44 {
        trial.desk().say(&trial.book(Visit { slot, ..Visit::default() })).await.expect(201, "");
    }
    let next = logs.log(&app);
    relay_all(&next).await;
    next.join("all").await.expect("joined");
    assert_eq!(lag(&next, "all").await, 4);
    let after = read_on(&next, "all", 4).await;
    assert_eq!((after.len(), ids(&before).intersection(&ids(&after)).count()), (4, 0));
    drop(next);
    logs.done(&trial).await;
    trial.end().await;
}

async fn what_one_holds_another_does_not_get_until_it_is_dead<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 6).await;
    let first = logs.log(&app);
    relay_all(&first).await;
    let before = app.tasks.len();
    first.join("all").await.expect("joined");
    let mut held = Vec::new();
    eventually("everything is held", async || {
        held.extend(first.read("all").await.expect("read").events);
        ids(&held).len() == 14
    })
    .await;
    // A second worker in the same process.
    let beside = first.clone();
    assert!(beside.read("all").await.expect("read").events.is_empty());
    assert_eq!(lag(&first, "all").await, 14, "nothing of it is committed");
    drop((first, beside));
    // Out of its group: what a reader that is killed leaves behind is the trials' of processes.
    eventually("it is gone", async || app.tasks.len() <= before).await;
    let second = logs.log(&app);
    second.join("all").await.expect("joined");
    let again = read_on(&second, "all", 14).await;
    in_order(&again);
    assert_eq!(ids(&again), ids(&held));
    drop(second);
    logs.done(&trial).await;
    trial.end().await;
}

async fn a_late_commit_moves_nothing<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 12).await;
    let (late, other) = (logs.log(&app), logs.log(&app));
    relay_all(&late).await;
    late.join("all").await.expect("joined");
    let mut held = Vec::new();
    eventually("something is held", async || {
        held.push(late.read("all").await.expect("read"));
        held.iter().any(|batch| !batch.events.is_empty())
    })
    .await;
    held.retain(|batch| !batch.events.is_empty());
    other.join("all").await.expect("joined");
    // What was held is handed out again, to either: by then its reader counts as dead.
    eventually("everything is decided on", async || {
        for log in [&other, &late] {
            let batch = log.read("all").await.expect("read");
            log.commit("all", &batch).await.expect("told");
        }
        lag(&other, "all").await == 0
    })
    .await;
    let places = other.lag("all").await.expect("told");
    for batch in &held {
        assert!(!late.commit("all", batch).await.expect("told"), "it is late");
    }
    assert_eq!(other.lag("all").await.expect("told"), places);
    trial.desk().say(&trial.book(Visit { slot: 60, ..Visit::default() })).await.expect(201, "");
    relay_all(&other).await;
    drop(late);
    let next = read_on(&other, "all", 1).await;
    assert_eq!(next.len(), 1, "nothing that was decided on comes again");
    drop(other);
    logs.done(&trial).await;
    trial.end().await;
}

async fn reads_by_place_move_nobody<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 12).await;
    let log = logs.log(&app);
    relay_all(&log).await;
    log.join("all").await.expect("joined");
    log.join("idle").await.expect("joined");
    let read = read_on(&log, "all", 28).await;
    let idle = log.lag("idle").await.expect("told");
    let mut wanted: Vec<Logged> = read.iter().step_by(3).cloned().collect();
    wanted.sort_by_key(|logged| logged.place);
    let mut places: Vec<Place> = wanted.iter().rev().map(|logged| logged.place).collect();
    // Not yet, and never.
    let Place { partition, offset } = wanted.last().expect("some").place;
    let end = read.iter().map(|logged| logged.place).filter(|place| place.partition == partition).count();
    places.push(Place { partition, offset: i64::try_from(end).expect("a few").max(offset + 1) });
    places.push(Place { partition: 31, offset: 0 });
    assert_eq!(log.find(&places).await.expect("found"), wanted);
    assert_eq!(log.find(&places[..1]).await.expect("found").len(), 1, "and again");
    assert_eq!(log.lag("idle").await.expect("told"), idle);
    assert_eq!(lag(&log, "all").await, 0);
    drop(log);
    logs.done(&trial).await;
    trial.end().await;
}

async fn each_group_is_on_its_own_and_begins_with_the_oldest<L: Logs>() {
    let mut trial = Trial::new().await;
    let logs = L::new().await;
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 6).await;
    let log = logs.log(&app);
    relay_all(&log).await;
    log.join("early").await.expect("joined");
    let early = read_on(&log, "early", 14).await;
    assert!(log.lag("late").await.expect("told").is_empty(), "there is no such group");
    log.join("late").await.expect("joined");
    log.join("late").await.expect("joined again: it stays where it is");
    assert_eq!((lag(&log, "early").await, lag(&log, "late").await), (0, 14));
    let late = read_on(&log, "late", 14).await;
    assert_eq!(ids(&late), ids(&early));
    assert_eq!(lag(&log, "late").await, 0);
    drop(log);
    logs.done(&trial).await;
    trial.end().await;
}
