//! Endpoints that are changed while deliveries wait for them, or are at work.

use std::sync::Arc;

use oncebook::config::Role;
use oncebook::webhook::keep::Keeper;
use oncebook::worker::{Did, Worker};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::admin::confined;
use super::failing::deliverer;
use super::receiver::{Receiver, Say};
use super::{admin, book, deliveries, endpoint, redeliver, service, show, state, time_passes};
use crate::app::{Setup, Trial, eventually, step};
use crate::client::Call;

#[tokio::test]
async fn what_the_old_url_says_last_is_not_held_against_the_new_one() {
    let trial = service().await;
    for (slot, said) in [(0, 410), (2, 500)] {
        let told = Arc::new(Notify::new());
        let waits = Arc::clone(&told);
        let old = Receiver::that(move |_, _| Say::After(Arc::clone(&waits), said)).await;
        let new = Receiver::new().await;
        let endpoint = endpoint(&trial, &old).await;
        let id = book(&trial, slot).await;
        eventually("an attempt is at work", async || old.received().len() == 1).await;
        put(&trial, endpoint, json!({ "url": new.url() })).await;
        told.notify_one();
        eventually("it ended", async || ended(&trial, endpoint).await).await;
        let shown = show(&trial, endpoint).await;
        assert_eq!(
            (&shown["active"], &shown["disabled_reason"], &shown["version"]),
            (&true.into(), &Value::Null, &2.into())
        );
        assert!(shown["failing_since"].is_null() && shown["paused_until"].is_null(), "{said}: {shown}");
        time_passes(&trial).await;
        eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
        assert_eq!((old.received().len(), new.received().len()), (1, 1));
        let path = format!("/v1/webhook-endpoints/{endpoint}");
        admin(&trial).say(&Call::delete(path)).await.expect(204, "");
    }
    trial.end().await;
}

/// As if the visit's events had happened in the other clinic.
async fn elsewhere(trial: &Trial, visit: uuid::Uuid) {
    let clinic = trial.demo.other_clinic_id;
    let there = format!("update webhook_deliveries set clinic_id = '{clinic}' where subject_id = '{visit}'");
    trial.change(&there).await;
}

#[tokio::test]
async fn who_is_confined_sees_and_sends_again_what_is_of_their_clinics_whatever_the_endpoint_is_for_by_now() {
    let trial = service().await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let (here, there) = (book(&trial, 0).await, book(&trial, 2).await);
    for id in [here, there] {
        eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    }
    elsewhere(&trial, there).await;
    put(&trial, endpoint, json!({ "url": receiver.url(), "clinic_ids": [trial.demo.clinic_id] })).await;
    let local = confined(&trial, trial.demo.clinic_id).await;
    let path = format!("/v1/webhook-endpoints/{endpoint}/deliveries");
    let seen = local.say(&Call::get(&path)).await.expect(200, "").json()["items"].clone();
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(seen[0]["subject"], format!("appointment/{here}"));
    let all = deliveries(&trial, endpoint).await;
    assert_eq!(all.len(), 2);
    let event = |of: uuid::Uuid| {
        let it = all.iter().find(|it| it["subject"] == format!("appointment/{of}")).expect("one");
        it["event_id"].as_str().expect("an id").to_owned()
    };
    let again = |of| Call::post(format!("{path}/{}/redeliver", event(of)), Value::Null);
    local.say(&again(there)).await.expect(404, "not_found");
    local.say(&again(here)).await.expect(202, "");
    // Whoever may see it: it is not sent to an endpoint that is no longer for it.
    redeliver(&trial, endpoint, &event(there)).await.expect(409, "transition_not_allowed");
    eventually("it is sent again", async || receiver.received().len() == 3).await;
    assert_eq!(receiver.received()[2].subject(), format!("appointment/{here}"));
    trial.end().await;
}

#[tokio::test]
async fn what_waits_and_is_no_longer_wanted_is_not_sent_and_is_cancelled() {
    let mut trial = Trial::new().await;
    let app = trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let (here, there) = (book(&trial, 0).await, book(&trial, 2).await);
    trial.desk().say(&step(here, "cancel")).await.expect(200, "");
    eventually("all is queued", async || deliveries(&trial, endpoint).await.len() == 3).await;
    elsewhere(&trial, there).await;
    let clinics = [trial.demo.clinic_id];
    let wants = json!({ "url": receiver.url(), "clinic_ids": clinics, "event_types": ["appointment.booked"] });
    put(&trial, endpoint, wants).await;
    let tasks = TaskTracker::new();
    let deliverer = deliverer(&app, &tasks);
    assert_eq!(deliverer.step().await, Ok(Did::Work));
    eventually("one is delivered", async || state(&trial, endpoint, here, 1).await == "DELIVERED").await;
    assert_eq!(deliverer.step().await, Ok(Did::Nothing), "the others are not taken up");
    Keeper(Arc::clone(&app)).step().await.expect("a step");
    for delivery in deliveries(&trial, endpoint).await.iter().filter(|it| it["state"] != "DELIVERED") {
        assert_eq!((&delivery["state"], &delivery["reason"]), (&"CANCELLED".into(), &"unwanted".into()));
    }
    assert_eq!(receiver.received().len(), 1);
    tasks.close();
    tasks.wait().await;
    trial.end().await;
}

async fn put(trial: &Trial, endpoint: uuid::Uuid, body: Value) {
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    admin(trial).say(&Call::put(path, body)).await.expect(200, "");
}

/// Whether the first attempt at the one delivery there is has ended.
async fn ended(trial: &Trial, endpoint: uuid::Uuid) -> bool {
    deliveries(trial, endpoint).await.first().is_some_and(|it| it["attempts"][0]["outcome"].is_string())
}

#[tokio::test]
async fn if_match_is_heeded_by_every_change_and_a_read_tells_what_changed_without_a_version() {
    let trial = service().await;
    let receiver = Receiver::that(|_, _| Say::Status(500, String::new())).await;
    let endpoint = endpoint(&trial, &receiver).await;
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    let read = || {
        let (url, key) = (format!("{}{path}", trial.services()[0].base), &trial.demo.api_keys.admin);
        reqwest::Client::new().get(url).bearer_auth(key).header("if-none-match", "\"1\"").send()
    };
    assert_eq!(read().await.expect("an answer").status(), 200);
    book(&trial, 0).await;
    eventually("it failed", async || ended(&trial, endpoint).await).await;
    let answer = read().await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.headers()["etag"].as_bytes()), (200, b"\"1\"".as_slice()));
    let told: Value = answer.json().await.expect("JSON");
    assert!(told["failing_since"].is_string() && told["version"] == 1, "{told}");

    let rotate = || Call::post(format!("{path}/rotate-secret"), json!({}));
    let secret = async || admin(&trial).say(&Call::get(format!("{path}/secret"))).await.json()["secret"].clone();
    let first = secret().await;
    admin(&trial).say(&rotate().if_match(2)).await.expect(412, "version_mismatch");
    assert_eq!(secret().await, first);
    let second = admin(&trial).say(&rotate().if_match(1)).await.expect(200, "").json()["secret"].clone();
    assert!(second != first && secret().await == second);
    let third = admin(&trial).say(&rotate()).await.expect(200, "").json()["secret"].clone();
    assert!(third != second && secret().await == third, "it is optional");
    admin(&trial).say(&Call::delete(&path).if_match(2)).await.expect(412, "version_mismatch");
    // The same content is no change: what failed stays known. Other content is.
    put(&trial, endpoint, json!({ "url": receiver.url() })).await;
    let shown = show(&trial, endpoint).await;
    assert!(shown["version"] == 1 && shown["failing_since"].is_string(), "{shown}");
    trial
        .change(
            "update webhook_deliveries set next_attempt_at = next_attempt_at + interval '1 h' where state = 'PENDING'",
        )
        .await;
    put(&trial, endpoint, json!({ "url": receiver.url(), "description": "Screen" })).await;
    let shown = show(&trial, endpoint).await;
    assert!(shown["version"] == 2 && shown["failing_since"].is_null(), "{shown}");
    admin(&trial).say(&Call::delete(&path).if_match(1)).await.expect(412, "version_mismatch");
    admin(&trial).say(&Call::delete(&path).if_match(2)).await.expect(204, "");
    admin(&trial).say(&Call::get(&path)).await.expect(404, "not_found");
    trial.end().await;
}
