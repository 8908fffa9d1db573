//! Which problems an operation can answer with: one table by what the operation is, one by what its command decides.
//!
//! Checked against the code by `tests/it/openapi.rs`, which provokes what can be provoked of every operation, and by case
//! 8 of the conformance checks, which look up every problem they see.

use std::collections::BTreeSet;

use axum::http::Method;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterIn};

use super::headers::IDEMPOTENCY_KEY;
use crate::domain::problem::Code;
use crate::http::routes::Kind;
use Code::{
    AmbiguousLocalTime, BodyTooLarge, CursorInvalid, DuplicateIntent, Forbidden, IdempotencyInFlight,
    IdempotencyKeyInvalid, IdempotencyKeyMissing, IdempotencyKeyReused, IdempotencyWaitersExceeded, InThePast, InUse,
    InactiveReference, Internal, MalformedRequest, NonexistentLocalTime, NotConfigured, NotFound, OffGrid,
    OutsideHours, OverbookingNotAllowed, RangeTooWide, RateLimited, SlotTaken, TooFarAhead, TooManyEndpoints, TooSoon,
    TransitionNotAllowed, Unauthenticated, Unavailable, UnknownReference, UnsupportedMediaType, VersionMismatch,
};

/// What of an operation its problems and headers follow from.
#[derive(Clone, Debug)]
pub struct Nature<'a> {
    /// Its `operationId`.
    pub id: String,
    /// How its requests are taken.
    pub kind: Kind,
    /// Its method.
    pub method: Method,
    /// Its path, with names in braces.
    pub path: &'a str,
    /// Whether it takes a credential.
    pub guarded: bool,
    /// Whether it takes an `Idempotency-Key`.
    pub keyed: bool,
    /// Whether it gives out its rows by pages.
    pub paged: bool,
}

impl<'a> Nature<'a> {
    /// Reads it off an operation. A read that takes a key says so itself, among its parameters.
    #[must_use]
    pub fn of(kind: Kind, guarded: bool, method: Method, path: &'a str, operation: &Operation) -> Self {
        let has = |place: &ParameterIn, name: &str| {
            let mut parameters = operation.parameters.iter().flatten();
            parameters.any(|it| matches!(it, RefOr::T(it) if it.name == name && it.parameter_in == *place))
        };
        Self {
            id: operation.operation_id.clone().unwrap_or_default(),
            kind,
            method,
            path,
            guarded,
            keyed: kind == Kind::Command || has(&ParameterIn::Header, IDEMPOTENCY_KEY),
            paged: has(&ParameterIn::Query, "after"),
        }
    }

    /// Whether its path names something.
    #[must_use]
    pub fn named(&self) -> bool {
        self.path.contains('{')
    }

    /// Whether it puts something where its path says.
    #[must_use]
    pub fn puts(&self) -> bool {
        self.method == Method::PUT
    }

    /// Whether it takes `If-Match`.
    #[must_use]
    pub fn conditional(&self) -> bool {
        // A delivery has no version.
        let versioned = self.id != "redeliver_webhook";
        let by_id = matches!(&*self.id, "delete_webhook_endpoint" | "rotate_webhook_secret");
        self.puts() || by_id || versioned && self.named() && matches!(self.kind, Kind::Command | Kind::Removal)
    }
}

/// Codes that every operation has for which the condition holds.
type Rule = (fn(&Nature<'_>) -> bool, &'static [Code]);

const BY_NATURE: &[Rule] = &[
    // Anybody's unknown parameter is refused, and a fault of ours can be anywhere.
    (|_| true, &[MalformedRequest, Internal]),
    (|it| it.kind != Kind::Probe, &[RateLimited]),
    (|it| it.guarded, &[Unauthenticated, Forbidden, Unavailable]),
    (|it| it.named(), &[NotFound]),
    (|it| it.paged, &[CursorInvalid]),
    (|it| !it.kind.reads(), &[BodyTooLarge, UnsupportedMediaType]),
    (|it| it.keyed, &[IdempotencyKeyMissing, IdempotencyKeyInvalid]),
    (|it| it.kind == Kind::Command, &[IdempotencyKeyReused, IdempotencyInFlight, IdempotencyWaitersExceeded]),
    (|it| it.conditional(), &[VersionMismatch]),
];

const LOCAL_TIME: &[Code] = &[NonexistentLocalTime, AmbiguousLocalTime];
const REFERENCES: &[Code] = &[UnknownReference, InactiveReference];
const TIME: &[Code] = &[InThePast, TooSoon, TooFarAhead, OffGrid, OutsideHours];
const SLOT: &[Code] = &[DuplicateIntent, SlotTaken];
const TRANSITION: &[Code] = &[TransitionNotAllowed];

/// What operations decide beyond that, by `operationId`.
const BY_DECISION: &[(&str, &[&[Code]])] = &[
    ("book", &[LOCAL_TIME, REFERENCES, TIME, &[OverbookingNotAllowed], SLOT]),
    ("reschedule", &[LOCAL_TIME, REFERENCES, TIME, &[OverbookingNotAllowed], TRANSITION, SLOT]),
    ("confirm", &[TRANSITION]),
    ("check_in", &[TRANSITION]),
    ("complete", &[TRANSITION]),
    ("no_show", &[TRANSITION]),
    ("cancel", &[TRANSITION]),
    ("reopen", &[TRANSITION, SLOT]),
    ("block", &[&[UnknownReference, InThePast, TooFarAhead, SlotTaken]]),
    ("availability", &[&[RangeTooWide, UnknownReference]]),
    ("put_operatory", &[&[InUse]]),
    ("put_service", &[&[InUse]]),
    ("rotate_credential", &[TRANSITION]),
    ("create_webhook_endpoint", &[&[TooManyEndpoints, NotConfigured]]),
    ("rotate_webhook_secret", &[&[NotConfigured]]),
    ("webhook_secret", &[&[NotConfigured]]),
    ("redeliver_webhook", &[TRANSITION]),
];

/// Every code an operation can answer with.
#[must_use]
pub fn of(nature: &Nature<'_>) -> BTreeSet<Code> {
    let by_nature = BY_NATURE.iter().filter(|(holds, _)| holds(nature)).flat_map(|(_, codes)| *codes);
    let decided =
        BY_DECISION.iter().filter(|(id, _)| *id == nature.id).flat_map(|(_, codes)| codes.iter().copied().flatten());
    by_nature.chain(decided).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_those_of_operations_there_are() {
        let document = serde_json::to_value(super::super::document()).expect("JSON");
        let text = document["paths"].to_string();
        for (id, _) in BY_DECISION {
            assert!(text.contains(&format!("\"operationId\":\"{id}\"")), "{id}");
        }
    }
}
