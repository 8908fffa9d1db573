//! The bytes a command answers with: made once, stored, and sent again as they are. And for how long.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use super::{Act, Answer, Decision};
use crate::domain::appointment::{Appointment, AppointmentView, BlockView, Kind};
use crate::domain::problem::{Code, Problem};
use crate::store::commit::Reply;
use crate::store::seen::{Clinic, Stored, StoredHeaders};

/// The least a reply is kept (API.md, "Idempotency").
const LEAST: SignedDuration = SignedDuration::from_hours(24);

/// A decision in the shape a commit takes.
pub(super) struct Decided {
    /// What is answered.
    pub reply: Reply,
    /// Until when it replays.
    pub expires_at: Timestamp,
    /// The row it is about.
    pub target: Option<Uuid>,
    /// Why it was refused.
    pub code: Option<Code>,
    /// What is written.
    pub write: Option<(Appointment, Act)>,
}

impl Decided {
    pub(super) fn done(decision: Decision, clinic: &Clinic, now: Timestamp) -> Self {
        Self {
            reply: of_row(decision.status, &decision.row),
            expires_at: keep_success(clinic, &decision.row, now),
            target: Some(decision.row.id),
            code: None,
            write: Some((decision.row, decision.act)),
        }
    }

    pub(super) fn refused(problem: &Problem, target: Option<Uuid>, now: Timestamp) -> Self {
        let (reply, expires_at) = (of_problem(problem), keep_refusal(now));
        Self { reply, expires_at, target, code: Some(problem.code), write: None }
    }
}

/// The answer that shows a row.
fn of_row(status: u16, row: &Appointment) -> Reply {
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
pub(super) fn of_problem(problem: &Problem) -> Reply {
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
fn keep_success(clinic: &Clinic, row: &Appointment, now: Timestamp) -> Timestamp {
    let past_the_end = SignedDuration::from_hours(24 * i64::from(clinic.key_retention_days));
    later(row.during.end, past_the_end).max(keep_refusal(now))
}

/// Until when a refusal replays.
fn keep_refusal(now: Timestamp) -> Timestamp {
    later(now, LEAST)
}

fn later(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Views serialise: they hold text, numbers and times alone.
pub(super) fn json(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).unwrap_or_default()
}

/// What became of a command, in a word, for figures and traces.
#[must_use]
pub fn outcome(answer: &Result<Answer, Problem>) -> &'static str {
    match answer {
        Ok(answer) if answer.replayed => "replayed",
        Ok(answer) if answer.reply.status >= 400 => "refused",
        Ok(_) => "done",
        Err(problem) => problem.code.as_str(),
    }
}

/// Counts an answer and its time.
pub fn count(operation: &'static str, answer: &Result<Answer, Problem>, took: Duration) {
    let outcome = outcome(answer);
    metrics::counter!("oncebook_commands_total", "operation" => operation, "outcome" => outcome).increment(1);
    metrics::histogram!("oncebook_command_seconds", "operation" => operation).record(took.as_secs_f64());
}
