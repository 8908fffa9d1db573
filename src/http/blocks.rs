//! Blocks: `/v1/blocks`. Time off, lunch, "keep 14:00 free".

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use uuid::Uuid;

use super::appointments::find;
use super::ask::{Ask, AskWithoutKey, execute};
use super::fields::{REASON, Text, bounds, instant, kept};
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

/// A stretch to be kept free of visits, for a practitioner, an operatory or both.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocking {
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// The id of the practitioner whose time is kept free, active or not. One who does not work at the clinic: 422
    /// `unknown_reference`. Neither this nor `operatory_id`: 400.
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    /// The id of the operatory (treatment room) that is kept free, active or not. One that the clinic does not have:
    /// 422 `unknown_reference`.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// When it starts: RFC 3339 with an offset, else 400. It may have passed, and be off the clinic's grid and outside
    /// its hours.
    #[schema(format = DateTime, example = "2027-11-02T11:00:00Z")]
    start: String,
    /// When it ends: RFC 3339 with an offset and later than `start`, else 400. Not in the future: 422 `in_the_past`;
    /// beyond the clinic's horizon: 422 `too_far_ahead`.
    #[schema(format = DateTime, example = "2027-11-02T12:00:00Z")]
    end: String,
    /// The reason, for people: at most 1000 characters; may be left out.
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
        let at = |pointer, written: &str| {
            kept(instant(pointer, written, None)?).map_err(|wanted| Problem::malformed(pointer, wanted))
        };
        let during = Span::new(at("/start", &self.start)?, at("/end", &self.end)?)
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

/// Keeps a stretch free of visits. Where a visit or another block is in the way: 409 `slot_taken`, without other
/// openings; a block cannot overbook.
#[utoipa::path(post, path = "/v1/blocks", tag = "Blocks", request_body = Blocking, responses((status = 201, body = BlockView<'static>)))]
pub async fn block(State(app): State<Arc<App>>, ask: Ask<Blocking>) -> Answered {
    execute(&app, ask.asked, ask.body.command()?).await
}

/// Removes a block. Needs no key: a block that is removed stays removed, and removing it again is 204 once more.
#[utoipa::path(delete, path = "/v1/blocks/{id}", tag = "Blocks", params(("id" = Uuid, Path)), responses((status = 204)))]
pub async fn unblock(State(app): State<Arc<App>>, ask: AskWithoutKey, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Unblock { id }).await
}

/// Reads a block. One that was removed: 404.
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
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// Blocks that end after then: a leave that began last week is among today's. RFC 3339 with an offset, else 400.
    /// Left out: from the first one.
    #[param(example = "2027-11-02T00:00:00Z", format = DateTime)]
    from: Option<String>,
    /// Blocks that start before then: RFC 3339 with an offset and later than `from`, else 400. Left out: to the last
    /// one.
    #[param(example = "2027-11-03T00:00:00Z", format = DateTime)]
    to: Option<String>,
    /// Blocks of this practitioner only. An id that nobody has finds nothing.
    practitioner_id: Option<Uuid>,
    /// Blocks of this operatory only. An id that none has finds nothing.
    operatory_id: Option<Uuid>,
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, example = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

/// Lists a clinic's blocks by start, then id. Without those that were removed. Follow `next` until it is null: a page
/// may be shorter than its limit and yet have one.
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
