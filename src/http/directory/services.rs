//! What one may book: `/v1/services`.

use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{list_by_name, put_entry, show};
use crate::app::App;
use crate::domain::directory::Service;
use crate::http::ask::Change;
use crate::http::fields::{NAME, Name, Number};
use crate::http::page::{ClinicPageParams, Page};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::services;

/// A service as it is to be. Visits booked already keep their length.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFields {
    /// Id of the clinic that offers it. One that does not exist or is outside the credential's clinics: 403. Another
    /// one than before, while an appointment refers to it, past and cancelled ones included: 409 `in_use`.
    clinic_id: Uuid,
    /// What people call it: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Check-up")]
    name: Name<NAME>,
    /// How many minutes a visit lasts. Visits booked already keep their length.
    #[schema(value_type = i32, minimum = 1, maximum = 1440, example = 30)]
    minutes: Number<1, 1440>,
    /// Minutes after each visit in which practitioner and operatory are still held.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 1440, default = 0, example = 5)]
    buffer_minutes: Option<Number<0, 1440>>,
    /// Whether it takes new bookings. Left out: true. Visits booked already stay.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

/// Makes a service or replaces what is known of it. Visits booked already keep their length. Sent again, it changes
/// nothing.
#[utoipa::path(put, path = "/v1/services/{id}", operation_id = "put_service", tag = "Directory", params(("id" = Uuid, Path)), request_body = ServiceFields, responses((status = 200, body = Service), (status = 201, body = Service)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<ServiceFields>, Ids([id]): Ids<1>) -> Answered {
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
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| services::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|service| caller.reaches(service.clinic_id)), &headers)
}

/// Lists services, by name. Those of one clinic, or of all within the credential's reach. Follow `next` until it is
/// null.
#[utoipa::path(get, path = "/v1/services", operation_id = "list_services", tag = "Directory", params(ClinicPageParams), responses((status = 200, body = Page<Service>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, ClinicPageParams>) -> Answered {
    list_by_name::<Service>(&app, &caller, params.clinic_id, params.wanted()?).await
}
