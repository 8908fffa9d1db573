//! Reads of `appointments` and their history.

use jiff_sqlx::Timestamp as SqlTime;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::look::{external, status};
use crate::domain::appointment::{Appointment, Kind};
use crate::domain::time::Span;

/// A row as the statements of this file read it.
struct Row {
    id: Uuid,
    clinic_id: Uuid,
    kind: String,
    patient_id: Option<Uuid>,
    practitioner_id: Option<Uuid>,
    operatory_id: Option<Uuid>,
    service_id: Option<Uuid>,
    start: SqlTime,
    end: SqlTime,
    busy_until: SqlTime,
    time_zone: String,
    local_start: jiff_sqlx::DateTime,
    status: String,
    confirmed_at: Option<SqlTime>,
    overbooked: bool,
    version: i32,
    schedule_version: i32,
    intent: Option<Vec<u8>>,
    note: Option<String>,
    block_reason: Option<String>,
    external_system: Option<String>,
    external_id: Option<String>,
    cancel_reason: Option<String>,
    cancelled_by: Option<String>,
    created_at: SqlTime,
    updated_at: SqlTime,
}

impl From<Row> for Appointment {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            clinic_id: row.clinic_id,
            kind: if row.kind == "block" { Kind::Block } else { Kind::Visit },
            patient_id: row.patient_id,
            practitioner_id: row.practitioner_id,
            operatory_id: row.operatory_id,
            service_id: row.service_id,
            during: Span { start: row.start.to_jiff(), end: row.end.to_jiff() },
            busy_until: row.busy_until.to_jiff(),
            time_zone: row.time_zone,
            local_start: row.local_start.to_jiff(),
            status: status(Some(&row.status)),
            confirmed_at: row.confirmed_at.map(SqlTime::to_jiff),
            overbooked: row.overbooked,
            version: row.version,
            schedule_version: row.schedule_version,
            intent: row.intent.and_then(|intent| intent.try_into().ok()),
            note: row.note,
            block_reason: row.block_reason,
            external: external(row.external_system, row.external_id),
            cancel_reason: row.cancel_reason,
            cancelled_by: row.cancelled_by,
            created_at: row.created_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
        }
    }
}

/// The visit of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, tenant: Uuid, id: Uuid) -> Result<Option<Appointment>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, clinic_id, kind, patient_id, practitioner_id, operatory_id, service_id,
             lower(during) as "start!", upper(during) as "end!", upper(busy) as "busy_until!", time_zone, local_start,
             status, confirmed_at, overbooked, version, schedule_version, intent, note, block_reason,
             external_system, external_id, cancel_reason, cancelled_by, created_at, updated_at
           from appointments where tenant_id = $1 and id = $2 and kind = 'visit'"#,
        tenant,
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(Appointment::from))
}
