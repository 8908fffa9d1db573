//! A front desk: sends requests, keeps what it was told, and notices when it is told something else under the same key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebook::clock::Ids;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// An answer that is to be the same for ever.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// What everybody in a trial was told, by key.
pub(crate) type Kept = Arc<Mutex<BTreeMap<String, Told>>>;

/// One caller at one address.
#[derive(Clone)]
pub(crate) struct Desk {
    http: reqwest::Client,
    base: Arc<str>,
    token: Arc<str>,
    kept: Option<Kept>,
}

/// A request that can be sent again as it is.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    pub(crate) key: Option<String>,
    if_match: Option<String>,
    body: Value,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { key: None, ..Self::new(Method::GET, path.into(), Value::Null) }
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, path.into(), body)
    }

    pub(crate) fn patch(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PATCH, path.into(), body)
    }

    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        Self { key: None, ..Self::new(Method::PUT, path.into(), body) }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { key: None, ..Self::new(Method::DELETE, path.into(), Value::Null) }
    }

    /// With a key of its own.
    fn new(method: Method, path: String, body: Value) -> Self {
        let key = Ids::random().secret()[..8].iter().fold(String::new(), |key, byte| format!("{key}{byte:02x}"));
        Self { method, path, key: Some(key), if_match: None, body }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    pub(crate) fn if_match(self, version: i64) -> Self {
        Self { if_match: Some(format!("\"{version}\"")), ..self }
    }

    /// The bytes on the wire, for whoever opens the socket himself.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let Self { method, path, body, .. } = self;
        let key = self.key.as_deref().unwrap_or_default();
        let body = body.to_string();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: oncebook\r\nauthorization: Bearer {token}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// An answer.
#[derive(Clone)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, headers, body, took } = self;
        write!(f, "{status} after {took:?} {headers:?} {}", String::from_utf8_lossy(body))
    }
}

impl Heard {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The problem's code; empty where it is none.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn id(&self) -> Uuid {
        self.json()["id"].as_str().and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("no id in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status and code, for comparing and for messages.
    pub(crate) fn gist(&self) -> (u16, String) {
        (self.status, self.code())
    }

    /// The same, with what was expected.
    #[track_caller]
    pub(crate) fn expect(self, status: u16, code: &str) -> Self {
        let body = String::from_utf8_lossy(&self.body);
        assert_eq!(self.gist(), (status, code.to_owned()), "{body}");
        self
    }
}

/// A connection pool for one trial: connections belong to the runtime they were opened in.
pub(crate) fn pool() -> reqwest::Client {
    // Nothing here is encrypted, yet reqwest wants to know how it would be. Another trial may have said so already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(usize::MAX)
        .timeout(Duration::from_secs(20))
        .build()
        .expect("a client")
}

impl Desk {
    /// Without `kept` it lets a key mean something else after its time.
    pub(crate) fn new(http: &reqwest::Client, base: &str, token: &str, kept: Option<&Kept>) -> Self {
        Self { http: http.clone(), base: base.into(), token: token.into(), kept: kept.cloned() }
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn try_say(&self, call: &Call) -> Result<Heard, reqwest::Error> {
        let started = Instant::now();
        let mut request =
            self.http.request(call.method.clone(), format!("{}{}", self.base, call.path)).bearer_auth(&self.token);
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(tag) = &call.if_match {
            request = request.header("if-match", tag);
        }
        if !call.body.is_null() {
            request = request.header("content-type", "application/json").body(call.body.to_string());
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?.to_vec();
        let heard = Heard { status, headers, body, took: started.elapsed() };
        self.keep(call, &heard);
        Ok(heard)
    }

    /// The same, where the service is there.
    pub(crate) async fn say(&self, call: &Call) -> Heard {
        self.try_say(call).await.unwrap_or_else(|error| panic!("{call:?} got no answer: {error:?}"))
    }

    /// As a good client does it: the same request under the same key until there is an answer that is one.
    pub(crate) async fn insist(&self, call: &Call) -> Heard {
        let patience = Instant::now() + Duration::from_mins(1);
        loop {
            let last = self.try_say(call).await;
            match last {
                Ok(heard) if heard.status != 503 && heard.code() != "idempotency_in_flight" => return heard,
                _ => assert!(Instant::now() < patience, "{call:?} came to nothing: {last:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// An answer with `Idempotent-Replayed` is one that is stored: it is that key's for good.
    fn keep(&self, call: &Call, heard: &Heard) {
        let (Some(kept), Some(key), Some(_)) = (&self.kept, &call.key, heard.header("idempotent-replayed")) else {
            return;
        };
        let told = Told { status: heard.status, body: heard.body.clone() };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kept.entry(key.clone()).or_insert_with(|| told.clone());
        assert_eq!(*first, told, "two answers under the key {key}");
    }
}
