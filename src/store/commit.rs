//! The commit: one statement, so one transaction and one round trip, whatever the command.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use super::seen::StoredHeaders;
use crate::domain::access::Caller;
use crate::domain::appointment::Appointment;
use crate::domain::event::{EventType, Notice, standing, subject_kind};
use crate::domain::key::KeyHash;

/// The key a command came with, and what it stands for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// SHA-256 of the key.
    pub key: KeyHash,
    /// What the request is.
    pub fingerprint: [u8; 32],
    /// By which rule.
    pub fingerprint_version: i16,
    /// Advisory lock of (scope, key, fingerprint): "this very request is running".
    pub same_lock: i64,
    /// Advisory lock of (scope, key): "the key is running".
    pub key_lock: i64,
    /// Until when the reply replays.
    pub expires_at: Timestamp,
}

/// Who asked, with which request.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The credential's holder.
    pub caller: Caller,
    /// Our id of the request.
    pub request_id: Uuid,
    /// The caller's own id of it.
    pub caller_request_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// What is answered, in the bytes that are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The stored headers.
    pub headers: StoredHeaders,
    /// The body.
    pub body: Vec<u8>,
}

/// A changed row and all that follows from it.
#[derive(Clone, Debug)]
pub struct Written {
    /// The row as it is to stand.
    pub row: Appointment,
    /// What happened to it.
    pub event: EventType,
    /// The event's id.
    pub event_id: Uuid,
    /// What is to be told to the patient, each with its id.
    pub notices: Vec<(Uuid, Notice)>,
    /// Advisory locks of the resources left and entered.
    pub resource_locks: Vec<i64>,
    /// Whether the slot is to be looked at once more under those locks.
    pub recheck: bool,
}

/// Everything one commit writes.
#[derive(Clone, Debug)]
pub struct Commit<'a> {
    /// The operation's name.
    pub operation: &'static str,
    /// Who asked.
    pub asker: &'a Asker,
    /// The clinic.
    pub clinic: Uuid,
    /// The key; a removal of a block has none.
    pub claim: Option<&'a Claim>,
    /// What is answered.
    pub reply: &'a Reply,
    /// The moment it was decided.
    pub now: Timestamp,
    /// The audit row's id.
    pub audit_id: Uuid,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is in the database.
    Done,
    /// None of it is: something the look saw has changed.
    Stale,
    /// None of it is: this very request is running elsewhere.
    SameRunning,
    /// None of it is: the key is running elsewhere with another request.
    OtherRunning,
}

impl Outcome {
    pub(super) fn of(who: &str, written: Option<i32>) -> Self {
        match (who, written) {
            ("owner", Some(_)) => Self::Done,
            ("owner", None) => Self::Stale,
            ("same", _) => Self::SameRunning,
            _ => Self::OtherRunning,
        }
    }
}

/// The arrays a statement takes its notices from.
fn columns(notices: &[(Uuid, Notice)]) -> (Vec<Uuid>, Vec<String>, Vec<jiff_sqlx::Timestamp>) {
    let ids = notices.iter().map(|(id, _)| *id).collect();
    let kinds = notices.iter().map(|(_, notice)| notice.kind.to_owned()).collect();
    (ids, kinds, notices.iter().map(|(_, notice)| notice.due_at.to_sqlx()).collect())
}

/// Writes a new row.
///
/// # Errors
/// As [`StoreError`]; [`StoreError::Again`] when a constraint was tripped, and then nothing was written.
pub async fn insert(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    written: &Written,
) -> Result<Outcome, StoreError> {
    let Written { row, .. } = written;
    let (notice_ids, kinds, due_at) = columns(&written.notices);
    let done = sqlx::query_file!(
        "src/store/insert.sql",
        commit.asker.caller.tenant_id,
        row.clinic_id,
        row.id,
        row.kind.as_str(),
        row.patient_id,
        row.practitioner_id,
        row.operatory_id,
        row.service_id,
        row.during.start.to_sqlx(),
        row.during.end.to_sqlx(),
        row.busy_until.to_sqlx(),
        &row.time_zone,
        row.local_start.to_sqlx(),
        row.overbooked,
        row.intent.as_ref().map(<[u8; 32]>::as_slice),
        row.note.as_deref(),
        row.block_reason.as_deref(),
        row.external.as_ref().map(|external| external.system.as_str()),
        row.external.as_ref().map(|external| external.id.as_str()),
        commit.now.to_sqlx(),
        &written.resource_locks,
        written.recheck,
        commit.claim.map(|claim| claim.key.0.as_slice()),
        commit.claim.map(|claim| claim.fingerprint.as_slice()),
        commit.claim.map(|claim| claim.fingerprint_version),
        commit.operation,
        commit.reply.status.cast_signed(),
        Json(&commit.reply.headers) as _,
        &commit.reply.body,
        commit.claim.map(|claim| claim.expires_at.to_sqlx()),
        commit.claim.map(|claim| claim.same_lock),
        commit.claim.map(|claim| claim.key_lock),
        commit.asker.request_id,
        commit.asker.caller_request_id.as_deref(),
        &commit.asker.caller.subject,
        commit.asker.caller.credential_id,
        commit.audit_id,
        &notice_ids,
        &kinds,
        &due_at,
        written.event_id,
        written.event.as_str(),
        Json(standing(row)) as _,
        commit.asker.traceparent.as_deref(),
        subject_kind(row.kind),
    )
    .fetch_one(connection)
    .await?;
    Ok(Outcome::of(&done.who, done.written))
}

/// Writes the next version of a row, if it still has the one before.
///
/// # Errors
/// As [`insert`].
pub async fn change(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    written: &Written,
) -> Result<Outcome, StoreError> {
    let Written { row, .. } = written;
    let (notice_ids, kinds, due_at) = columns(&written.notices);
    let done = sqlx::query_file!(
        "src/store/change.sql",
        commit.asker.caller.tenant_id,
        row.id,
        row.version - 1,
        row.practitioner_id,
        row.operatory_id,
        row.service_id,
        row.during.start.to_sqlx(),
        row.during.end.to_sqlx(),
        row.busy_until.to_sqlx(),
        &row.time_zone,
        row.local_start.to_sqlx(),
        row.status.as_str(),
        row.status.holds_slot(),
        row.overbooked,
        row.confirmed_at.map(ToSqlx::to_sqlx),
        row.schedule_version,
        row.intent.as_ref().map(<[u8; 32]>::as_slice),
        row.note.as_deref(),
        row.cancel_reason.as_deref(),
        commit.now.to_sqlx(),
        &written.resource_locks,
        written.recheck,
        commit.claim.map(|claim| claim.key.0.as_slice()),
        commit.claim.map(|claim| claim.fingerprint.as_slice()),
        commit.claim.map(|claim| claim.fingerprint_version),
        commit.operation,
        commit.reply.status.cast_signed(),
        Json(&commit.reply.headers) as _,
        &commit.reply.body,
        commit.claim.map(|claim| claim.expires_at.to_sqlx()),
        commit.claim.map(|claim| claim.same_lock),
        commit.claim.map(|claim| claim.key_lock),
        commit.asker.request_id,
        commit.asker.caller_request_id.as_deref(),
        &commit.asker.caller.subject,
        commit.asker.caller.credential_id,
        commit.audit_id,
        &notice_ids,
        &kinds,
        &due_at,
        written.event_id,
        written.event.as_str(),
        Json(standing(row)) as _,
        commit.asker.traceparent.as_deref(),
        subject_kind(row.kind),
        row.cancelled_by.as_deref(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Outcome::of(&done.who, done.written))
}

/// Writes a reply that changes no row: a refusal, or "it is so already".
///
/// # Errors
/// As [`insert`].
pub async fn answer(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    claim: &Claim,
    target: Option<Uuid>,
    code: Option<&str>,
) -> Result<Outcome, StoreError> {
    let done = sqlx::query_file!(
        "src/store/answer.sql",
        commit.asker.caller.tenant_id,
        commit.clinic,
        claim.key.0.as_slice(),
        claim.fingerprint.as_slice(),
        claim.fingerprint_version,
        commit.operation,
        commit.reply.status.cast_signed(),
        Json(&commit.reply.headers) as _,
        &commit.reply.body,
        commit.now.to_sqlx(),
        claim.expires_at.to_sqlx(),
        claim.same_lock,
        claim.key_lock,
        commit.audit_id,
        &commit.asker.caller.subject,
        commit.asker.caller.credential_id,
        target,
        code,
        commit.asker.request_id,
        commit.asker.caller_request_id.as_deref(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Outcome::of(&done.who, done.written))
}

/// Forgets one key whose retention has passed.
///
/// # Errors
/// As [`StoreError`].
pub async fn forget(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
    key: KeyHash,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/forget.sql", tenant, clinic, key.0.as_slice(), now.to_sqlx())
        .execute(connection)
        .await?;
    Ok(())
}
