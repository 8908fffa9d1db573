//! Webhooks out: what is committed reaches every endpoint that wants it, signed, at least once, in order for each
//! appointment; and an endpoint that fails keeps nobody waiting but itself.

use oncebook::config::Role;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::{Setup, Trial, Visit, eventually, reschedule, step};
use crate::client::{Call, Desk, Heard};

mod admin;
mod changed;
mod crash;
mod failing;
mod guard;
mod keys;
mod plans;
mod receiver;
mod signed;
mod watched;

use receiver::Receiver;

/// Every role there is.
const ALL: &[Role] = &Role::ALL;

/// A service with every role.
async fn service() -> Trial {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: ALL, ..trial.setup() }).await;
    trial
}

fn admin(trial: &Trial) -> Desk {
    trial.desk_of(&trial.demo.api_keys.admin)
}

/// The request that makes an endpoint.
fn endpoint_at(url: &str) -> Call {
    Call::post("/v1/webhook-endpoints", json!({ "url": url }))
}

/// Makes an endpoint for everything.
async fn endpoint(trial: &Trial, receiver: &Receiver) -> Uuid {
    admin(trial).say(&endpoint_at(&receiver.url())).await.expect(201, "").id()
}

/// Books a visit at a slot; tells its id.
async fn book(trial: &Trial, slot: usize) -> Uuid {
    trial.desk().say(&trial.book(Visit { slot, ..Visit::default() })).await.expect(201, "").id()
}

/// An endpoint as it is shown.
async fn show(trial: &Trial, endpoint: Uuid) -> Value {
    admin(trial).say(&Call::get(format!("/v1/webhook-endpoints/{endpoint}"))).await.expect(200, "").json()
}

/// An endpoint's deliveries, the latest first.
async fn deliveries(trial: &Trial, endpoint: Uuid) -> Vec<Value> {
    let path = format!("/v1/webhook-endpoints/{endpoint}/deliveries?limit=200");
    admin(trial).say(&Call::get(path)).await.expect(200, "").json()["items"].as_array().expect("items").clone()
}

/// States of an endpoint's deliveries, by subject's id and sequence.
async fn state(trial: &Trial, endpoint: Uuid, subject: Uuid, sequence: i64) -> String {
    let all = deliveries(trial, endpoint).await;
    let it = all.iter().find(|it| it["subject"] == format!("appointment/{subject}") && it["sequence"] == sequence);
    it.map(|it| it["state"].as_str().expect("a state").to_owned()).unwrap_or_default()
}

async fn redeliver(trial: &Trial, endpoint: Uuid, event: &str) -> Heard {
    let path = format!("/v1/webhook-endpoints/{endpoint}/deliveries/{event}/redeliver");
    admin(trial).say(&Call::post(path, Value::Null)).await
}

async fn count(connection: &mut PgConnection, of: &'static str) -> i64 {
    sqlx::query_scalar(of).fetch_one(connection).await.expect("a count")
}

/// As if what waits to be tried again had waited long enough, and the breaker too.
async fn time_passes(trial: &Trial) {
    trial
        .change(
            "update webhook_deliveries set next_attempt_at = next_attempt_at - interval '12 h' where state = 'PENDING';
             update webhook_endpoints set paused_until = paused_until - interval '12 h'",
        )
        .await;
}

#[tokio::test]
async fn what_happens_is_sent_in_order_to_whoever_wants_it() {
    let trial = service().await;
    let (everything, some) = (Receiver::new().await, Receiver::new().await);
    let endpoint = endpoint(&trial, &everything).await;
    let wants = json!({ "url": some.url(), "event_types": ["appointment.cancelled"] });
    admin(&trial).say(&Call::post("/v1/webhook-endpoints", wants)).await.expect(201, "");
    let mut ids = Vec::new();
    for n in 0..5 {
        let id = book(&trial, n * 3).await;
        trial.desk().say(&reschedule(id, n * 3 + 1)).await.expect(200, "");
        trial.desk().say(&step(id, "cancel")).await.expect(200, "");
        ids.push(id);
    }
    eventually("all is delivered", async || everything.received().len() == 15 && some.received().len() == 5).await;
    for id in ids {
        let received = everything.received();
        let of = received.iter().filter(|it| it.subject() == format!("appointment/{id}"));
        let (sequences, kinds): (Vec<_>, Vec<_>) = of.map(|it| (it.sequence(), it.event()["type"].clone())).unzip();
        assert_eq!(sequences, [1, 2, 3]);
        assert_eq!(kinds, ["appointment.booked", "appointment.rescheduled", "appointment.cancelled"]);
    }
    assert!(some.received().iter().all(|it| it.event()["type"] == "appointment.cancelled"));
    eventually("it is written down", async || {
        deliveries(&trial, endpoint).await.iter().all(|it| it["state"] == "DELIVERED")
    })
    .await;
    for delivery in deliveries(&trial, endpoint).await {
        let attempts = delivery["attempts"].as_array().expect("attempts");
        assert_eq!(attempts.len(), 1, "{delivery}");
        assert_eq!((&attempts[0]["outcome"], &attempts[0]["status"]), (&"delivered".into(), &204.into()));
        assert!(attempts[0]["duration_ms"].is_i64() && delivery["reason"].is_null(), "{delivery}");
    }
    assert!(show(&trial, endpoint).await["last_success_at"].is_string());
    trial.end().await;
}
