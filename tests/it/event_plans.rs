//! The same of what follows a commit (`plans.rs`): relay, log, inbox, feed and their aging, planned while everything was empty.

use std::time::Duration;

use jiff::SignedDuration;
use oncebook::clock::{Clock, Ids};
use oncebook::domain::event::{Logged, Place};
use oncebook::store::inbox::{self, Arrival, Failed, Taking};
use oncebook::store::log::{self, Reach};
use oncebook::store::{aging, bench, changes, notifications};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::plans::{Early, WORLD};

/// Visits, of five versions each, when the tables are full.
const VISITS: i32 = 4000;

/// Events of a batch.
const BATCH: usize = 64;

/// Pages that a batch may read: some sixty an event, for all the indexes it is looked up in and written to. Whoever goes
/// through a table for each event reads hundreds of pages each time.
const PAGES: i64 = 64 * 60;

const CLINIC: Uuid = Uuid::from_u128(2);
const TENANT: Uuid = Uuid::from_u128(1);

const STATEMENTS: [&str; 16] = [
    "relay",
    "read",
    "commit",
    "find",
    "lag",
    "receive",
    "receive for a try",
    "claim",
    "release",
    "give back",
    "finish",
    "give up",
    "append",
    "feed",
    "supersede",
    "age",
];

const CONSUMER: &str = "planned";
const REACH: Reach = Reach { lease: Duration::from_mins(1), partitions: 8, events: 8 };

/// What most of the inbox looks like: two consumers did what is in the log but for its last tenth; some tries failed.
const DONE: &str = "
  insert into inbox (logical_consumer_id, event_id, tenant_id, clinic_id, partition, \"offset\", subject_kind, subject_id, sequence, state,
    attempts, reason_code, next_attempt_at, received_at)
  select c, e.event_id, e.tenant_id, e.clinic_id, e.partition, e.\"offset\", e.subject_kind, e.subject_id, e.sequence,
    case when e.\"offset\" % 100 = 7 then 'RETRYABLE' else 'PROCESSED' end,
    case when e.\"offset\" % 200 = 7 then 0 else 1 end, 'handler_failed',
    case when e.\"offset\" % 100 = 7 then e.logged_at end, e.logged_at
  from event_log e join log_partitions p on p.partition = e.partition, unnest(array['planned', 'other']) as c
  where e.\"offset\" < p.next_offset * 0.9 and e.sequence < 5;
  update log_groups g set \"offset\" = p.next_offset * 0.9 from log_partitions p where p.partition = g.partition";

/// The newest events there are; none where there are none.
async fn newest(connection: &mut PgConnection) -> Vec<Logged> {
    let places: Vec<(i16, i64)> = sqlx::query_as(
        "select e.partition, e.\"offset\" from event_log e join log_partitions p on p.partition = e.partition
         where e.\"offset\" >= p.next_offset - 4",
    )
    .fetch_all(&mut *connection)
    .await
    .expect("places");
    let places: Vec<Place> = places.into_iter().map(|(partition, offset)| Place { partition, offset }).collect();
    log::find(connection, &places).await.expect("events")
}

/// Runs one of them; tells how much came of it.
async fn run(which: &str, connection: &mut PgConnection, events: &[Logged], token: Uuid) -> usize {
    let now = Clock::system().now();
    let refs: Vec<&Logged> = events.iter().collect();
    let places: Vec<Place> = events.iter().map(|logged| logged.place).collect();
    let first = events.first().map_or(Uuid::nil(), |logged| logged.event.id);
    match which {
        "relay" => usize::try_from(log::relay(connection, 8, 8).await.expect(which).events).expect("few"),
        "read" => log::read(connection, CONSUMER, token, REACH).await.expect(which).len(),
        "commit" => usize::from(log::commit(connection, CONSUMER, token, &places).await.expect(which)),
        "find" => log::find(connection, &places).await.expect(which).len(),
        "lag" => log::lag(connection, CONSUMER).await.expect(which).len(),
        "receive" | "receive for a try" => {
            let own_try = (which != "receive").then_some((token, Duration::from_secs(9)));
            let taking = Taking { consumer: CONSUMER, in_order: true, now, held: Duration::ZERO, own_try };
            let arrive = |logged| Arrival { logged, fault: None, task_id: Uuid::nil() };
            let arrivals: Vec<Arrival<'_>> = events.iter().map(arrive).collect();
            inbox::receive(connection, taking, &arrivals).await.expect(which).len()
        }
        "claim" => {
            let lease = Duration::from_secs(9);
            inbox::claim(connection, CONSUMER, token, lease, 64).await.expect(which).len()
        }
        "release" => {
            let lease = Duration::from_secs(9);
            inbox::release(connection, (CONSUMER, true), token, lease, 64).await.expect(which).len()
        }
        "give back" => {
            let all: Vec<Uuid> = events.iter().map(|logged| logged.event.id).collect();
            inbox::give_back(connection, CONSUMER, token, &all).await.expect(which);
            0
        }
        "finish" => usize::from(inbox::finish(connection, CONSUMER, first, token, now).await.expect(which)),
        "give up" => {
            let failed =
                Failed { event: first, token, reason: "handler_failed", again_in: None, counts: true, task_id: token };
            usize::from(inbox::give_up(connection, CONSUMER, failed, now).await.expect(which).is_some())
        }
        "append" => {
            changes::append(connection, &refs, now).await.expect(which);
            0
        }
        "feed" => {
            changes::read(connection, TENANT, CLINIC, 0, 64).await.expect(which).map_or(0, |feed| feed.placed.len())
        }
        "supersede" => {
            let at: Vec<_> = events.iter().map(|it| (it.event.tenant_id, it.event.subject_id, 5)).collect();
            notifications::supersede(connection, &at, now).await.expect(which);
            0
        }
        _ => {
            let old = now - SignedDuration::from_hours(1);
            aging::log(connection, old, Duration::ZERO, 64).await.expect(which);
            aging::inbox(connection, old, 64).await.expect(which);
            aging::changes(connection, old, 64).await.expect(which);
            0
        }
    }
}

#[tokio::test]
async fn what_follows_a_commit_was_planned_on_empty_tables_and_reads_little_of_full_ones() {
    let mut early = Early::new("events").await;
    let (ids, now) = (Ids::seeded(3), Clock::system().now());
    let connection = &mut early.connection;
    inbox::enrol(connection, CONSUMER, now - SignedDuration::from_hours(1)).await.expect("enrolled");
    log::join(connection, CONSUMER).await.expect("joined");
    for which in STATEMENTS {
        early.pages(async |connection, _| _ = run(which, connection, &[], ids.uuid(now)).await).await;
    }
    sqlx::raw_sql(WORLD).execute(&mut early.connection).await.expect("a world");
    early.fill(1, 1).await;
    let connection = &mut early.connection;
    bench::events(connection, VISITS, 5).await.expect("events");
    while log::relay(connection, 1000, 8).await.expect("relayed").events > 0 {}
    let events = newest(connection).await;
    assert_eq!(events.len(), BATCH);
    sqlx::raw_sql(DONE).execute(&mut *connection).await.expect("an inbox");
    changes::append(connection, &events.iter().collect::<Vec<_>>(), now).await.expect("a feed");
    bench::events(connection, 100, 5).await.expect("events in the outbox");
    let mut much = Vec::new();
    for which in STATEMENTS {
        let mut came = 0;
        let token = ids.uuid(now);
        let pages = early.pages(async |connection, _| came = run(which, connection, &events, token).await).await;
        let sum: i64 = pages.values().sum();
        println!("{which}: {came} from {sum} pages {pages:?}");
        let least = match which {
            "relay" | "read" | "find" | "receive" | "receive for a try" | "claim" | "release" | "feed" => BATCH / 2,
            "lag" => 16,
            _ => 0,
        };
        assert!(came >= least, "{which}: {came}");
        if sum > PAGES {
            much.push(format!("{which} read {sum} pages: {pages:?}"));
        }
    }
    assert!(much.is_empty(), "{much:#?}");
    early.end().await;
}
