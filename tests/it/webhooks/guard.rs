//! Requests go to the public internet alone: whatever is written as the URL, whatever its name resolves to and when, and
//! whatever the receiver answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::{Config, Role, Secret};
use oncebook::outbound::{Answer, Client, Failure, Guard, Lookup};
use reqwest::header::HeaderMap;
use serde_json::json;

use super::receiver::{Receiver, Say, status};
use super::{admin, book, deliveries, endpoint};
use crate::app::{ENCRYPTION_KEY, Setup, Trial, eventually};
use crate::client::{Call, Desk};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1));

/// A resolver that says the next of these with every question, and then always the last.
fn saying(answers: &'static [&'static [IpAddr]]) -> Lookup {
    let asked = Arc::new(AtomicUsize::new(0));
    Arc::new(move |_| {
        let n = asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let found = answers[n].iter().map(|address| SocketAddr::new(*address, 0)).collect();
        Box::pin(std::future::ready(Ok(found)))
    })
}

async fn post(client: &Client, url: &str) -> Result<Answer, Failure> {
    client.post(url, HeaderMap::new(), b"{}".to_vec(), Clock::system().now()).await
}

#[tokio::test]
async fn what_is_connected_to_is_what_was_checked() {
    let receiver = Receiver::new().await;
    let at = |scheme: &str, host: &str| format!("{scheme}://{host}:{}/", receiver.port());
    // That the way there is open: the same name, the same receiver, without the guard.
    let open = Client::new(Guard::by(saying(&[&[LOOPBACK]]), true)).expect("a client");
    assert_eq!(post(&open, &at("http", "hooks.example.org")).await.map(|answer| answer.status), Ok(204));
    assert_eq!(receiver.connections(), 1);
    let guarded = Client::new(Guard::by(saying(&[&[LOOPBACK]]), false)).expect("a client");
    assert_eq!(post(&guarded, &at("https", "hooks.example.org")).await, Err(Failure::Address));
    for host in ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0"] {
        assert_eq!(post(&guarded, &at("https", host)).await, Err(Failure::Url), "{host}");
    }
    assert_eq!(post(&guarded, &at("http", "hooks.example.org")).await, Err(Failure::Url));
    // Checked as public, and loopback by the time it is connected to.
    let rebinds = Guard::by(saying(&[&[PUBLIC], &[LOOPBACK]]), false);
    assert_eq!(rebinds.check(&at("https", "hooks.example.org")).await, Ok(()));
    let client = Client::new(rebinds).expect("a client");
    assert_eq!(post(&client, &at("https", "hooks.example.org")).await, Err(Failure::Address));
    assert_eq!(receiver.connections(), 1, "nobody else has got through");
    // Names of this very machine, by the system's own resolver.
    let system = Client::new(Guard::new(false)).expect("a client");
    for host in ["localhost", "LOCALHOST", "localhost."] {
        let refused = post(&system, &at("https", host)).await;
        assert!(matches!(refused, Err(Failure::Address | Failure::Dns)), "{host}: {refused:?}");
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_redirect_to_loopback_is_not_followed() {
    let inside = Receiver::new().await;
    let to = inside.url();
    let outside = Receiver::that(move |_, _| Say::Status(307, format!("Location: {to}\r\n"))).await;
    let client = Client::new(Guard::by(saying(&[&[LOOPBACK]]), true)).expect("a client");
    let answer = post(&client, &format!("http://hooks.example.org:{}/", outside.port())).await;
    assert_eq!(answer.map(|answer| answer.status), Ok(307));
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_it() {
    let receiver = Receiver::that(|_, _| Say::Endless).await;
    let client = Client::new(Guard::new(true)).expect("a client");
    let started = tokio::time::Instant::now();
    assert_eq!(post(&client, &receiver.url()).await.map(|answer| answer.status), Ok(200));
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
    // What the kernel holds between them, and not more.
    assert!(receiver.streamed() < 32 << 20, "{}", receiver.streamed());
}

/// Endpoints that were allowed once, served by a process to which they are not.
#[tokio::test]
async fn what_was_let_in_once_is_looked_at_again_with_every_attempt() {
    let mut trial = Trial::new().await;
    trial.serve(Setup { roles: &[Role::Api, Role::Relay, Role::Consumers], ..trial.setup() }).await;
    let receiver = Receiver::that(|_, _| status(204)).await;
    let by_address = endpoint(&trial, &receiver).await;
    let by_name = json!({ "url": format!("http://localhost:{}/", receiver.port()) });
    let by_name = admin(&trial).say(&Call::post("/v1/webhook-endpoints", by_name)).await.expect(201, "").id();
    trial
        .change(&format!("update webhook_endpoints set url = replace(url, 'http:', 'https:') where id = '{by_name}'"))
        .await;
    let strict = trial
        .process_with(&trial.url(), &[("ONCEBOOK_ROLES", "api,webhooks"), ("ONCEBOOK_ENCRYPTION_KEY", ENCRYPTION_KEY)])
        .await;
    book(&trial, 0).await;
    for (endpoint, outcome) in [(by_address, "url_refused"), (by_name, "address_refused")] {
        eventually(outcome, async || {
            let all = deliveries(&trial, endpoint).await;
            all.first().is_some_and(|it| it["attempts"][0]["outcome"] == outcome)
        })
        .await;
    }
    assert_eq!(receiver.connections(), 0);
    let desk = Desk::new(&crate::client::pool(), &strict.base, &trial.demo.api_keys.admin, None);
    for url in ["http://1.1.1.1/", "https://localhost/", "https://127.1/", "https://[::1]/", "https://1.1.1.1:25/"] {
        let refused = desk.say(&Call::post("/v1/webhook-endpoints", json!({ "url": url }))).await;
        let refused = refused.expect(400, "malformed_request").json();
        assert_eq!(refused["errors"][0]["pointer"], "/url", "{url}");
    }
    strict.stop().await;
    trial.end().await;
}

#[tokio::test]
async fn unless_told_otherwise_the_service_is_strict() {
    let config = Config { encryption_key: Some(Secret(ENCRYPTION_KEY.to_owned())), ..Config::from_environment() };
    let app = App::new(config, "postgres://localhost/nowhere", Clock::system(), Ids::random(), None).expect("an app");
    assert!(app.guard.place("http://example.org/").is_err() && app.guard.place("https://10.0.0.1/").is_err());
    assert!(app.guard.check("https://localhost/").await.is_err());
}
