//! `practitioners` and `practitioner_clinics`: people of the group, and where they work.

use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::clinics;
use super::{Entry, Listing, Named, Outcome, Sight};
use crate::domain::access::Caller;
use crate::domain::directory::{Membership, Practitioner};
use crate::domain::hours::OpenHours;
use crate::store::StoreError;
use crate::store::audit::AuditNote;

/// A practitioner, and what a credential that is confined to clinics may see of them.
#[derive(Clone, Debug)]
pub struct Found {
    /// Who.
    pub row: Practitioner,
    /// Whether they work within the caller's reach; to an unconfined credential everyone does.
    pub reached: bool,
    /// Whether they work anywhere yet. Who does not may be taken on by any administrator.
    pub works: bool,
}

/// The practitioner of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, caller: &Caller, id: Uuid) -> Result<Option<Found>, StoreError> {
    let row = sqlx::query!(
        r#"select name, active, version,
             $3::uuid[] is null or exists (
               select from practitioner_clinics m
               where m.tenant_id = p.tenant_id and m.practitioner_id = p.id and m.clinic_id = any($3)
             ) as "reached!",
             exists (
               select from practitioner_clinics m where m.tenant_id = p.tenant_id and m.practitioner_id = p.id
             ) as "works!"
           from practitioners p
           where tenant_id = $1 and id = $2"#,
        caller.tenant_id,
        id,
        caller.clinic_ids.as_deref()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Found {
        row: Practitioner { id, name: row.name, active: row.active, version: row.version },
        reached: row.reached,
        works: row.works,
    }))
}

impl Named for Practitioner {
    fn place(&self) -> (&str, Uuid) {
        (&self.name, self.id)
    }

    /// With clinics, those who work at one of them.
    async fn list(connection: &mut PgConnection, listing: Listing<'_>) -> Result<Vec<Self>, StoreError> {
        let (name, id) = listing.after_name();
        let rows = sqlx::query_as!(
            Self,
            "select id, name, active, version
             from practitioners p
             where tenant_id = $1
               and ($2::uuid[] is null or exists (
                 select from practitioner_clinics m
                 where m.tenant_id = p.tenant_id and m.practitioner_id = p.id and m.clinic_id = any($2)))
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

impl Entry for Practitioner {
    const OPERATION: &'static str = "put_practitioner";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let found = find(connection, caller, self.id).await?;
        let vacant = found.is_none();
        let row = found.filter(|found| found.reached || !found.works).map(|found| found.row);
        Ok(Sight { clinic: true, row, vacant })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               insert into practitioners as p (tenant_id, id, name, active, version, created_at, updated_at)
               values ($1, $10, $11, $12, 1, $3, $3)
               on conflict (tenant_id, id) do update
               set name = excluded.name,
                   active = excluded.active,
                   version = p.version + 1,
                   updated_at = excluded.updated_at
               where p.version = $9
               returning p.tenant_id, p.id
             )
             insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id,
               caller_request_id)
             select tenant_id, $2, $3, $4, $5, $6, id, case when $9::int is null then 201 else 200 end, $7, $8
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
            self.active,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}

/// A membership as the statements of this file read it.
struct MembershipRow {
    practitioner_id: Uuid,
    clinic_id: Uuid,
    active: bool,
    hours: Option<Json<Vec<OpenHours>>>,
    version: i32,
}

impl From<MembershipRow> for Membership {
    fn from(row: MembershipRow) -> Self {
        Self {
            practitioner_id: row.practitioner_id,
            clinic_id: row.clinic_id,
            active: row.active,
            hours: row.hours.map(|Json(hours)| hours),
            version: row.version,
        }
    }
}

/// A practitioner's membership of a clinic.
///
/// # Errors
/// As [`StoreError`].
pub async fn membership(
    connection: &mut PgConnection,
    tenant: Uuid,
    practitioner: Uuid,
    clinic: Uuid,
) -> Result<Option<Membership>, StoreError> {
    let row = sqlx::query_as!(
        MembershipRow,
        r#"select practitioner_id, clinic_id, active, hours as "hours: Json<Vec<OpenHours>>", version
           from practitioner_clinics
           where tenant_id = $1 and practitioner_id = $2 and clinic_id = $3"#,
        tenant,
        practitioner,
        clinic
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(Membership::from))
}

/// A practitioner's memberships by the clinic's id; the listing's names are not looked at.
///
/// # Errors
/// As [`StoreError`].
pub async fn memberships(
    connection: &mut PgConnection,
    practitioner: Uuid,
    listing: Listing<'_>,
) -> Result<Vec<Membership>, StoreError> {
    let rows = sqlx::query_as!(
        MembershipRow,
        r#"select practitioner_id, clinic_id, active, hours as "hours: Json<Vec<OpenHours>>", version
           from practitioner_clinics
           where tenant_id = $1 and practitioner_id = $2
             and ($3::uuid[] is null or clinic_id = any($3))
             and ($4::uuid is null or clinic_id > $4)
           order by clinic_id
           limit $5"#,
        listing.tenant,
        practitioner,
        listing.clinics,
        listing.after.map(|(_, clinic)| clinic),
        listing.rows
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Membership::from).collect())
}

impl Entry for Membership {
    const OPERATION: &'static str = "put_practitioner_clinic";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    /// Both the person and the clinic are in the path, so whatever is wrong with either is a row that is not there.
    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let nothing = Sight { clinic: true, row: None, vacant: false };
        if !caller.reaches(self.clinic_id) {
            return Ok(nothing);
        }
        let row = membership(connection, caller.tenant_id, self.practitioner_id, self.clinic_id).await?;
        if row.is_some() {
            return Ok(Sight { row, ..nothing });
        }
        let found = find(connection, caller, self.practitioner_id).await?;
        let may_join = found.is_some_and(|found| found.reached || !found.works);
        let vacant = may_join && clinics::reached(connection, caller, &[self.clinic_id]).await?;
        Ok(Sight { vacant, ..nothing })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               insert into practitioner_clinics as m (tenant_id, practitioner_id, clinic_id, active, hours, version,
                 created_at, updated_at)
               values ($1, $10, $11, $12, $13, 1, $3, $3)
               on conflict (tenant_id, practitioner_id, clinic_id) do update
               set active = excluded.active,
                   hours = excluded.hours,
                   version = m.version + 1,
                   updated_at = excluded.updated_at
               where m.version = $9
               returning m.tenant_id, m.practitioner_id, m.clinic_id
             )
             insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status,
               request_id, caller_request_id)
             select tenant_id, $2, $3, $4, $5, clinic_id, $6, practitioner_id,
               case when $9::int is null then 201 else 200 end, $7, $8
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
            self.practitioner_id,
            self.clinic_id,
            self.active,
            self.hours.as_ref().map(Json) as _,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}
