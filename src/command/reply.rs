//! The bytes a command answers with: made once, stored, and sent again as they are. And for how long.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Answer;
use crate::domain::appointment::{Appointment, AppointmentView, BlockView, Kind};
use crate::domain::problem::Problem;
use crate::store::commit::Reply;
use crate::store::seen::{Clinic, Stored, StoredHeaders};

/// The least a reply is kept (API.md, "Idempotency").
const LEAST: SignedDuration = SignedDuration::from_hours(24);

/// The answer that shows a row.
#[must_use]
pub fn of_row(status: u16, row: &Appointment) -> Reply {
    let (body, path) = match row.kind {
        Kind::Visit => (json(&AppointmentView::from(row)), "appointments"),
        Kind::Block => (json(&BlockView::from(row)), "blocks"),
    };
    let headers = StoredHeaders {
        content_type: Some("application/json".to_owned()),
        etag: Some(etag(row.version)),
        location: (status == 201).then(|| format!("/v1/{path}/{}", row.id)),
    };
    if status == 204 {
        return Reply { status, headers: StoredHeaders::default(), body: Vec::new() };
    }
    Reply { status, headers, body }
}

/// The answer that says no.
#[must_use]
pub fn of_problem(problem: &Problem) -> Reply {
    let headers =
        StoredHeaders { content_type: Some("application/problem+json".to_owned()), ..StoredHeaders::default() };
    Reply { status: problem.code.status(), headers, body: problem.to_bytes() }
}

/// The answer as it was stored.
#[must_use]
pub fn of_stored(stored: &Stored) -> Reply {
    Reply { status: stored.status, headers: stored.headers.clone(), body: stored.body.clone() }
}

/// A row's entity tag.
#[must_use]
pub fn etag(version: i32) -> String {
    format!("\"{version}\"")
}

/// Until when a success replays: so many days past the appointment's end, and a day at the least.
#[must_use]
pub fn keep_success(clinic: &Clinic, row: &Appointment, now: Timestamp) -> Timestamp {
    let past_the_end = SignedDuration::from_hours(24 * i64::from(clinic.key_retention_days));
    later(row.during.end, past_the_end).max(keep_refusal(now))
}

/// Until when a refusal replays.
#[must_use]
pub fn keep_refusal(now: Timestamp) -> Timestamp {
    later(now, LEAST)
}

fn later(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Views serialise: they hold text, numbers and times alone.
fn json(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).unwrap_or_default()
}

/// Counts an answer and its time.
pub fn count(operation: &'static str, answer: &Result<Answer, Problem>, took: Duration) {
    let outcome = match answer {
        Ok(answer) if answer.replayed => "replayed",
        Ok(answer) if answer.reply.status >= 400 => "refused",
        Ok(_) => "done",
        Err(problem) => problem.code.as_str(),
    };
    metrics::counter!("oncebook_commands_total", "operation" => operation, "outcome" => outcome).increment(1);
    metrics::histogram!("oncebook_command_seconds", "operation" => operation).record(took.as_secs_f64());
}
