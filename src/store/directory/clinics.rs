//! `clinics` and `clinic_closures`. Hours and closures are set as a whole and share the clinic's version.

use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Entry, Listing, Named, Outcome, Sight};
use crate::domain::access::Caller;
use crate::domain::directory::{Clinic, Closure, Closures, Week};
use crate::domain::hours::OpenHours;
use crate::store::StoreError;
use crate::store::audit::AuditNote;

/// The clinic of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, tenant: Uuid, id: Uuid) -> Result<Option<Clinic>, StoreError> {
    let row = sqlx::query_as!(
        Clinic,
        "select id, name, time_zone, slot_minutes, allow_overbooking, min_notice_minutes, horizon_days,
           key_retention_days, version
         from clinics
         where tenant_id = $1 and id = $2",
        tenant,
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row)
}

/// How many of these clinics there are; each counts once.
///
/// # Errors
/// As [`StoreError`].
pub async fn count(connection: &mut PgConnection, tenant: Uuid, ids: &[Uuid]) -> Result<i64, StoreError> {
    let known = sqlx::query_scalar!(
        r#"select count(*) as "known!" from clinics where tenant_id = $1 and id = any($2)"#,
        tenant,
        ids
    )
    .fetch_one(connection)
    .await?;
    Ok(known)
}

/// Whether all of these clinics are there and within the caller's reach.
///
/// # Errors
/// As [`StoreError`].
pub async fn reached(connection: &mut PgConnection, caller: &Caller, ids: &[Uuid]) -> Result<bool, StoreError> {
    if !ids.iter().all(|id| caller.reaches(*id)) {
        return Ok(false);
    }
    let known = count(connection, caller.tenant_id, ids).await?;
    Ok(usize::try_from(known).is_ok_and(|known| known == ids.len()))
}

impl Named for Clinic {
    fn place(&self) -> (&str, Uuid) {
        (&self.name, self.id)
    }

    async fn list(connection: &mut PgConnection, listing: Listing<'_>) -> Result<Vec<Self>, StoreError> {
        let (name, id) = listing.after_name();
        let rows = sqlx::query_as!(
            Self,
            "select id, name, time_zone, slot_minutes, allow_overbooking, min_notice_minutes, horizon_days,
               key_retention_days, version
             from clinics
             where tenant_id = $1
               and ($2::uuid[] is null or id = any($2))
               and lower(name) ~>=~ lower($3) and (lower(name) ~>~ lower($3) or id > $4)
             order by lower(name) using ~<~, id
             limit $5",
            listing.tenant,
            listing.clinics,
            name,
            id,
            listing.rows
        )
        .fetch_all(connection)
        .await?;
        Ok(rows)
    }
}

impl Entry for Clinic {
    const OPERATION: &'static str = "put_clinic";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    /// A credential that is confined to clinics makes none: it would be out of its own reach.
    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let row = find(connection, caller.tenant_id, self.id).await?;
        let sight = Sight::of(row, |row| caller.reaches(row.id));
        Ok(Sight { vacant: sight.vacant && caller.clinic_ids.is_none(), ..sight })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               insert into clinics as c (tenant_id, id, name, time_zone, slot_minutes, allow_overbooking,
                 min_notice_minutes, horizon_days, key_retention_days, version, created_at, updated_at)
               values ($1, $10, $11, $12, $13, $14, $15, $16, $17, 1, $3, $3)
               on conflict (tenant_id, id) do update
               set name = excluded.name,
                   time_zone = excluded.time_zone,
                   slot_minutes = excluded.slot_minutes,
                   allow_overbooking = excluded.allow_overbooking,
                   min_notice_minutes = excluded.min_notice_minutes,
                   horizon_days = excluded.horizon_days,
                   key_retention_days = excluded.key_retention_days,
                   version = c.version + 1,
                   updated_at = excluded.updated_at
               where c.version = $9
               returning c.tenant_id, c.id
             )
             insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status,
               request_id, caller_request_id)
             select tenant_id, $2, $3, $4, $5, id, $6, id, case when $9::int is null then 201 else 200 end, $7, $8
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
            self.name,
            self.time_zone,
            self.slot_minutes,
            self.allow_overbooking,
            self.min_notice_minutes,
            self.horizon_days,
            self.key_retention_days,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}

/// A clinic's weekly hours.
///
/// # Errors
/// As [`StoreError`].
pub async fn week(connection: &mut PgConnection, tenant: Uuid, clinic: Uuid) -> Result<Option<Week>, StoreError> {
    let row = sqlx::query!(
        r#"select hours as "hours: Json<Vec<OpenHours>>", version from clinics where tenant_id = $1 and id = $2"#,
        tenant,
        clinic
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Week { clinic_id: clinic, hours: row.hours.0, version: row.version }))
}

impl Entry for Week {
    const OPERATION: &'static str = "put_clinic_hours";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let row = week(connection, caller.tenant_id, self.clinic_id).await?;
        Ok(Sight { vacant: false, ..Sight::of(row, |row| caller.reaches(row.clinic_id)) })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               update clinics
               set hours = $11, version = version + 1, updated_at = $3
               where tenant_id = $1 and id = $10 and version = $9
               returning tenant_id, id
             )
             insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status,
               request_id, caller_request_id)
             select tenant_id, $2, $3, $4, $5, id, $6, id, 200, $7, $8
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
            self.clinic_id,
            Json(&self.hours) as _,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}

/// A clinic's closures.
///
/// # Errors
/// As [`StoreError`].
pub async fn closures(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
) -> Result<Option<Closures>, StoreError> {
    let rows = sqlx::query!(
        r#"select c.version, lower(k.during) as "from?", upper(k.during) as "to?", k.reason as "reason?"
           from clinics c
           left join clinic_closures k on k.tenant_id = c.tenant_id and k.clinic_id = c.id
           where c.tenant_id = $1 and c.id = $2
           order by k.during"#,
        tenant,
        clinic
    )
    .fetch_all(connection)
    .await?;
    let Some(version) = rows.first().map(|row| row.version) else { return Ok(None) };
    let closures = rows.into_iter().filter_map(|row| {
        let (from, to) = row.from.zip(row.to)?;
        Some(Closure { from: from.to_jiff(), to: to.to_jiff(), reason: row.reason })
    });
    Ok(Some(Closures { clinic_id: clinic, all: closures.collect(), version }))
}

impl Entry for Closures {
    const OPERATION: &'static str = "put_clinic_closures";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let row = closures(connection, caller.tenant_id, self.clinic_id).await?;
        Ok(Sight { vacant: false, ..Sight::of(row, |row| caller.reaches(row.clinic_id)) })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let froms: Vec<SqlTime> = self.all.iter().map(|closure| closure.from.to_sqlx()).collect();
        let tos: Vec<SqlTime> = self.all.iter().map(|closure| closure.to.to_sqlx()).collect();
        let reasons: Vec<Option<String>> = self.all.iter().map(|closure| closure.reason.clone()).collect();
        let done = sqlx::query_file!(
            "src/store/directory/closures.sql",
            note.asker.caller.tenant_id,
            note.id,
            note.at.to_sqlx(),
            note.asker.caller.subject,
            note.asker.caller.credential_id,
            note.operation,
            note.asker.request_id,
            note.asker.caller_request_id.as_deref(),
            seen.map(Self::version),
            self.clinic_id,
            &froms,
            &tos,
            &reasons as &[Option<String>],
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}
