//! `openapi/asyncapi.json` and `openapi/event.schema.json` against the code and against real events.

use jsonschema::Validator;
use oncebook::domain::event::EventType;
use oncebook::http::asyncapi;
use serde_json::{Value, json};

use crate::app::{Setup, Trial, Visit, eventually, reschedule, step};
use crate::client::Call;
use crate::events::read_all;

#[test]
fn the_committed_documents_are_those_the_code_prints() {
    let committed = include_str!("../../openapi/asyncapi.json");
    assert!(committed == asyncapi::text(), "openapi/asyncapi.json: make prepare");
    let committed = include_str!("../../openapi/event.schema.json");
    assert!(committed == asyncapi::schema_text(), "openapi/event.schema.json: make prepare");
    let document: Value = serde_json::from_str(&asyncapi::text()).expect("JSON");
    for name in EventType::ALL.map(EventType::as_str) {
        assert_eq!(document["components"]["messages"][name]["name"], name);
    }
}

fn schema() -> Validator {
    let schema = serde_json::from_str(&asyncapi::schema_text()).expect("JSON");
    jsonschema::draft202012::options().should_validate_formats(true).build(&schema).expect("a schema")
}

#[tokio::test]
async fn what_comes_is_as_the_schema_says() {
    let mut trial = Trial::new().await;
    trial
        .serve(Setup {
            roles: &[oncebook::config::Role::Api, oncebook::config::Role::Relay, oncebook::config::Role::Consumers],
            ..trial.setup()
        })
        .await;
    let desk = trial.desk();
    let served = desk.say(&Call::get("/event.schema.json")).await.expect(200, "");
    assert_eq!(served.body, asyncapi::schema_text().into_bytes());
    desk.say(&Call::get("/asyncapi.json")).await.expect(200, "");

    let id = desk.say(&trial.book(Visit::default())).await.expect(201, "").id();
    desk.say(&reschedule(id, 1)).await.expect(200, "");
    for what in ["confirm", "check-in", "reopen", "cancel"] {
        desk.say(&step(id, what)).await.expect(200, "");
    }
    let clinic = trial.demo.clinic_id;
    let block = json!({
        "clinic_id": clinic, "practitioner_id": trial.demo.practitioner_ids[3],
        "start": crate::app::slot(3), "end": crate::app::slot(5),
    });
    desk.say(&Call::post("/v1/blocks", block)).await.expect(201, "");
    let mut events = Vec::new();
    eventually("all have come", async || {
        events = read_all(&trial, &desk).await;
        events.len() == 7
    })
    .await;
    let schema = schema();
    for event in &events {
        let faults: Vec<String> = schema.iter_errors(event).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{event:#}: {faults:?}");
    }
    let with = |pointer: &str, value: Value| {
        let mut event = events[0].clone();
        *event.pointer_mut(pointer).expect("a member") = value;
        event
    };
    for wrong in [
        with("/specversion", json!("0.3")),
        with("/type", json!("appointment.teleported")),
        with("/subject", json!("patient/1")),
        with("/sequence", json!(0)),
        with("/id", json!("1")),
        with("/data/start", json!("tomorrow")),
        with("/data", json!({ "status": "booked" })),
    ] {
        assert!(!schema.is_valid(&wrong), "{wrong:#}");
    }
    trial.end().await;
}
