//! One operation, completed: what it is called, who may ask, with which headers, and every answer it can give.

use serde_json::{Value, json};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{RefOr, Required, Response, Schema};

use super::codes::{self, Nature};
use super::headers::{IDEMPOTENCY_KEY, of_answer, of_request};
use super::schemas::Schemas;
use super::{CREDENTIAL, examples, problems};
use crate::domain::access::{Permission, Role};
use crate::http::routes::Kind;

/// What cursors are written with (`http/page.rs`).
const CURSOR_PATTERN: &str = "^[A-Za-z0-9_-]+$";

/// Completes an operation.
pub fn complete(operation: &mut Operation, nature: &Nature<'_>, permission: Option<Permission>, schemas: &Schemas) {
    words(operation);
    access(operation, permission);
    parameters(operation, nature);
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        request(body, nature, schemas);
    }
    // How an endpoint fares changes without its version: it has one, and no 304.
    let versioned = nature.id == "get_webhook_endpoint";
    let reads_versions = versioned || operation.responses.responses.contains_key("304");
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response {
            success(response, status, nature, reads_versions);
        }
    }
    for (status, response) in problems::answers(&codes::of(nature), nature) {
        // What the handler documents itself goes before: /readyz has a 503 of its own.
        operation.responses.responses.entry(status.to_string()).or_insert(response);
    }
}

/// The first sentence is the title, the others say more.
fn words(operation: &mut Operation) {
    let said = operation.summary.take().unwrap_or_default();
    let (title, more) = said.split_once(". ").unwrap_or((&said, ""));
    let more = [more, operation.description.as_deref().unwrap_or_default()].join("\n\n");
    operation.summary = Some(title.trim_end_matches('.').replace('\n', " "));
    operation.description = Some(more.trim().to_owned());
}

/// Who may ask, for people and for programs.
fn access(operation: &mut Operation, permission: Option<Permission>) {
    let Some(permission) = permission else {
        operation.security = Some(vec![]);
        say(operation, "Takes no credential.");
        return;
    };
    let roles: Vec<&str> =
        Role::ALL.into_iter().filter(|role| permission.granted_to(*role)).map(Role::as_str).collect();
    operation.security = Some(vec![SecurityRequirement::new(CREDENTIAL, [""; 0])]);
    say(operation, &format!("Roles: `{}`.", roles.join("`, `")));
    operation.extensions.get_or_insert_default().merge(Extensions::from_iter([("x-roles", json!(roles))]));
}

fn say(operation: &mut Operation, sentence: &str) {
    let said = operation.description.take().unwrap_or_default();
    operation.description = Some(format!("{said}\n\n{sentence}").trim().to_owned());
}

fn parameters(operation: &mut Operation, nature: &Nature<'_>) {
    let parameters = operation.parameters.get_or_insert_default();
    parameters
        .retain(|parameter| !matches!(parameter, RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Header));
    for parameter in parameters.iter_mut() {
        if let RefOr::T(parameter) = parameter {
            explain(parameter, nature.path);
        }
    }
    let command = matches!(nature.kind, Kind::Command | Kind::Removal);
    let headers = [
        (IDEMPOTENCY_KEY, nature.keyed),
        ("If-Match", nature.conditional()),
        ("If-None-Match", nature.puts() || operation.responses.responses.contains_key("304")),
        ("X-Request-Id", nature.guarded),
        ("traceparent", command),
    ];
    parameters.extend(headers.into_iter().filter(|(_, has)| *has).map(|(name, _)| of_request(name)));
}

/// What a parameter names, and a value to try where one must be given. One that may be left out has none: a page that
/// fills in examples would narrow every list to them.
fn explain(parameter: &mut Parameter, path: &str) {
    let in_path = parameter.parameter_in == ParameterIn::Path;
    let named = examples::of_path(path, &parameter.name).filter(|_| in_path);
    let mut builder = ParameterBuilder::from(parameter.clone());
    builder = match (named, &parameter.required) {
        (Some((description, example)), _) => builder.description(Some(description)).example(Some(example)),
        (None, Required::True) => builder.example(examples::of_member(&parameter.name)),
        (None, Required::False) => builder.example(None),
    };
    if parameter.name == "after" {
        builder = builder.schema(Some(ObjectBuilder::new().schema_type(Type::String).pattern(Some(CURSOR_PATTERN))));
    }
    *parameter = builder.build();
}

fn request(body: &mut RequestBody, nature: &Nature<'_>, schemas: &Schemas) {
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        content.example = examples::of_request(&nature.id);
        // A body in which nothing must be said may be left out: an empty one reads like `{}`.
        let needed = content.schema.as_ref().is_none_or(|schema| asks_for_members(schema, schemas));
        body.required = Some(if needed { Required::True } else { Required::False });
    }
}

fn asks_for_members(schema: &RefOr<Schema>, schemas: &Schemas) -> bool {
    let schema = match schema {
        RefOr::Ref(to) => to.ref_location.rsplit('/').next().and_then(|name| schemas.get(name)),
        RefOr::T(_) => Some(schema),
    };
    !matches!(schema, Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
}

fn success(response: &mut Response, status: &str, nature: &Nature<'_>, reads_versions: bool) {
    let description = match status {
        "200" if nature.kind.reads() => "What was asked for.",
        "200" => "Done, or it was so already.",
        "201" => "Made.",
        "202" => "It will be done.",
        "204" => "It is gone, or was already.",
        "304" => "It is still the version you have.",
        "503" => "It cannot: what is wrong.",
        _ => "Done.",
    };
    if response.description.is_empty() {
        description.clone_into(&mut response.description);
    }
    let done = matches!(status, "200" | "201");
    let page = response.content.contains_key("text/html");
    let headers = [
        ("Cache-Control", true),
        ("X-Request-Id", true),
        ("ETag", reads_versions || done && (nature.kind == Kind::Command || nature.puts())),
        ("Location", status == "201"),
        ("Idempotent-Replayed", nature.kind == Kind::Command),
        ("Idempotency-Expires", nature.kind == Kind::Command),
        ("Content-Security-Policy", page),
        ("Vary", page),
    ];
    response.headers.extend(headers.into_iter().filter(|(_, has)| *has).map(|(name, _)| of_answer(name)));
    for (media_type, content) in &mut response.content {
        if let RefOr::T(content) = content {
            content.example = if media_type == "application/json" {
                content.schema.as_ref().and_then(|schema| examples::of_answer(schema, &nature.id, status))
            } else {
                examples::of_text(media_type).map(Value::from)
            };
        }
    }
}
