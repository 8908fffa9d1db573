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
pub enum Filter {
    /// Visits, whatever became of them.
    Visits {
        /// The patient.
        patient: Option<Uuid>,
        /// The practitioner.
        practitioner: Option<Uuid>,
        /// Their status.
        status: Option<Status>,
        /// They start before this.
        starts_before: Option<Timestamp>,
    },
    /// Blocks that were not removed.
    Blocks {
        /// The practitioner.
        practitioner: Option<Uuid>,
        /// The operatory.
        operatory: Option<Uuid>,
        /// They start before this.
        starts_before: Option<Timestamp>,
        /// They end after this.
        ends_after: Option<Timestamp>,
    },
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

/// Rows as they were read, each with whether the stride ended there and whether it is one of those that are wanted.
macro_rules! looked {
    ($rows:expr) => {
        $rows
            .into_iter()
            .map(|row| Ok((row.last, row.matches, appointment!(row))))
            .collect::<Result<Vec<_>, StoreError>>()?
    };
}

/// The first `most` rows of a clinic after a place, as far as one stride finds them; nothing where the clinic does not exist.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
    filter: &Filter,
    after: Option<Place>,
    most: i64,
) -> Result<Option<Stride>, StoreError> {
    let (start, id) = after.map(|place| (place.start.to_sqlx(), place.id)).unzip();
    let looked = match *filter {
        Filter::Visits { patient, practitioner, status, starts_before } => {
            let visits = sqlx::query_file!(
                "src/store/list.sql",
                tenant,
                clinic,
                start,
                id,
                starts_before.map(ToSqlx::to_sqlx),
                patient,
                practitioner,
                status.map(Status::as_str),
                most
            );
            looked!(visits.fetch_all(&mut *connection).await?)
        }
        Filter::Blocks { practitioner, operatory, starts_before, ends_after } => {
            let blocks = sqlx::query_file!(
                "src/store/list_blocks.sql",
                tenant,
                clinic,
                start,
                id,
                ends_after.map(ToSqlx::to_sqlx),
                starts_before.map(ToSqlx::to_sqlx),
                practitioner,
                operatory,
                most
            );
            looked!(blocks.fetch_all(&mut *connection).await?)
        }
    };
    // Rows say that their clinic exists; without any it is asked for.
    if looked.is_empty() && !is_clinic(connection, tenant, clinic).await? {
        return Ok(None);
    }
    let mut stride = Stride::default();
    for (last, matches, row) in looked {
        stride.reached = last.then(|| Place::of(&row));
        if matches {
            stride.rows.push(row);
        }
    }
    Ok(Some(stride))
}

async fn is_clinic(connection: &mut PgConnection, tenant: Uuid, id: Uuid) -> Result<bool, StoreError> {
    let there = sqlx::query_scalar!(
        r#"select exists (select from clinics where tenant_id = $1 and id = $2) as "there!""#,
        tenant,
        id
    );
    Ok(there.fetch_one(connection).await?)
}

/// The clinic of the visit of that id, and the first `most` of its versions after one, oldest first.
///
/// # Errors
/// As [`StoreError`].
pub async fn history(
    connection: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
    after: i32,
    most: i64,
) -> Result<Option<(Uuid, Vec<HistoryEntry>)>, StoreError> {
    let visit = sqlx::query_scalar!(
        "select clinic_id from appointments where tenant_id = $1 and id = $2 and kind = $3",
        tenant,
        id,
        Kind::Visit.as_str()
    );
    let Some(clinic) = visit.fetch_optional(&mut *connection).await? else { return Ok(None) };
    let rows = sqlx::query!(
        r#"select version, status, lower(during) as "start!", upper(during) as "end!", practitioner_id, operatory_id, service_id,
             overbooked, operation, subject, credential_id, request_id, caller_request_id, at
           from appointment_history
           where tenant_id = $1 and appointment_id = $2 and version > $3
           order by version
           limit $4"#,
        tenant,
        id,
        after,
        most
    )
    .fetch_all(connection)
    .await?;
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
