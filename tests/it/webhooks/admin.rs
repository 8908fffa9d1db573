//! Who may see and change endpoints, what they may be, and the key a creation is sent under.

use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::{Config, Role};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{admin, count, deliveries, endpoint, endpoint_at, service};
use crate::app::{Setup, Trial, eventually};
use crate::client::{Call, Desk};

/// An API key of an administrator who is confined to a clinic.
pub(super) async fn confined(trial: &Trial, clinic: uuid::Uuid) -> Desk {
    let body = json!({ "name": "local", "subject": "person:local", "roles": ["CLINIC_ADMIN"], "clinic_ids": [clinic] });
    let made = admin(trial).say(&Call::post("/v1/credentials", body)).await.expect(201, "").json();
    trial.desk_of(made["api_key"].as_str().expect("a key"))
}

#[tokio::test]
async fn under_one_key_one_endpoint_is_made_and_the_answer_has_no_secret() {
    let mut trial = Trial::new().await;
    for _ in 0..2 {
        trial.serve(Setup { roles: &[Role::Api], ..trial.setup() }).await;
    }
    let call = endpoint_at("https://1.1.1.1/hooks");
    let desks: Vec<Desk> = trial
        .services()
        .iter()
        .map(|service| Desk::new(&crate::client::pool(), &service.base, &trial.demo.api_keys.admin, None))
        .collect();
    let mut answers = Vec::new();
    let mut running: tokio::task::JoinSet<_> = tokio::task::JoinSet::new();
    for n in 0..24 {
        let (desk, call) = (desks[n % 2].clone(), call.clone());
        running.spawn(async move { desk.insist(&call).await });
    }
    while let Some(answer) = running.join_next().await {
        answers.push(answer.expect("it ran").expect(201, ""));
    }
    assert_eq!(answers.iter().filter(|answer| !answer.replayed()).count(), 1);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body), "the same bytes");
    let (text, id) = (String::from_utf8_lossy(&answers[0].body).into_owned(), answers[0].id());
    assert!(!text.contains("whsec_") && !text.contains("\"secret\""), "{text}");
    assert_eq!(answers[0].header("location"), Some(format!("/v1/webhook-endpoints/{id}").as_str()));
    assert_eq!(answers[0].header("etag"), Some("\"1\""));
    let mut connection = trial.connect().await;
    assert_eq!(count(&mut connection, "select count(*) from webhook_endpoints").await, 1);
    let noted = "select count(*) from audit where operation = 'create_webhook_endpoint'";
    assert_eq!(count(&mut connection, noted).await, 1);
    let key = call.key.clone().expect("a key");
    let other = endpoint_at("https://1.1.1.1/others").key(&key);
    desks[0].say(&other).await.expect(409, "idempotency_key_reused");
    // A default given or left out is the same request.
    let same = Call::post(
        "/v1/webhook-endpoints",
        json!({ "active": true, "url": "https://1.1.1.1/hooks", "description": "" }),
    );
    assert!(desks[1].say(&same.key(&key)).await.expect(201, "").replayed());
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn an_endpoint_for_a_clinic_gets_nothing_of_another() {
    let trial = service().await;
    let (here, there) = (Receiver::new().await, Receiver::new().await);
    for (receiver, clinic) in [(&here, trial.demo.clinic_id), (&there, trial.demo.other_clinic_id)] {
        let body = json!({ "url": receiver.url(), "clinic_ids": [clinic] });
        admin(&trial).say(&Call::post("/v1/webhook-endpoints", body)).await.expect(201, "");
    }
    for n in 0..3 {
        super::book(&trial, n * 2).await;
    }
    eventually("it is delivered", async || here.received().len() == 3).await;
    let mut connection = trial.connect().await;
    assert_eq!(count(&mut connection, "select count(*) from webhook_deliveries").await, 3);
    assert_eq!(there.connections(), 0);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn endpoints_of_others_are_not_there() {
    let trial = service().await;
    let receiver = Receiver::new().await;
    let everywhere = endpoint(&trial, &receiver).await;
    super::book(&trial, 0).await;
    eventually("it is delivered", async || receiver.received().len() == 1).await;
    let event = deliveries(&trial, everywhere).await[0]["event_id"].as_str().expect("an id").to_owned();
    let local = confined(&trial, trial.demo.clinic_id).await;
    let elsewhere = confined(&trial, trial.demo.other_clinic_id).await;
    // Another group's administrator.
    let stranger = {
        let mut connection = trial.connect().await;
        let raise = "update credentials set roles = array['CLINIC_ADMIN'] where tenant_id <> $1";
        sqlx::query(raise).bind(trial.demo.tenant_id).execute(&mut connection).await.expect("raised");
        trial.desk_of(&trial.demo.api_keys.other_tenant)
    };
    let body = json!({ "url": receiver.url(), "clinic_ids": [trial.demo.clinic_id] });
    let here = local.say(&Call::post("/v1/webhook-endpoints", body.clone())).await.expect(201, "").id();
    let put = json!({ "url": receiver.url() });
    // Whoever is confined may not name all clinics, whatever stands there.
    for (desk, id, named_all) in [
        (&local, everywhere, (403, "forbidden")),
        (&elsewhere, here, (403, "forbidden")),
        (&stranger, here, (404, "not_found")),
        (&stranger, everywhere, (404, "not_found")),
    ] {
        let path = format!("/v1/webhook-endpoints/{id}");
        for call in [
            Call::get(&path),
            Call::get(format!("{path}/secret")),
            Call::get(format!("{path}/deliveries")),
            Call::delete(&path),
            Call::post(format!("{path}/rotate-secret"), json!({})),
            Call::post(format!("{path}/deliveries/{event}/redeliver"), Value::Null),
        ] {
            desk.say(&call).await.expect(404, "not_found");
        }
        desk.say(&Call::put(&path, put.clone())).await.expect(named_all.0, named_all.1);
    }
    elsewhere.say(&Call::post("/v1/webhook-endpoints", body)).await.expect(403, "forbidden");
    local.say(&endpoint_at(&receiver.url())).await.expect(403, "forbidden");
    trial.desk().say(&endpoint_at(&receiver.url())).await.expect(403, "forbidden");
    let of = async |desk: &Desk| {
        desk.say(&Call::get("/v1/webhook-endpoints")).await.json()["items"].as_array().map(Vec::len)
    };
    assert_eq!([of(&local).await, of(&elsewhere).await, of(&stranger).await], [Some(1), Some(0), Some(0)]);
    assert_eq!(of(&admin(&trial)).await, Some(2));
    trial.end().await;
}

#[tokio::test]
async fn a_deleted_endpoint_is_gone_and_its_secrets_first() {
    let trial = service().await;
    let receiver = Receiver::that(|_, _| super::receiver::status(500)).await;
    let endpoint = endpoint(&trial, &receiver).await;
    super::book(&trial, 0).await;
    eventually("it failed", async || receiver.received().len() == 1).await;
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    admin(&trial).say(&Call::delete(&path)).await.expect(204, "");
    for call in [Call::get(&path), Call::delete(&path), Call::get(format!("{path}/deliveries"))] {
        admin(&trial).say(&call).await.expect(404, "not_found");
    }
    let mut connection = trial.connect().await;
    assert_eq!(count(&mut connection, "select count(*) from webhook_endpoints where secret is not null").await, 0);
    eventually("what waited is cancelled", async || {
        count(
            &mut connection,
            "select count(*) from webhook_deliveries where state = 'CANCELLED' and reason = 'deleted'",
        )
        .await
            == 1
    })
    .await;
    // A month later, and some.
    trial.change("update webhook_deliveries set ended_at = ended_at - interval '31 days'").await;
    eventually("it is forgotten", async || {
        let left = "select (select count(*) from webhook_attempts) + (select count(*) from webhook_deliveries)";
        count(&mut connection, left).await == 0
    })
    .await;
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn what_is_no_endpoint_is_refused_with_its_member() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api], ..trial.setup() }).await;
    let url = "https://1.1.1.1/";
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "url": "nowhere" }), "/url"),
        (json!({ "url": "ftp://1.1.1.1/" }), "/url"),
        (json!({ "url": "https://user@1.1.1.1/" }), "/url"),
        (json!({ "url": url, "clinic_ids": [] }), "/clinic_ids"),
        (json!({ "url": url, "event_types": [] }), "/event_types"),
        (json!({ "url": url, "event_types": ["appointment.booked", "appointment.teleported"] }), "/event_types/1"),
    ] {
        let heard = admin(&trial).say(&Call::post("/v1/webhook-endpoints", body.clone())).await;
        let heard = heard.expect(400, "malformed_request");
        assert_eq!(heard.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    trial.end().await;
}

#[tokio::test]
async fn a_group_has_so_many_endpoints_and_no_more() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api], ..trial.setup() }).await;
    for _ in 0..50 {
        admin(&trial).say(&endpoint_at("https://1.1.1.1/")).await.expect(201, "");
    }
    let one_more = endpoint_at("https://1.1.1.1/");
    admin(&trial).say(&one_more).await.expect(409, "too_many_endpoints");
    let path = admin(&trial).say(&Call::get("/v1/webhook-endpoints?limit=1")).await.json()["items"][0]["id"].clone();
    let path = format!("/v1/webhook-endpoints/{}", path.as_str().expect("an id"));
    admin(&trial).say(&Call::delete(path)).await.expect(204, "");
    assert!(admin(&trial).say(&one_more).await.expect(409, "too_many_endpoints").replayed());
    admin(&trial).say(&endpoint_at("https://1.1.1.1/")).await.expect(201, "");
    trial.end().await;
}

#[tokio::test]
async fn without_a_key_to_seal_with_no_endpoint_is_made() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api], ..trial.setup() }).await;
    let made = endpoint_at("https://1.1.1.1/");
    admin(&trial).say(&made).await.expect(201, "");
    let process = trial.process_with(&trial.url(), &[("ONCEBOOK_ROLES", "api,webhooks")]).await;
    let desk = Desk::new(&crate::client::pool(), &process.base, &trial.demo.api_keys.admin, None);
    desk.say(&endpoint_at("https://1.1.1.1/")).await.expect(501, "not_configured");
    assert!(desk.say(&made).await.expect(201, "").replayed(), "what was made is answered all the same");
    eventually("it says so", async || process.said().iter().any(|line| line.contains("no ONCEBOOK_ENCRYPTION_KEY")))
        .await;
    process.stop().await;
    let config =
        Config { encryption_key: Some(oncebook::config::Secret("hunter2".to_owned())), ..Config::from_environment() };
    let refused = App::new(config, &trial.url(), Clock::system(), Ids::random(), None).err().expect("refused");
    let told = format!("{refused:#} {refused:?}");
    assert!(told.contains("ONCEBOOK_ENCRYPTION_KEY") && !told.contains("hunter2"), "{told}");
    trial.end().await;
}

#[tokio::test]
async fn the_scope_of_the_groups_keys_is_no_clinic() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api], ..trial.setup() }).await;
    let body = json!({ "name": "Nowhere", "time_zone": "UTC", "slot_minutes": 15 });
    let nil = Call::put(format!("/v1/clinics/{}", uuid::Uuid::nil()), body.clone());
    let refused = admin(&trial).say(&nil).await.expect(400, "malformed_request").json();
    assert_eq!(refused["errors"][0]["pointer"], "path");
    // It is the id alone that is refused.
    let other = Call::put(format!("/v1/clinics/{}", uuid::Uuid::from_u128(1)), body);
    admin(&trial).say(&other).await.expect(201, "");
    trial.end().await;
}
