//! What became of a command: `/v1/commands`.

use axum::Json;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use uuid::Uuid;

use super::ask::key_of;
use super::problem::Refused;
use super::reading::Reading;
use crate::command::claim::key_lock;
use crate::command::fate::{self, Fate};
use crate::domain::problem::Code;
use crate::store::keys;

/// Where the command was sent to.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// The id of the clinic that the command was for: a key means one thing in one clinic. One that does not exist or
    /// is outside the credential's clinics: 403.
    clinic_id: Uuid,
}

/// Says what became of a command. The one that was sent with this `Idempotency-Key`: it is not executed, and its key is
/// not used up. Needs a role that may send that command, else 403.
#[utoipa::path(get, path = "/v1/commands", operation_id = "command", tag = "Commands", params(Asked, ("Idempotency-Key" = String, Header, description = "The command's key.")), responses((status = 200, body = Fate)))]
pub async fn get(
    Reading { app, params: Asked { clinic_id }, caller, headers, .. }: Reading<0, Asked>,
) -> Result<Json<Fate>, Refused> {
    let key = key_of(&headers)?;
    if !caller.reaches(clinic_id) {
        return Err(Code::Forbidden.into());
    }
    let tenant = caller.tenant_id;
    let now = app.clock.now();
    let registry = &app.commands.registry;
    let (at_work, kept) = app
        .insist(|connection| {
            async move {
                // In this order: see command/fate.rs.
                let at_work = registry.is_at_work(&(tenant, clinic_id, key))
                    || keys::is_locked(connection, key_lock(tenant, clinic_id, key)).await?;
                let kept = keys::kept(connection, tenant, clinic_id, key, now).await?;
                Ok((at_work, kept))
            }
            .scope_boxed()
        })
        .await?;
    let kept = kept.ok_or(Code::Forbidden)?;
    if let Some(kept) = &kept
        && !fate::permission(&kept.operation).is_some_and(|permission| caller.may(permission))
    {
        return Err(Code::Forbidden.into());
    }
    Ok(Json(Fate::of(at_work, kept)))
}
