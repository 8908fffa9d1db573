//! Blocks: `/v1/blocks`. Time off, lunch, "keep 14:00 free".

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use uuid::Uuid;

use super::ask::{Ask, AskWithoutKey, execute};
use super::fields::{Text, instant};
use super::params::Ids;
use super::problem::Refused;
use crate::app::App;
use crate::command::block::{Block, Unblock};
use crate::domain::appointment::BlockView;
use crate::domain::problem::Problem;
use crate::domain::time::Span;

type Answered = Result<Response, Refused>;

/// Longest reason, in characters.
const REASON: usize = 1000;

/// A stretch to be kept free. At least one of `practitioner_id` and `operatory_id`.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocking {
    clinic_id: Uuid,
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// RFC 3339 with an offset.
    #[schema(example = "2026-12-01T11:00:00Z")]
    start: String,
    /// RFC 3339 with an offset.
    #[schema(example = "2026-12-01T12:00:00Z")]
    end: String,
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
pub async fn unblock(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: AskWithoutKey) -> Answered {
    execute(&app, ask.asked, Unblock { id }).await
}
