//! Headers of requests and of answers, described once and referred to by their names.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{Header, Ref, RefOr, Required};

/// The header that names a command.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// 1 to 255 visible ASCII characters that do not begin with a quote, or as many within quotes (`domain/key.rs`).
const KEY_PATTERN: &str = r#"^([!#-~][!-~]{0,254}|"([!#-\[\]-~]|\\["\\]){1,255}")$"#;

/// `*`, or entity tags with commas between (RFC 9110, section 13.1).
const TAGS_PATTERN: &str = r#"^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$"#;

/// Refers to a header of an answer.
#[must_use]
pub fn of_answer(name: &str) -> (String, RefOr<Header>) {
    (name.to_owned(), RefOr::Ref(Ref::new(format!("#/components/headers/{name}"))))
}

/// Refers to a header of a request.
#[must_use]
pub fn of_request(name: &str) -> RefOr<Parameter> {
    RefOr::Ref(Ref::new(format!("#/components/parameters/{name}")))
}

/// Every header a request may have. Those that may be left out have no example: a page that fills in examples would send
/// them all.
#[must_use]
pub fn requests() -> BTreeMap<String, RefOr<Parameter>> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let named = |name: &str, schema, description| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(description))
            .schema(Some(schema))
    };
    let key = named(
        IDEMPOTENCY_KEY,
        text().pattern(Some(KEY_PATTERN)),
        "Names what you mean to do: one unguessable key for each, 1 to 255 visible ASCII characters, bare or as a quoted \
         string (`abc` and `\"abc\"` are one key). Sent again with the same request it gets the first answer again; with \
         another request, 409. A key means one thing in one clinic.",
    );
    let parameters = [
        key.required(Required::True).example(Some(json!("8e03978e-40d5-43e8-bc93-6894a57f9324"))),
        named(
            "If-Match",
            text().pattern(Some(TAGS_PATTERN)),
            "Make the change only to this version: an `ETag` as it came (`\"1\"`), several with commas between, or `*`.",
        ),
        named(
            "If-None-Match",
            text(),
            "With a read: the `ETag` you have (`\"1\"`); 304 if that is still the version. With a put: `*` makes what is not \
             there, and changes nothing that is.",
        ),
        named(
            "X-Request-Id",
            text(),
            "Your own id of the request: 1 to 128 letters, digits, dots, dashes and underscores. It is kept beside ours in \
             history and audit; what is not well formed is ignored.",
        ),
        named(
            "traceparent",
            text(),
            "W3C trace context, version 00. It travels with what follows from the command; what is not well formed is ignored.",
        ),
    ];
    parameters.into_iter().map(ParameterBuilder::build).map(|it| (it.name.clone(), RefOr::T(it))).collect()
}

/// Every header an answer may have.
#[must_use]
pub fn answers() -> BTreeMap<String, RefOr<Header>> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let form = |format: &str| text().format(Some(SchemaFormat::Custom(format.to_owned())));
    let always = |word: &str| text().enum_values(Some([word]));
    [
        ("Allow", text(), json!("GET,HEAD,POST"), "The methods this path has."),
        (
            "Cache-Control",
            always("no-store"),
            json!("no-store"),
            "Answers are about patients: nobody keeps them on the way.",
        ),
        ("Content-Security-Policy", text(), json!("default-src 'none'"), "Pages run nothing and load nothing."),
        (
            "ETag",
            text().pattern(Some("^\"[0-9]+\"$")),
            json!("\"1\""),
            "The version of what is shown, for `If-Match` and `If-None-Match`.",
        ),
        (
            "Idempotency-Expires",
            form("date-time"),
            json!("2027-11-09T08:30:00Z"),
            "Until when the same request with the same key gets this answer. Only answers that are stored have it.",
        ),
        (
            "Idempotent-Replayed",
            text().enum_values(Some(["true", "false"])),
            json!("false"),
            "Whether this answer was given before. Only answers that are stored have it.",
        ),
        (
            "Location",
            form("uri-reference"),
            json!("/v1/appointments/019e0000-0000-7000-8000-000000000001"),
            "Where the new thing is.",
        ),
        (
            "Retry-After",
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)),
            json!(1),
            "Seconds after which the same request makes sense again.",
        ),
        ("Vary", text(), json!("accept"), "The answer depends on the request's `Accept`."),
        ("WWW-Authenticate", text(), json!("Bearer"), "How to sign in."),
        (
            "X-Request-Id",
            form("uuid"),
            json!("019e0000-0000-7000-8000-0000000000aa"),
            "Our id of the request. Tell us when something is wrong with it.",
        ),
    ]
    .into_iter()
    .map(|(name, schema, example, description): (&str, ObjectBuilder, Value, &str)| {
        let header = HeaderBuilder::new().schema(Some(schema)).description(Some(description)).example(Some(example));
        (name.to_owned(), RefOr::T(header.build()))
    })
    .collect()
}
