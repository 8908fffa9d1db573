//! `outbox`, for a log outside the database: claim a partition, read what waits, take out what has arrived. Each a statement of
//! its own, since between them the network is used.

use std::time::Duration;

use jiff_sqlx::Timestamp as SqlTime;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::log::{Moved, interval};
use crate::domain::event::Event;

/// An event in the outbox.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Where it will go.
    pub partition: i16,
    /// Its place in the outbox: within a partition, the order of its subjects.
    pub position: i64,
    /// The event.
    pub event: Event,
}

/// Takes a lease on every partition that has events waiting and that no other relay sends; says which. Asked again with the
/// same token, it says the same.
///
/// # Errors
/// As [`StoreError`].
pub async fn claim(connection: &mut PgConnection, token: Uuid, lease: Duration) -> Result<Vec<i16>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"update log_partitions p
           set token = $1, lease_until = clock_timestamp() + $2::interval
           from (
             select c.partition from log_partitions c
             where (c.token is null or c.token = $1 or c.lease_until < clock_timestamp())
               and exists (select from outbox o where o.partition = c.partition)
             order by c.partition
             for update skip locked) as free
           where p.partition = free.partition
           returning p.partition"#,
        token,
        interval(lease)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// The first `most` events that wait in each of these partitions, in order.
///
/// A statement of its own after the claim: its snapshot no longer has what an earlier holder of the lease took out.
///
/// # Errors
/// As [`StoreError`].
pub async fn waiting(connection: &mut PgConnection, partitions: &[i16], most: i64) -> Result<Vec<Waiting>, StoreError> {
    let rows = sqlx::query!(
        r#"select o.partition as "partition!", o.position, o.event_id, o.tenant_id, o.clinic_id, o.subject_kind, o.subject_id,
             o.sequence, o.type as kind, o.payload as data, o.traceparent, o.occurred_at as "occurred_at: SqlTime"
           from unnest($1::smallint[]) as mine(partition) cross join lateral (
             select * from outbox w where w.partition = mine.partition order by w.position limit $2) as o
           order by o.partition, o.position"#,
        partitions,
        most
    )
    .fetch_all(connection)
    .await?;
    let waiting = rows.into_iter().map(|row| Waiting {
        partition: row.partition,
        position: row.position,
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
    });
    Ok(waiting.collect())
}

/// Takes out what has arrived in the log, by partition and position, and ends the token's lease. What the token no longer
/// holds stays: another sends it again.
///
/// # Errors
/// As [`StoreError`].
pub async fn arrived(
    connection: &mut PgConnection,
    token: Uuid,
    arrived: &[(i16, i64)],
    most: i64,
) -> Result<Moved, StoreError> {
    let (partitions, positions): (Vec<i16>, Vec<i64>) = arrived.iter().copied().unzip();
    let moved =
        sqlx::query_file!("src/store/outbox_arrived.sql", token, &partitions, &positions).fetch_one(connection).await?;
    Ok(Moved {
        events: moved.events.unsigned_abs(),
        full: moved.most == most,
        oldest: moved.oldest.map(SqlTime::to_jiff),
        traceparents: Vec::new(),
    })
}
