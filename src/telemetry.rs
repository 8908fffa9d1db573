//! Logs and metrics: set up once, by main.
//!
//! Keys, tokens and bodies are never logged; a request is one line at the edge.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config;
use crate::trace::export::Exporting;

/// Upper bounds of the buckets of every duration, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// The same of what may wait out an outage.
const LONG_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0, 3600.0, 86400.0];

/// What is logged unless `ONCEBOOK_LOG_FILTER` says otherwise.
const FILTER: &str = "warn,oncebook=info";

/// Starts logging to standard error, lines for people or JSON for machines, and exporting spans where `config.rs` is told
/// to.
pub fn log(json: bool) -> Option<Exporting> {
    let filter = config::log_filter()
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(FILTER));
    // Colours are for a terminal; in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    let exporting = config::otlp().map(|otlp| Exporting::to(&otlp));
    let (exporting, failed) = match exporting {
        None => (None, None),
        Some(Ok(exporting)) => (Some(exporting), None),
        Some(Err(error)) => (None, Some(error)),
    };
    // A second set-up in one process (a test) keeps the first. Without an exporter there is one filter, which is asked once
    // for each place that logs.
    let _ = match &exporting {
        None => tracing_subscriber::registry().with(lines).with(filter).try_init(),
        Some(exporting) => {
            tracing_subscriber::registry().with(lines.with_filter(filter)).with(exporting.layer()).try_init()
        }
    };
    if let Some(error) = failed {
        tracing::error!(%error, "spans are not exported");
    }
    exporting
}

/// Starts counting. None if this process counts already.
#[must_use]
pub fn metrics() -> Option<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .and_then(|builder| {
            let behind = Matcher::Full("oncebook_commit_to_processed_seconds".to_owned());
            builder.set_buckets_for_metric(behind, &LONG_BUCKETS)
        });
    let handle = builder.ok()?.install_recorder().ok()?;
    describe_requests();
    describe_events();
    describe_workers();
    describe_database();
    Some(handle)
}

fn describe_requests() {
    metrics::describe_counter!("oncebook_commands_total", "Commands by operation and outcome.");
    metrics::describe_histogram!("oncebook_command_seconds", "Time from a command's request to its answer.");
    metrics::describe_counter!("oncebook_http_requests_total", "Responses by method, path and status.");
    metrics::describe_histogram!("oncebook_http_request_seconds", "Time from a request to its response.");
    metrics::describe_gauge!("oncebook_database_connections", "This process's open connections to Postgres.");
    metrics::describe_gauge!("oncebook_database_connections_idle", "Those of them that nobody uses.");
    metrics::describe_gauge!("oncebook_in_flight_commands", "This process's commands at work with a key.");
    metrics::describe_gauge!(
        "oncebook_in_flight_waiters",
        "This process's duplicates that wait for the first request's answer: 1024 at the most."
    );
    metrics::describe_gauge!(
        "oncebook_lanes",
        "Practitioners and appointments that commands of this process take turns on."
    );
}

fn describe_events() {
    metrics::describe_counter!("oncebook_relayed_events_total", "Events moved from the outbox into the log.");
    metrics::describe_histogram!("oncebook_relay_wait_seconds", "Time from a commit to its event's place in the log.");
    metrics::describe_counter!("oncebook_consumer_decisions_total", "Deliveries by logical consumer and decision.");
    metrics::describe_counter!(
        "oncebook_consumer_attempts_total",
        "Tries of single events by logical consumer and number of the try; events that pass in a batch have none."
    );
    metrics::describe_histogram!(
        "oncebook_commit_to_processed_seconds",
        "Time from a command's commit to its event's effect, by logical consumer; by two machines' clocks where two took part."
    );
    metrics::describe_counter!("oncebook_events_aged_total", "Events that left the log, their retention being over.");
    metrics::describe_counter!("oncebook_notifications_total", "Tries at notifications by channel and outcome.");
    metrics::describe_counter!("oncebook_notification_tries_total", "Notifications sent, whatever came of it.");
    metrics::describe_gauge!("oncebook_notification_breaker_open", "1 while a channel's destination is away.");
    metrics::describe_gauge!("oncebook_notification_sender", "1 where there is something to send a channel with.");
    metrics::describe_counter!("oncebook_webhook_attempts_total", "Attempts to deliver to an endpoint, by outcome.");
    metrics::describe_counter!("oncebook_webhook_deliveries_total", "Deliveries that ended, by state.");
    metrics::describe_histogram!("oncebook_webhook_attempt_seconds", "Time an attempt took.");
    metrics::describe_histogram!("oncebook_webhook_wait_seconds", "Time from a commit to its event's delivery.");
    metrics::describe_counter!("oncebook_webhook_rescued_total", "Attempts taken back since their lease was up.");
    metrics::describe_counter!(
        "oncebook_webhook_secrets_unreadable_total",
        "Webhook secrets that no key of this process opened."
    );
    metrics::describe_counter!("oncebook_webhook_disabled_total", "Endpoints this process disabled, by reason.");
    metrics::describe_gauge!("oncebook_webhook_endpoints_disabled", "Endpoints the service has disabled.");
    metrics::describe_gauge!("oncebook_webhook_endpoints_paused", "Endpoints that are left alone for now.");
    metrics::describe_gauge!("oncebook_database_connections", "Open connections to Postgres.");
    metrics::describe_gauge!("oncebook_database_connections_idle", "Those of them that nobody uses.");
    metrics::describe_gauge!("oncebook_in_flight_commands", "Commands at work with a key.");
    metrics::describe_gauge!("oncebook_in_flight_waiters", "Duplicates that wait for the first request's answer.");
    metrics::describe_gauge!("oncebook_lanes", "Practitioners and appointments that commands take turns on.");
    metrics::describe_counter!("oncebook_keys_purged_total", "Keys the janitor forgot, their retention being over.");
}

fn describe_workers() {
    metrics::describe_histogram!("oncebook_worker_step_seconds", "Time of a background worker's step.");
    metrics::describe_counter!(
        "oncebook_worker_failures_total",
        "Steps of background workers that failed, by worker and code."
    );
    metrics::describe_gauge!(
        "oncebook_worker_ok",
        "1, or 0 where this process's worker fails, is stuck or is behind for longer than ONCEBOOK_READY_BEHIND."
    );
    metrics::describe_gauge!(
        "oncebook_worker_success_age_seconds",
        "How long ago the last step of this process's worker succeeded."
    );
    metrics::describe_gauge!(
        "oncebook_worker_behind_items",
        "What waits for a worker, as this process last saw it; the work is shared by all processes with the role. 10000 may be more."
    );
    metrics::describe_gauge!("oncebook_worker_behind_seconds", "The age of the oldest of that.");
}

/// What is the same whichever process is asked: in a sum over processes it would be counted once for each.
fn describe_database() {
    metrics::describe_gauge!(
        "oncebook_database_up",
        "1 where this process was told how its database stands, else 0: the figures of the database are then the last known."
    );
    metrics::describe_gauge!(
        "oncebook_log_lag_events",
        "Events of a partition that a consumer group has yet to read. The log's: the same from every process with the role consumers."
    );
    metrics::describe_gauge!(
        "oncebook_outbox_events",
        "Events that wait for the relay. The database's: the same from every process. 10000 may be more."
    );
    metrics::describe_gauge!(
        "oncebook_outbox_oldest_seconds",
        "The age of the oldest of them. The database's: the same from every process."
    );
    metrics::describe_gauge!(
        "oncebook_inbox_events",
        "Events a logical consumer is not done with, by state; HELD waits behind another of its subject. The database's: the same from every process. 10000 may be more."
    );
    metrics::describe_gauge!(
        "oncebook_inbox_oldest_due_seconds",
        "How long the oldest try of a logical consumer has been due. The database's: the same from every process."
    );
    metrics::describe_gauge!(
        "oncebook_staff_tasks_open",
        "Open STAFF tasks. The database's: the same from every process. 10000 may be more."
    );
}
