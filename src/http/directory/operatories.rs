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
    /// Where it is. It can move as long as no booking has ever referred to it.
    clinic_id: Uuid,
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Room 2")]
    name: Name<NAME>,
    /// Whether it takes new bookings.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

/// Makes a treatment room or replaces what is known of it.
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

/// Reads a treatment room.
#[utoipa::path(get, path = "/v1/operatories/{id}", operation_id = "get_operatory", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Operatory), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| operatories::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|operatory| caller.reaches(operatory.clinic_id)), &headers)
}

/// Lists treatment rooms, by name.
#[utoipa::path(get, path = "/v1/operatories", operation_id = "list_operatories", tag = "Directory", params(ClinicPageParams), responses((status = 200, body = Page<Operatory>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, ClinicPageParams>) -> Answered {
    list_by_name::<Operatory>(&app, &caller, params.clinic_id, params.wanted()?).await
}
