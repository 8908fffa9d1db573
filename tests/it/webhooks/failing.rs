//! Receivers that fail: what is tried again and when, what is held back behind it, when it is given up, and what disables an
//! endpoint.

use std::sync::Arc;
use std::time::Duration;

use oncebook::app::App;
use oncebook::outbound::Client;
use oncebook::webhook::deliver::Deliverer;
use oncebook::webhook::keep::Keeper;
use oncebook::worker::{Did, Worker};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::receiver::{Receiver, Say, status};
use super::{admin, book, count, deliveries, endpoint, redeliver, service, show, state, time_passes};
use crate::app::{Setup, Trial, eventually, step};
use crate::client::Call;

/// The outcome of the last attempt at the latest delivery.
async fn outcome(trial: &Trial, endpoint: Uuid) -> Value {
    let all = deliveries(trial, endpoint).await;
    all.first()
        .map(|it| it["attempts"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default())
        .unwrap_or_default()["outcome"]
        .clone()
}

/// Whether an attempt has failed, and another is to come.
async fn failed(trial: &Trial, endpoint: Uuid, subject: Uuid, sequence: i64) -> bool {
    let all = deliveries(trial, endpoint).await;
    let it = all.iter().find(|it| it["subject"] == format!("appointment/{subject}") && it["sequence"] == sequence);
    it.is_some_and(|it| it["state"] == "PENDING" && it["reason"] == "status")
}

#[tokio::test]
async fn an_event_waits_for_the_one_before_it_and_for_no_other() {
    let trial = service().await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let poisoned = book(&trial, 0).await;
    eventually("the first is delivered", async || receiver.received().len() == 1).await;
    let subject = format!("appointment/{poisoned}");
    receiver.now(move |it, _| status(if it.subject() == subject && it.sequence() == 2 { 500 } else { 204 }));
    for what in ["confirm", "check-in", "complete"] {
        trial.desk().say(&step(poisoned, what)).await.expect(200, "");
    }
    for n in 1..6 {
        book(&trial, n * 2).await;
    }
    eventually("the others are delivered", async || {
        let all = deliveries(&trial, endpoint).await;
        all.iter().filter(|it| it["state"] == "DELIVERED").count() == 6
    })
    .await;
    eventually("it has been tried", async || receiver.received().iter().any(|it| it.sequence() == 2)).await;
    eventually("and failed", async || failed(&trial, endpoint, poisoned, 2).await).await;
    for sequence in [3, 4] {
        assert_eq!(state(&trial, endpoint, poisoned, sequence).await, "HELD");
    }
    let held = deliveries(&trial, endpoint).await;
    assert!(held.iter().filter(|it| it["state"] == "HELD").all(|it| it["attempts"] == json!([])), "no attempt used");
    let only = Call::get(format!("/v1/webhook-endpoints/{endpoint}/deliveries?state=HELD"));
    assert_eq!(admin(&trial).say(&only).await.json()["items"].as_array().map(Vec::len), Some(2));
    receiver.now(|_, _| status(200));
    time_passes(&trial).await;
    eventually("all is delivered", async || state(&trial, endpoint, poisoned, 4).await == "DELIVERED").await;
    let came = receiver.received();
    let firsts = came.iter().filter(|it| it.subject() == format!("appointment/{poisoned}"));
    let mut sequences: Vec<_> = firsts.map(super::receiver::Received::sequence).collect();
    sequences.dedup();
    assert_eq!(sequences, [1, 2, 3, 4], "in order, whatever was repeated");
    let ids: std::collections::BTreeSet<_> =
        came.iter().filter(|it| it.sequence() == 2).map(super::receiver::Received::id).collect();
    assert_eq!(ids.len(), 1, "every attempt has the same webhook-id");
    trial.end().await;
}

#[tokio::test]
async fn after_a_day_it_is_given_up_and_the_next_one_goes_out_and_an_administrator_may_send_it_again() {
    let trial = service().await;
    let receiver = Receiver::that(|it, _| status(if it.sequence() == 1 { 503 } else { 204 })).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    trial.desk().say(&step(id, "confirm")).await.expect(200, "");
    eventually("it failed", async || failed(&trial, endpoint, id, 1).await).await;
    eventually("the next one waits", async || state(&trial, endpoint, id, 2).await == "HELD").await;
    trial
        .change(
            "update webhook_deliveries set first_attempt_at = first_attempt_at - interval '25 h' where sequence = 1",
        )
        .await;
    time_passes(&trial).await;
    eventually("it is given up", async || state(&trial, endpoint, id, 1).await == "GIVEN_UP").await;
    eventually("the next one is not", async || state(&trial, endpoint, id, 2).await == "DELIVERED").await;
    let all = deliveries(&trial, endpoint).await;
    let given_up = all.iter().find(|it| it["state"] == "GIVEN_UP").expect("one");
    let event = given_up["event_id"].as_str().expect("an id");
    assert_eq!((&given_up["reason"], given_up["ended_at"].is_string()), (&"status".into(), true));

    receiver.now(|_, _| status(204));
    let path = format!("/v1/webhook-endpoints/{endpoint}/deliveries/{event}/redeliver");
    let again = Call::post(path, Value::Null);
    let first = admin(&trial).say(&again).await.expect(202, "");
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    let before = receiver.received().len();
    let second = admin(&trial).say(&again).await.expect(202, "");
    assert_eq!((first.replayed(), second.replayed()), (false, true), "under one key it is sent again once");
    // Another key is another wish: also for what was delivered.
    redeliver(&trial, endpoint, event).await.expect(202, "");
    eventually("it is sent once more", async || receiver.received().len() == before + 1).await;
    assert!(receiver.received().last().is_some_and(|it| it.id().to_string() == event));
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    trial.end().await;
}

#[tokio::test]
async fn one_that_waits_is_due_when_it_is_sent_again_and_keeps_its_place() {
    let trial = service().await;
    let receiver = Receiver::that(|it, _| status(if it.sequence() == 1 { 500 } else { 204 })).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    trial.desk().say(&step(id, "confirm")).await.expect(200, "");
    eventually("the second waits", async || state(&trial, endpoint, id, 2).await == "HELD").await;
    eventually("the first failed", async || failed(&trial, endpoint, id, 1).await).await;
    // As if it had to wait for long.
    trial
        .change("update webhook_deliveries set next_attempt_at = next_attempt_at + interval '1 h' where sequence = 1")
        .await;
    let before = receiver.received().len();
    for delivery in deliveries(&trial, endpoint).await {
        redeliver(&trial, endpoint, delivery["event_id"].as_str().expect("an id")).await.expect(202, "");
    }
    eventually("the first is tried at once", async || receiver.received().len() > before).await;
    eventually("and failed", async || failed(&trial, endpoint, id, 1).await).await;
    sleep(Duration::from_secs(1)).await;
    assert!(receiver.received().iter().all(|it| it.sequence() == 1), "the second overtook it");
    let all = deliveries(&trial, endpoint).await;
    assert!(all.iter().all(|it| it["redelivery"] == false), "{all:?}");
    assert_eq!(state(&trial, endpoint, id, 2).await, "HELD");
    receiver.now(|_, _| status(204));
    time_passes(&trial).await;
    eventually("both are delivered", async || state(&trial, endpoint, id, 2).await == "DELIVERED").await;
    trial.end().await;
}

#[tokio::test]
async fn a_receiver_that_says_when_is_left_alone_until_then() {
    let trial = service().await;
    let receiver = Receiver::that(|_, _| Say::Status(429, "Retry-After: 3000\r\n".to_owned())).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    eventually("it failed", async || failed(&trial, endpoint, id, 1).await).await;
    let waits: f64 = {
        let mut connection = trial.connect().await;
        let of = "select extract(epoch from next_attempt_at - clock_timestamp())::float8 from webhook_deliveries";
        sqlx::query_scalar(of).fetch_one(&mut connection).await.expect("a time")
    };
    assert!((2900.0..3000.1).contains(&waits), "{waits}");
    let shown = show(&trial, endpoint).await;
    assert!(shown["paused_until"].is_string() && shown["failing_since"].is_string(), "{shown}");
    book(&trial, 2).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(receiver.received().len(), 1, "nothing else is sent there meanwhile");
    receiver.now(|_, _| status(204));
    time_passes(&trial).await;
    eventually("both are delivered", async || receiver.received().len() == 3).await;
    eventually("it is well", async || show(&trial, endpoint).await["failing_since"].is_null()).await;
    trial.end().await;
}

#[tokio::test]
async fn one_that_asked_to_be_left_alone_is_left_alone_though_another_attempt_succeeds() {
    let trial = service().await;
    let told = Arc::new(Notify::new());
    let waits = Arc::clone(&told);
    let receiver = Receiver::that(move |_, before| match before {
        0 => Say::Wait(Arc::clone(&waits)),
        _ => Say::Status(429, "Retry-After: 3000\r\n".to_owned()),
    })
    .await;
    let endpoint = endpoint(&trial, &receiver).await;
    let first = book(&trial, 0).await;
    eventually("the first is at work", async || receiver.received().len() == 1).await;
    let second = book(&trial, 2).await;
    eventually("the second failed", async || failed(&trial, endpoint, second, 1).await).await;
    let paused = show(&trial, endpoint).await["paused_until"].clone();
    told.notify_one();
    eventually("the first is delivered", async || state(&trial, endpoint, first, 1).await == "DELIVERED").await;
    let shown = show(&trial, endpoint).await;
    assert!(paused.is_string() && shown["failing_since"].is_null(), "{shown}");
    assert_eq!(shown["paused_until"], paused);
    book(&trial, 4).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(receiver.received().len(), 2, "nothing else is sent there meanwhile");
    trial.end().await;
}

#[tokio::test]
async fn only_2xx_is_a_success_and_nobody_is_sent_elsewhere() {
    let trial = service().await;
    let elsewhere = Receiver::new().await;
    let to = elsewhere.url();
    let receiver = Receiver::that(move |_, _| Say::Status(302, format!("Location: {to}\r\n"))).await;
    let endpoint = endpoint(&trial, &receiver).await;
    book(&trial, 0).await;
    for (said, word) in [(302, "redirect"), (404, "status"), (0, "protocol")] {
        eventually(word, async || outcome(&trial, endpoint).await == word).await;
        let next = if said == 302 { 404 } else { 0 };
        receiver.now(move |_, _| if next == 0 { Say::Close } else { status(next) });
        time_passes(&trial).await;
    }
    assert_eq!(elsewhere.connections(), 0);
    trial.end().await;
}

#[tokio::test]
async fn whoever_says_gone_gets_nothing_more() {
    let trial = service().await;
    let receiver = Receiver::that(|_, _| status(500)).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    trial.desk().say(&step(id, "confirm")).await.expect(200, "");
    eventually("the second waits", async || state(&trial, endpoint, id, 2).await == "HELD").await;
    receiver.now(|_, _| status(410));
    time_passes(&trial).await;
    eventually("it is disabled", async || show(&trial, endpoint).await["active"] == false).await;
    let shown = show(&trial, endpoint).await;
    assert_eq!((&shown["disabled_reason"], &shown["version"]), (&"gone".into(), &2.into()));
    eventually("what waited is cancelled", async || state(&trial, endpoint, id, 2).await == "CANCELLED").await;
    book(&trial, 2).await;
    let mut connection = trial.connect().await;
    let task = "select count(*) from staff_tasks where kind = 'webhook_endpoint_disabled' and reason_code = 'gone'";
    assert_eq!(count(&mut connection, task).await, 1);
    let noted =
        "select count(*) from audit where operation = 'disable_webhook_endpoint' and subject = 'system:webhooks'";
    assert_eq!(count(&mut connection, noted).await, 1);
    eventually("every event is decided on", async || {
        let done = "select count(*) from inbox where logical_consumer_id = 'webhooks' and state = 'PROCESSED'";
        count(&mut connection, done).await == 3
    })
    .await;
    assert_eq!(count(&mut connection, "select count(*) from webhook_deliveries").await, 2, "nothing more is queued");
    let event = deliveries(&trial, endpoint).await[0]["event_id"].as_str().expect("an id").to_owned();
    redeliver(&trial, endpoint, &event).await.expect(409, "transition_not_allowed");
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn an_endpoint_that_has_failed_for_five_days_is_disabled_until_somebody_sees_to_it() {
    let trial = service().await;
    let receiver = Receiver::that(|_, _| status(500)).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    eventually("it failed", async || failed(&trial, endpoint, id, 1).await).await;
    trial.change("update webhook_endpoints set failing_since = failing_since - interval '119 h'").await;
    time_passes(&trial).await;
    eventually("it failed again", async || receiver.received().len() >= 2).await;
    eventually("it is in use", async || state(&trial, endpoint, id, 1).await == "PENDING").await;
    assert_eq!(show(&trial, endpoint).await["active"], true, "not yet");
    trial.change("update webhook_endpoints set failing_since = failing_since - interval '2 h'").await;
    time_passes(&trial).await;
    eventually("it is disabled", async || show(&trial, endpoint).await["disabled_reason"] == "failing").await;
    eventually("it is cancelled", async || state(&trial, endpoint, id, 1).await == "CANCELLED").await;
    receiver.now(|_, _| status(204));
    let body = json!({ "url": receiver.url(), "active": true });
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    admin(&trial).say(&Call::put(&path, body.clone()).if_match(1)).await.expect(412, "version_mismatch");
    let shown = admin(&trial).say(&Call::put(&path, body).if_match(2)).await.expect(200, "").json();
    assert_eq!((&shown["active"], &shown["disabled_reason"]), (&true.into(), &Value::Null));
    let event = deliveries(&trial, endpoint).await[0]["event_id"].as_str().expect("an id").to_owned();
    redeliver(&trial, endpoint, &event).await.expect(202, "");
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    trial.end().await;
}

#[tokio::test]
async fn a_dead_endpoint_pauses_uses_up_few_attempts_and_slows_nobody() {
    let trial = service().await;
    let told = Arc::new(Notify::new());
    let hangs = Arc::clone(&told);
    let (dead, well) = (Receiver::that(move |_, _| Say::Wait(Arc::clone(&hangs))).await, Receiver::new().await);
    let failing = Receiver::that(|_, _| status(500)).await;
    for receiver in [&dead, &failing, &well] {
        endpoint(&trial, receiver).await;
    }
    let started = Instant::now();
    for n in 0..30 {
        book(&trial, n).await;
    }
    eventually("the one that is well has all", async || well.received().len() == 30).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}: before the hanging one is given up once");
    assert!(dead.received().len() <= 5, "{} at once", dead.received().len());
    eventually("the breaker is open", async || {
        let mut connection = trial.connect().await;
        count(
            &mut connection,
            "select count(*) from webhook_endpoints where failures >= 5 and paused_until > clock_timestamp()",
        )
        .await
            == 1
    })
    .await;
    let tried = failing.received().len();
    assert!((5..=12).contains(&tried), "{tried} attempts of 30");
    told.notify_waiters();
    trial.end().await;
}

/// A worker of its own, in this process.
pub(super) fn deliverer(app: &Arc<App>, tasks: &TaskTracker) -> Deliverer {
    Deliverer::new(Arc::clone(app), Client::new(app.guard.clone()).expect("a client"), tasks.clone())
}

#[tokio::test]
async fn a_worker_that_is_late_changes_nothing() {
    use oncebook::config::Role;
    let mut trial = Trial::new().await;
    let app = trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let told = Arc::new(Notify::new());
    let waits = Arc::clone(&told);
    let receiver =
        Receiver::that(move |_, before| if before == 0 { Say::Wait(Arc::clone(&waits)) } else { status(200) }).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    let tasks = TaskTracker::new();
    let (late, other) = (deliverer(&app, &tasks), deliverer(&app, &tasks));
    eventually("it is queued", async || state(&trial, endpoint, id, 1).await == "PENDING").await;
    assert_eq!(late.step().await, Ok(Did::Work));
    assert_eq!(state(&trial, endpoint, id, 1).await, "SENT", "before the first byte leaves");
    assert_eq!(other.step().await, Ok(Did::Nothing), "nobody else has it while the lease holds");
    eventually("it is there", async || receiver.received().len() == 1).await;
    trial.change("update webhook_deliveries set lease_until = lease_until - interval '2 minutes'").await;
    Keeper(Arc::clone(&app)).step().await.expect("a step");
    assert_eq!(other.step().await, Ok(Did::Work));
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    let before = deliveries(&trial, endpoint).await;
    told.notify_one();
    tasks.close();
    tasks.wait().await;
    assert_eq!(deliveries(&trial, endpoint).await, before);
    let attempts = &before[0]["attempts"];
    assert_eq!((&attempts[0]["outcome"], &attempts[1]["outcome"]), (&"unknown".into(), &"delivered".into()));
    trial.end().await;
}
