//! Problems in the document: their form, an example of each as the service would write it, and the answers they are in.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::codes::Nature;
use super::examples;
use super::headers::of_answer;
use crate::domain::appointment::Status;
use crate::domain::availability::Opening;
use crate::domain::problem::{Code, Problem};
use crate::domain::refusal::Refusal;
use crate::domain::time::Span;
use crate::http::routes::Kind;

const MEDIA_TYPE: &str = "application/problem+json";

// Only described here: `domain/problem.rs` writes them.
/// Why a request was not done (RFC 9457). Branch on `code`.
#[derive(ToSchema)]
#[schema(as = Problem)]
pub struct Form {
    /// Leads to a page that explains the code.
    #[schema(rename = "type", format = "uri-reference")]
    pub kind: String,
    /// One line for a person; the same for every problem of the code.
    pub title: String,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What was wrong this time, for a person.
    pub detail: String,
    /// What a program branches on.
    pub code: String,
    /// With `malformed_request`: what is not well formed.
    #[schema(nullable = false)]
    pub errors: Option<Vec<FieldError>>,
    /// With `slot_taken`: up to three other openings within 14 days, the same practitioner's first. Empty for a block.
    #[schema(nullable = false, max_items = 3)]
    pub next_openings: Option<Vec<Opening>>,
    /// With `duplicate_intent`: the appointment that stands.
    #[schema(nullable = false)]
    pub appointment_id: Option<Uuid>,
    /// With `unknown_reference` and `inactive_reference`: the member that refers to it.
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// With `ambiguous_local_time`: the two instants it may mean.
    #[schema(nullable = false, min_items = 2, max_items = 2)]
    pub instants: Option<Vec<Timestamp>>,
    /// With `transition_not_allowed`: the status the appointment has.
    #[schema(nullable = false)]
    pub status_now: Option<Status>,
    /// With `version_mismatch`: the version it has, where there is one.
    #[schema(nullable = false)]
    pub version: Option<i32>,
}

/// What is not well formed.
#[derive(ToSchema)]
pub struct FieldError {
    /// An RFC 6901 pointer into the body, or the name of a parameter or header.
    #[schema(example = "/start")]
    pub pointer: String,
    /// What is wanted, for a person.
    pub detail: String,
}

/// The schemas of a problem and of what only problems hold.
#[must_use]
pub fn schemas() -> Vec<(String, RefOr<utoipa::openapi::Schema>)> {
    let mut schemas =
        vec![(Form::name().into_owned(), Form::schema()), (FieldError::name().into_owned(), FieldError::schema())];
    Form::schemas(&mut schemas);
    schemas
}

/// A problem of the code as the service would write it.
fn example(code: Code) -> Problem {
    let start = examples::START;
    let hour = SignedDuration::from_hours(1);
    let openings: Vec<Opening> = [(1, examples::PRACTITIONER), (2, examples::PRACTITIONER)]
        .into_iter()
        .map(|(after, practitioner_id)| {
            let Span { start, end } = Span::from_length(start + hour * after, 30);
            Opening { start, end, practitioner_id }
        })
        .collect();
    match code {
        Code::MalformedRequest => Problem::malformed("/start", "expected RFC 3339: YYYY-MM-DDTHH:MM:SS"),
        Code::SlotTaken => Refusal::SlotTaken(None).problem(&openings),
        Code::DuplicateIntent => Refusal::DuplicateIntent(examples::APPOINTMENT).problem(&[]),
        Code::TransitionNotAllowed => Refusal::TransitionNotAllowed(Status::Cancelled).problem(&[]),
        Code::VersionMismatch => Refusal::VersionMismatch(3).problem(&[]),
        Code::UnknownReference => Refusal::UnknownReference("service_id").problem(&[]),
        Code::InactiveReference => Refusal::InactiveReference("practitioner_id").problem(&[]),
        Code::AmbiguousLocalTime => Problem::new(code, "2027-10-31T02:30:00 comes twice there.")
            .with("instants", ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"]),
        _ => code.into(),
    }
}

/// An example of each code, to be referred to by its name.
#[must_use]
pub fn all_examples(codes: &BTreeSet<Code>) -> BTreeMap<String, RefOr<Example>> {
    let of = |code: &Code| {
        let value = serde_json::from_slice::<Value>(&example(*code).to_bytes()).unwrap_or_default();
        let example = ExampleBuilder::new().summary(code.title()).description(code.advice()).value(Some(value));
        (code.as_str().to_owned(), example.into())
    };
    codes.iter().map(of).collect()
}

/// The answers with problems of an operation, by status.
#[must_use]
pub fn answers(codes: &BTreeSet<Code>, nature: &Nature<'_>) -> BTreeMap<u16, RefOr<Response>> {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status()).or_default().push(*code);
    }
    let answer = |(status, codes): (u16, Vec<Code>)| {
        let stored = nature.kind == Kind::Command && matches!(status, 409 | 412 | 422);
        let answer = match codes.as_slice() {
            [code] if !stored => Ref::from_response_name(code.as_str()).into(),
            _ => RefOr::T(response(&codes, stored)),
        };
        (status, answer)
    };
    by_status.into_iter().map(answer).collect()
}

/// The answers that need no more than one code to be described, to be referred to by its name.
#[must_use]
pub fn shared(codes: &BTreeSet<Code>) -> BTreeMap<String, RefOr<Response>> {
    codes.iter().map(|code| (code.as_str().to_owned(), RefOr::T(response(&[*code], false)))).collect()
}

fn response(codes: &[Code], stored: bool) -> Response {
    let lines: Vec<String> = codes.iter().map(|code| format!("- `{}`: {}.", code.as_str(), code.title())).collect();
    let names: Vec<Value> = codes.iter().map(|code| code.as_str().into()).collect();
    let code = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
    let narrowed = ObjectBuilder::new().property("code", code);
    let schema = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(narrowed);
    let examples = codes.iter().map(|code| {
        let name = code.as_str();
        (name, RefOr::<Example>::Ref(Ref::new(format!("#/components/examples/{name}"))))
    });
    let content: Content = ContentBuilder::new().schema(Some(schema)).examples_from_iter(examples).build();
    let has = |wanted: fn(&Code) -> bool| codes.iter().any(wanted);
    let headers = [
        ("Cache-Control", true),
        ("X-Request-Id", true),
        ("Retry-After", has(|code| code.retry_after().is_some())),
        ("WWW-Authenticate", has(|code| *code == Code::Unauthenticated)),
        ("Allow", has(|code| *code == Code::MethodNotAllowed)),
        ("Idempotent-Replayed", stored),
        ("Idempotency-Expires", stored),
    ];
    let mut response = ResponseBuilder::new().description(lines.join("\n")).content(MEDIA_TYPE, content).build();
    response.headers = headers.into_iter().filter(|(_, has)| *has).map(|(name, _)| of_answer(name)).collect();
    response
}
