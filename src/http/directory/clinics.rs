//! Clinics: `/v1/clinics`.

use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{list_by_name, put_entry, show};
use crate::app::App;
use crate::domain::directory::Clinic;
use crate::domain::problem::Problem;
use crate::http::ask::Change;
use crate::http::fields::{NAME, Name, Number, Zone};
use crate::http::page::{Page, PageParams};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::clinics;

/// A clinic's settings, as they are to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClinicFields {
    /// What people call the clinic: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Spree Dental Mitte")]
    name: Name<NAME>,
    /// IANA name of the clinic's time zone. Opening hours and the grid are wall-clock times in it. An unknown name:
    /// 400.
    #[schema(value_type = String, example = "Europe/Berlin")]
    time_zone: Zone,
    /// The grid, in minutes: visits start on multiples of it, counted from local midnight.
    #[schema(value_type = i32, minimum = 1, maximum = 1440, example = 15)]
    slot_minutes: Number<1, 1440>,
    /// Whether a booking may ask to be put into a slot that is taken (`overbook`). Left out: false.
    #[schema(example = false)]
    allow_overbooking: Option<bool>,
    /// Minutes between a booking and the visit's start, at least. A shorter notice: 422 `too_soon`.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 5_256_000, default = 0, example = 0)]
    min_notice_minutes: Option<Number<0, 5_256_000>>,
    /// Days between a booking and the visit's start, at most. A start further ahead: 422 `too_far_ahead`.
    #[schema(value_type = Option<i32>, minimum = 1, maximum = 3650, default = 730, example = 730)]
    horizon_days: Option<Number<1, 3650>>,
    /// Days after the end of a visit or block for which the answers to its commands replay under their keys, and 24
    /// hours at least. A refusal replays for 24 hours.
    #[schema(value_type = Option<i32>, minimum = 1, maximum = 3650, default = 7, example = 7)]
    key_retention_days: Option<Number<1, 3650>>,
}

impl ClinicFields {
    fn clinic(self, id: Uuid) -> Clinic {
        Clinic {
            id,
            name: self.name.0,
            time_zone: self.time_zone.0,
            slot_minutes: self.slot_minutes.0,
            allow_overbooking: self.allow_overbooking.unwrap_or(false),
            min_notice_minutes: self.min_notice_minutes.map_or(0, |Number(minutes)| minutes),
            horizon_days: self.horizon_days.map_or(730, |Number(days)| days),
            key_retention_days: self.key_retention_days.map_or(7, |Number(days)| days),
            version: 0,
        }
    }
}

/// Makes a clinic or replaces its settings. What is left out takes its default. A new clinic has no hours, so it is
/// closed, and only a credential for all clinics of the group can make one, else 404. The nil id: 400. Sent again, it
/// changes nothing.
#[utoipa::path(put, path = "/v1/clinics/{id}", operation_id = "put_clinic", tag = "Directory", params(("id" = Uuid, Path)), request_body = ClinicFields, responses((status = 200, body = Clinic), (status = 201, body = Clinic)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<ClinicFields>, Ids([id]): Ids<1>) -> Answered {
    if id.is_nil() {
        return Err(Problem::malformed(
            "path",
            "The nil id is no clinic's: keys of commands of the group stand under it.",
        )
        .into());
    }
    let clinic = change.body.clinic(id);
    put_entry(&app, &change.asker, &change.condition, clinic, format!("/v1/clinics/{id}")).await
}

/// Reads a clinic's settings.
#[utoipa::path(get, path = "/v1/clinics/{id}", operation_id = "get_clinic", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Clinic), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| clinics::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|clinic| caller.reaches(clinic.id)), &headers)
}

/// Lists the clinics within the credential's reach, by name. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/clinics", operation_id = "list_clinics", tag = "Directory", params(PageParams), responses((status = 200, body = Page<Clinic>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, PageParams>) -> Answered {
    list_by_name::<Clinic>(&app, &caller, None, params.wanted()?).await
}
