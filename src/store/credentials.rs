//! Credentials as they let requests in, and the audit of what their holders were refused. Their administration is in
//! `credentials_admin.rs`.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::look::caller;
use super::seen::Credential;
use crate::domain::access::Caller;

/// The credential of that id, withdrawn or not.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, id: Uuid) -> Result<Option<Credential>, StoreError> {
    let row = sqlx::query!(
        "select tenant_id, subject, roles, clinic_ids, secret_hash, previous_secret_hash, previous_secret_until, revoked_at
         from credentials where id = $1",
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Credential {
        caller: caller(id, row.tenant_id, Some(row.subject), Some(row.roles), row.clinic_ids),
        secret_hash: row.secret_hash,
        previous: row.previous_secret_hash.zip(row.previous_secret_until.map(SqlTime::to_jiff)),
        revoked_at: row.revoked_at.map(SqlTime::to_jiff),
    }))
}

/// A refusal to be noted.
#[derive(Clone, Debug)]
pub struct RefusedCall {
    /// Who was refused.
    pub caller: Caller,
    /// What they asked for: method and path template.
    pub operation: String,
    /// Our id of the request.
    pub request_id: Uuid,
    /// The caller's own id of it.
    pub caller_request_id: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The audit row's id.
    pub id: Uuid,
}

/// Notes in the audit that a signed-in caller was refused.
///
/// # Errors
/// As [`StoreError`].
pub async fn note_refusal(connection: &mut PgConnection, refused: &RefusedCall) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into audit (tenant_id, id, at, subject, credential_id, operation, status, code, request_id, caller_request_id)
         values ($1, $2, $3, $4, $5, $6, 403, 'forbidden', $7, $8)
         on conflict do nothing",
        refused.caller.tenant_id,
        refused.id,
        refused.at.to_sqlx(),
        refused.caller.subject,
        refused.caller.credential_id,
        refused.operation,
        refused.request_id,
        refused.caller_request_id
    )
    .execute(connection)
    .await?;
    Ok(())
}
