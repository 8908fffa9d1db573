//! The logical consumer `changes`: keeps what `GET /v1/changes` shows.

use jiff::Timestamp;
use sqlx::postgres::PgConnection;

use crate::consumer::Handler;
use crate::domain::event::Logged;
use crate::store::{StoreError, changes};

/// Appends every event to its clinic's feed.
pub struct Keep;

impl Handler for Keep {
    const CONSUMER: &'static str = "changes";
    const IN_ORDER: bool = true;

    async fn apply(&self, connection: &mut PgConnection, events: &[&Logged], now: Timestamp) -> Result<(), StoreError> {
        changes::append(connection, events, now).await
    }
}
