//! Webhooks out: what happened, sent to endpoints outside, each event at least once and in order for each appointment.
//!
//! The logical consumer `webhooks` queues a delivery for every endpoint that wants an event, in the inbox row's transaction.
//! The role `webhooks` takes up what is due, under a lease and a token, and commits that it is sent before the first byte
//! leaves. An attempt whose outcome nobody knows is made again, since a receiver knows an event by its `webhook-id`.
//! Order: at one endpoint, an event waits until the one before it of its subject is delivered or given up; after that it
//! goes out all the same, and `sequence` shows the receiver what is missing.

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::postgres::PgConnection;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::consumer::Handler;
use crate::domain::event::Logged;
use crate::outbound::Client;
use crate::store::{StoreError, deliveries};

pub mod deliver;
pub mod keep;
pub mod schedule;
pub mod sign;

use deliver::Deliverer;
/// Queues events for every endpoint that wants them.
pub struct FanOut;

impl Handler for FanOut {
    const CONSUMER: &'static str = "webhooks";
    // So that whoever sees a delivery sees those of its subject's earlier events.
    const IN_ORDER: bool = true;

    async fn apply(&self, connection: &mut PgConnection, events: &[&Logged], now: Timestamp) -> Result<(), StoreError> {
        deliveries::fan_out(connection, events, now).await
    }
}

/// What delivers, if this process can; else it says why not. `tasks` are the background's.
pub fn deliverer(app: &Arc<App>, tasks: &TaskTracker) -> Option<Deliverer> {
    if app.keyring.is_none() {
        tracing::warn!("no ONCEBOOK_ENCRYPTION_KEY, so no secret to sign with: this process delivers no webhook");
        return None;
    }
    let client = Client::new(app.guard.clone());
    let client = client
        .inspect_err(|error| tracing::error!(%error, "no certificates to trust: this process delivers no webhook"));
    Some(Deliverer::new(Arc::clone(app), client.ok()?, tasks.clone()))
}
