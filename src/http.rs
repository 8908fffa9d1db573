//! REST: the router, and what happens to every request before and after its handler.
//!
//! Order of checks (API.md, "Who may do what"): flood limit, credential, its rate, role, size, media type, shape and key;
//! then the command or the read takes over. Handlers parse, hand over and render; they decide nothing.

#![expect(clippy::missing_errors_doc, reason = "a handler's errors are responses, and the OpenAPI document lists them")]

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower::util::option_layer;

use crate::app::App;
use crate::domain::problem::Code;

pub mod appointments;
pub mod ask;
pub mod asyncapi;
pub mod availability;
pub mod blocks;
mod body;
pub mod changes;
pub mod commands;
pub mod credentials;
pub mod directory;
pub mod docs;
pub mod edge;
pub mod explain;
pub mod fields;
mod gauges;
pub mod guard;
pub mod intake;
pub mod listen;
pub mod listing;
pub mod openapi;
pub mod operations;
pub mod page;
pub mod params;
pub mod problem;
pub mod reading;
pub mod routes;
pub mod webhooks;

use guard::{Guard, guard};
use routes::{Group, Kind};

/// A group's routes behind the guard that goes with them.
fn guarded(app: &Arc<App>, Group { kind, permission, routes }: Group) -> Router<Arc<App>> {
    let (router, _document) = routes.split_for_parts();
    let Some(permission) = permission else { return router };
    let guarding = match kind {
        Kind::Command | Kind::Removal => Guard::of_command(app, permission),
        Kind::Change | Kind::Read | Kind::Probe => Guard::fresh(app, permission),
    };
    router.route_layer(from_fn_with_state(guarding, guard))
}

/// The whole service; without what has a listener of its own, if one is set.
pub fn router(app: &Arc<App>) -> Router {
    let limited = together(app, routes::api().into_iter().chain([routes::open()]))
        .route("/", get(operations::root))
        .merge(docs::routes())
        .fallback(not_found);
    let admin = app.config.admin_listen.is_none().then(routes::admin);
    let probes = together(app, [routes::health()].into_iter().chain(admin));
    let router = taking_in(limited)
        .layer(from_fn_with_state(Arc::clone(app), edge::flood))
        .merge(taking_in(probes))
        .layer(option_layer(edge::cors(app)));
    within_edge(app, router)
}

/// What the listener for those who run the service serves.
pub fn admin_router(app: &Arc<App>) -> Router {
    within_edge(app, taking_in(together(app, [routes::health(), routes::admin()]).fallback(not_found)))
}

fn together(app: &Arc<App>, groups: impl IntoIterator<Item = Group>) -> Router<Arc<App>> {
    groups.into_iter().fold(Router::new(), |router, group| router.merge(guarded(app, group)))
}

/// These routes, each with a word for the methods it has not, once the body is there.
fn taking_in(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.method_not_allowed_fallback(method_not_allowed).layer(from_fn(intake::intake))
}

fn within_edge(app: &Arc<App>, router: Router<Arc<App>>) -> Router {
    router.layer(from_fn_with_state(Arc::clone(app), edge::edge)).with_state(Arc::clone(app))
}

async fn not_found() -> Response {
    problem::respond(&Code::NotFound.into())
}

async fn method_not_allowed(_: Request) -> Response {
    problem::respond(&Code::MethodNotAllowed.into()).into_response()
}
