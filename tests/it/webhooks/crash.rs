//! Processes that are killed in the middle of deliveries, and two at once: every event arrives, under one id, and for each
//! appointment the first arrivals are in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::PgConnection;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::receiver::{Receiver, status};
use super::{count, endpoint_at};
use crate::app::{ENCRYPTION_KEY, Trial, Visit, eventually, step};
use crate::client::Desk;
use crate::process::Process;

const KNOBS: [(&str, &str); 2] =
    [("ONCEBOOK_ENCRYPTION_KEY", ENCRYPTION_KEY), ("ONCEBOOK_WEBHOOK_ALLOW_PRIVATE", "true")];

async fn process(trial: &Trial) -> Process {
    trial.process_with(&trial.url(), &KNOBS).await
}

async fn endpoint(trial: &Trial, process: &Process, receiver: &Receiver) {
    let admin = Desk::new(&crate::client::pool(), &process.base, &trial.demo.api_keys.admin, None);
    admin.say(&endpoint_at(&receiver.url())).await.expect(201, "");
}

/// Books with one practitioner, confirms and checks in, from a slot on, until nobody answers any more.
async fn busy(trial: &Trial, desk: &Desk, who: usize, first: usize) {
    for slot in first.. {
        let visit = Visit { slot, practitioner: who, patient: who, ..Visit::default() };
        let Ok(heard) = desk.try_say(&trial.book(visit)).await else { return };
        let id = heard.expect(201, "").id();
        for what in ["confirm", "check-in"] {
            if desk.try_say(&step(id, what)).await.is_err() {
                return;
            }
        }
    }
}

/// What is not through yet, of outbox, log and deliveries.
async fn left(connection: &mut PgConnection) -> i64 {
    let of = "select (select count(*) from outbox)
      + (select count(*) from event_log l where not exists (
           select from inbox i where i.event_id = l.event_id and i.logical_consumer_id = 'webhooks' and i.state = 'PROCESSED'))
      + (select count(*) from webhook_deliveries where state <> 'DELIVERED')";
    count(connection, of).await
}

/// Every event of the log has arrived, and nothing else; first arrivals of a subject are in the order of its events.
async fn all_arrived_in_order(connection: &mut PgConnection, receiver: &Receiver) -> usize {
    let happened: Vec<Uuid> =
        sqlx::query_scalar("select event_id from event_log").fetch_all(connection).await.expect("events");
    let all = receiver.received();
    let arrived: BTreeSet<Uuid> = all.iter().map(super::receiver::Received::id).collect();
    assert_eq!(arrived, happened.into_iter().collect(), "every event, under its id");
    let mut of: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for it in &all {
        if known.insert(it.id()) {
            of.entry(it.subject()).or_default().push(it.sequence());
        }
    }
    for (subject, sequences) in of {
        assert!(sequences.is_sorted() && sequences[0] == 1, "{subject}: {sequences:?}");
    }
    all.len() - arrived.len()
}

#[tokio::test]
async fn killed_in_the_middle_of_deliveries_nothing_is_lost_and_the_order_holds() {
    let trial = Trial::new().await;
    // One in five fails, so that there is always something to be tried again.
    let receiver = Receiver::that(|_, before| status(if before % 5 == 4 { 500 } else { 204 })).await;
    let first = process(&trial).await;
    endpoint(&trial, &first, &receiver).await;
    let mut running = Some(first);
    for round in 0..4 {
        let process = match running.take() {
            Some(process) => process,
            None => self::process(&trial).await,
        };
        let desk = trial.desk_at(&process.base);
        let killed = async {
            sleep(Duration::from_millis(1500 + 230 * round)).await;
            process.kill().await;
        };
        let first = usize::try_from(round).expect("small") * 1000;
        let all = async {
            tokio::join!(busy(&trial, &desk, 0, first), busy(&trial, &desk, 1, first), busy(&trial, &desk, 2, first))
        };
        tokio::join!(killed, all);
        // As if the lease of what was at work had run out.
        trial
            .change(
                "update webhook_deliveries set lease_until = lease_until - interval '2 minutes' where state = 'SENT'",
            )
            .await;
    }
    let mut connection = trial.connect().await;
    // What those who were killed claimed, perhaps with their last word.
    let theirs = "select (clock_timestamp() + interval '1 minute')::text";
    let theirs: String = sqlx::query_scalar(theirs).fetch_one(&mut connection).await.expect("a time");
    let process = self::process(&trial).await;
    // On a busy machine it takes a while: four processes have left their work behind.
    let patience = Instant::now() + Duration::from_secs(90);
    while left(&mut connection).await > 0 {
        assert!(Instant::now() < patience, "waited in vain: all is delivered");
        trial
            .change(&format!(
                "update webhook_deliveries set next_attempt_at = next_attempt_at - interval '1 minute' where state = 'PENDING';
                 update webhook_deliveries set lease_until = lease_until - interval '2 minutes'
                 where state = 'SENT' and lease_until < '{theirs}';
                 update inbox set lease_until = lease_until - interval '1 minute'
                 where state = 'PROCESSING' and lease_until < '{theirs}'::timestamptz - interval '30 s';
                 update webhook_endpoints set paused_until = null where paused_until is not null",
            ))
            .await;
        sleep(Duration::from_millis(100)).await;
    }
    let repeated = all_arrived_in_order(&mut connection, &receiver).await;
    let unknown = count(&mut connection, "select count(*) from webhook_attempts where outcome = 'unknown'").await;
    println!("{} arrivals, {repeated} of them repeated; {unknown} attempts ended by a kill", receiver.received().len());
    assert!(receiver.received().len() > 20);
    process.stop().await;
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn two_processes_share_the_work_and_keep_the_order() {
    let trial = Trial::new().await;
    let receiver = Receiver::new().await;
    let (one, two) = (process(&trial).await, process(&trial).await);
    endpoint(&trial, &one, &receiver).await;
    let desks = [trial.desk_at(&one.base), trial.desk_at(&two.base)];
    let work = desks.iter().enumerate().map(|(who, desk)| {
        let trial = &trial;
        async move {
            for n in 0..12 {
                let visit = Visit { slot: n * 2, practitioner: who, patient: who, ..Visit::default() };
                let id = desk.say(&trial.book(visit)).await.expect(201, "").id();
                for what in ["confirm", "check-in", "complete"] {
                    desk.say(&step(id, what)).await.expect(200, "");
                }
            }
        }
    });
    let [first, second] = work.collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("two"));
    tokio::join!(first, second);
    let mut connection = trial.connect().await;
    eventually("all is delivered", async || left(&mut connection).await == 0).await;
    let repeated = all_arrived_in_order(&mut connection, &receiver).await;
    assert_eq!((receiver.received().len(), repeated), (96, 0), "nobody was killed, so nothing came twice");
    one.stop().await;
    two.stop().await;
    drop(connection);
    trial.end().await;
}
