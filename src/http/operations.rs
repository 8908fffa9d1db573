//! For whoever runs the service: is it alive, is it ready, what has it counted. No credential, and nothing of a patient.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Serialize;

use super::gauges;
use super::params::{NoParams, Params};
use crate::app::App;
use crate::pulse::{Behind, Look};
use crate::store::databases;

/// A database that takes longer cannot serve (API.md's commands have five seconds in all).
const PATIENCE: Duration = Duration::from_secs(1);

/// The answer of a process that is alive.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Health {
    /// Always `ok`: the process answers.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Says that the process is alive. Asks nobody, so that a database that is away does not get it restarted.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, body = Health)))]
pub async fn healthz(Params(NoParams {}): Params<NoParams>) -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the process can serve.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Readiness {
    /// Whether every check passes.
    ready: bool,
    /// What was checked, and whether it passes.
    checks: Checks,
    /// The background workers of this process, and how each is doing.
    workers: Vec<WorkerState>,
}

/// How a background worker is doing.
#[derive(Serialize, utoipa::ToSchema)]
struct WorkerState {
    /// Its name, as in logs and metrics.
    #[schema(example = "relay")]
    name: &'static str,
    /// False where, for longer than `ONCEBOOK_READY_BEHIND`, its steps fail, or none has come to its end, or the oldest of
    /// its work has waited.
    ok: bool,
    /// How long ago its last step succeeded; null if none has.
    #[schema(required, example = 0.4)]
    last_ok_seconds: Option<f64>,
    /// Since when its steps fail; left out where they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<Timestamp>,
    /// What the last of them failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "unavailable")]
    failing_code: Option<&'static str>,
    /// What waits for it, as it was a few seconds ago; left out where it has no queue, or nobody could be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<Backlog>,
}

/// What waits for a worker.
#[derive(Serialize, utoipa::ToSchema)]
struct Backlog {
    /// Events, tries or keys; 10000 may be more.
    #[schema(example = 0)]
    items: u64,
    /// The age of the oldest; 0 where nothing waits.
    #[schema(example = 0.0)]
    seconds: f64,
}

impl From<&Look> for WorkerState {
    fn from(look: &Look) -> Self {
        Self {
            name: look.name,
            ok: look.ok,
            last_ok_seconds: look.last_ok.map(|ago| ago.as_secs_f64()),
            failing_since: look.failing.map(|failing| failing.since),
            failing_code: look.failing.map(|failing| failing.code.as_str()),
            behind: look.behind.map(|Behind { items, seconds }| Backlog { items, seconds }),
        }
    }
}

/// What serving takes.
#[derive(Serialize, utoipa::ToSchema)]
struct Checks {
    /// The database answers within a second.
    database: Check,
    /// Its schema has every migration this release knows.
    schema: SchemaCheck,
}

/// A check.
#[derive(Serialize, utoipa::ToSchema)]
struct Check {
    /// Whether the check passes.
    ok: bool,
}

/// The check of the schema.
#[derive(Serialize, utoipa::ToSchema)]
struct SchemaCheck {
    /// Whether the check passes.
    ok: bool,
    /// The newest migration the database has; null where that is not known.
    #[schema(example = 1)]
    version: Option<i64>,
    /// The newest migration this release knows.
    #[schema(example = 1)]
    expected: Option<i64>,
}

/// Says whether the process can serve, and which of its background workers is behind. 200, or 503 with what is wrong: the
/// database does not answer within a second, or its schema lacks a migration. A process without the role `api` has nothing
/// but its workers, and is not ready either while one of them is not `ok`; one with it answers requests all the same.
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub async fn readyz(State(app): State<Arc<App>>, Params(NoParams {}): Params<NoParams>) -> Response {
    let schema = app.schema(PATIENCE).await;
    let complete = schema.is_some_and(|schema| schema.complete);
    let checks = Checks {
        database: Check { ok: schema.is_some() },
        schema: SchemaCheck {
            ok: complete,
            version: schema.and_then(|schema| schema.version),
            expected: databases::newest(),
        },
    };
    let looks = app.pulses.look();
    let ready = complete && app.pulses.ready(&looks);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, checks, workers: looks.iter().map(WorkerState::from).collect() })).into_response()
}

/// Says what the process has counted, and how its database stands. In Prometheus's text format.
#[utoipa::path(get, path = "/metrics", tag = "Operations", responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(app): State<Arc<App>>, Params(NoParams {}): Params<NoParams>) -> Response {
    gauges::of_process(&app);
    gauges::of_database(app.standing(PATIENCE).await.as_deref(), app.clock.now());
    let text = app.metrics.as_ref().map(metrics_exporter_prometheus::PrometheusHandle::render);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.unwrap_or_default()).into_response()
}

/// The address alone leads to what can be done here.
pub async fn root() -> Redirect {
    Redirect::to("/docs")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::ConnectInfo;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::clock::{Clock, Ids};
    use crate::config::Config;
    use crate::http::{admin_router, router};

    /// A service whose database is not there.
    fn app(admin_listen: Option<&str>) -> Arc<App> {
        let admin_listen = admin_listen.map(|address| address.parse().expect("an address"));
        with(Config { admin_listen, ..Config::from_environment() })
    }

    fn with(config: Config) -> Arc<App> {
        let nowhere = "postgres://nobody@127.0.0.1:1/nothing";
        App::new(config, nowhere, Clock::system(), Ids::seeded(1), None).expect("a URL")
    }

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let mut request = Request::get(path).body(Body::empty()).expect("a request");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 4711))));
        let response = router.clone().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn without_its_database_it_is_alive_but_not_ready() {
        let router = router(&app(None));
        assert_eq!(ask(&router, "/healthz").await, (200, r#"{"status":"ok"}"#.to_owned()));
        let (status, body) = ask(&router, "/readyz").await;
        assert_eq!(status, 503);
        let expected = databases::newest().expect("a migration");
        let schema = format!(r#"{{"ok":false,"version":null,"expected":{expected}}}"#);
        assert_eq!(
            body,
            format!(r#"{{"ready":false,"checks":{{"database":{{"ok":false}},"schema":{schema}}},"workers":[]}}"#)
        );
        assert_eq!(ask(&router, "/problems/slot_taken").await.0, 200);
        assert_eq!(ask(&router, "/problems/slot_free").await.0, 404);
        assert_eq!(ask(&router, "/problems/%ff").await.0, 404);
    }

    #[tokio::test]
    async fn a_flood_from_an_address_does_not_drown_what_watches_over_the_service() {
        let router = router(&with(Config { rate_per_address: 1, ..Config::from_environment() }));
        let mut told = Vec::new();
        for _ in 0..3 {
            told.push(ask(&router, "/problems").await.0);
        }
        assert!(told.contains(&429), "{told:?}");
        for _ in 0..3 {
            for (path, status) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
                assert_eq!(ask(&router, path).await.0, status, "{path}");
            }
        }
    }

    #[tokio::test]
    async fn what_has_a_listener_of_its_own_is_not_shown_in_public() {
        let app = app(Some("127.0.0.1:9090"));
        let (public, admin) = (router(&app), admin_router(&app));
        for (path, in_public, in_private) in
            [("/metrics", 404, 200), ("/readyz", 404, 503), ("/healthz", 200, 200), ("/problems", 200, 404)]
        {
            assert_eq!(ask(&public, path).await.0, in_public, "{path}");
            assert_eq!(ask(&admin, path).await.0, in_private, "{path}");
        }
    }
}
