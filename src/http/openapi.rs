//! The OpenAPI document: what the route table and its handlers say, completed by rule. Which problems an operation has
//! follows from its kind ([`codes`]), its headers from what it does ([`operation`]); nothing is written by hand for one
//! operation but what it alone decides and an example to send.
//!
//! Made without a database, and the same on every machine: `openapi/openapi.json` is compared with it.

use std::collections::BTreeSet;

use axum::http::Method;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::Tag;
use utoipa::openapi::{Components, Info, License, OpenApi, PathItem, RefOr, Server};

use super::routes::{self, Group};
use crate::domain::problem::Code;

pub mod codes;
pub mod examples;
pub mod headers;
pub mod operation;
pub mod problems;
pub mod schemas;

use codes::Nature;

/// The name of the one way to sign in.
pub const CREDENTIAL: &str = "credential";

/// What a caller must know that belongs to no single operation.
const ABOUT: &str = include_str!("openapi/about.md");

/// What there is, in the order a newcomer needs it.
const TAGS: [(&str, &str); 9] = [
    ("Appointments", "Visits: booked, moved, confirmed, checked in, completed, missed, cancelled, reopened."),
    (
        "Availability",
        "When a visit could be booked, by the same code that decides a booking: what is offered can be booked.",
    ),
    ("Blocks", "Time off, lunch, \"keep 14:00 free\": stretches that exclude visits."),
    ("Commands", "What became of a command whose answer never came."),
    (
        "Directory",
        "Clinics with their hours and closures, practitioners, operatories, services. A put says what is to stand; sent twice it changes nothing the second time.",
    ),
    ("Patients", "Those who are treated. They belong to the group, not to one of its clinics."),
    ("Credentials", "API keys: who may do what, and where."),
    (
        "Webhooks",
        "Events sent to endpoints outside, signed by Standard Webhooks, in order for each appointment, retried for a day.",
    ),
    ("Operations", "For those who run the service, and for those who read a problem. No credential."),
];

/// The document.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = OpenApi::new(about(), utoipa::openapi::Paths::new());
    document.servers = Some(vec![Server::new("/")]);
    let mut used = Used::default();
    // Belongs to no operation, since it says that there is none.
    used.codes.insert(Code::MethodNotAllowed);
    used.responses.insert(Code::MethodNotAllowed.as_str().to_owned());
    for Group { kind, permission, routes } in
        routes::api().into_iter().chain([routes::health(), routes::open(), routes::admin()])
    {
        let mut part = routes.into_openapi();
        let schemas = part.components.get_or_insert_default().schemas.clone();
        for (path, item) in &mut part.paths.paths {
            for (method, operation) in operations(item) {
                let nature = Nature::of(kind, permission.is_some(), method, path, operation);
                operation::complete(operation, &nature, permission, &schemas);
                used.note(operation, &nature);
            }
        }
        document.merge(part);
    }
    let tags = TAGS.iter().filter(|(name, _)| used.tags.contains(*name)).map(|(name, description)| {
        let mut tag = Tag::new(name);
        tag.description = Some((*description).to_owned());
        tag
    });
    document.tags = Some(tags.collect());
    complete(document.components.get_or_insert_default(), &used);
    document
}

/// The document as it is printed, committed and served.
#[must_use]
pub fn text() -> String {
    // It holds text, numbers and lists alone, which always serialise; were that ever wrong, the drift test would tell.
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn about() -> Info {
    let mut license = License::new(env!("CARGO_PKG_LICENSE"));
    license.identifier = Some(env!("CARGO_PKG_LICENSE").to_owned());
    let mut info = Info::new("Oncebook", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    info.license = Some(license);
    info
}

/// What of all there could be is in the document.
#[derive(Default)]
struct Used {
    codes: BTreeSet<Code>,
    responses: BTreeSet<String>,
    tags: BTreeSet<String>,
}

impl Used {
    fn note(&mut self, operation: &Operation, nature: &Nature<'_>) {
        self.codes.extend(codes::of(nature));
        self.tags.extend(operation.tags.iter().flatten().cloned());
        let referred = operation.responses.responses.values().filter_map(|response| match response {
            RefOr::Ref(to) => to.ref_location.rsplit('/').next().map(str::to_owned),
            RefOr::T(_) => None,
        });
        self.responses.extend(referred);
    }
}

/// What operations refer to.
fn complete(components: &mut Components, used: &Used) {
    components.schemas.extend(problems::schemas());
    schemas::complete(&mut components.schemas, &used.codes);
    components.headers = headers::answers();
    components.parameters = headers::requests();
    components.examples = problems::all_examples(&used.codes);
    components.responses = problems::shared(&used.codes);
    components.responses.retain(|name, _| used.responses.contains(name));
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.bearer_format = Some("ob_<id>_<secret>".to_owned());
    bearer.description = Some(
        "An API key: `Authorization: Bearer ob_…`. It belongs to one group and has a subject, roles and clinics. A \
         revocation holds from the next request on."
            .to_owned(),
    );
    components.security_schemes.insert(CREDENTIAL.to_owned(), RefOr::T(SecurityScheme::Http(bearer)));
}

/// An item's operations, each with its method.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::PATCH, &mut item.patch),
        (Method::DELETE, &mut item.delete),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
