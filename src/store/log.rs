//! `event_log`, its partitions and its groups.

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::StoreError;
use crate::domain::event::{Event, Logged, Place};

/// What a step of the relay moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Events.
    pub events: u64,
    /// Whether a partition had as many as are moved at a time, and so may have more.
    pub full: bool,
    /// When the oldest of them happened.
    pub oldest: Option<Timestamp>,
}

/// Moves up to `most` events of each partition that nobody else is at from the outbox into the log.
///
/// # Errors
/// As [`StoreError`].
pub async fn relay(connection: &mut PgConnection, most: i64) -> Result<Moved, StoreError> {
    let moved = sqlx::query_file!("src/store/relay.sql", most).fetch_one(connection).await?;
    Ok(Moved {
        events: moved.events.unsigned_abs(),
        full: moved.most == most,
        oldest: moved.oldest.map(SqlTime::to_jiff),
    })
}
