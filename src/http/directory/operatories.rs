//! Treatment rooms: `/v1/operatories`.

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
use crate::domain::directory::Operatory;
use crate::http::fields::Name;
use crate::http::guard::SignedIn;
use crate::http::page::{Page, Wanted};
use crate::http::params::{Ids, NoParams, Params};
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
pub async fn put(State(app): State<Arc<App>>, Ids([id]): Ids<1>, change: Change<OperatoryFields>) -> Answered {
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
pub async fn get(
    State(app): State<Arc<App>>,
    Ids([id]): Ids<1>,
    Params(NoParams {}): Params<NoParams>,
    Extension(SignedIn { caller, .. }): Extension<SignedIn>,
    headers: HeaderMap,
) -> Answered {
    let tenant = caller.tenant_id;
    let found = app.read(|connection| operatories::find(connection, tenant, id).scope_boxed()).await?;
    show(found.filter(|operatory| caller.reaches(operatory.clinic_id)), &headers)
}

/// Which treatment rooms.
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

/// Lists treatment rooms, by name.
#[utoipa::path(get, path = "/v1/operatories", operation_id = "list_operatories", tag = "Directory", params(ListParams), responses((status = 200, body = Page<Operatory>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(params): Params<ListParams>,
    Extension(SignedIn { caller, .. }): Extension<SignedIn>,
) -> Answered {
    let wanted = Wanted::read(params.limit.as_deref(), params.after.as_deref())?;
    list_by_name::<Operatory>(&app, &caller, params.clinic_id, wanted).await
}
