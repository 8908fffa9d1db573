//! The `AsyncAPI` document: the events, beside what `openapi.rs` says of requests. And their JSON Schema by itself, for whoever
//! checks what comes. Both are committed in `openapi/` and compared with the code.

use serde_json::{Map, Value, json};

use crate::domain::cloud_event;
use crate::domain::event::EventType;

/// Where the schema is served, by this name.
const SCHEMA: &str = "/event.schema.json";

/// Partitions of the log (migration 5).
const PARTITIONS: u8 = 16;

const ABOUT: &str = "What happens at a clinic, as CloudEvents 1.0 in JSON: ids, times and status, never a patient's data. \
Each arrives at least once: whoever has seen an `id` has seen the event. Those of one `subject` have `sequence` 1, 2, 3, …; \
a receiver drops what is not above the last it has seen. `traceparent` is that of the request that made the change.";

/// The schema of an event, as it is printed, committed and served.
#[must_use]
pub fn schema_text() -> String {
    let mut schema = cloud_event::schema();
    schema["$id"] = SCHEMA.into();
    pretty(&schema)
}

/// The document, as it is printed, committed and served.
#[must_use]
pub fn text() -> String {
    pretty(&document())
}

fn pretty(value: &Value) -> String {
    // Values always serialise.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn document() -> Value {
    let names = EventType::ALL.map(EventType::as_str);
    let message_of = |name: &str| (name.to_owned(), message(name));
    let refer = |name: &str| (name.to_owned(), json!({ "$ref": format!("#/components/messages/{name}") }));
    let all: Map<_, _> = names.into_iter().map(refer).collect();
    json!({
        "asyncapi": "3.1.0",
        "info": {
            "title": "Oncebook events", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": { "name": env!("CARGO_PKG_LICENSE"), "url": "https://spdx.org/licenses/MIT.html" },
            "tags": [{ "name": "appointment", "description": "Visits." }, { "name": "block", "description": "Time off, lunch." }],
        },
        "servers": {
            "kafka": {
                "host": "{brokers}", "protocol": "kafka",
                "variables": { "brokers": { "default": "localhost:9092", "description": "As `ONCEBOOK_KAFKA_BROKERS` says." } },
            },
            "receiver": {
                "host": "{receiver}", "protocol": "https",
                "variables": { "receiver": { "default": "receiver.example.org", "description": "As the webhook endpoint's URL says." } },
            },
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {
            "events": {
                "address": "oncebook.events",
                "title": "The event log on Kafka",
                "servers": [{ "$ref": "#/servers/kafka" }],
                "description": "Where the log is on Kafka (`ONCEBOOK_LOG=kafka`). A subject's events are in one partition, in order.",
                "messages": all,
                "bindings": { "kafka": { "partitions": PARTITIONS, "bindingVersion": "0.5.0" } },
            },
            "webhooks": {
                "address": null,
                "title": "Webhooks",
                "servers": [{ "$ref": "#/servers/receiver" }],
                "description": "The URL of a webhook endpoint, by `POST`, signed as Standard Webhooks says; `webhook-id` is the event's `id`.",
                "messages": all,
            },
        },
        "operations": {
            "logEvent": {
                "action": "send", "channel": { "$ref": "#/channels/events" },
                "description": "Every event, in order per subject, at least once.",
            },
            "deliverEvent": {
                "action": "send", "channel": { "$ref": "#/channels/webhooks" },
                "description": "What an endpoint asked for, in order per subject, at least once.",
            },
        },
        "components": {
            "messages": names.into_iter().map(message_of).collect::<Map<_, _>>(),
            "schemas": { "event": cloud_event::schema() },
        },
    })
}

/// An event of one type.
fn message(name: &str) -> Value {
    json!({
        "name": name,
        "contentType": "application/cloudevents+json",
        "payload": {
            "allOf": [
                { "$ref": "#/components/schemas/event" },
                { "type": "object", "properties": { "type": { "const": name } } },
            ],
        },
    })
}
