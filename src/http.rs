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
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::domain::access::Permission;
use crate::domain::problem::Code;

pub mod appointments;
pub mod ask;
pub mod availability;
pub mod blocks;
pub mod commands;
pub mod credentials;
pub mod directory;
pub mod edge;
pub mod explain;
pub mod fields;
pub mod guard;
pub mod intake;
pub mod listen;
pub mod listing;
pub mod operations;
pub mod page;
pub mod params;
pub mod problem;

use guard::{Guard, guard};

/// Routes of commands: the credential is checked again in the command's own look.
fn commands(app: &Arc<App>, permission: Permission, routes: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    routes.route_layer(from_fn_with_state(Guard::of_command(app, permission), guard))
}

/// Routes of reads and of changes to the directory: the credential is read anew for each request.
fn fresh(app: &Arc<App>, permission: Permission, routes: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    routes.route_layer(from_fn_with_state(Guard::fresh(app, permission), guard))
}

/// The API's routes, each with the permission of API.md's role table.
fn api(app: &Arc<App>) -> OpenApiRouter<Arc<App>> {
    use Permission::{Administer, Overrule, Patients, ReadAppointments, ReadDirectory, WriteAppointments};
    let new = OpenApiRouter::new;
    new()
        .merge(commands(
            app,
            WriteAppointments,
            new()
                .routes(routes!(appointments::book))
                .routes(routes!(appointments::note))
                .routes(routes!(appointments::reschedule))
                .routes(routes!(appointments::confirm))
                .routes(routes!(appointments::check_in))
                .routes(routes!(appointments::complete))
                .routes(routes!(appointments::no_show))
                .routes(routes!(appointments::cancel))
                .routes(routes!(blocks::block))
                .routes(routes!(blocks::unblock)),
        ))
        .merge(commands(app, Overrule, new().routes(routes!(appointments::reopen))))
        .merge(fresh(
            app,
            ReadAppointments,
            new()
                .routes(routes!(appointments::get))
                .routes(routes!(appointments::list))
                .routes(routes!(appointments::history))
                .routes(routes!(blocks::get))
                .routes(routes!(blocks::list)),
        ))
        .merge(fresh(app, ReadDirectory, directory::reads().routes(routes!(availability::get))))
        .merge(fresh(app, WriteAppointments, new().routes(routes!(commands::get))))
        .merge(fresh(app, Patients, directory::patients()))
        .merge(fresh(app, Administer, directory::writes()))
        .merge(fresh(app, Administer, credentials::routes()))
}

/// What anyone may ask, without a credential.
fn open() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(operations::healthz))
        .routes(routes!(explain::index))
        .routes(routes!(explain::explain))
}

/// What only those who run the service should reach.
fn admin() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(operations::readyz)).routes(routes!(operations::metrics))
}

/// The whole service; without what has a listener of its own, if one is set.
pub fn router(app: &Arc<App>) -> Router {
    let admin = if app.config.admin_listen.is_none() { admin() } else { OpenApiRouter::new() };
    let (router, _document) = api(app).merge(open()).merge(admin).split_for_parts();
    let router = router
        .route("/", get(operations::root))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(intake::intake))
        .layer(from_fn_with_state(Arc::clone(app), edge::flood))
        .layer(option_layer(edge::cors(app)));
    within_edge(app, router)
}

/// What the listener for those who run the service serves.
pub fn admin_router(app: &Arc<App>) -> Router {
    let (router, _document) = admin().routes(routes!(operations::healthz)).split_for_parts();
    within_edge(app, router.fallback(not_found).method_not_allowed_fallback(method_not_allowed))
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
