//! The two looks: what a command reads, in one statement and so in one snapshot.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use super::seen::{Clinic, Credential, Reference, Seen, Slot, Stored, StoredHeaders};
use crate::domain::access::{Caller, Role};
use crate::domain::appointment::{Appointment, External, Kind, Status};
use crate::domain::availability::Rules;
use crate::domain::hours::OpenHours;
use crate::domain::notification::REMINDER_HOURS;
use crate::domain::time::{self, Span};

/// What a command wants to see.
#[derive(Clone, Debug)]
pub enum Question {
    /// For a row that is to be made.
    New(NewRow),
    /// For a row that is there.
    Change(Change),
}

/// What must be seen before a row is made. Availability asks with it too, and leaves out what it does not ask for.
#[derive(Clone, Debug, Default)]
pub struct NewRow {
    /// The clinic it would be at.
    pub clinic: Uuid,
    /// The patient of a visit; none for a block.
    pub patient: Option<Uuid>,
    /// The practitioner it would hold; a block may have none.
    pub practitioner: Option<Uuid>,
    /// The operatory it would hold, if any.
    pub operatory: Option<Uuid>,
    /// The service of a visit; none for a block.
    pub service: Option<Uuid>,
    /// When it would start.
    pub start: Timestamp,
    /// When it would end; none for a visit, whose service says so.
    pub end: Option<Timestamp>,
    /// What makes it the same visit under any key ([`crate::domain::appointment::intent`]); none for a block.
    pub intent: Option<[u8; 32]>,
    /// Its id in another system, if it came with one.
    pub external: Option<External>,
}

/// What must be seen before a row is changed; none stands for "as it is".
#[derive(Clone, Debug)]
pub struct Change {
    /// The row to be changed.
    pub id: Uuid,
    /// What the row must be: a visit's id is no block's.
    pub kind: Kind,
    /// The practitioner it would move to.
    pub practitioner: Option<Uuid>,
    /// The operatory it would move to.
    pub operatory: Option<Uuid>,
    /// The service it would change to.
    pub service: Option<Uuid>,
    /// When it would start.
    pub start: Option<Timestamp>,
    /// Whether it would enter a slot, so that what holds that must be seen.
    pub enters_slot: bool,
}

impl Change {
    /// A change that stays where it is.
    #[must_use]
    pub const fn of(id: Uuid, kind: Kind) -> Self {
        Self { id, kind, practitioner: None, operatory: None, service: None, start: None, enters_slot: false }
    }
}

/// Puts a question.
///
/// # Errors
/// As [`StoreError`].
pub async fn look(
    connection: &mut PgConnection,
    credential: Uuid,
    key: Option<&[u8]>,
    now: Timestamp,
    question: &Question,
) -> Result<Seen, StoreError> {
    match question {
        Question::New(new) => look_new(connection, credential, key, now, new).await,
        Question::Change(change) => look_change(connection, credential, key, now, change).await,
    }
}

/// Rows of the two statements carry the same names, so one piece of text reads either.
macro_rules! credential {
    ($row:ident, $id:expr) => {
        $row.tenant_id.map(|tenant_id| Credential {
            caller: caller($id, tenant_id, $row.subject, $row.roles, $row.clinic_ids),
            secret_hash: $row.secret_hash.unwrap_or_default(),
            previous: $row.previous_secret_hash.zip($row.previous_secret_until.map(SqlTime::to_jiff)),
            revoked_at: $row.revoked_at.map(SqlTime::to_jiff),
        })
    };
}

macro_rules! stored {
    ($row:ident) => {
        $row.fingerprint.map(|fingerprint| Stored {
            fingerprint,
            fingerprint_version: $row.fingerprint_version.unwrap_or_default(),
            status: $row.reply_status.and_then(|status| u16::try_from(status).ok()).unwrap_or_default(),
            headers: $row.headers.map(|Json(headers)| headers).unwrap_or_default(),
            body: $row.body.unwrap_or_default(),
            expires_at: $row.expires_at.map(SqlTime::to_jiff).unwrap_or_default(),
            expired: $row.expired.unwrap_or_default(),
        })
    };
}

macro_rules! clinic {
    ($row:ident) => {
        match ($row.time_zone, $row.slot_minutes) {
            (Some(time_zone), Some(slot_minutes)) => Some(Clinic {
                rules: Rules {
                    zone: time::zone(&time_zone).ok_or_else(|| unreadable("time zone", &time_zone))?,
                    slot_minutes,
                    min_notice_minutes: $row.min_notice_minutes.unwrap_or_default(),
                    horizon_days: $row.horizon_days.unwrap_or_default(),
                    hours: $row.hours.map(|Json(hours)| hours).unwrap_or_default(),
                },
                time_zone,
                allow_overbooking: $row.allow_overbooking.unwrap_or_default(),
                key_retention_days: $row.key_retention_days.unwrap_or_default(),
                reminder_hours: $row.reminder_hours.unwrap_or(REMINDER_HOURS),
            }),
            _ => None,
        }
    };
}

macro_rules! slot {
    ($row:ident, $patient:expr, $external_twin:expr) => {
        Slot {
            patient: $patient,
            practitioner: match ($row.practitioner_active, $row.membership_active) {
                (Some(true), Some(true)) => Reference::Active,
                (Some(_), Some(_)) => Reference::Inactive,
                _ => Reference::Unknown,
            },
            practitioner_hours: $row.practitioner_hours.map(|Json(hours)| hours),
            operatory: reference($row.operatory_active),
            service: reference($row.service_active),
            minutes: $row.minutes.unwrap_or_default(),
            buffer_minutes: $row.buffer_minutes.unwrap_or_default(),
            closed: $row.closed.unwrap_or_default(),
            overbooking_near: $row.overbooking_near.unwrap_or_default(),
            held: $row.held.unwrap_or_default(),
            twin: $row.twin,
            external_twin: $external_twin,
        }
    };
}

async fn look_new(
    connection: &mut PgConnection,
    credential: Uuid,
    key: Option<&[u8]>,
    now: Timestamp,
    new: &NewRow,
) -> Result<Seen, StoreError> {
    let row = sqlx::query_file!(
        "src/store/look_new.sql",
        credential,
        new.clinic,
        key,
        now.to_sqlx(),
        new.patient,
        new.practitioner,
        new.operatory,
        new.service,
        new.start.to_sqlx(),
        new.end.map(ToSqlx::to_sqlx),
        new.intent.as_ref().map(<[u8; 32]>::as_slice),
        new.external.as_ref().map(|external| external.system.as_str()),
        new.external.as_ref().map(|external| external.id.as_str()),
    )
    .fetch_one(connection)
    .await?;
    let patient = if row.patient_known == Some(true) { Reference::Active } else { Reference::Unknown };
    let clinic = clinic!(row);
    Ok(Seen {
        credential: credential!(row, credential),
        stored: stored!(row),
        clinic_id: Some(new.clinic),
        slot: clinic.is_some().then(|| slot!(row, patient, row.external_twin)),
        clinic,
        row: None,
    })
}

async fn look_change(
    connection: &mut PgConnection,
    credential: Uuid,
    key: Option<&[u8]>,
    now: Timestamp,
    change: &Change,
) -> Result<Seen, StoreError> {
    let row = sqlx::query_file!(
        "src/store/look_change.sql",
        credential,
        change.id,
        key,
        now.to_sqlx(),
        change.kind.as_str(),
        change.practitioner,
        change.operatory,
        change.service,
        change.start.map(ToSqlx::to_sqlx),
        change.enters_slot,
    )
    .fetch_one(connection)
    .await?;
    let appointment = match (row.clinic_id, row.start, row.end) {
        (Some(clinic_id), Some(start), Some(end)) => Some(Appointment {
            id: change.id,
            clinic_id,
            kind: change.kind,
            patient_id: row.patient_id,
            practitioner_id: row.practitioner_id,
            operatory_id: row.operatory_id,
            service_id: row.service_id,
            during: Span { start: start.to_jiff(), end: end.to_jiff() },
            busy_until: row.busy_until.unwrap_or(end).to_jiff(),
            time_zone: row.row_time_zone.unwrap_or_default(),
            local_start: row.local_start.map(jiff_sqlx::DateTime::to_jiff).unwrap_or_default(),
            status: status(row.status.as_deref().unwrap_or_default())?,
            confirmed_at: row.confirmed_at.map(SqlTime::to_jiff),
            overbooked: row.overbooked.unwrap_or_default(),
            version: row.version.unwrap_or_default(),
            schedule_version: row.schedule_version.unwrap_or_default(),
            intent: row.intent.and_then(|intent| intent.try_into().ok()),
            note: row.note,
            block_reason: row.block_reason,
            external: external(row.external_system, row.external_id),
            cancel_reason: row.cancel_reason,
            cancelled_by: row.cancelled_by,
            created_at: row.created_at.map(SqlTime::to_jiff).unwrap_or_default(),
            updated_at: row.updated_at.map(SqlTime::to_jiff).unwrap_or_default(),
        }),
        _ => None,
    };
    Ok(Seen {
        credential: credential!(row, credential),
        stored: stored!(row),
        clinic_id: row.clinic_id,
        clinic: clinic!(row),
        slot: change.enters_slot.then(|| slot!(row, Reference::Active, None)),
        row: appointment,
    })
}

const fn reference(active: Option<bool>) -> Reference {
    match active {
        Some(true) => Reference::Active,
        Some(false) => Reference::Inactive,
        None => Reference::Unknown,
    }
}

/// A status as stored.
pub(super) fn status(text: &str) -> Result<Status, StoreError> {
    Status::parse(text).ok_or_else(|| unreadable("status", text))
}

/// A stored value that a newer release may know, and this one must not guess at.
fn unreadable(what: &str, text: &str) -> StoreError {
    StoreError::Broken(sqlx::Error::Decode(format!("{text:?} is no {what} this release knows").into()))
}

pub(super) fn external(system: Option<String>, id: Option<String>) -> Option<External> {
    system.zip(id).map(|(system, id)| External { system, id })
}

pub(super) fn caller(
    credential_id: Uuid,
    tenant_id: Uuid,
    subject: Option<String>,
    roles: Option<Vec<String>>,
    clinic_ids: Option<Vec<Uuid>>,
) -> Caller {
    let roles = roles.unwrap_or_default().iter().filter_map(|role| Role::parse(role)).collect();
    Caller { credential_id, tenant_id, subject: subject.unwrap_or_default(), roles, clinic_ids }
}
