//! Endpoints that are changed while deliveries wait for them, or are at work.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::receiver::{Receiver, Say};
use super::{admin, book, deliveries, endpoint, service, show, state, time_passes};
use crate::app::{Trial, eventually};
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

async fn put(trial: &Trial, endpoint: uuid::Uuid, body: Value) {
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    admin(trial).say(&Call::put(path, body)).await.expect(200, "");
}

/// Whether the first attempt at the one delivery there is has ended.
async fn ended(trial: &Trial, endpoint: uuid::Uuid) -> bool {
    deliveries(trial, endpoint).await[0]["attempts"][0]["outcome"].is_string()
}
