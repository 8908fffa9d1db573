//! The outermost layer: a request's id, the flood limit, CORS, what every response carries, and one line in the log.

use std::any::Any;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanic;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::ask::traceparent;
use super::guard::SignedIn;
use super::problem::respond;
use crate::app::App;
use crate::domain::problem::Code;
use crate::store::credentials::RefusedCall;
use crate::trace;

/// The request's ids: ours, and the caller's own if it is well formed.
#[derive(Clone, Debug)]
pub struct RequestIds {
    /// Ours; it is in the response and in every row the request wrote.
    pub ours: Uuid,
    /// The caller's.
    pub callers: Option<String>,
}

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Longest id of a caller's that is kept.
const LONGEST_REQUEST_ID: usize = 128;

/// Gives the request its id, and every response, whoever made it, what all have.
pub async fn edge(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let ids = RequestIds { ours: app.ids.uuid(app.clock.now()), callers: callers_id(request.headers()) };
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    request.extensions_mut().insert(ids.clone());
    let span = tracing::info_span!("request", id = %ids.ours);
    let traced = traced(&ids, &mut request, path.as_deref());
    let Ok(response) =
        CatchPanic::custom(next, panicked).oneshot(request).instrument(span).instrument(traced.clone()).await;
    let mut response = response.map(Body::new);
    let id = HeaderValue::from_str(&ids.ours.to_string()).unwrap_or(HeaderValue::from_static("none"));
    response.headers_mut().insert(X_REQUEST_ID, id);
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let status = response.status().as_u16();
    trace::answered(&traced, status);
    let path = path.unwrap_or_else(|| "none".to_owned());
    let took = started.elapsed();
    metrics::counter!("oncebook_http_requests_total", "method" => counted(&method), "path" => path.clone(), "status" => status.to_string()).increment(1);
    metrics::histogram!("oncebook_http_request_seconds", "path" => path.clone()).record(took.as_secs_f64());
    let code = response.extensions().get::<Code>().copied();
    if let Some(signed_in) = response.extensions_mut().remove::<SignedIn>()
        && code == Some(Code::Forbidden)
    {
        let at = app.clock.now();
        app.note_refusal(RefusedCall {
            caller: signed_in.caller,
            operation: format!("{method} {path}"),
            request_id: ids.ours,
            caller_request_id: ids.callers,
            at,
            id: app.ids.uuid(at),
        });
    }
    let (code, ms) = (code.map(Code::as_str), took.as_millis());
    if status >= 500 {
        tracing::warn!(request_id = %ids.ours, %method, path, status, code, ms, "answered");
    } else {
        tracing::debug!(request_id = %ids.ours, %method, path, status, code, ms, "answered");
    }
    response
}

/// The request's span; from here on the request says that it comes from this span, so what it leads to in tasks of its own is
/// joined to it. What watches over the service asks all the time, and is traced nowhere.
fn traced(ids: &RequestIds, request: &mut Request, route: Option<&str>) -> Span {
    let Some(route) = route.filter(|route| route.starts_with("/v1/")) else { return Span::none() };
    let headers = request.headers();
    let span = trace::request(ids.ours, counted(request.method()), route, || traceparent(headers));
    if let Some(own) = trace::traceparent(&span).and_then(|own| HeaderValue::from_str(&own).ok()) {
        request.headers_mut().insert(TRACEPARENT, own);
    }
    span
}

/// The methods that are counted by name: anyone may invent one, and a name once counted is kept for ever.
fn counted(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// A panic in a handler: its cause is logged, never shown.
#[expect(clippy::needless_pass_by_value, reason = "tower-http hands the panic over by value")]
fn panicked(cause: Box<dyn Any + Send>) -> Response<Body> {
    let cause = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    tracing::error!(cause, "a handler panicked");
    respond(&Code::Internal.into())
}

fn callers_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(X_REQUEST_ID)?.to_str().ok()?;
    let well_formed = (1..=LONGEST_REQUEST_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    well_formed.then(|| id.to_owned())
}

/// Turns away an address that sends too much, before anything is known of its credential.
pub async fn flood(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    if let (Some(limit), Some(peer)) = (&app.limits.address, peer) {
        let address = client_address(peer, request.headers(), &app.config.trusted_proxies);
        if limit.check_key(&network(address)).is_err() {
            return respond(&Code::RateLimited.into());
        }
    }
    next.run(request).await
}

/// What is counted as one address: of IPv6 a /64, which is what one household or server has (RFC 6177).
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The caller's address: the peer's, or behind proxies that are trusted the last in X-Forwarded-For that is none of them.
/// What stands left of an entry that is no address was written by nobody we trust.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    let peer = peer.to_canonical();
    if !trusted.contains(&peer) {
        return peer;
    }
    let lines: Vec<&str> = headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    let mut nearest = peer;
    for entry in lines.iter().rev().flat_map(|line| line.rsplit(',')).map(str::trim) {
        let Some(address) = address(entry) else { break };
        nearest = address;
        if !trusted.contains(&address) {
            break;
        }
    }
    nearest
}

/// An address, with or without a port.
fn address(entry: &str) -> Option<IpAddr> {
    let with_port = || entry.parse::<SocketAddr>().ok().map(|address| address.ip());
    entry.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

/// Cross-origin calls from the configured origins, with the headers API.md exposes. None are configured: no CORS at all.
pub fn cors(app: &App) -> Option<CorsLayer> {
    if app.config.cors_origins.is_empty() {
        return None;
    }
    let origins = app.config.cors_origins.iter().filter_map(|origin| origin.parse().ok());
    let exposed = ["location", "etag", "retry-after", "idempotent-replayed", "idempotency-expires", "x-request-id"];
    let allowed = [
        "authorization",
        "content-type",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "traceparent",
        "x-request-id",
    ];
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(allowed.map(HeaderName::from_static))
        .expose_headers(exposed.map(HeaderName::from_static))
        .max_age(std::time::Duration::from_mins(10));
    Some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_one_caller_is_one_address() {
        let of = |text: &str| network(text.parse().expect("an address")).to_string();
        assert_eq!([of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::9")], ["2001:db8:1:2::"; 2]);
        assert_eq!(of("2001:db8:1:3::9"), "2001:db8:1:3::");
        assert_eq!([of("203.0.113.9"), of("::ffff:203.0.113.9")], ["203.0.113.9"; 2]);
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.9, 10.0.0.2"));
        assert_eq!(client_address(ip("198.51.100.1"), &headers, &[ip("10.0.0.1")]), ip("198.51.100.1"));
        let trusted = [ip("10.0.0.1"), ip("10.0.0.2")];
        assert_eq!(client_address(ip("10.0.0.1"), &headers, &trusted), ip("203.0.113.9"));
        assert_eq!(client_address(ip("::ffff:10.0.0.1"), &headers, &trusted), ip("203.0.113.9"));
        headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.9:4711"));
        assert_eq!(client_address(ip("10.0.0.1"), &headers, &trusted), ip("203.0.113.9"));
        headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, unknown"));
        assert_eq!(client_address(ip("10.0.0.1"), &headers, &trusted), ip("10.0.0.1"), "no more is known");
    }
}
