//! What goes when its time has passed, and what stays because somebody still needs it: the log, the inbox, the feeds.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use oncebook::app::App;
use oncebook::changes::Keep;
use oncebook::clock::Clock;
use oncebook::consumer::Consumer;
use oncebook::hint::Hint;
use oncebook::log::EventLog;
use oncebook::log::postgres::PostgresLog;
use oncebook::notify::Supersede;
use oncebook::store::{aging, inbox};
use sqlx::PgConnection;

use crate::app::{Trial, Visit, step};
use crate::client::Call;
use crate::events::{count, settle};

const LOG: &str = "select count(*) from event_log";
const INBOX: &str = "select count(*) from inbox";
const CHANGES: &str = "select count(*) from changes";

/// More than there is.
const ALL: i64 = 1000;

/// Books and cancels three visits; their six events are in the log.
async fn three_visits(trial: &Trial, app: &Arc<App>) -> PostgresLog {
    for slot in 0..3 {
        let id = trial.desk().say(&trial.book(Visit { slot, ..Visit::default() })).await.expect(201, "").id();
        trial.desk().say(&step(id, "cancel")).await.expect(200, "");
    }
    let log = PostgresLog::of(app);
    while log.relay().await.expect("relayed").events > 0 {}
    log
}

async fn age_log(connection: &mut PgConnection, most: i64) -> u64 {
    aging::log(connection, soon(), Duration::ZERO, most).await.expect("aged")
}

/// Later than everything that has happened.
fn soon() -> Timestamp {
    Clock::system().now() + SignedDuration::from_hours(1)
}

#[tokio::test]
async fn an_event_stays_until_everybody_has_read_it_and_nobody_tries_it_again() {
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    let log = three_visits(&trial, &app).await;
    let mut connection = trial.connect().await;
    let changes = Consumer::of(&app, log.clone(), Keep, Hint::default());
    let notifications = Consumer::of(&app, log.clone(), Supersede, Hint::default());
    settle(&changes).await;
    // The other group is there and has read nothing.
    inbox::enrol(&mut connection, "notifications", soon()).await.expect("enrolled");
    log.join("notifications").await.expect("joined");
    assert_eq!(age_log(&mut connection, ALL).await, 0);
    settle(&notifications).await;

    assert_eq!(aging::inbox(&mut connection, soon(), ALL).await.expect("aged"), 0, "they are in the log");
    trial
        .change(
            "update inbox set state = 'RETRYABLE', reason_code = 'handler_failed', next_attempt_at = 'infinity', decided_at = null
             where logical_consumer_id = 'notifications' and event_id = (select event_id from inbox order by event_id limit 1)",
        )
        .await;
    let young = aging::log(&mut connection, soon(), Duration::from_hours(1), ALL).await.expect("aged");
    assert_eq!(young, 0, "by the database's clock none is an hour old");
    let old = Clock::system().now() - SignedDuration::from_hours(1);
    let behind = aging::log(&mut connection, old, Duration::ZERO, ALL).await.expect("aged");
    assert_eq!(behind, 0, "nor by that of a process that is behind");
    assert!((1..6).contains(&age_log(&mut connection, 1).await), "one of a partition");
    // What stays is no obstacle to what lies behind it.
    while age_log(&mut connection, 1).await > 0 {}
    assert_eq!(count(&mut connection, LOG).await, 1, "but for the one that is tried again");

    assert_eq!(aging::inbox(&mut connection, old, ALL).await.expect("aged"), 0, "all are younger");
    aging::inbox(&mut connection, soon(), ALL).await.expect("aged");
    assert_eq!(count(&mut connection, INBOX).await, 2, "what is tried again, and what was done with the same event");
    // The group goes on where it was, and a new one begins with what is kept.
    assert_eq!(log.lag("changes").await.expect("a lag").iter().map(|(_, lag)| lag).sum::<i64>(), 0);
    log.join("late").await.expect("joined");
    assert_eq!(log.read("late").await.expect("read").events.len(), 1);
    drop(connection);
    trial.abandon();
}

#[tokio::test]
async fn who_stopped_before_the_first_change_that_is_kept_is_told() {
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    let log = three_visits(&trial, &app).await;
    settle(&Consumer::of(&app, log, Keep, Hint::default())).await;
    let mut connection = trial.connect().await;
    let (desk, clinic) = (trial.desk(), trial.demo.clinic_id);
    let ask = |limit: usize, after: &str| {
        let after = if after.is_empty() { String::new() } else { format!("&after={after}") };
        Call::get(format!("/v1/changes?clinic_id={clinic}&limit={limit}{after}"))
    };
    let next = |heard: &serde_json::Value| heard["next"].as_str().expect("where to go on").to_owned();
    let first = desk.say(&ask(2, "")).await.expect(200, "").json();
    let early = next(&desk.say(&ask(1, "")).await.expect(200, "").json());
    let end = next(&desk.say(&ask(200, "")).await.expect(200, "").json());

    let old = Clock::system().now() - SignedDuration::from_hours(1);
    // One that happened long ago and came late is kept as long as the others.
    trial
        .change("update changes set occurred_at = '2020-01-01' where position = (select max(position) from changes)")
        .await;
    assert_eq!(aging::changes(&mut connection, old, ALL).await.expect("aged"), 0);
    assert_eq!(aging::changes(&mut connection, soon(), 2).await.expect("aged"), 2, "the oldest");
    desk.say(&ask(2, &early)).await.expect(400, "cursor_invalid");
    let page = desk.say(&ask(200, &next(&first))).await.expect(200, "").json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(4), "nothing was missed");
    let page = desk.say(&ask(200, "")).await.expect(200, "").json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(4), "whoever begins, begins with what is kept");

    assert_eq!(aging::changes(&mut connection, soon(), ALL).await.expect("aged"), 4);
    let page = desk.say(&ask(200, "")).await.expect(200, "").json();
    assert_eq!((page["items"].as_array().map(Vec::len), next(&page)), (Some(0), end.clone()));
    desk.say(&ask(200, &end)).await.expect(200, "");
    assert_eq!(count(&mut connection, CHANGES).await, 0);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn a_change_long_after_the_one_before_it_is_not_held_for_what_was_forgotten() {
    let mut trial = Trial::new().await;
    let app = trial.serve(trial.setup()).await;
    let log = PostgresLog::of(&app);
    let changes = Consumer::of(&app, log.clone(), Keep, Hint::default());
    settle(&changes).await;
    let id = trial.desk().say(&trial.book(Visit::default())).await.expect(201, "").id();
    while log.relay().await.expect("relayed").events > 0 {}
    settle(&changes).await;
    let mut connection = trial.connect().await;
    assert_eq!(age_log(&mut connection, ALL).await, 1);
    // Not an hour ahead: what is forgotten is what has been, and the next change comes after it.
    let now = Clock::system().now();
    assert_eq!(aging::inbox(&mut connection, now, ALL).await.expect("aged"), 1);
    trial.desk().say(&step(id, "cancel")).await.expect(200, "");
    while log.relay().await.expect("relayed").events > 0 {}
    settle(&changes).await;
    assert_eq!(count(&mut connection, CHANGES).await, 2);
    drop(connection);
    trial.abandon();
}
