//! What was delivered to a webhook endpoint, and how: `/v1/webhook-endpoints/{id}/deliveries`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;

use super::find;
use crate::app::App;
use crate::command::group::GroupCommand;
use crate::domain::problem::Problem;
use crate::domain::webhook::{DeliveryState, DeliveryView};
use crate::http::ask::{Ask, Nothing, execute_of_group};
use crate::http::page::{Cursor, Page, Wanted};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::deliveries;

/// Which deliveries to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Those that stand like this only. Left out: all.
    state: Option<DeliveryState>,
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

/// Lists the deliveries of a webhook endpoint, the latest first. Each with every attempt at it; kept for 30 days after it
/// ended. A credential for some clinics sees those of its clinics alone. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/webhook-endpoints/{id}/deliveries", operation_id = "list_webhook_deliveries", tag = "Webhooks", params(("id" = Uuid, Path), ListParams), responses((status = 200, body = Page<DeliveryView>)))]
pub async fn list(Reading { app, ids: [id], params, caller, .. }: Reading<1, ListParams>) -> Answered {
    let wanted = Wanted::read(params.limit.as_deref(), params.after.as_deref())?;
    let before = wanted.after.as_ref().map(|cursor| Ok::<_, Problem>((cursor.instant()?, cursor.id))).transpose()?;
    find(&app, &caller, id).await?;
    let (whose, rows) = ((caller.tenant_id, id), wanted.rows());
    let asked = deliveries::Wanted { before, state: params.state, clinics: caller.clinic_ids.as_deref() };
    let rows = app.insist(|connection| deliveries::list(connection, whose, asked, rows).scope_boxed()).await?;
    let place = |row: &DeliveryView| Cursor::at(row.queued_at, row.event_id);
    Ok(Json(Page::of(rows, &wanted, place, |row| row)).into_response())
}

/// Sends a delivery again. One that was delivered, given up or cancelled then waits for no other event of its subject; one that
/// waits is due at once, and where it is `HELD` it keeps its place. While an attempt is at work, or its endpoint is not
/// active or for other clinics or types by now: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/webhook-endpoints/{id}/deliveries/{event_id}/redeliver", operation_id = "redeliver_webhook", tag = "Webhooks", params(("id" = Uuid, Path), ("event_id" = Uuid, Path)), responses((status = 202)))]
pub async fn redeliver(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([endpoint, event]): Ids<2>) -> Answered {
    execute_of_group(&app, ask.asked, GroupCommand::Redeliver { endpoint, event }).await
}
