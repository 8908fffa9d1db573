//! The documents for people and programs: `/openapi.json`, and `/docs`, which shows it; of events, `/asyncapi.json` and
//! `/event.schema.json`. All are in the binary; a page loads nothing from anywhere else.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa_swagger_ui::{Config, serve};

use super::problem::respond;
use super::{asyncapi, openapi};
use crate::app::App;
use crate::domain::problem::Code;

/// Scripts and styles are ours alone; Swagger UI sets styles on its elements and has its icons inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes of all.
pub fn routes() -> Router<Arc<App>> {
    let json = |text: String| {
        let text = Bytes::from(text);
        get(async move || ([(header::CONTENT_TYPE, "application/json")], text.clone()))
    };
    // The validator would send the document's address to a server of Swagger's.
    let config =
        Config::new(["/openapi.json"]).validator_url("none").try_it_out_enabled(true).display_operation_id(true);
    let config = Arc::new(config.doc_expansion("list").persist_authorization(false).filter(true).use_base_layout());
    let page = Arc::clone(&config);
    Router::new()
        .route("/openapi.json", json(openapi::text()))
        .route("/asyncapi.json", json(asyncapi::text()))
        .route("/event.schema.json", json(asyncapi::schema_text()))
        .route("/docs", get(async || Redirect::to("/docs/")))
        .route("/docs/", get(async move || file("", Arc::clone(&page))))
        .route("/docs/{*file}", get(async move |Path(name): Path<String>| file(&name, Arc::clone(&config))))
}

fn file(name: &str, config: Arc<Config<'static>>) -> Response {
    let Ok(Some(file)) = serve(name, config) else { return respond(&Code::NotFound.into()) };
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_TYPE, &file.content_type),
    ];
    (headers, file.bytes.into_owned()).into_response()
}
