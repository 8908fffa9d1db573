//! What of the log, the inbox and the feeds is old enough to go. Each a bounded piece of work that may be done twice, by two.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::log::interval;

/// Deletes events older than `kept` by both clocks, `most` of each partition; says how many. What a group has yet to read,
/// or a consumer to try again, stays.
///
/// # Errors
/// As [`StoreError`].
pub async fn log(connection: &mut PgConnection, now: Timestamp, kept: Duration, most: i64) -> Result<u64, StoreError> {
    let gone =
        sqlx::query_file!("src/store/age_log.sql", now.to_sqlx(), interval(kept), most).execute(connection).await?;
    Ok(gone.rows_affected())
}

/// Forgets decisions about events from before `before`, `most` at a time; says how many. Those about events that are
/// still in the log stay.
///
/// # Errors
/// As [`StoreError`].
pub async fn inbox(connection: &mut PgConnection, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    // Version 7 ids begin with their milliseconds.
    let millis = u64::try_from(before.as_millisecond()).unwrap_or(0);
    let first = Uuid::from_u128(u128::from(millis) << 80);
    let gone = sqlx::query_file_scalar!("src/store/age_inbox.sql", before.to_sqlx(), first, most)
        .fetch_one(connection)
        .await?;
    Ok(gone.unsigned_abs())
}

/// Deletes changes from before `before`; says how many.
///
/// # Errors
/// As [`StoreError`].
pub async fn changes(connection: &mut PgConnection, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    let gone =
        sqlx::query_file_scalar!("src/store/age_changes.sql", before.to_sqlx(), most).fetch_one(connection).await?;
    Ok(gone.unsigned_abs())
}
