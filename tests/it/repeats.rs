//! A log at its worst: every event twice and at other moments than its neighbours, the later before the earlier. Each has
//! its effect once, for a consumer that wants order in order.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use metrics_exporter_prometheus::PrometheusBuilder;
use oncebook::clock::Ids;
use oncebook::consumer::Consumer;
use oncebook::domain::event::{Logged, Place};
use oncebook::hint::Hint;
use oncebook::log::postgres::PostgresLog;
use oncebook::log::{Away, Batch, EventLog};
use oncebook::store::bench;
use oncebook::store::log::Moved;
use uuid::Uuid;

use crate::app::{Trial, Visit, eventually};
use crate::events::{BACKWARDS, TOLD, TWICE, Tell, UNTOLD, count, settle};

/// Events of a visit, and how many are made at a time.
const VERSIONS: usize = 5;
const PORTION: usize = 50_000;

/// One of so many events comes a batch later than it should; of the others, every second one's twin does.
const LATE: u64 = 50;

/// Brings every event twice, in any order, and some of them a batch late.
struct Shuffles {
    log: PostgresLog,
    ids: Ids,
    /// What is to come with the next batch.
    late: Mutex<Vec<Logged>>,
    /// What the log itself had in a batch, by the batch's token.
    read: Mutex<HashMap<Uuid, Batch>>,
}

impl Shuffles {
    fn of(log: &PostgresLog, seed: u64) -> Self {
        Self { log: log.clone(), ids: Ids::seeded(seed), late: Mutex::default(), read: Mutex::default() }
    }
}

impl EventLog for Shuffles {
    async fn relay(&self) -> Result<Moved, Away> {
        self.log.relay().await
    }

    async fn join(&self, group: &str) -> Result<(), Away> {
        self.log.join(group).await
    }

    async fn read(&self, group: &str) -> Result<Batch, Away> {
        let read = self.log.read(group).await?;
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = std::mem::take(&mut *late);
        for logged in &read.events {
            let (first, second) = (self.ids.below(LATE) == 0, self.ids.below(2) == 0);
            for is_late in [first, first || second] {
                if is_late { &mut *late } else { &mut events }.push(logged.clone());
            }
        }
        for n in (1..events.len()).rev() {
            let other = self.ids.below(u64::try_from(n + 1).expect("small"));
            events.swap(n, usize::try_from(other).expect("small"));
        }
        let token = read.token;
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(token, read);
        Ok(Batch { token, events })
    }

    async fn commit(&self, group: &str, batch: &Batch) -> Result<bool, Away> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(&batch.token);
        let read = read.expect("it was read here");
        if read.events.is_empty() { Ok(true) } else { self.log.commit(group, &read).await }
    }

    async fn find(&self, places: &[Place]) -> Result<Vec<Logged>, Away> {
        self.log.find(places).await
    }

    async fn lag(&self, group: &str) -> Result<Vec<(i16, i64)>, Away> {
        self.log.lag(group).await
    }
}

/// So many deliveries were decided so.
fn decided(metrics: &str, consumer: &str, decision: &str) -> i64 {
    let name = format!("oncebook_consumer_decisions_total{{consumer=\"{consumer}\",decision=\"{decision}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a number"))
}

pub(crate) async fn twice_and_shuffled(events: usize) {
    let counting = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&counting);
    let mut trial = Trial::new().await;
    trial.change(TOLD).await;
    let app = trial.serve(trial.setup()).await;
    let log = PostgresLog::of(&app);
    let any = Consumer::of(&app, Shuffles::of(&log, 1), Tell::<false>::default(), Hint::default());
    let ordered = Consumer::of(&app, Shuffles::of(&log, 2), Tell::<true>::default(), Hint::default());
    let other = Consumer::of(&app, Shuffles::of(&log, 3), Tell::<true>::default(), Hint::default());
    // They are there before it happens: every version is their business.
    tokio::join!(settle(&any), settle(&ordered));
    trial.desk().say(&trial.book(Visit::default())).await.expect(201, "");
    let mut connection = trial.connect().await;
    let mut made = 1;
    while made < events {
        let visits = (events - made).min(PORTION).div_ceil(VERSIONS);
        let number = |count: usize| i32::try_from(count).expect("small");
        bench::events(&mut connection, number(visits), number(VERSIONS)).await.expect("events");
        made += visits * VERSIONS;
        while log.relay().await.expect("relayed").events > 0 {}
        tokio::join!(settle(&any), settle(&ordered), settle(&other));
    }
    let all = i64::try_from(made).expect("small");
    assert_eq!(count(&mut connection, "select count(*) from event_log").await, all);
    eventually("what came late has come", async || {
        tokio::join!(settle(&any), settle(&ordered), settle(&other));
        count(&mut connection, "select count(*) from told").await == 2 * all
    })
    .await;
    for (what, statement) in [("twice", TWICE), ("never", UNTOLD), ("backwards", BACKWARDS)] {
        assert_eq!(count(&mut connection, statement).await, 0, "{what}");
    }
    assert_eq!(count(&mut connection, "select count(*) from inbox where state <> 'PROCESSED'").await, 0);
    let metrics = counting.handle().render();
    for consumer in ["any order", "in order"] {
        let [processed, duplicate, held] =
            ["PROCESSED", "DUPLICATE", "RETRYABLE"].map(|decision| decided(&metrics, consumer, decision));
        println!("{consumer}: {processed} PROCESSED, {duplicate} DUPLICATE, {held} held back");
        assert_eq!(processed, all, "{consumer}");
        assert!(duplicate >= all && decided(&metrics, consumer, "QUARANTINED") == 0, "{consumer}: {duplicate}");
        assert_eq!(held > 0, consumer == "in order", "{consumer}: {held}");
    }
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn twice_and_shuffled_every_event_has_its_effect_once() {
    twice_and_shuffled(3_000).await;
}
