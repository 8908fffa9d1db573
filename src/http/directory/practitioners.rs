//! Practitioners, and where they work: `/v1/practitioners`. They belong to the group; a credential that is confined to
//! clinics sees those who work there.

use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{list_by_name, listing, page, put_entry, show};
use crate::app::App;
use crate::domain::directory::{Membership, Practitioner};
use crate::domain::hours::{self, OpenHours};
use crate::domain::problem::{Code, Problem};
use crate::http::ask::Change;
use crate::http::fields::{NAME, Name};
use crate::http::page::{ClinicPageParams, Cursor, Page, PageParams};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::practitioners;

/// A practitioner as they are to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PractitionerFields {
    /// The practitioner's name: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Dr. Mira Novak")]
    name: Name<NAME>,
    /// Whether they take new bookings anywhere. Left out: true. Visits booked already stay.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

/// Makes a practitioner or replaces what is known of them. Who is to be booked must work at a clinic too: see
/// `put_practitioner_clinic`. One who works only at clinics outside the credential's: 404. Sent again, it changes
/// nothing.
#[utoipa::path(put, path = "/v1/practitioners/{id}", operation_id = "put_practitioner", tag = "Directory", params(("id" = Uuid, Path)), request_body = PractitionerFields, responses((status = 200, body = Practitioner), (status = 201, body = Practitioner)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<PractitionerFields>, Ids([id]): Ids<1>) -> Answered {
    let fields = change.body;
    let practitioner = Practitioner { id, name: fields.name.0, active: fields.active.unwrap_or(true), version: 0 };
    put_entry(&app, &change.asker, &change.condition, practitioner, format!("/v1/practitioners/{id}")).await
}

/// Reads a practitioner. To a credential for some clinics, one who works at none of them: 404.
#[utoipa::path(get, path = "/v1/practitioners/{id}", operation_id = "get_practitioner", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Practitioner), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| practitioners::find(connection, &caller, id).scope_boxed()).await?;
    show(found.filter(|found| found.reached).map(|found| found.row), &headers)
}

/// Lists practitioners, by name. Those of one clinic, or all who work within the credential's reach. Follow `next`
/// until it is null.
#[utoipa::path(get, path = "/v1/practitioners", operation_id = "list_practitioners", tag = "Directory", params(ClinicPageParams), responses((status = 200, body = Page<Practitioner>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, ClinicPageParams>) -> Answered {
    list_by_name::<Practitioner>(&app, &caller, params.clinic_id, params.wanted()?).await
}

/// A practitioner's work at a clinic, as it is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MembershipFields {
    /// Whether they take new bookings at this clinic. Left out: true. Visits booked already stay.
    #[schema(default = true, example = true)]
    active: Option<bool>,
    /// Their weekly hours at this clinic, in its zone, of which only those within the clinic's own count. Left out or
    /// null: whenever it is open. More than 50 entries, or one that opens at "24:00": 400.
    hours: Option<Vec<OpenHours>>,
}

/// Says that a practitioner works at a clinic, and when. Sent again, it changes nothing.
#[utoipa::path(put, path = "/v1/practitioners/{id}/clinics/{clinic_id}", operation_id = "put_practitioner_clinic", tag = "Directory", params(("id" = Uuid, Path), ("clinic_id" = Uuid, Path)), request_body = MembershipFields, responses((status = 200, body = Membership), (status = 201, body = Membership)))]
pub async fn put_clinic(
    State(app): State<Arc<App>>,
    change: Change<MembershipFields>,
    Ids([practitioner_id, clinic_id]): Ids<2>,
) -> Answered {
    let fields = change.body;
    hours::validate(fields.hours.as_deref().unwrap_or_default())
        .map_err(|detail| Problem::malformed("/hours", detail))?;
    let active = fields.active.unwrap_or(true);
    let membership = Membership { practitioner_id, clinic_id, active, hours: fields.hours, version: 0 };
    let location = format!("/v1/practitioners/{practitioner_id}/clinics/{clinic_id}");
    put_entry(&app, &change.asker, &change.condition, membership, location).await
}

/// Reads when a practitioner works at a clinic. One who does not work there: 404.
#[utoipa::path(get, path = "/v1/practitioners/{id}/clinics/{clinic_id}", operation_id = "get_practitioner_clinic", tag = "Directory", params(("id" = Uuid, Path), ("clinic_id" = Uuid, Path)), responses((status = 200, body = Membership), (status = 304)))]
pub async fn get_clinic(Reading { app, ids: [id, clinic_id], caller, headers, .. }: Reading<2>) -> Answered {
    let found = app
        .insist(|connection| practitioners::membership(connection, caller.tenant_id, id, clinic_id).scope_boxed())
        .await?;
    show(found.filter(|membership| caller.reaches(membership.clinic_id)), &headers)
}

/// Lists the clinics a practitioner works at, by the clinic's id. Only those within the credential's reach. Follow
/// `next` until it is null.
#[utoipa::path(get, path = "/v1/practitioners/{id}/clinics", operation_id = "list_practitioner_clinics", tag = "Directory", params(("id" = Uuid, Path), PageParams), responses((status = 200, body = Page<Membership>)))]
pub async fn list_clinics(Reading { app, ids: [id], params, caller, .. }: Reading<1, PageParams>) -> Answered {
    let wanted = params.wanted()?;
    let found = app.insist(|connection| practitioners::find(connection, &caller, id).scope_boxed()).await?;
    if !found.is_some_and(|found| found.reached) {
        return Err(Code::NotFound.into());
    }
    let listing = listing(&caller, None, &wanted);
    let rows = app.insist(|connection| practitioners::memberships(connection, id, listing).scope_boxed()).await?;
    Ok(page(rows, &wanted, |membership| Cursor { key: String::new(), id: membership.clinic_id }))
}
