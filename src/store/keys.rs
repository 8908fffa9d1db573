//! What is known of a command by its key: whether it is at work, and what was stored of it.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use crate::domain::key::KeyHash;

/// A reply as far as a caller in doubt may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What was asked for.
    pub operation: String,
    /// The status it was answered with.
    pub status: u16,
    /// When.
    pub finished_at: Timestamp,
    /// Until when it replays.
    pub expires_at: Timestamp,
}

/// Whether any session holds the advisory lock of a key at work. Reads the table of locks: trying the lock would, for a
/// moment, take it from the very command that is asked about.
///
/// # Errors
/// As [`StoreError`].
pub async fn is_locked(connection: &mut PgConnection, lock: i64) -> Result<bool, StoreError> {
    // A lock of one 64-bit number shows as its two halves and objsubid 1.
    let held = sqlx::query_scalar!(
        r#"select exists (
             select from pg_locks
             where locktype = 'advisory' and objsubid = 1 and granted
               and database = (select oid from pg_database where datname = current_database())
               and classid = (($1::bigint >> 32) & 4294967295)::oid and objid = ($1 & 4294967295)::oid) as "held!""#,
        lock
    )
    .fetch_one(connection)
    .await?;
    Ok(held)
}

/// What is stored of a key and has not expired by both clocks; the outer `None` says that there is no such clinic.
///
/// # Errors
/// As [`StoreError`].
pub async fn kept(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
    key: KeyHash,
    now: Timestamp,
) -> Result<Option<Option<Kept>>, StoreError> {
    let row = sqlx::query!(
        r#"select k.operation as "operation?", k.status as "status?", k.created_at as "created_at?", k.expires_at as "expires_at?"
           from clinics c
           left join idempotency_keys k on k.tenant_id = c.tenant_id and k.clinic_id = c.id and k.key_hash = $3
             and k.expires_at > least($4::timestamptz, statement_timestamp())
           where c.tenant_id = $1 and c.id = $2"#,
        tenant,
        clinic,
        key.0.as_slice(),
        now.to_sqlx()
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let (Some(operation), Some(status), Some(finished_at), Some(expires_at)) =
        (row.operation, row.status, row.created_at, row.expires_at)
    else {
        return Ok(Some(None));
    };
    Ok(Some(Some(Kept {
        operation,
        status: u16::try_from(status).unwrap_or_default(),
        finished_at: finished_at.to_jiff(),
        expires_at: expires_at.to_jiff(),
    })))
}
