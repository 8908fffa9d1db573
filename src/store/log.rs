//! `event_log`, its partitions and its groups.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::Timestamp as SqlTime;
use sqlx::postgres::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::StoreError;
use crate::domain::event::{Event, Logged, Place};

/// What a step of the relay moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Events.
    pub events: u64,
    /// Whether a partition had as many as are moved at a time, and so may have more.
    pub full: bool,
    /// When the oldest of them happened.
    pub oldest: Option<Timestamp>,
    /// Trace contexts of some of them, where they were asked for.
    pub traceparents: Vec<String>,
}

/// Moves up to `most` events of each partition that nobody else is at from the outbox into the log; tells the trace contexts
/// of as many as asked.
///
/// # Errors
/// As [`StoreError`].
pub async fn relay(connection: &mut PgConnection, most: i64, traceparents: i64) -> Result<Moved, StoreError> {
    let moved = sqlx::query_file!("src/store/relay.sql", most, traceparents).fetch_one(connection).await?;
    Ok(Moved {
        events: moved.events.unsigned_abs(),
        full: moved.most == most,
        oldest: moved.oldest.map(SqlTime::to_jiff),
        traceparents: moved.traceparents,
    })
}

/// Makes a group that begins with the oldest event there is; one that is there already stays where it is.
///
/// # Errors
/// As [`StoreError`].
pub async fn join(connection: &mut PgConnection, group: &str) -> Result<(), StoreError> {
    sqlx::query!(
        r#"insert into log_groups (name, partition, "offset")
           select $1, p.partition, coalesce(oldest."offset", p.next_offset)
           from log_partitions p left join lateral (
             select e."offset" from event_log e where e.partition = p.partition order by e."offset" limit 1) as oldest on true
           on conflict do nothing"#,
        group
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// How long and how much is read.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The lease on what is read.
    pub lease: Duration,
    /// Partitions at the most.
    pub partitions: i64,
    /// Events of each at the most.
    pub events: i64,
}

/// Reads on for a group, under a lease that is this token's.
///
/// # Errors
/// As [`StoreError`].
pub async fn read(
    connection: &mut PgConnection,
    group: &str,
    token: Uuid,
    reach: Reach,
) -> Result<Vec<Logged>, StoreError> {
    let rows = sqlx::query_file_as!(
        Row,
        "src/store/log_read.sql",
        group,
        token,
        interval(reach.lease),
        reach.events,
        reach.partitions
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Logged::from).collect())
}

/// Moves a group on to these places, which are the next it will read, and ends the token's lease. Says whether the token
/// still held all of them; what it no longer holds stays where it is.
///
/// # Errors
/// As [`StoreError`].
pub async fn commit(
    connection: &mut PgConnection,
    group: &str,
    token: Uuid,
    next: &[Place],
) -> Result<bool, StoreError> {
    let (partitions, offsets): (Vec<i16>, Vec<i64>) = next.iter().map(|place| (place.partition, place.offset)).unzip();
    let done = sqlx::query!(
        r#"update log_groups g
           set "offset" = next."offset", token = null, lease_until = null
           from unnest($3::smallint[], $4::bigint[]) as next(partition, "offset")
           where g.name = $1 and g.partition = next.partition and g.token = $2"#,
        group,
        token,
        &partitions,
        &offsets
    )
    .execute(connection)
    .await?;
    Ok(usize::try_from(done.rows_affected()).is_ok_and(|done| done == next.len()))
}

/// The events at these places, as far as they are still kept.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, places: &[Place]) -> Result<Vec<Logged>, StoreError> {
    let (partitions, offsets): (Vec<i16>, Vec<i64>) =
        places.iter().map(|place| (place.partition, place.offset)).unzip();
    let rows = sqlx::query_as!(
        Row,
        r#"select e.partition, e."offset", e.event_id, e.tenant_id, e.clinic_id, e.subject_kind, e.subject_id, e.sequence,
             e.type as kind, e.payload as data, e.traceparent, e.occurred_at
           from unnest($1::smallint[], $2::bigint[]) as wanted(partition, "offset")
           join event_log e on e.partition = wanted.partition and e."offset" = wanted."offset"
           order by e.partition, e."offset""#,
        &partitions,
        &offsets
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Logged::from).collect())
}

/// How many events of each partition a group has yet to read.
///
/// # Errors
/// As [`StoreError`].
pub async fn lag(connection: &mut PgConnection, group: &str) -> Result<Vec<(i16, i64)>, StoreError> {
    let rows = sqlx::query!(
        r#"select g.partition, p.next_offset - g."offset" as "lag!"
           from log_groups g join log_partitions p on p.partition = g.partition
           where g.name = $1
           order by g.partition"#,
        group
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.partition, row.lag)).collect())
}

/// When the oldest event that a group has yet to read happened.
///
/// # Errors
/// As [`StoreError`].
pub async fn oldest(connection: &mut PgConnection, group: &str) -> Result<Option<Timestamp>, StoreError> {
    let oldest = sqlx::query_scalar!(
        r#"select min(next.occurred_at) as oldest
           from log_groups g cross join lateral (
             select e.occurred_at from event_log e where e.partition = g.partition and e."offset" >= g."offset"
             order by e."offset" limit 1) as next
           where g.name = $1"#,
        group
    )
    .fetch_one(connection)
    .await?;
    Ok(oldest.map(SqlTime::to_jiff))
}

/// A row of the log.
struct Row {
    partition: i16,
    offset: i64,
    event_id: Uuid,
    tenant_id: Uuid,
    clinic_id: Uuid,
    subject_kind: String,
    subject_id: Uuid,
    sequence: i32,
    kind: String,
    data: serde_json::Value,
    traceparent: Option<String>,
    occurred_at: SqlTime,
}

impl From<Row> for Logged {
    fn from(row: Row) -> Self {
        Self {
            place: Place { partition: row.partition, offset: row.offset },
            event: Event {
                id: row.event_id,
                tenant_id: row.tenant_id,
                clinic_id: row.clinic_id,
                subject_kind: row.subject_kind,
                subject_id: row.subject_id,
                sequence: row.sequence,
                kind: row.kind,
                data: row.data,
                traceparent: row.traceparent,
                occurred_at: row.occurred_at.to_jiff(),
            },
        }
    }
}

/// A duration as Postgres takes it; a lease is far from what does not fit.
pub(super) fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX) }
}
