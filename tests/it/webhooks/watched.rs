//! How the deliverer stands, for `/readyz` and the alerts.

use std::collections::BTreeSet;

use oncebook::config::Role;
use oncebook::pulse::Behind;
use oncebook::worker::Worker;
use tokio_util::task::TaskTracker;

use super::failing::deliverer;
use super::receiver::Receiver;
use super::{book, deliveries, endpoint, service};
use crate::app::{Setup, Trial, eventually, step};

#[tokio::test]
async fn every_worker_has_a_name_of_its_own() {
    let trial = service().await;
    eventually("the workers have begun", async || {
        let looks = trial.services()[0].app.pulses.look();
        looks.iter().any(|look| look.name == "webhook_delivery") && looks.iter().any(|look| look.name == "webhooks")
    })
    .await;
    let looks = trial.services()[0].app.pulses.look();
    let names: BTreeSet<&str> = looks.iter().map(|look| look.name).collect();
    assert_eq!(names.len(), looks.len(), "{looks:?}");
    trial.end().await;
}

#[tokio::test]
async fn what_is_due_and_not_sent_counts_and_what_is_held_or_left_alone_does_not() {
    let mut trial = Trial::new().await;
    let app = trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let deliverer = deliverer(&app, &TaskTracker::new());
    assert_eq!(deliverer.behind().await, Ok(Some(Behind { items: 0, seconds: 0.0 })));
    let id = book(&trial, 0).await;
    trial.desk().say(&step(id, "confirm")).await.expect(200, "");
    book(&trial, 2).await;
    eventually("all is queued", async || deliveries(&trial, endpoint).await.len() == 3).await;
    trial.change("update webhook_deliveries set next_attempt_at = next_attempt_at - interval '90 s'").await;
    let behind = async || deliverer.behind().await.expect("an answer").expect("a queue");
    let now = behind().await;
    assert_eq!(now.items, 2, "the second of one visit is held");
    assert!((90.0..200.0).contains(&now.seconds), "{now:?}");
    // What was due while it was left alone has not waited for us.
    trial.change("update webhook_endpoints set paused_until = clock_timestamp() - interval '5 s'").await;
    let now = behind().await;
    assert!(now.items == 2 && (5.0..90.0).contains(&now.seconds), "{now:?}");
    for quiet in [
        "update webhook_endpoints set paused_until = clock_timestamp() + interval '1 h'",
        "update webhook_endpoints set paused_until = null, event_types = '{appointment.cancelled}'",
        "update webhook_endpoints set event_types = null, active = false",
    ] {
        trial.change(quiet).await;
        assert_eq!(behind().await, Behind { items: 0, seconds: 0.0 }, "{quiet}");
    }
    trial.end().await;
}
