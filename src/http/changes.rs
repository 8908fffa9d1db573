//! The feed of changes: `/v1/changes`. For day sheets and syncs that want to know what happened since they last asked.

use std::time::Duration;

use axum::Json;
use axum::response::IntoResponse;
use scoped_futures::ScopedFutureExt;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::page::{Cursor, Wanted};
use super::problem::Answered;
use super::reading::Reading;
use crate::domain::cloud_event::CloudEvent;
use crate::domain::problem::{Code, Problem};
use crate::store::changes;

/// The longest a caller may wait for a change, in seconds: shorter than proxies wait.
const LONGEST_WAIT: u64 = 30;

/// Whoever waits looks this often: it need not be this process that keeps the feed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is said to who stopped before the first change that is kept.
const GONE: &str =
    "Changes after this cursor are no longer kept: read the appointments anew, then go on without `after`.";

/// Which changes.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// Changes in the answer at the most.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// The `next` of the answer before; without it, from the first change that is kept. One so old that changes after it are
    /// no longer kept, or that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
    /// Seconds to wait for a change where there is none yet, 0 to 30. Left out: 0.
    #[param(value_type = Option<u16>, minimum = 0, maximum = 30, default = 0)]
    wait: Option<String>,
}

/// Changes of a clinic.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Changes {
    /// The changes, in order for each appointment and block, each as the event that tells of it.
    items: Vec<CloudEvent>,
    /// Where to go on: send it as `after`. It is there when there is nothing new, too.
    #[schema(example = "AQAAAAAAAAAAAAAAAAAAAAAwMDAwMDAwMDAwMDAwMDAwMDAx")]
    next: String,
}

/// Says what has happened at a clinic. Every change of its appointments and blocks, in order for each of them; ask again with
/// `next` for what happened since, with `wait` to be answered as soon as something does.
#[utoipa::path(get, path = "/v1/changes", operation_id = "list_changes", tag = "Changes", params(Asked), responses((status = 200, body = Changes)))]
pub async fn list(Reading { app, params: asked, caller, .. }: Reading<0, Asked>) -> Answered {
    let wanted = Wanted::read(asked.limit.as_deref(), asked.after.as_deref())?;
    let from = wanted.after.as_ref().map(place).transpose()?.unwrap_or(0);
    let wait = wait(asked.wait.as_deref())?;
    if !caller.reaches(asked.clinic_id) {
        return Err(Code::Forbidden.into());
    }
    let (tenant, clinic, most) = (caller.tenant_id, asked.clinic_id, wanted.rows() - 1);
    let until = Instant::now() + wait;
    let feed = loop {
        let read = app.insist(|connection| changes::read(connection, tenant, clinic, from, most).scope_boxed()).await?;
        let feed = read.ok_or(Code::Forbidden)?;
        if wanted.after.is_some() && from < feed.first {
            return Err(Problem::new(Code::CursorInvalid, GONE).into());
        }
        if !feed.placed.is_empty() || Instant::now() >= until {
            break feed;
        }
        sleep(LOOK_EVERY).await;
    };
    let next = feed.placed.last().map_or(from.max(feed.first), |(position, _)| position + 1);
    let items = feed.placed.into_iter().map(|(_, event)| event.into()).collect();
    let next = Cursor { key: format!("{next:020}"), id: Uuid::nil() }.encode();
    Ok(Json(Changes { items, next }).into_response())
}

fn place(cursor: &Cursor) -> Result<i64, Problem> {
    let digits = cursor.key.len() == 20 && cursor.key.bytes().all(|byte| byte.is_ascii_digit());
    cursor.key.parse().ok().filter(|_| digits).ok_or_else(|| Code::CursorInvalid.into())
}

fn wait(text: Option<&str>) -> Result<Duration, Problem> {
    let Some(text) = text else { return Ok(Duration::ZERO) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse().ok().filter(|seconds| digits && *seconds <= LONGEST_WAIT);
    let wanted = || Problem::malformed("wait", format!("Seconds from 0 to {LONGEST_WAIT} are wanted."));
    seconds.map(Duration::from_secs).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_whole_number_of_seconds() {
        assert_eq!(
            [None, Some("0"), Some("30")].map(|text| wait(text).map(|wait| wait.as_secs()).ok()),
            [Some(0), Some(0), Some(30)]
        );
        for text in ["", "31", "-1", "1.5", "99999999999999999999"] {
            assert!(wait(Some(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn the_cursor_of_another_list_is_refused() {
        let at = |key: &str| place(&Cursor { key: key.to_owned(), id: Uuid::nil() }).ok();
        assert_eq!(at("00000000000000000007"), Some(7));
        assert_eq!([at(""), at("7"), at("2026-12-01T08:00:00Z"), at("99999999999999999999")], [None; 4]);
    }
}
