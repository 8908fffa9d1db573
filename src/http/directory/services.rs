//! What one may book: `/v1/services`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Answered, Change, NAME, list_by_name, put as put_entry, show};
use crate::app::App;
use crate::domain::directory::Service;
use crate::http::fields::{Name, Number};
use crate::http::guard::SignedIn;
use crate::http::page::{Page, Wanted};
use crate::http::params::{Ids, NoParams, Params};
use crate::store::directory::services;

/// A service as it is to be. Visits booked already keep their length.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFields {
    /// Where it is offered. It can move as long as no booking has ever referred to it.
    clinic_id: Uuid,
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Check-up")]
    name: Name<NAME>,
    /// How long the visit takes.
    #[schema(value_type = i32, minimum = 1, maximum = 1440, example = 30)]
    minutes: Number<1, 1440>,
    /// Follows the visit; holds practitioner and operatory.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 1440, default = 0, example = 5)]
    buffer_minutes: Option<Number<0, 1440>>,
    /// Whether it takes new bookings.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

/// Makes a service or replaces what is known of it.
#[utoipa::path(put, path = "/v1/services/{id}", operation_id = "put_service", tag = "Directory", params(("id" = Uuid, Path)), request_body = ServiceFields, responses((status = 200, body = Service), (status = 201, body = Service)))]
pub async fn put(State(app): State<Arc<App>>, Ids([id]): Ids<1>, change: Change<ServiceFields>) -> Answered {
    let fields = change.body;
    let service = Service {
        id,
        clinic_id: fields.clinic_id,
        name: fields.name.0,
        minutes: fields.minutes.0,
        buffer_minutes: fields.buffer_minutes.map_or(0, |Number(minutes)| minutes),
        active: fields.active.unwrap_or(true),
        version: 0,
    };
    put_entry(&app, &change.asker, &change.condition, service, format!("/v1/services/{id}")).await
}

/// Reads a service.
#[utoipa::path(get, path = "/v1/services/{id}", operation_id = "get_service", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Service), (status = 304)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Ids([id]): Ids<1>,
    Params(NoParams {}): Params<NoParams>,
    Extension(SignedIn { caller, .. }): Extension<SignedIn>,
    headers: HeaderMap,
) -> Answered {
    let tenant = caller.tenant_id;
    let found = app.read(|connection| services::find(connection, tenant, id).scope_boxed()).await?;
    show(found.filter(|service| caller.reaches(service.clinic_id)), &headers)
}

/// Which services.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Those of this clinic.
    clinic_id: Option<Uuid>,
    /// Rows on a page at the most.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
}

/// Lists services, by name.
#[utoipa::path(get, path = "/v1/services", operation_id = "list_services", tag = "Directory", params(ListParams), responses((status = 200, body = Page<Service>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(params): Params<ListParams>,
    Extension(SignedIn { caller, .. }): Extension<SignedIn>,
) -> Answered {
    let wanted = Wanted::read(params.limit.as_deref(), params.after.as_deref())?;
    list_by_name::<Service>(&app, &caller, params.clinic_id, wanted).await
}
