//! Reads of `appointments` and their history.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::look::{external, status};
use crate::domain::appointment::{Appointment, HistoryEntry, Kind, Status};
use crate::domain::time::Span;

/// Rows of the statements of this file carry the same names, so one piece of text reads either.
macro_rules! appointment {
    ($row:ident) => {
        Appointment {
            id: $row.id,
            clinic_id: $row.clinic_id,
            kind: if $row.kind == "block" { Kind::Block } else { Kind::Visit },
            patient_id: $row.patient_id,
            practitioner_id: $row.practitioner_id,
            operatory_id: $row.operatory_id,
            service_id: $row.service_id,
            during: Span { start: $row.start.to_jiff(), end: $row.end.to_jiff() },
            busy_until: $row.busy_until.to_jiff(),
            time_zone: $row.time_zone,
            local_start: $row.local_start.to_jiff(),
            status: status(&$row.status)?,
            confirmed_at: $row.confirmed_at.map(SqlTime::to_jiff),
            overbooked: $row.overbooked,
            version: $row.version,
            schedule_version: $row.schedule_version,
            intent: $row.intent.and_then(|intent| intent.try_into().ok()),
            note: $row.note,
            block_reason: $row.block_reason,
            external: external($row.external_system, $row.external_id),
            cancel_reason: $row.cancel_reason,
            cancelled_by: $row.cancelled_by,
            created_at: $row.created_at.to_jiff(),
            updated_at: $row.updated_at.to_jiff(),
        }
    };
}

/// The visit or block of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(
    connection: &mut PgConnection,
    tenant: Uuid,
    kind: Kind,
    id: Uuid,
) -> Result<Option<Appointment>, StoreError> {
    let row = sqlx::query!(
        r#"select id, clinic_id, kind, patient_id, practitioner_id, operatory_id, service_id,
             lower(during) as "start!", upper(during) as "end!", upper(busy) as "busy_until!", time_zone, local_start,
             status, confirmed_at, overbooked, version, schedule_version, intent, note, block_reason,
             external_system, external_id, cancel_reason, cancelled_by, created_at, updated_at
           from appointments where tenant_id = $1 and id = $2 and kind = $3"#,
        tenant,
        id,
        kind.as_str()
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| Ok(appointment!(row))).transpose()
}

/// Which rows of a clinic a list is of; none stands for "whichever".
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// The clinic.
    pub clinic: Uuid,
    /// Visits or blocks.
    pub kind: Kind,
    /// Whether only those that hold their slot.
    pub holding: bool,
    /// The patient.
    pub patient: Option<Uuid>,
    /// The practitioner.
    pub practitioner: Option<Uuid>,
    /// The operatory.
    pub operatory: Option<Uuid>,
    /// Their status.
    pub status: Option<Status>,
    /// They start before this.
    pub starts_before: Option<Timestamp>,
    /// They end after this.
    pub ends_after: Option<Timestamp>,
}

/// A place in the order of a list: by start, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When a row starts.
    pub start: Timestamp,
    /// Tells equal starts apart.
    pub id: Uuid,
}

impl Place {
    /// Where a row stands.
    #[must_use]
    pub const fn of(row: &Appointment) -> Self {
        Self { start: row.during.start, id: row.id }
    }
}

/// What one statement found of a list.
#[derive(Debug, Default)]
pub struct Stride {
    /// The rows, in order.
    pub rows: Vec<Appointment>,
    /// How far it looked, where it stopped before the end of the list and before it had as many as were wanted.
    pub reached: Option<Place>,
}

/// The first `most` rows after a place, as far as one stride finds them; nothing where the clinic does not exist.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    tenant: Uuid,
    filter: &Filter,
    after: Option<Place>,
    most: i64,
) -> Result<Option<Stride>, StoreError> {
    let found = sqlx::query_file!(
        "src/store/list.sql",
        tenant,
        filter.clinic,
        filter.kind.as_str(),
        after.map(|place| place.start.to_sqlx()),
        after.map(|place| place.id),
        filter.starts_before.map(ToSqlx::to_sqlx),
        filter.patient,
        filter.practitioner,
        filter.operatory,
        filter.status.map(Status::as_str),
        filter.holding,
        filter.ends_after.map(ToSqlx::to_sqlx),
        most
    )
    .fetch_all(&mut *connection)
    .await?;
    if found.is_empty() {
        // Rows say that their clinic exists; without any it is asked for.
        let exists = sqlx::query_scalar!(
            r#"select exists (select from clinics where tenant_id = $1 and id = $2) as "exists!""#,
            tenant,
            filter.clinic
        )
        .fetch_one(connection)
        .await?;
        return Ok(exists.then(Stride::default));
    }
    let mut stride = Stride::default();
    for row in found {
        let (last, matches) = (row.last, row.matches);
        let row = appointment!(row);
        stride.reached = last.then(|| Place::of(&row));
        if matches {
            stride.rows.push(row);
        }
    }
    Ok(Some(stride))
}

/// The versions of the visit of that id, oldest first, and its clinic.
///
/// # Errors
/// As [`StoreError`].
pub async fn history(
    connection: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
) -> Result<Option<(Uuid, Vec<HistoryEntry>)>, StoreError> {
    let rows = sqlx::query!(
        r#"select a.clinic_id, h.version, h.status, lower(h.during) as "start!", upper(h.during) as "end!", h.practitioner_id,
             h.operatory_id, h.service_id, h.overbooked, h.operation, h.subject, h.credential_id, h.request_id,
             h.caller_request_id, h.at
           from appointments a
           join appointment_history h on h.tenant_id = a.tenant_id and h.appointment_id = a.id
           where a.tenant_id = $1 and a.id = $2 and a.kind = 'visit'
           order by h.version"#,
        tenant,
        id
    )
    .fetch_all(connection)
    .await?;
    // Its first version is written with it, so a visit without any does not exist.
    let Some(clinic) = rows.first().map(|row| row.clinic_id) else { return Ok(None) };
    let mut versions = Vec::with_capacity(rows.len());
    for row in rows {
        versions.push(HistoryEntry {
            version: row.version,
            status: status(&row.status)?,
            start: row.start.to_jiff(),
            end: row.end.to_jiff(),
            practitioner_id: row.practitioner_id,
            operatory_id: row.operatory_id,
            service_id: row.service_id,
            overbooked: row.overbooked,
            operation: row.operation,
            subject: row.subject,
            credential_id: row.credential_id,
            request_id: row.request_id,
            caller_request_id: row.caller_request_id,
            at: row.at.to_jiff(),
        });
    }
    Ok(Some((clinic, versions)))
}
