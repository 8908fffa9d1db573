//! Blocks: `/v1/blocks`. Time off, lunch, "keep 14:00 free".

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use uuid::Uuid;

use super::appointments::find;
use super::ask::{Ask, AskWithoutKey, execute};
use super::fields::{REASON, Text, bounds, instant};
use super::listing;
use super::page::{Page, Wanted};
use super::params::Ids;
use super::problem::Answered;
use super::reading::{Reading, with_etag};
use crate::app::App;
use crate::command::block::{Block, Unblock};
use crate::domain::appointment::{BlockView, Kind};
use crate::domain::problem::{Code, Problem};
use crate::domain::time::Span;
use crate::store::appointments::Filter;

/// A stretch to be kept free. At least one of `practitioner_id` and `operatory_id`.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocking {
    /// Where.
    clinic_id: Uuid,
    /// Whom it keeps.
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    /// Which room it keeps.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// RFC 3339 with an offset.
    #[schema(format = DateTime, example = "2027-11-02T11:00:00Z")]
    start: String,
    /// RFC 3339 with an offset.
    #[schema(format = DateTime, example = "2027-11-02T12:00:00Z")]
    end: String,
    /// For people.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000, example = "lunch")]
    reason: Option<Text<REASON>>,
}

impl Blocking {
    fn command(self) -> Result<Block, Problem> {
        if self.practitioner_id.is_none() && self.operatory_id.is_none() {
            return Err(Problem::malformed(
                "/practitioner_id",
                "A practitioner_id, an operatory_id or both are wanted.",
            ));
        }
        let during = Span::new(instant("/start", &self.start, None)?, instant("/end", &self.end, None)?)
            .ok_or_else(|| Problem::malformed("/end", "An end after the start is wanted."))?;
        Ok(Block {
            clinic_id: self.clinic_id,
            practitioner_id: self.practitioner_id,
            operatory_id: self.operatory_id,
            during,
            reason: self.reason.map(|Text(reason)| reason),
        })
    }
}

/// Keeps a stretch free of visits.
#[utoipa::path(post, path = "/v1/blocks", tag = "Blocks", request_body = Blocking, responses((status = 201, body = BlockView<'static>)))]
pub async fn block(State(app): State<Arc<App>>, ask: Ask<Blocking>) -> Answered {
    execute(&app, ask.asked, ask.body.command()?).await
}

/// Removes a block. Needs no key: a block that is removed stays removed.
#[utoipa::path(delete, path = "/v1/blocks/{id}", tag = "Blocks", params(("id" = Uuid, Path)), responses((status = 204)))]
pub async fn unblock(State(app): State<Arc<App>>, ask: AskWithoutKey, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Unblock { id }).await
}

/// Reads a block. One that was removed is no longer there.
#[utoipa::path(get, path = "/v1/blocks/{id}", operation_id = "get_block", tag = "Blocks", params(("id" = Uuid, Path)), responses((status = 200, body = BlockView<'static>), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let row = find(&app, &caller, Kind::Block, id).await?;
    if !row.status.holds_slot() {
        return Err(Code::NotFound.into());
    }
    Ok(with_etag(row.version, &headers, &BlockView::from(&row)))
}

/// Which blocks to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// The clinic.
    clinic_id: Uuid,
    /// Those that end after then: a leave that began last week is among today's.
    #[param(example = "2027-11-02T00:00:00Z", format = DateTime)]
    from: Option<String>,
    /// Those that start before then.
    #[param(example = "2027-11-03T00:00:00Z", format = DateTime)]
    to: Option<String>,
    /// Those of one practitioner.
    practitioner_id: Option<Uuid>,
    /// Those of one operatory.
    operatory_id: Option<Uuid>,
    /// How many at the most, 1 to 200; 50 unless said.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, example = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came.
    after: Option<String>,
}

/// Lists a clinic's blocks by start, then id, without those that were removed. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/blocks", operation_id = "list_blocks", tag = "Blocks", params(ListParams), responses((status = 200, body = Page<BlockView<'static>>)))]
pub async fn list(Reading { app, params: asked, caller, .. }: Reading<0, ListParams>) -> Answered {
    let (from, to) = bounds(asked.from.as_deref(), asked.to.as_deref())?;
    let wanted = Wanted::read(asked.limit.as_deref(), asked.after.as_deref())?;
    let filter = Filter::Blocks {
        practitioner: asked.practitioner_id,
        operatory: asked.operatory_id,
        starts_before: to,
        ends_after: from,
    };
    let found = listing::find(&app, &caller, asked.clinic_id, &filter, None, &wanted).await?;
    Ok(Json(found.page::<BlockView<'_>>(&wanted)).into_response())
}
