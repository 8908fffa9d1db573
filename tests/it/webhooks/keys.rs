//! Processes that lack the key of a secret, or have another: that is the service's fault, and no receiver's.

use std::sync::Arc;

use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::{Config, Role, Secret};
use oncebook::worker::{Did, Worker};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::failing::deliverer;
use super::receiver::Receiver;
use super::{admin, book, deliveries, endpoint, show, state, time_passes};
use crate::app::{Setup, Trial, eventually};
use crate::client::Call;

/// As a process with this key in its environment has it.
fn with_key(trial: &Trial, key: Option<&str>) -> Arc<App> {
    let encryption_key = key.map(|key| Secret(key.to_owned()));
    let config = Config { encryption_key, webhook_allow_private: true, ..Config::from_environment() };
    App::new(config, &trial.url(), Clock::system(), Ids::random(), None).expect("an app")
}

#[tokio::test]
async fn who_has_not_the_key_leaves_a_delivery_to_who_has_and_holds_nothing_against_the_receiver() {
    let mut trial = Trial::new().await;
    let app = trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    // As if it had failed for nearly five days: one failure more would disable it.
    trial.change("update webhook_endpoints set failures = 1, failing_since = now() - interval '6 days'").await;
    let before = show(&trial, endpoint).await;
    let id = book(&trial, 0).await;
    eventually("it is queued", async || state(&trial, endpoint, id, 1).await == "PENDING").await;
    let tasks = TaskTracker::new();
    for key in [Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), None] {
        let other = with_key(&trial, key);
        assert_eq!(deliverer(&other, &tasks).step().await, Ok(Did::Work));
        eventually("it is handed back", async || state(&trial, endpoint, id, 1).await == "PENDING").await;
        let it = deliveries(&trial, endpoint).await.remove(0);
        assert_eq!((&it["reason"], &it["attempts"]), (&"secret_unreadable".into(), &json!([])), "no attempt was made");
        assert_eq!(show(&trial, endpoint).await, before, "nor is anything held against the receiver");
        time_passes(&trial).await;
    }
    assert_eq!(receiver.connections(), 0);
    assert_eq!(deliverer(&app, &tasks).step().await, Ok(Did::Work));
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    let it = deliveries(&trial, endpoint).await.remove(0);
    assert_eq!((&it["reason"], it["attempts"].as_array().map(Vec::len)), (&Value::Null, Some(1)));
    tasks.close();
    tasks.wait().await;
    trial.end().await;
}

#[tokio::test]
async fn it_is_signed_with_whichever_secret_opens() {
    let mut trial = Trial::new().await;
    let app = trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let rotated = Call::post(format!("/v1/webhook-endpoints/{endpoint}/rotate-secret"), json!({}));
    admin(&trial).say(&rotated).await.expect(200, "");
    // As if the new secret had been sealed with a key that this process does not have yet.
    trial.change("update webhook_endpoints set secret = set_byte(secret, 1, 255 - get_byte(secret, 1))").await;
    let id = book(&trial, 0).await;
    eventually("it is queued", async || state(&trial, endpoint, id, 1).await == "PENDING").await;
    let tasks = TaskTracker::new();
    assert_eq!(deliverer(&app, &tasks).step().await, Ok(Did::Work));
    eventually("it is delivered", async || state(&trial, endpoint, id, 1).await == "DELIVERED").await;
    let signature = receiver.received()[0].headers["webhook-signature"].clone();
    assert!(signature.starts_with("v1,") && !signature.contains(' '), "{signature}: by one of two");
    tasks.close();
    tasks.wait().await;
    trial.end().await;
}
