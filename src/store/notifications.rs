//! `notification_intents`.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;

/// Marks what is still to be told of earlier schedules of these appointments (tenant, appointment, schedule version).
///
/// # Errors
/// As [`StoreError`].
pub async fn supersede(connection: &mut PgConnection, now_at: &[(Uuid, Uuid, i32)]) -> Result<(), StoreError> {
    let tenants: Vec<Uuid> = now_at.iter().map(|(tenant, ..)| *tenant).collect();
    let appointments: Vec<Uuid> = now_at.iter().map(|(_, appointment, _)| *appointment).collect();
    let versions: Vec<i32> = now_at.iter().map(|(.., version)| *version).collect();
    sqlx::query!(
        "update notification_intents n
         set state = 'SUPERSEDED'
         from (
           -- In one order for all, so that no two wait for each other.
           select i.tenant_id, i.id
           from unnest($1::uuid[], $2::uuid[], $3::int[]) as at(tenant_id, appointment_id, schedule_version)
           join notification_intents i on i.tenant_id = at.tenant_id and i.appointment_id = at.appointment_id
             and i.schedule_version < at.schedule_version
           where i.state = 'PENDING'
           order by i.tenant_id, i.id
           for update of i
         ) as overtaken
         where n.tenant_id = overtaken.tenant_id and n.id = overtaken.id",
        &tenants,
        &appointments,
        &versions
    )
    .execute(connection)
    .await?;
    Ok(())
}
