//! Treatment rooms: `/v1/operatories`.

use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{list_by_name, put_entry, show};
use crate::app::App;
use crate::domain::directory::Operatory;
use crate::http::ask::Change;
use crate::http::fields::{NAME, Name};
use crate::http::page::{ClinicPageParams, Page};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::operatories;

/// A treatment room as it is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatoryFields {
    /// Id of the clinic it is in. One that does not exist or is outside the credential's clinics: 403. Another one than
    /// before, while an appointment or block refers to it, past and cancelled ones included: 409 `in_use`.
    clinic_id: Uuid,
    /// What people call it: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Room 2")]
    name: Name<NAME>,
    /// Whether it takes new bookings. Left out: true. Visits booked already stay.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

/// Makes an operatory (treatment room) or replaces what is known of it. Sent again, it changes nothing.
#[utoipa::path(put, path = "/v1/operatories/{id}", operation_id = "put_operatory", tag = "Directory", params(("id" = Uuid, Path)), request_body = OperatoryFields, responses((status = 200, body = Operatory), (status = 201, body = Operatory)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<OperatoryFields>, Ids([id]): Ids<1>) -> Answered {
    let fields = change.body;
    let operatory = Operatory {
        id,
        clinic_id: fields.clinic_id,
        name: fields.name.0,
        active: fields.active.unwrap_or(true),
        version: 0,
    };
    put_entry(&app, &change.asker, &change.condition, operatory, format!("/v1/operatories/{id}")).await
}

/// Reads an operatory (treatment room).
#[utoipa::path(get, path = "/v1/operatories/{id}", operation_id = "get_operatory", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Operatory), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| operatories::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|operatory| caller.reaches(operatory.clinic_id)), &headers)
}

/// Lists operatories (treatment rooms), by name. Those of one clinic, or of all within the credential's reach. Follow
/// `next` until it is null.
#[utoipa::path(get, path = "/v1/operatories", operation_id = "list_operatories", tag = "Directory", params(ClinicPageParams), responses((status = 200, body = Page<Operatory>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, ClinicPageParams>) -> Answered {
    list_by_name::<Operatory>(&app, &caller, params.clinic_id, params.wanted()?).await
}
