//! `changes` and `change_feeds`: what happened at a clinic, in the order in which it can be read.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use serde_json::Value;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use crate::domain::event::{Event, Logged};

/// Appends events to their clinics' feeds, now.
///
/// # Errors
/// As [`StoreError`].
pub async fn append(connection: &mut PgConnection, events: &[&Logged], now: Timestamp) -> Result<(), StoreError> {
    let ids = |of: fn(&Event) -> Uuid| events.iter().map(|logged| of(&logged.event)).collect::<Vec<_>>();
    let texts = |of: fn(&Event) -> &String| events.iter().map(|logged| of(&logged.event).clone()).collect::<Vec<_>>();
    let sequences: Vec<i32> = events.iter().map(|logged| logged.event.sequence).collect();
    let payloads: Vec<Value> = events.iter().map(|logged| logged.event.data.clone()).collect();
    let traces: Vec<Option<String>> = events.iter().map(|logged| logged.event.traceparent.clone()).collect();
    let times: Vec<SqlTime> = events.iter().map(|logged| logged.event.occurred_at.to_sqlx()).collect();
    sqlx::query_file!(
        "src/store/changes_append.sql",
        &ids(|event| event.id),
        &ids(|event| event.tenant_id),
        &ids(|event| event.clinic_id),
        &texts(|event| &event.subject_kind),
        &ids(|event| event.subject_id),
        &sequences,
        &texts(|event| &event.kind),
        &payloads,
        &traces as &[Option<String>],
        &times,
        now.to_sqlx()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A change, and its place in its clinic's feed.
pub type Placed = (i64, Event);

/// What is kept of a clinic's feed, from a place on.
#[derive(Clone, Debug)]
pub struct Feed {
    /// The first place that is kept: who stopped before it has missed something.
    pub first: i64,
    /// The changes.
    pub placed: Vec<Placed>,
}

/// The changes of a clinic from a place on; none where the clinic does not exist.
///
/// # Errors
/// As [`StoreError`].
pub async fn read(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
    from: i64,
    most: i64,
) -> Result<Option<Feed>, StoreError> {
    let rows = sqlx::query!(
        r#"select coalesce(d.first_position, 0) as "first!", c.position as "position?", c.event_id as "event_id?", c.subject_kind as "subject_kind?",
             c.subject_id as "subject_id?", c.sequence as "sequence?", c.type as "kind?", c.payload as "data?", c.traceparent,
             c.occurred_at as "occurred_at?"
           from clinics k
           left join change_feeds d on d.tenant_id = k.tenant_id and d.clinic_id = k.id
           left join lateral (
             select * from changes f
             where f.tenant_id = k.tenant_id and f.clinic_id = k.id and f.position >= greatest($3, d.first_position)
             order by f.position limit $4) as c on true
           where k.tenant_id = $1 and k.id = $2
           order by c.position"#,
        tenant,
        clinic,
        from,
        most
    )
    .fetch_all(connection)
    .await?;
    let Some(first) = rows.first().map(|row| row.first) else { return Ok(None) };
    let placed = rows.into_iter().filter_map(|row| {
        let event = Event {
            id: row.event_id?,
            tenant_id: tenant,
            clinic_id: clinic,
            subject_kind: row.subject_kind?,
            subject_id: row.subject_id?,
            sequence: row.sequence?,
            kind: row.kind?,
            data: row.data?,
            traceparent: row.traceparent,
            occurred_at: row.occurred_at?.to_jiff(),
        };
        Some((row.position?, event))
    });
    Ok(Some(Feed { first, placed: placed.collect() }))
}
