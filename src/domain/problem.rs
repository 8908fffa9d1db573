//! Every way to say no, once: the code a program branches on, its status, and what a person reads (RFC 9457).
//!
//! The codes and statuses are API.md's, "Problems". A problem document carries no request id, so that equal answers are
//! equal bytes.

use serde::Serialize;
use serde_json::{Map, Value};

macro_rules! codes {
    ($($variant:ident $text:literal $status:literal $title:literal $advice:literal;)+) => {
        /// A problem's code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $title] $variant,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code as it travels.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }

            /// The HTTP status it comes with.
            #[must_use]
            pub const fn status(self) -> u16 { match self { $(Self::$variant => $status,)+ } }

            /// One line for a person; the same for every problem of the code.
            #[must_use]
            pub const fn title(self) -> &'static str { match self { $(Self::$variant => $title,)+ } }

            /// What to do next, shown at `/problems/CODE`.
            #[must_use]
            pub const fn advice(self) -> &'static str { match self { $(Self::$variant => $advice,)+ } }
        }
    };
}

codes! {
    MalformedRequest "malformed_request" 400 "The request is not well formed" "Correct what `errors` points at and send again. The key was not used up: the corrected body may carry the same one.";
    IdempotencyKeyMissing "idempotency_key_missing" 400 "This operation needs an Idempotency-Key" "Make one unguessable key for each thing you mean to do (a UUID is fine), keep it until you have the answer, and send it with every try.";
    IdempotencyKeyInvalid "idempotency_key_invalid" 400 "The Idempotency-Key is not valid" "Send one header line with 1 to 255 visible ASCII characters, bare or as a quoted string.";
    CursorInvalid "cursor_invalid" 400 "The cursor is not one of ours" "Start again without `after`, and pass `next` on as it came.";
    RangeTooWide "range_too_wide" 400 "The range is too wide" "Ask for less at a time.";
    Unauthenticated "unauthenticated" 401 "The credential is missing, unknown or revoked" "Send `Authorization: Bearer ob_…` with a credential that is in use.";
    Forbidden "forbidden" 403 "This credential may not do that" "Ask an administrator for a credential with the role and the clinic. A clinic that does not exist and one that is not yours look the same.";
    NotFound "not_found" 404 "There is no such thing here" "Check the id. What belongs to another group or clinic looks the same as what does not exist.";
    MethodNotAllowed "method_not_allowed" 405 "That method does not apply here" "See `Allow` for the methods that do.";
    IdempotencyKeyReused "idempotency_key_reused" 409 "The Idempotency-Key was used for another request" "A key names one request. If this is a new request, send it with a new key; if it is a retry, send what you sent first.";
    IdempotencyInFlight "idempotency_in_flight" 409 "The first request with this key is still running" "Wait for `Retry-After` and send the same request with the same key.";
    SlotTaken "slot_taken" 409 "The slot is taken" "Choose another time, `next_openings` has some, and send it with a new key.";
    DuplicateIntent "duplicate_intent" 409 "This visit is booked already" "`appointment_id` is the appointment that stands, or that has this `external` id. Nothing was booked twice.";
    TransitionNotAllowed "transition_not_allowed" 409 "Its status does not allow that" "Read it again and decide again.";
    RequestIdReused "request_id_reused" 409 "The request id was used for another request" "Send a new request id, or the identical request.";
    InUse "in_use" 409 "Booked rows refer to it" "Deactivate it and make a new one instead.";
    TooManyEndpoints "too_many_endpoints" 409 "The group has as many webhook endpoints as it may" "Delete one that is not needed, and send it with a new key.";
    VersionMismatch "version_mismatch" 412 "It has changed since" "Read it again, decide again, and send the new `ETag`, with a new key where one is needed.";
    BodyTooLarge "body_too_large" 413 "The body is larger than 64 KiB" "Send less.";
    UnsupportedMediaType "unsupported_media_type" 415 "The body is not plain JSON" "Send `Content-Type: application/json` and no `Content-Encoding`.";
    UnknownReference "unknown_reference" 422 "The request refers to something this clinic does not have" "`field` names it. Look it up in the directory and send again with a new key.";
    InactiveReference "inactive_reference" 422 "The request refers to something that takes no new bookings" "`field` names it. Choose another and send again with a new key.";
    InThePast "in_the_past" 422 "That time has passed" "Choose a later time.";
    TooSoon "too_soon" 422 "The clinic needs more notice than that" "Choose a later time.";
    TooFarAhead "too_far_ahead" 422 "The clinic does not book that far ahead" "Choose an earlier time.";
    NonexistentLocalTime "nonexistent_local_time" 422 "That local time does not exist" "The clocks skip it. Choose another time.";
    AmbiguousLocalTime "ambiguous_local_time" 422 "That local time comes twice" "The clocks repeat it. Send one of `instants` instead.";
    OffGrid "off_grid" 422 "Visits do not start at that minute" "Ask `GET /v1/availability` for starts that fit.";
    OutsideHours "outside_hours" 422 "The clinic or the practitioner is not there then" "Ask `GET /v1/availability` for times that fit.";
    OverbookingNotAllowed "overbooking_not_allowed" 422 "This clinic does not overbook" "Send it without `overbook`.";
    ReplayOutOfScope "replay_out_of_scope" 422 "The replay reaches outside its scope" "Narrow the range to one consumer, clinic and partition.";
    RateLimited "rate_limited" 429 "Too many requests" "Wait for `Retry-After`.";
    IdempotencyWaitersExceeded "idempotency_waiters_exceeded" 429 "Too many requests wait for the same answer" "Wait for `Retry-After` and send the same request with the same key.";
    Internal "internal" 500 "Something is broken on our side" "Send the same request with the same key. If it stays, tell us the `X-Request-Id`.";
    NotConfigured "not_configured" 501 "This service is not set up for that" "`detail` says what is missing. Whoever runs the service has to set it; until then no retry helps.";
    Unavailable "unavailable" 503 "Not possible right now" "Wait for `Retry-After` and send the same request with the same key: if the first try did happen, you get its answer.";
}

impl Code {
    /// Seconds after which the same request, with the same key, makes sense again. None where it does not.
    #[must_use]
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Self::IdempotencyInFlight | Self::RateLimited | Self::IdempotencyWaitersExceeded | Self::Unavailable => {
                Some(1)
            }
            _ => None,
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What a program branches on.
    pub code: Code,
    /// What was wrong this time, for a person.
    pub detail: String,
    /// Extension members: `errors`, `next_openings`, `field` and the like.
    pub extra: Map<String, Value>,
}

impl Problem {
    /// A problem with its detail and no extension members.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), extra: Map::new() }
    }

    /// The same with one extension member more. Only values that always serialise are handed in here.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Serialize) -> Self {
        self.extra.insert(member.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }

    /// A field that does not parse. `pointer` is an RFC 6901 pointer into the body, or the name of a parameter or header.
    pub fn malformed(pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = serde_json::json!([{ "pointer": pointer, "detail": detail }]);
        Self::new(Code::MalformedRequest, detail).with("errors", errors)
    }

    /// The document's bytes. The order of members is fixed, so equal problems are equal bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut document = Map::new();
        document.insert("type".into(), format!("/problems/{}", self.code.as_str()).into());
        document.insert("title".into(), self.code.title().into());
        document.insert("status".into(), self.code.status().into());
        document.insert("detail".into(), self.detail.as_str().into());
        document.insert("code".into(), self.code.as_str().into());
        document.extend(self.extra.clone());
        Value::Object(document).to_string().into_bytes()
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::new(code, format!("{}.", code.title()))
    }
}
