//! `patients`.

use jiff::civil::Date;
use jiff_sqlx::{Date as SqlDate, ToSqlx};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{Entry, Listing, Outcome, Sight};
use crate::domain::access::Caller;
use crate::domain::directory::{Channel, Patient};
use crate::store::StoreError;
use crate::store::audit::AuditNote;

/// A row as the statements of this file read it.
struct Row {
    id: Uuid,
    name: String,
    birth_date: Option<SqlDate>,
    email: Option<String>,
    phone: Option<String>,
    language: Option<String>,
    preferred_channel: String,
    version: i32,
}

impl From<Row> for Patient {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            name: row.name,
            birth_date: row.birth_date.map(SqlDate::to_jiff),
            email: row.email,
            phone: row.phone,
            language: row.language,
            // The table's check leaves no other text.
            preferred_channel: Channel::parse(&row.preferred_channel).unwrap_or_default(),
            version: row.version,
        }
    }
}

/// The patient of that id.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, tenant: Uuid, id: Uuid) -> Result<Option<Patient>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "select id, name, birth_date, email, phone, language, preferred_channel, version
         from patients
         where tenant_id = $1 and id = $2",
        tenant,
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(Patient::from))
}

/// Patients by name: those with a name in which every word typed begins a word, and those born on a day. Patients belong
/// to the group, so the listing's clinics are not looked at.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    typed: Option<&str>,
    birth_date: Option<Date>,
    listing: Listing<'_>,
) -> Result<Vec<Patient>, StoreError> {
    let (name, id) = listing.after_name();
    let rows = sqlx::query_file_as!(
        Row,
        "src/store/directory/patients.sql",
        listing.tenant,
        typed,
        birth_date.map(ToSqlx::to_sqlx),
        name,
        id,
        listing.rows
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Patient::from).collect())
}

impl Entry for Patient {
    const OPERATION: &'static str = "put_patient";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        Ok(Sight::of(find(connection, caller.tenant_id, self.id).await?, |_| true))
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query!(
            "with written as (
               insert into patients as p (tenant_id, id, name, birth_date, email, phone, language, preferred_channel,
                 version, created_at, updated_at)
               values ($1, $10, $11, $12, $13, $14, $15, $16, 1, $3, $3)
               on conflict (tenant_id, id) do update
               set name = excluded.name,
                   birth_date = excluded.birth_date,
                   email = excluded.email,
                   phone = excluded.phone,
                   language = excluded.language,
                   preferred_channel = excluded.preferred_channel,
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
            self.birth_date.map(ToSqlx::to_sqlx),
            self.email.as_deref(),
            self.phone.as_deref(),
            self.language.as_deref(),
            self.preferred_channel.as_str(),
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}
