//! The administration of credentials. An administrator who is confined to clinics sees and changes only credentials that
//! are confined to some of the same.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::audit::AuditNote;
use crate::domain::access::{Caller, CredentialView, Role};

/// A row as the statements of this file read it.
struct Row {
    id: Uuid,
    name: String,
    subject: String,
    roles: Vec<String>,
    clinic_ids: Option<Vec<Uuid>>,
    created_by: String,
    created_at: SqlTime,
    previous_secret_until: Option<SqlTime>,
    revoked_at: Option<SqlTime>,
}

impl From<Row> for CredentialView {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            name: row.name,
            subject: row.subject,
            roles: row.roles.iter().filter_map(|role| Role::parse(role)).collect(),
            clinic_ids: row.clinic_ids,
            created_by: row.created_by,
            created_at: row.created_at.to_jiff(),
            previous_secret_until: row.previous_secret_until.map(SqlTime::to_jiff),
            revoked_at: row.revoked_at.map(SqlTime::to_jiff),
        }
    }
}

/// The credential of that id, if it is for the caller to see.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(
    connection: &mut PgConnection,
    caller: &Caller,
    id: Uuid,
) -> Result<Option<CredentialView>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "select id, name, subject, roles, clinic_ids, created_by, created_at, previous_secret_until, revoked_at
         from credentials
         where tenant_id = $1 and id = $2 and ($3::uuid[] is null or clinic_ids <@ $3)",
        caller.tenant_id,
        id,
        caller.clinic_ids.as_deref()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(CredentialView::from))
}

/// Credentials the caller may see, in the order they were made.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    caller: &Caller,
    after: Option<(Timestamp, Uuid)>,
    rows: i64,
) -> Result<Vec<CredentialView>, StoreError> {
    let (created_at, id) = after.unzip();
    let rows = sqlx::query_as!(
        Row,
        "select id, name, subject, roles, clinic_ids, created_by, created_at, previous_secret_until, revoked_at
         from credentials
         where tenant_id = $1
           and ($2::uuid[] is null or clinic_ids <@ $2)
           and ($3::timestamptz is null or (created_at, id) > ($3, $4))
         order by created_at, id
         limit $5",
        caller.tenant_id,
        caller.clinic_ids.as_deref(),
        created_at.map(ToSqlx::to_sqlx),
        id,
        rows
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(CredentialView::from).collect())
}

/// Writes a new credential. Safe to repeat with the same id.
///
/// # Errors
/// As [`StoreError`].
pub async fn create(
    connection: &mut PgConnection,
    credential: &CredentialView,
    secret_hash: &[u8; 32],
    note: &AuditNote<'_>,
) -> Result<(), StoreError> {
    let roles: Vec<String> = credential.roles.iter().map(|role| role.as_str().to_owned()).collect();
    sqlx::query!(
        "with written as (
           insert into credentials (id, tenant_id, name, subject, roles, clinic_ids, secret_hash, created_by, created_at)
           values ($9, $1, $10, $11, $12, $13, $14, $4, $3)
           on conflict (id) do nothing
           returning tenant_id, id
         )
         insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
           caller_request_id)
         select tenant_id, $2, $3, $4, $5, $6, id, 201, $7, $8
         from written",
        note.asker.caller.tenant_id,
        note.id,
        note.at.to_sqlx(),
        note.asker.caller.subject,
        note.asker.caller.credential_id,
        note.operation,
        note.asker.request_id,
        note.asker.caller_request_id.as_deref(),
        credential.id,
        credential.name,
        credential.subject,
        &roles,
        credential.clinic_ids.as_deref(),
        secret_hash.as_slice(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Gives a credential another secret, and lets the one it has work until then; the one before that no longer does. Safe to
/// repeat with the same secret; does nothing to a credential that is revoked or out of the caller's sight.
///
/// # Errors
/// As [`StoreError`].
pub async fn rotate(
    connection: &mut PgConnection,
    id: Uuid,
    secret_hash: &[u8; 32],
    keep_old_until: Option<Timestamp>,
    note: &AuditNote<'_>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "with written as (
           update credentials
           set secret_hash = $10,
               -- Always the one in use, and no other: kept in its place, the one before that would outlive its time with every
               -- rotation, and the one in use would end at once.
               previous_secret_hash = case when $11::timestamptz is not null then secret_hash end,
               previous_secret_until = $11
           where id = $9 and tenant_id = $1 and revoked_at is null and secret_hash <> $10
             and ($12::uuid[] is null or clinic_ids <@ $12)
           returning tenant_id, id
         )
         insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
           caller_request_id)
         select tenant_id, $2, $3, $4, $5, $6, id, 200, $7, $8
         from written",
        note.asker.caller.tenant_id,
        note.id,
        note.at.to_sqlx(),
        note.asker.caller.subject,
        note.asker.caller.credential_id,
        note.operation,
        note.asker.request_id,
        note.asker.caller_request_id.as_deref(),
        id,
        secret_hash.as_slice(),
        keep_old_until.map(ToSqlx::to_sqlx),
        note.asker.caller.clinic_ids.as_deref(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Withdraws a credential, unless that was done before or it is out of the caller's sight.
///
/// # Errors
/// As [`StoreError`].
pub async fn revoke(connection: &mut PgConnection, id: Uuid, note: &AuditNote<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "with written as (
           update credentials
           set revoked_at = $3
           where id = $9 and tenant_id = $1 and revoked_at is null and ($10::uuid[] is null or clinic_ids <@ $10)
           returning tenant_id, id
         )
         insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
           caller_request_id)
         select tenant_id, $2, $3, $4, $5, $6, id, 200, $7, $8
         from written",
        note.asker.caller.tenant_id,
        note.id,
        note.at.to_sqlx(),
        note.asker.caller.subject,
        note.asker.caller.credential_id,
        note.operation,
        note.asker.request_id,
        note.asker.caller_request_id.as_deref(),
        id,
        note.asker.caller.clinic_ids.as_deref(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes a new clinic group.
///
/// # Errors
/// As [`StoreError`].
pub async fn create_tenant(
    connection: &mut PgConnection,
    id: Uuid,
    name: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!("insert into tenants (id, name, created_at) values ($1, $2, $3)", id, name, at.to_sqlx())
        .execute(connection)
        .await?;
    Ok(())
}

/// The name of a clinic group.
///
/// # Errors
/// As [`StoreError`].
pub async fn tenant(connection: &mut PgConnection, id: Uuid) -> Result<Option<String>, StoreError> {
    Ok(sqlx::query_scalar!("select name from tenants where id = $1", id).fetch_optional(connection).await?)
}

/// Every credential of one group, or of all, with its group, in the order they were made. For the command line.
///
/// # Errors
/// As [`StoreError`].
pub async fn all(
    connection: &mut PgConnection,
    tenant: Option<Uuid>,
) -> Result<Vec<(Uuid, CredentialView)>, StoreError> {
    let rows = sqlx::query!(
        "select tenant_id, id, name, subject, roles, clinic_ids, created_by, created_at, previous_secret_until, revoked_at
         from credentials
         where $1::uuid is null or tenant_id = $1
         order by created_at, id",
        tenant
    )
    .fetch_all(connection)
    .await?;
    let with_tenant = rows.into_iter().map(|row| {
        let view = CredentialView::from(Row {
            id: row.id,
            name: row.name,
            subject: row.subject,
            roles: row.roles,
            clinic_ids: row.clinic_ids,
            created_by: row.created_by,
            created_at: row.created_at,
            previous_secret_until: row.previous_secret_until,
            revoked_at: row.revoked_at,
        });
        (row.tenant_id, view)
    });
    Ok(with_tenant.collect())
}
