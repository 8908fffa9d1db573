//! `operatories`.

use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::clinics;
use super::{Entry, Listing, Named, Outcome, Sight};
use crate::domain::access::Caller;
use crate::domain::directory::Operatory;
use crate::store::StoreError;
use crate::store::audit::AuditNote;

/// The operatory of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, tenant: Uuid, id: Uuid) -> Result<Option<Operatory>, StoreError> {
    let row = sqlx::query_as!(
        Operatory,
        "select id, clinic_id, name, active, version from operatories where tenant_id = $1 and id = $2",
        tenant,
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row)
}

impl Named for Operatory {
    fn place(&self) -> (&str, Uuid) {
        (&self.name, self.id)
    }

    async fn list(connection: &mut PgConnection, listing: Listing<'_>) -> Result<Vec<Self>, StoreError> {
        let (name, id) = listing.after_name();
        let rows = sqlx::query_as!(
            Self,
            "select id, clinic_id, name, active, version
             from operatories
             where tenant_id = $1
               and ($2::uuid[] is null or clinic_id = any($2))
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

impl Entry for Operatory {
    const OPERATION: &'static str = "put_operatory";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let clinic = clinics::reached(connection, caller, &[self.clinic_id]).await?;
        let row = find(connection, caller.tenant_id, self.id).await?;
        Ok(Sight { clinic, ..Sight::of(row, |row| caller.reaches(row.clinic_id)) })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        if seen.is_some_and(|seen| seen.clinic_id != self.clinic_id) {
            return relocate(connection, self, seen.map(Self::version), note).await;
        }
        let done = sqlx::query!(
            "with written as (
               insert into operatories as o (tenant_id, id, clinic_id, name, active, version, created_at, updated_at)
               values ($1, $10, $11, $12, $13, 1, $3, $3)
               on conflict (tenant_id, id) do update
               set name = excluded.name,
                   active = excluded.active,
                   version = o.version + 1,
                   updated_at = excluded.updated_at
               where o.version = $9
               returning o.tenant_id, o.id, o.clinic_id
             )
             insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status,
               request_id, caller_request_id)
             select tenant_id, $2, $3, $4, $5, clinic_id, $6, id, case when $9::int is null then 201 else 200 end, $7, $8
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
            self.clinic_id,
            self.name,
            self.active,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}

/// Writes an operatory that goes to another clinic. The clinic is a key column, which bookings' foreign keys wait for, so
/// the ordinary write leaves it alone; and where a booking refers to it, its foreign key says no.
async fn relocate(
    connection: &mut PgConnection,
    operatory: &Operatory,
    from: Option<i32>,
    note: &AuditNote<'_>,
) -> Result<Outcome, StoreError> {
    let result = sqlx::query!(
        "with written as (
           update operatories
           set clinic_id = $11, name = $12, active = $13, version = version + 1, updated_at = $3
           where tenant_id = $1 and id = $10 and version = $9
           returning tenant_id, id, clinic_id
         )
         insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status,
           request_id, caller_request_id)
         select tenant_id, $2, $3, $4, $5, clinic_id, $6, id, 200, $7, $8
         from written",
        note.asker.caller.tenant_id,
        note.id,
        note.at.to_sqlx(),
        note.asker.caller.subject,
        note.asker.caller.credential_id,
        note.operation,
        note.asker.request_id,
        note.asker.caller_request_id.as_deref(),
        from,
        operatory.id,
        operatory.clinic_id,
        operatory.name,
        operatory.active,
    )
    .execute(connection)
    .await;
    Outcome::of_move(result, "appointments_operatory_fk")
}
