//! `webhook_endpoints`: their administration. An administrator who is confined to clinics sees and changes only endpoints
//! that are confined to some of the same.

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::audit::AuditNote;
use super::directory::{Entry, Outcome, Sight, clinics};
use crate::domain::access::Caller;
use crate::domain::webhook::{Endpoint, EndpointView};

/// A row as the statements of this file read it.
struct Row {
    id: Uuid,
    url: String,
    description: String,
    clinic_ids: Option<Vec<Uuid>>,
    event_types: Option<Vec<String>>,
    active: bool,
    disabled_reason: Option<String>,
    disabled_at: Option<SqlTime>,
    failing_since: Option<SqlTime>,
    paused_until: Option<SqlTime>,
    last_success_at: Option<SqlTime>,
    previous_secret_until: Option<SqlTime>,
    version: i32,
    created_by: String,
    created_at: SqlTime,
    updated_at: SqlTime,
}

impl From<Row> for EndpointView {
    fn from(row: Row) -> Self {
        let time = |at: Option<SqlTime>| at.map(SqlTime::to_jiff);
        Self {
            id: row.id,
            url: row.url,
            description: row.description,
            clinic_ids: row.clinic_ids,
            event_types: row.event_types,
            active: row.active,
            disabled_reason: row.disabled_reason,
            disabled_at: time(row.disabled_at),
            failing_since: time(row.failing_since),
            paused_until: time(row.paused_until),
            last_success_at: time(row.last_success_at),
            previous_secret_until: time(row.previous_secret_until),
            version: row.version,
            created_by: row.created_by,
            created_at: row.created_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
        }
    }
}

/// The endpoint of that id, if it is for the caller to see.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(
    connection: &mut PgConnection,
    caller: &Caller,
    id: Uuid,
) -> Result<Option<EndpointView>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "select id, url, description, clinic_ids, event_types, active, disabled_reason, disabled_at, failing_since, paused_until,
           last_success_at, previous_secret_until, version, created_by, created_at, updated_at
         from webhook_endpoints
         where tenant_id = $1 and id = $2 and deleted_at is null and ($3::uuid[] is null or clinic_ids <@ $3)",
        caller.tenant_id,
        id,
        caller.clinic_ids.as_deref()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(EndpointView::from))
}

/// Endpoints the caller may see, in the order they were made.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    caller: &Caller,
    after: Option<(Timestamp, Uuid)>,
    rows: i64,
) -> Result<Vec<EndpointView>, StoreError> {
    let (created_at, id) = after.unzip();
    let rows = sqlx::query_as!(
        Row,
        "select id, url, description, clinic_ids, event_types, active, disabled_reason, disabled_at, failing_since, paused_until,
           last_success_at, previous_secret_until, version, created_by, created_at, updated_at
         from webhook_endpoints
         where tenant_id = $1
           and deleted_at is null
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
    Ok(rows.into_iter().map(EndpointView::from).collect())
}

impl Entry for Endpoint {
    const OPERATION: &'static str = "put_webhook_endpoint";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let clinic = match (&self.clinic_ids, &caller.clinic_ids) {
            (None, reach) => reach.is_none(),
            (Some(named), _) => clinics::reached(connection, caller, named).await?,
        };
        let row = find(connection, caller, self.id).await?.map(|found| Self {
            id: found.id,
            url: found.url,
            description: found.description,
            clinic_ids: found.clinic_ids,
            event_types: found.event_types,
            active: found.active,
            version: found.version,
        });
        // It is made by a command of its own, which gives it its secret.
        Ok(Sight { clinic, row, vacant: false })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               update webhook_endpoints
               set url = $11, description = $12, clinic_ids = $13, event_types = $14, active = $15, version = version + 1,
                   updated_at = $3,
                   -- Whoever changes it has seen to it: it begins anew.
                   failures = 0, failing_since = null, paused_until = null,
                   disabled_reason = case when $15 then null else disabled_reason end,
                   disabled_at = case when $15 then null else disabled_at end
               where tenant_id = $1 and id = $10 and version = $9 and deleted_at is null
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
            seen.map(Self::version),
            self.id,
            self.url,
            self.description,
            self.clinic_ids.as_deref(),
            self.event_types.as_deref(),
            self.active,
        )
        .execute(connection)
        .await?;
        Ok(if done.rows_affected() == 0 { Outcome::Stale } else { Outcome::Done })
    }
}

/// Deletes an endpoint: its secrets go at once, its row when its deliveries are forgotten. Does nothing where there is none
/// of that version in the caller's sight; says whether there was.
///
/// # Errors
/// As [`StoreError`].
pub async fn delete(
    connection: &mut PgConnection,
    (id, version): (Uuid, i32),
    note: &AuditNote<'_>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "with written as (
           update webhook_endpoints
           set deleted_at = $3, active = false, secret = null, previous_secret = null, previous_secret_until = null
           where id = $9 and tenant_id = $1 and deleted_at is null and version = $11
             and ($10::uuid[] is null or clinic_ids <@ $10)
           returning tenant_id, id
         )
         insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
           caller_request_id)
         select tenant_id, $2, $3, $4, $5, $6, id, 204, $7, $8
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
        version,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Gives an endpoint another secret, and lets the one it has sign until then; the one before that no longer does. Safe to
/// repeat with the same secret; does nothing where there is no endpoint of that version in the caller's sight. Says whether
/// it did anything.
///
/// # Errors
/// As [`StoreError`].
pub async fn rotate(
    connection: &mut PgConnection,
    (id, version): (Uuid, i32),
    sealed: &[u8],
    keep_old_until: Option<Timestamp>,
    note: &AuditNote<'_>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "with written as (
           update webhook_endpoints
           set secret = $10,
               previous_secret = case when $11::timestamptz is not null then secret end,
               previous_secret_until = $11
           where id = $9 and tenant_id = $1 and deleted_at is null and version = $13 and secret <> $10
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
        sealed,
        keep_old_until.map(ToSqlx::to_sqlx),
        note.asker.caller.clinic_ids.as_deref(),
        version,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The secrets of an endpoint, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The one in use.
    pub secret: Vec<u8>,
    /// The one before, and until when it signs too.
    pub previous: Option<(Vec<u8>, Timestamp)>,
}

/// Reads the secrets of an endpoint in the caller's sight, and notes in the audit that they were read.
///
/// # Errors
/// As [`StoreError`].
pub async fn secrets(
    connection: &mut PgConnection,
    id: Uuid,
    note: &AuditNote<'_>,
) -> Result<Option<Sealed>, StoreError> {
    let row = sqlx::query!(
        r#"with found as (
             select tenant_id, id, secret, previous_secret, previous_secret_until from webhook_endpoints
             where id = $9 and tenant_id = $1 and deleted_at is null and ($10::uuid[] is null or clinic_ids <@ $10)
           ),
           audited as (
             insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
               caller_request_id)
             select tenant_id, $2, $3, $4, $5, $6, id, 200, $7, $8
             from found
             on conflict do nothing
           )
           select secret as "secret!", previous_secret, previous_secret_until from found"#,
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
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Sealed {
        secret: row.secret,
        previous: row.previous_secret.zip(row.previous_secret_until.map(SqlTime::to_jiff)),
    }))
}
