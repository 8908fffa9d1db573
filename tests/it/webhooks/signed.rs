//! What is sent: events, signed as the public library of another language checks it, with both secrets while two are in
//! use.

use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::receiver::{Received, Receiver};
use super::{admin, book, count, endpoint, service};
use crate::app::{Trial, eventually};
use crate::client::Call;

/// The interpreter that has the library, set up by `.ci/standard-webhooks`; none where it cannot be had.
async fn python() -> Option<String> {
    let told = Command::new(".ci/standard-webhooks").current_dir(env!("CARGO_MANIFEST_DIR")).output().await;
    let told = told.ok().filter(|told| told.status.success())?;
    Some(String::from_utf8(told.stdout).ok()?.trim().to_owned())
}

/// What the library says of a request under a secret: `ok`, or why not.
async fn verdict(python: &str, secret: &Value, received: &Received) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/webhooks/verify.py");
    let mut command = Command::new(python);
    let mut child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let asked = json!({ "secret": secret, "headers": received.headers, "body": STANDARD.encode(&received.body) });
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(asked.to_string().as_bytes()).await.expect("written");
    drop(stdin);
    let told = child.wait_with_output().await.expect("it ends");
    String::from_utf8(told.stdout).expect("text").trim().to_owned()
}

async fn secrets(trial: &Trial, path: &str) -> Value {
    admin(trial).say(&Call::get(format!("{path}/secret"))).await.expect(200, "").json()
}

#[tokio::test]
async fn the_public_library_of_another_language_takes_it_under_either_secret() {
    let Some(python) = python().await else {
        eprintln!("SKIPPED: no Python with standardwebhooks to be had (.ci/standard-webhooks says why)");
        return;
    };
    let trial = service().await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let path = format!("/v1/webhook-endpoints/{endpoint}");
    let first = secrets(&trial, &path).await;
    book(&trial, 0).await;
    eventually("it is delivered", async || receiver.received().len() == 1).await;
    let came = receiver.received().remove(0);
    assert_eq!(verdict(&python, &first["secret"], &came).await, "ok");
    let mut bent = came.clone();
    bent.body[10] ^= 1;
    assert_eq!(verdict(&python, &first["secret"], &bent).await, "WebhookVerificationError");

    let rotated = Call::post(format!("{path}/rotate-secret"), json!({}));
    let second = admin(&trial).say(&rotated).await.expect(200, "").json();
    assert_ne!(second["secret"], first["secret"]);
    assert_eq!(second["previous_secret"], first["secret"]);
    assert_eq!(secrets(&trial, &path).await, second, "whoever lost the answer reads it");
    book(&trial, 2).await;
    eventually("it is delivered", async || receiver.received().len() == 2).await;
    let came = receiver.received().remove(1);
    for secret in [&first["secret"], &second["secret"]] {
        assert_eq!(verdict(&python, secret, &came).await, "ok");
    }
    // The time of the first is over.
    trial
        .change("update webhook_endpoints set previous_secret_until = previous_secret_until - interval '2 days'")
        .await;
    book(&trial, 4).await;
    eventually("it is delivered", async || receiver.received().len() == 3).await;
    let came = receiver.received().remove(2);
    assert_eq!(verdict(&python, &first["secret"], &came).await, "WebhookVerificationError");
    assert_eq!(verdict(&python, &second["secret"], &came).await, "ok");
    assert!(secrets(&trial, &path).await["previous_secret"].is_null());
    trial.end().await;
}

#[tokio::test]
async fn it_is_a_cloud_event_with_ids_and_times_only() {
    let trial = service().await;
    let receiver = Receiver::new().await;
    endpoint(&trial, &receiver).await;
    let id = book(&trial, 0).await;
    eventually("it is delivered", async || receiver.received().len() == 1).await;
    let came = receiver.received().remove(0);
    assert_eq!(came.line, "POST /hooks HTTP/1.1");
    assert_eq!(came.headers["content-type"], "application/cloudevents+json");
    assert!(came.headers["user-agent"].starts_with("oncebook/"));
    assert!(came.headers["webhook-signature"].starts_with("v1,"));
    let event = came.event();
    assert_eq!(event["id"], came.headers["webhook-id"]);
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["subject"], format!("appointment/{id}"));
    assert_eq!(event["clinicid"], json!(trial.demo.clinic_id));
    let members = ["end", "operatory_id", "practitioner_id", "schedule_version", "service_id", "start", "status"];
    let mut said: Vec<&str> = event["data"].as_object().expect("data").keys().map(String::as_str).collect();
    said.sort_unstable();
    assert_eq!(said, members);
    trial.end().await;
}

#[tokio::test]
async fn secrets_are_sealed_and_whoever_reads_them_is_noted() {
    let trial = service().await;
    let receiver = Receiver::new().await;
    let endpoint = endpoint(&trial, &receiver).await;
    let secret = secrets(&trial, &format!("/v1/webhook-endpoints/{endpoint}")).await;
    let text = secret["secret"].as_str().expect("a secret").strip_prefix("whsec_").expect("its prefix").to_owned();
    let bytes = STANDARD.decode(&text).expect("base64");
    assert_eq!(bytes.len(), 32);
    let mut connection = trial.connect().await;
    let everywhere = [
        "select count(*) from webhook_endpoints where position($1::bytea in secret) > 0",
        "select count(*) from idempotency_keys where position($1::bytea in body) > 0",
        "select count(*) from idempotency_keys where position(convert_to($2, 'UTF8') in body) > 0",
    ];
    for of in everywhere {
        let of = format!("select ({of}) where $1::bytea is not null and $2::text is not null");
        let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(of))
            .bind(&bytes)
            .bind(&text)
            .fetch_one(&mut connection)
            .await
            .expect("a count");
        assert_eq!(found, 0);
    }
    let noted = "select count(*) from audit where operation = 'read_webhook_secret'";
    assert_eq!(count(&mut connection, noted).await, 1);
    // Another endpoint's secret does not open in its place.
    let other = super::endpoint(&trial, &receiver).await;
    trial
        .change(&format!(
            "update webhook_endpoints set secret = (select secret from webhook_endpoints where id = '{endpoint}') where id = '{other}'"
        ))
        .await;
    let path = format!("/v1/webhook-endpoints/{other}/secret");
    admin(&trial).say(&Call::get(path)).await.expect(501, "not_configured");
    drop(connection);
    trial.end().await;
}
