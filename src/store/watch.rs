//! How the service is doing, by its tables. Every question is bounded: what is counted is counted up to [`MOST`], and the
//! oldest is found at the beginning of an index.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;

use super::StoreError;

/// Rows that are counted: a figure of so many means that many, or more.
pub const MOST: i64 = 10_000;

/// What waits somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many, up to [`MOST`].
    pub items: u64,
    /// From when the oldest is.
    pub oldest: Option<Timestamp>,
}

/// What is not done of a consumer's inbox; each figure up to [`MOST`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Whose.
    pub consumer: String,
    /// Tries that failed and are tried again.
    pub retryable: u64,
    /// Events held back behind others of their subject.
    pub held: u64,
    /// Tries at work.
    pub processing: u64,
    /// What a person has to look at, among the first [`MOST`] that are not done.
    pub quarantined: u64,
    /// Tries that are due: failed ones whose time has come, and those whose lease is up.
    pub due: Waiting,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Events that are not in the log yet.
    pub outbox: Waiting,
    /// Of each consumer.
    pub inboxes: Vec<Inbox>,
    /// Open STAFF tasks, up to [`MOST`].
    pub staff_tasks: u64,
}

/// Looks at all of it.
///
/// # Errors
/// As [`StoreError`].
pub async fn standing(connection: &mut PgConnection) -> Result<Standing, StoreError> {
    Ok(Standing {
        outbox: outbox(connection).await?,
        inboxes: inboxes(connection, None).await?,
        staff_tasks: staff_tasks(connection).await?,
    })
}

/// Events that are not in the log yet.
///
/// # Errors
/// As [`StoreError`].
pub async fn outbox(connection: &mut PgConnection) -> Result<Waiting, StoreError> {
    let row = sqlx::query!(
        r#"select (select count(*) from (select from outbox o order by o.partition, o.position limit $1) as waiting) as "items!",
             (select min(first.occurred_at) from log_partitions p cross join lateral (
                select o.occurred_at from outbox o where o.partition = p.partition order by o.position limit 1) as first) as oldest"#,
        MOST
    )
    .fetch_one(connection)
    .await?;
    Ok(Waiting { items: row.items.unsigned_abs(), oldest: row.oldest.map(SqlTime::to_jiff) })
}

/// What is not done of the inboxes: of one consumer, or of all.
///
/// # Errors
/// As [`StoreError`].
pub async fn inboxes(connection: &mut PgConnection, consumer: Option<&str>) -> Result<Vec<Inbox>, StoreError> {
    let rows = sqlx::query_file!("src/store/watch_inbox.sql", consumer, MOST).fetch_all(connection).await?;
    let inboxes = rows.into_iter().map(|row| Inbox {
        consumer: row.consumer,
        retryable: row.retryable.unsigned_abs(),
        held: row.held.unsigned_abs(),
        processing: row.processing.unsigned_abs(),
        quarantined: row.quarantined.unsigned_abs(),
        due: Waiting { items: row.due.unsigned_abs(), oldest: row.oldest.map(SqlTime::to_jiff) },
    });
    Ok(inboxes.collect())
}

async fn staff_tasks(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let open = sqlx::query_scalar!(
        r#"select count(*) as "open!" from (
             select from staff_tasks where resolved_at is null order by tenant_id, clinic_id, created_at, id limit $1) as waiting"#,
        MOST
    )
    .fetch_one(connection)
    .await?;
    Ok(open.unsigned_abs())
}

/// Keys past their retention that are still there.
///
/// # Errors
/// As [`StoreError`].
pub async fn expired_keys(connection: &mut PgConnection, now: Timestamp) -> Result<Waiting, StoreError> {
    let row = sqlx::query!(
        r#"select count(*) as "items!", min(expires_at) as oldest from (
             select expires_at from idempotency_keys where expires_at <= least($1::timestamptz, statement_timestamp())
             order by expires_at limit $2) as old"#,
        now.to_sqlx(),
        MOST
    )
    .fetch_one(connection)
    .await?;
    Ok(Waiting { items: row.items.unsigned_abs(), oldest: row.oldest.map(SqlTime::to_jiff) })
}
