//! Logs and metrics: set up once, by main.
//!
//! Keys, tokens and bodies are never logged; a request is one line at the edge.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config;

/// Upper bounds of the buckets of every duration, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// What is logged unless `ONCEBOOK_LOG_FILTER` says otherwise.
const FILTER: &str = "warn,oncebook=info";

/// Starts logging to standard error: lines for people, or JSON for machines.
pub fn log(json: bool) {
    let filter = config::log_filter()
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(FILTER));
    // Colours are for a terminal; in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // A second set-up in one process (a test) keeps the first.
    let _ = if json { lines.json().try_init() } else { lines.try_init() };
}

/// Starts counting. None if this process counts already.
#[must_use]
pub fn metrics() -> Option<PrometheusHandle> {
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS).ok()?;
    let handle = builder.install_recorder().ok()?;
    metrics::describe_counter!("oncebook_commands_total", "Commands by operation and outcome.");
    metrics::describe_histogram!("oncebook_command_seconds", "Time from a command's request to its answer.");
    metrics::describe_counter!("oncebook_http_requests_total", "Responses by method, path and status.");
    metrics::describe_histogram!("oncebook_http_request_seconds", "Time from a request to its response.");
    metrics::describe_counter!("oncebook_relayed_events_total", "Events moved from the outbox into the log.");
    metrics::describe_histogram!("oncebook_relay_wait_seconds", "Time from a commit to its event's place in the log.");
    metrics::describe_counter!("oncebook_consumer_decisions_total", "Deliveries by logical consumer and decision.");
    metrics::describe_counter!("oncebook_webhook_attempts_total", "Attempts to deliver to an endpoint, by outcome.");
    metrics::describe_counter!("oncebook_webhook_deliveries_total", "Deliveries that ended, by state.");
    metrics::describe_histogram!("oncebook_webhook_attempt_seconds", "Time an attempt took.");
    metrics::describe_histogram!("oncebook_webhook_wait_seconds", "Time from a commit to its event's delivery.");
    metrics::describe_counter!("oncebook_webhook_rescued_total", "Attempts taken back since their lease was up.");
    metrics::describe_counter!("oncebook_webhook_disabled_total", "Endpoints this process disabled, by reason.");
    metrics::describe_gauge!("oncebook_webhook_oldest_due_seconds", "For how long the oldest due delivery has waited.");
    metrics::describe_gauge!("oncebook_webhook_endpoints_disabled", "Endpoints the service has disabled.");
    metrics::describe_gauge!("oncebook_webhook_endpoints_paused", "Endpoints that are left alone for now.");
    metrics::describe_gauge!("oncebook_database_connections", "Open connections to Postgres.");
    metrics::describe_gauge!("oncebook_database_connections_idle", "Those of them that nobody uses.");
    metrics::describe_gauge!("oncebook_in_flight_commands", "Commands at work with a key.");
    metrics::describe_gauge!("oncebook_in_flight_waiters", "Duplicates that wait for the first request's answer.");
    metrics::describe_gauge!("oncebook_lanes", "Practitioners and appointments that commands take turns on.");
    metrics::describe_counter!("oncebook_keys_purged_total", "Keys the janitor forgot, their retention being over.");
    Some(handle)
}
