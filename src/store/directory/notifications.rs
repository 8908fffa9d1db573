//! `clinic_notifications`: what a clinic set for its notifications.

use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Entry, Outcome, Sight};
use crate::domain::access::Caller;
use crate::domain::hours::TimeOfDay;
use crate::domain::notification::{QuietHours, REMINDER_HOURS, Settings};
use crate::domain::template::Templates;
use crate::store::StoreError;
use crate::store::audit::AuditNote;

/// A clinic's settings; the defaults where it has set none, nothing where there is no such clinic.
///
/// # Errors
/// As [`StoreError`].
pub async fn find(connection: &mut PgConnection, tenant: Uuid, clinic: Uuid) -> Result<Option<Settings>, StoreError> {
    let row = sqlx::query!(
        r#"select n.reminder_hours as "reminder_hours?", n.quiet_from as "quiet_from?", n.quiet_to as "quiet_to?",
             n.templates as "templates?: Json<Templates>", n.version as "version?"
           from clinics c
           left join clinic_notifications n on n.tenant_id = c.tenant_id and n.clinic_id = c.id
           where c.tenant_id = $1 and c.id = $2"#,
        tenant,
        clinic
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Settings {
        clinic_id: clinic,
        reminder_hours: row.reminder_hours.unwrap_or(REMINDER_HOURS),
        quiet_hours: quiet_hours(row.quiet_from, row.quiet_to),
        templates: row.templates.map_or_else(Templates::default, |Json(templates)| templates),
        version: row.version.unwrap_or(0),
    }))
}

/// Quiet hours as they are stored.
pub(in crate::store) fn quiet_hours(from: Option<i16>, to: Option<i16>) -> Option<QuietHours> {
    Some(QuietHours { from: TimeOfDay::from_minutes(from?)?, to: TimeOfDay::from_minutes(to?)? })
}

impl Entry for Settings {
    const OPERATION: &'static str = "put_clinic_notifications";

    fn version(&self) -> i32 {
        self.version
    }

    fn at_version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    async fn look(&self, connection: &mut PgConnection, caller: &Caller) -> Result<Sight<Self>, StoreError> {
        let row = find(connection, caller.tenant_id, self.clinic_id).await?;
        Ok(Sight { vacant: false, ..Sight::of(row, |row| caller.reaches(row.clinic_id)) })
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> Result<Outcome, StoreError> {
        let done = sqlx::query_file!(
            "src/store/notifications_settings.sql",
            note.asker.caller.tenant_id,
            note.id,
            note.at.to_sqlx(),
            note.asker.caller.subject,
            note.asker.caller.credential_id,
            note.operation,
            note.asker.request_id,
            note.asker.caller_request_id.as_deref(),
            seen.map_or(0, Self::version),
            self.clinic_id,
            self.reminder_hours,
            self.quiet_hours.map(|quiet| quiet.from.minutes()),
            self.quiet_hours.map(|quiet| quiet.to.minutes()),
            Json(&self.templates) as _,
        )
        .execute(connection)
        .await?;
        Ok(Outcome::of(&done))
    }
}
