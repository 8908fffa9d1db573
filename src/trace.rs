//! What led to what: spans of requests, commands, relay and consumers, joined by W3C trace context.
//!
//! A request's `traceparent` is continued; the command's own span is what its event carries through outbox and log; whoever
//! works on many events at a time is linked to each. Spans have a target of their own ([`TARGET`]): nobody makes them, and
//! none costs more than a look at a flag, unless `export.rs` was told where to send them. What is in them is ours: names
//! of operations, routes, consumers and codes, and ids of requests and events; never a key, a token, a body, a name or a note.

use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue, global};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use uuid::Uuid;

use crate::domain::event::Logged;

pub mod export;

/// The target of spans that are part of a trace, and of nothing else.
pub const TARGET: &str = "trace";

/// Whether anybody wants to know.
#[must_use]
pub fn on() -> bool {
    tracing::span_enabled!(target: TARGET, tracing::Level::INFO)
}

/// Continues a caller's trace in a span that has not begun; without one, the span begins a trace of its own.
fn follow(span: &Span, traceparent: Option<&str>) {
    if let Some(parent) = traceparent.filter(|_| !span.is_disabled()).and_then(read) {
        // Where nobody exports, there is nobody to tell.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Links a span to what led to it.
pub fn link<'a>(span: &Span, traceparents: impl IntoIterator<Item = Option<&'a str>>) {
    if span.is_disabled() {
        return;
    }
    for context in traceparents.into_iter().flatten().filter_map(read) {
        span.add_link(context);
    }
}

/// A span's own context, as it travels; none where nobody exports.
#[must_use]
pub fn traceparent(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context().span().span_context().clone();
    let flags = context.trace_flags().to_u8();
    context.is_valid().then(|| format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id()))
}

/// The span of a request, which continues its caller's trace. By its route: a path has ids in it, and a query may have names.
#[must_use]
pub fn request(id: Uuid, method: &str, route: &str, traceparent: impl FnOnce() -> Option<String>) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        request_id = %id,
    );
    // A header need not be read for nobody.
    if !span.is_disabled() {
        follow(&span, traceparent().as_deref());
    }
    span
}

/// Notes a request's answer.
pub fn answered(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a command, which runs in a task of its own and so is joined to its request by what that says.
#[must_use]
pub fn command(operation: &'static str, traceparent: Option<&str>) -> Span {
    let name = || format!("command {operation}");
    let span = tracing::info_span!(target: TARGET, "command", otel.name = name(), operation, outcome = Empty);
    follow(&span, traceparent);
    span
}

/// The span of a consumer's batch, linked to the commands its events came from.
#[must_use]
pub fn consuming(consumer: &'static str, events: &[Logged]) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "consume",
        otel.name = format!("consume {consumer}"),
        otel.kind = "consumer",
        consumer,
        events = events.len(),
        PROCESSED = Empty,
        DUPLICATE = Empty,
        RETRYABLE = Empty,
        QUARANTINED = Empty,
    );
    link(&span, events.iter().map(|logged| logged.event.traceparent.as_deref()));
    span
}

/// The span of one try at one event, linked to the command that it came from.
#[must_use]
pub fn trying(consumer: &'static str, event: Uuid, attempt: i32, logged: Option<&Logged>) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "try",
        otel.name = format!("try {consumer}"),
        otel.kind = "consumer",
        consumer,
        %event,
        attempt,
        decision = Empty,
        reason = Empty,
    );
    link(&span, [logged.and_then(|logged| logged.event.traceparent.as_deref())]);
    span
}

/// Notes a decision: of a try, that it was this; of a batch, that it was this for so many events.
pub fn decided(decision: &'static str, events: usize) {
    let span = Span::current();
    span.record("decision", decision).record(decision, events);
}

/// A step of the relay that moved something, told when it is over: one that found nothing is no span.
pub fn relayed(began: Timestamp, ended: Timestamp, events: u64, traceparents: &[String]) {
    if !on() {
        return;
    }
    let tracer = global::tracer_provider().tracer("oncebook");
    let links = traceparents.iter().filter_map(|it| read(it)).map(Link::with_context).collect();
    let builder = tracer.span_builder("relay").with_kind(SpanKind::Producer).with_links(links);
    let builder = builder
        .with_start_time(SystemTime::from(began))
        .with_attributes([KeyValue::new("events", i64::try_from(events).unwrap_or(i64::MAX))]);
    let mut span = builder.start_with_context(&tracer, &Context::new());
    opentelemetry::trace::Span::end_with_timestamp(&mut span, SystemTime::from(ended));
}

/// What a `traceparent` of version 00 says, if it names a span.
fn read(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_for_what_it_says() {
        let context = read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("a context");
        assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id().to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled() && context.is_remote());
        for nothing in ["", "00", "00-0-0-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert!(read(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn where_nobody_exports_there_is_no_span_and_no_context() {
        assert!(!on());
        let span = consuming("changes", &[]);
        assert!(span.is_disabled() && traceparent(&span).is_none());
    }
}
