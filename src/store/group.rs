//! Commands that are about the group and no one clinic: their look, and their commits. Each is one statement.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use super::commit::{Claim, Commit, Outcome};
use super::look::caller;
use super::seen::{Credential, Stored, StoredHeaders};
use crate::domain::webhook::EndpointView;

/// Where the keys of such commands stand in place of a clinic: no clinic has this id.
pub const SCOPE: Uuid = Uuid::nil();

/// What such a command wants to see.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The clinics it names.
    pub clinics: Vec<Uuid>,
    /// The delivery it is about: endpoint and event.
    pub delivery: Option<(Uuid, Uuid)>,
}

/// What it saw, as of one instant.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The credential, if there is such a one.
    pub credential: Option<Credential>,
    /// The stored reply of this key.
    pub stored: Option<Stored>,
    /// Whether the group has every clinic that was named.
    pub clinics_exist: bool,
    /// How many endpoints the group has.
    pub endpoints: i64,
    /// The delivery; none where there is none in the caller's sight.
    pub delivery: Option<Delivery>,
}

/// What such a command sees of a delivery.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its state.
    pub state: String,
    /// Whether its endpoint is active.
    pub active: bool,
    /// Whether its endpoint is for its clinic and its type.
    pub wanted: bool,
}

/// Puts the question.
///
/// # Errors
/// As [`StoreError`].
pub async fn look(
    connection: &mut PgConnection,
    credential: Uuid,
    key: &[u8],
    now: Timestamp,
    question: &Question,
) -> Result<Seen, StoreError> {
    let (endpoint, event) = question.delivery.unzip();
    let row = sqlx::query_file!(
        "src/store/look_group.sql",
        credential,
        key,
        now.to_sqlx(),
        &question.clinics,
        endpoint,
        event,
        SCOPE
    )
    .fetch_one(connection)
    .await?;
    Ok(Seen {
        credential: row.tenant_id.map(|tenant| Credential {
            caller: caller(credential, tenant, row.subject, row.roles, row.clinic_ids),
            secret_hash: row.secret_hash.unwrap_or_default(),
            previous: row.previous_secret_hash.zip(row.previous_secret_until.map(SqlTime::to_jiff)),
            revoked_at: row.revoked_at.map(SqlTime::to_jiff),
        }),
        stored: row.fingerprint.map(|fingerprint| Stored {
            fingerprint,
            fingerprint_version: row.fingerprint_version.unwrap_or_default(),
            status: row.reply_status.and_then(|status| u16::try_from(status).ok()).unwrap_or_default(),
            headers: row.headers.map(|Json(headers)| headers).unwrap_or_default(),
            body: row.body.unwrap_or_default(),
            expires_at: row.expires_at.map(SqlTime::to_jiff).unwrap_or_default(),
            expired: row.expired.unwrap_or_default(),
        }),
        clinics_exist: row.clinics_exist.unwrap_or_default(),
        endpoints: row.endpoints,
        delivery: row.delivery_state.map(|state| Delivery {
            state,
            active: row.endpoint_active.unwrap_or_default(),
            wanted: row.delivery_wanted.unwrap_or_default(),
        }),
    })
}

/// Writes a new endpoint, with its secret sealed.
///
/// # Errors
/// As [`StoreError`]; [`StoreError::Again`] when the key is there by now, and then nothing was written.
pub async fn create_endpoint(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    claim: &Claim,
    endpoint: &EndpointView,
    sealed: &[u8],
) -> Result<Outcome, StoreError> {
    let done = sqlx::query_file!(
        "src/store/webhook_create.sql",
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
        commit.asker.request_id,
        commit.asker.caller_request_id.as_deref(),
        endpoint.id,
        &endpoint.url,
        &endpoint.description,
        endpoint.clinic_ids.as_deref(),
        endpoint.event_types.as_deref(),
        endpoint.active,
        sealed,
    )
    .fetch_one(connection)
    .await?;
    Ok(Outcome::of(&done.who, done.written))
}

/// Has a delivery sent again: endpoint and event.
///
/// # Errors
/// As [`create_endpoint`].
pub async fn redeliver(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    claim: &Claim,
    (endpoint, event): (Uuid, Uuid),
) -> Result<Outcome, StoreError> {
    let done = sqlx::query_file!(
        "src/store/webhook_redeliver.sql",
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
        commit.asker.request_id,
        commit.asker.caller_request_id.as_deref(),
        endpoint,
        event,
        commit.asker.caller.clinic_ids.as_deref(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Outcome::of(&done.who, done.written))
}
