//! Two processes with every role. One dies, or stands still for longer than its lease, in the middle of its work: the other
//! goes on, and nothing is lost or done twice. CONFORMANCE.md's case 54, the late worker.

use std::time::Duration;

use oncebook::clock::{Clock, Ids};
use oncebook::log::EventLog;
use oncebook::log::postgres::PostgresLog;
use oncebook::store::bench;
use oncebook::store::inbox::{self, Arrival, Failed, Taken, Taking};
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::app::{Trial, Visit, eventually};
use crate::events::{LEFT, count};

const HELD: &str = "select count(*) from log_groups where token is not null";
const DOUBLED: &str = "select count(*) from (select from changes group by event_id having count(*) > 1) as doubled";
const BACKWARDS: &str = "select count(*) from changes a join changes b
  on b.tenant_id = a.tenant_id and b.clinic_id = a.clinic_id and b.subject_id = a.subject_id
  where b.position > a.position and b.sequence < a.sequence";
/// A partition that two wrote would have a gap, or one offset's event moved for another's.
const HOLES: &str = "select count(*) from log_partitions p
  where p.next_offset <> (select count(*) from event_log e where e.partition = p.partition)";

/// How long a group's lease is, and a try's; and what a busy machine may take on top.
const LEASES: Duration = Duration::from_secs(5 + 10);
const PATIENCE: Duration = Duration::from_secs(20);

/// So many events, a good second's work for a process, wait in the outbox.
async fn a_backlog(connection: &mut PgConnection) {
    bench::events(connection, 1500, 5).await.expect("events");
}

/// Returns the moment at which somebody is in the middle of a batch.
async fn at_work(connection: &mut PgConnection) {
    eventually("a lease is held", async || count(connection, HELD).await > 0).await;
}

async fn all_is_done_once(connection: &mut PgConnection) {
    for (what, statement) in [("doubled", DOUBLED), ("backwards", BACKWARDS), ("holes", HOLES)] {
        assert_eq!(count(connection, statement).await, 0, "{what}");
    }
    let missing = "select (select count(*) from appointment_history) - (select count(*) from changes)";
    assert_eq!(count(connection, missing).await, 0);
}

#[tokio::test]
async fn what_a_killed_process_had_in_hand_is_taken_over_within_the_lease() {
    let trial = Trial::new().await;
    let mut connection = trial.connect().await;
    let first = trial.process().await;
    trial.desk_at(&first.base).say(&trial.book(Visit::default())).await.expect(201, "");
    a_backlog(&mut connection).await;
    let second = trial.process().await;
    at_work(&mut connection).await;
    first.kill().await;
    let killed = Instant::now();
    while count(&mut connection, LEFT).await > 0 {
        assert!(killed.elapsed() < LEASES + PATIENCE, "nobody took over");
        sleep(Duration::from_millis(50)).await;
    }
    println!("done {:?} after the kill", killed.elapsed());
    all_is_done_once(&mut connection).await;
    second.stop().await;
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn a_process_that_stood_still_for_longer_than_its_lease_changes_nothing_when_it_goes_on() {
    let trial = Trial::new().await;
    let mut connection = trial.connect().await;
    let first = trial.process().await;
    trial.desk_at(&first.base).say(&trial.book(Visit::default())).await.expect(201, "");
    a_backlog(&mut connection).await;
    at_work(&mut connection).await;
    first.signal("STOP").await;
    let second = trial.process().await;
    sleep(Duration::from_secs(7)).await;
    first.signal("CONT").await;
    a_backlog(&mut connection).await;
    eventually("all is done", async || count(&mut connection, LEFT).await == 0).await;
    all_is_done_once(&mut connection).await;
    first.stop().await;
    second.stop().await;
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn a_try_whose_lease_was_up_neither_ends_nor_fails_what_another_took_up() {
    const CONSUMER: &str = "late";
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    trial.desk().say(&trial.book(Visit::default())).await.expect(201, "");
    let log = PostgresLog::of(&app);
    while log.relay().await.expect("relayed").events > 0 {}
    log.join(CONSUMER).await.expect("joined");
    let events = log.read(CONSUMER).await.expect("read").events;
    let (ids, now) = (Ids::random(), Clock::system().now());
    let [early, late] = [(); 2].map(|()| ids.uuid(now));
    let mut connection = trial.connect().await;
    let lease = Duration::from_secs(9);
    let own_try = Some((early, lease));
    let taking = Taking { consumer: CONSUMER, in_order: true, now, held: Duration::ZERO, own_try };
    let arrival = Arrival { logged: &events[0], fault: None, task_id: Uuid::nil() };
    let taken = inbox::receive(&mut connection, taking, &[arrival]).await.expect("received");
    let event = events[0].event.id;
    assert_eq!(taken, [(event, Taken::Mine)]);
    let claim = async |connection: &mut PgConnection| {
        inbox::claim(connection, CONSUMER, late, lease, 10).await.expect("claimed")
    };
    assert!(claim(&mut connection).await.is_empty(), "its lease has time left");
    trial.change("update inbox set lease_until = clock_timestamp() - interval '1 millisecond'").await;
    let claimed = claim(&mut connection).await;
    assert_eq!((claimed.len(), claimed[0].event_id, claimed[0].attempt), (1, event, 2));

    let failed = Failed { event, token: early, reason: "handler_failed", again_in: None, counts: true, task_id: early };
    assert_eq!(inbox::give_up(&mut connection, CONSUMER, failed, now).await.expect("asked"), None, "not its to fail");
    assert!(!inbox::finish(&mut connection, CONSUMER, event, early, now).await.expect("asked"), "not its to end");
    assert!(inbox::finish(&mut connection, CONSUMER, event, late, now).await.expect("ended"));
    let failed = Failed { token: late, ..failed };
    assert_eq!(inbox::give_up(&mut connection, CONSUMER, failed, now).await.expect("asked"), None, "it has ended");
    assert_eq!(count(&mut connection, "select count(*) from inbox where state = 'PROCESSED'").await, 1);
    assert_eq!(count(&mut connection, "select count(*) from staff_tasks").await, 0);
    drop(connection);
    trial.end().await;
}
