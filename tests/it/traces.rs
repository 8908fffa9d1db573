//! What led to what: a real collector takes what the service exports over HTTP, and finds request, command, relay and
//! consumers of a booking joined.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sqlx::PgConnection;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::app::{Trial, Visit, eventually};
use crate::client::Call;
use crate::events::{LEFT, count};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector: OTLP over HTTP, in protobuf, as the standard has it at `/v1/traces`.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Bytes>>>);

impl Collector {
    async fn start(&self, tasks: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().route("/v1/traces", post(take)).with_state(self.clone());
        tasks.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        base
    }

    fn bodies(&self) -> Vec<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn knows_nothing_of(&self, secrets: &[&str]) {
        for body in self.bodies() {
            let text = String::from_utf8_lossy(&body);
            let told: Vec<_> = secrets.iter().filter(|secret| text.contains(**secret)).collect();
            assert!(told.is_empty(), "{told:?} was exported");
        }
    }

    fn spans(&self) -> Vec<Span> {
        let told = |body: &Bytes| ExportTraceServiceRequest::decode(body.clone()).expect("protobuf");
        let resources = self.bodies().iter().flat_map(|body| told(body).resource_spans).collect::<Vec<_>>();
        for resource in &resources {
            let attributes = &resource.resource.as_ref().expect("a resource").attributes;
            let name = attributes.iter().find(|it| it.key == "service.name").and_then(|it| it.value.clone());
            assert_eq!(name.and_then(|it| it.value), Some(Value::StringValue("north".to_owned())));
        }
        resources.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }
}

async fn take(State(Collector(taken)): State<Collector>, body: Bytes) {
    taken.lock().unwrap_or_else(PoisonError::into_inner).push(body);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// What a span says of something, as text.
fn said(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|it| it.key == key).and_then(|it| it.value.clone()?.value);
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

/// The context a span hands on.
fn context(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

/// Those of that name which are joined to another by a link.
fn linked<'a>(spans: &'a [Span], name: &str, to: &Span) -> Vec<&'a Span> {
    let links = |span: &Span| span.links.iter().any(|it| it.span_id == to.span_id && it.trace_id == to.trace_id);
    spans.iter().filter(|span| span.name == name && links(span)).collect()
}

async fn carried(connection: &mut PgConnection, subject: uuid::Uuid) -> Option<String> {
    let carried = sqlx::query_scalar("select traceparent from event_log where subject_id = $1").bind(subject);
    carried.fetch_one(connection).await.expect("its event")
}

async fn all_processed(connection: &mut PgConnection) {
    eventually("the consumers have done with all", async || count(connection, LEFT).await == 0).await;
}

/// The relay's and the consumers' spans of what a command led to.
fn is_joined(spans: &[Span], command: &Span) {
    for name in ["relay", "consume notifications", "consume changes"] {
        assert_eq!(linked(spans, name, command).len(), 1, "{name} of {}", context(command));
    }
}

/// The command of the caller's trace, between the request it came with and its own three steps.
fn continues_the_callers(spans: &[Span]) -> &Span {
    let of_trace = |name: &str| {
        let found = spans.iter().find(|span| span.name == name && hex(&span.trace_id) == TRACE);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let request = of_trace("POST /v1/appointments");
    assert_eq!(hex(&request.parent_span_id), CALLER, "the caller's trace is continued");
    assert_eq!((said(request, "http.response.status_code").as_str(), request.kind), ("201", 2));
    let command = of_trace("command book");
    assert_eq!((&command.parent_span_id, said(command, "outcome").as_str()), (&request.span_id, "done"));
    for step in ["look", "decide", "commit"] {
        assert_eq!(of_trace(step).parent_span_id, command.span_id, "{step}");
    }
    command
}

#[tokio::test]
async fn a_booking_and_what_follows_from_it_are_one_story() {
    let mut trial = Trial::new().await;
    trial.tolerate("told to fail");
    let (collector, mut tasks) = (Collector::default(), JoinSet::new());
    let endpoint = collector.start(&mut tasks).await;
    let knobs = [
        ("ONCEBOOK_ROLES", "api,relay,consumers"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_SERVICE_NAME", "north"),
        // What arrives was sent by the process on its way out.
        ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
    ];
    let process = trial.process_with(&trial.url(), &knobs).await;
    let (desk, mut connection) = (trial.desk_at(&process.base), trial.connect().await);
    let with_note = |slot| {
        let mut body = trial.body(Visit { slot, ..Visit::default() });
        body["note"] = "afraid of needles".into();
        Call::post("/v1/appointments", body)
    };
    let key = "a-key-nobody-else-may-see";
    let call = with_note(0).key(key).traced(&format!("00-{TRACE}-{CALLER}-01"));
    let followed = desk.say(&call).await.expect(201, "").id();
    all_processed(&mut connection).await;
    let alone = desk.say(&with_note(8)).await.expect(201, "").id();
    all_processed(&mut connection).await;
    // One consumer fails at the next, and tries again.
    trial
        .change(
            "create function fails() returns trigger language plpgsql as
               $$ begin raise exception 'told to fail' using errcode = '40001'; end $$;
             create trigger fails before insert on changes for each row execute function fails()",
        )
        .await;
    desk.say(&with_note(16)).await.expect(201, "");
    eventually("it is to be tried again", async || {
        count(&mut connection, "select count(*) from inbox where reason_code is not null").await == 1
    })
    .await;
    trial.change("drop trigger fails on changes").await;
    all_processed(&mut connection).await;
    desk.say(&Call::get("/v1/patients?q=Ada")).await;
    desk.say(&Call::get("/healthz")).await;
    assert!(collector.bodies().is_empty());
    process.stop().await;

    let spans = collector.spans();
    let named = |name: &'static str| spans.iter().filter(move |span| span.name == name);
    let command = continues_the_callers(&spans);
    assert_eq!(carried(&mut connection, followed).await, Some(context(command)), "the event comes from the command");
    is_joined(&spans, command);

    let own = carried(&mut connection, alone).await;
    let command = named("command book").find(|it| Some(context(it)) == own).expect("the command it comes from");
    let request = named("POST /v1/appointments").find(|it| it.span_id == command.parent_span_id).expect("its request");
    assert!(request.parent_span_id.is_empty() && hex(&request.trace_id) != TRACE, "a trace of its own");
    is_joined(&spans, command);

    let tries: Vec<_> = named("try changes").map(|it| (said(it, "attempt"), said(it, "decision"))).collect();
    // What a collision ended was no try.
    let expected = [("1", "RETRYABLE"), ("1", "PROCESSED")].map(|(n, it)| (n.to_owned(), it.to_owned()));
    assert_eq!(tries, expected);
    assert!(named("consume changes").any(|it| said(it, "PROCESSED") == "1" && said(it, "events") == "1"));
    assert!(named("GET /v1/patients").count() == 1 && named("GET /healthz").count() == 0);
    collector.knows_nothing_of(&[key, &trial.demo.api_keys.front_desk, "needles", "Ada", "told to fail"]);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn where_nothing_is_exported_a_trace_passes_through_as_it_came() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    trial.desk().say(&trial.book(Visit::default()).traced(&traceparent)).await.expect(201, "");
    trial.desk().say(&trial.book(Visit { slot: 8, ..Visit::default() })).await.expect(201, "");
    let mut connection = trial.connect().await;
    let carried: Vec<Option<String>> = sqlx::query_scalar("select traceparent from outbox order by position")
        .fetch_all(&mut connection)
        .await
        .expect("events");
    assert_eq!(carried, [Some(traceparent), None]);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn a_collector_that_is_away_costs_nobody_an_answer() {
    let trial = Trial::new().await;
    let knobs = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let process = trial.process_with(&trial.url(), &knobs).await;
    let desk = trial.desk_at(&process.base);
    for slot in 0..3 {
        desk.say(&trial.book(Visit { slot: slot * 8, ..Visit::default() })).await.expect(201, "");
    }
    process.stop().await;
    trial.end().await;
}
