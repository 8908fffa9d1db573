//! A gateway for text messages on this machine. It does what a real one promises: the same `Idempotency-Key` again has no
//! second effect, and gets the first answer. It can be told to say something else, or nothing.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A request it got.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) token: String,
    pub(crate) body: Value,
}

/// What it does in place of taking a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    /// Answers with that, and with `Retry-After`, and takes nothing.
    Says(u16, Option<u32>),
    /// Takes it and never answers.
    TakesAndIsSilent,
    /// Takes it and answers with a 500 all the same.
    TakesAndFails,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<Asked>>,
    taken: Mutex<Vec<Asked>>,
    instead: Mutex<VecDeque<Instead>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the top. It is gone when dropped.
pub(crate) struct Gateway {
    port: u16,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Gateway {
    pub(crate) async fn open() -> Self {
        let mut gateway = Self { port: 0, shared: Arc::default(), tasks: JoinSet::new() };
        gateway.come_back().await;
        gateway
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/messages", self.port)
    }

    pub(crate) async fn go_away(&mut self) {
        self.tasks.shutdown().await;
    }

    pub(crate) async fn come_back(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.expect("a port");
        self.port = listener.local_addr().expect("an address").port();
        let router = Router::new().route("/messages", post(take)).with_state(Arc::clone(&self.shared));
        self.tasks.spawn(async move { axum::serve(listener, router).await.expect("served") });
    }

    /// Does that in place of taking the next.
    pub(crate) fn next(&self, instead: Instead) {
        lock(&self.shared.instead).push_back(instead);
    }

    /// Every request.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// What had an effect.
    pub(crate) fn taken(&self) -> Vec<Asked> {
        lock(&self.shared.taken).clone()
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let body = serde_json::from_slice(&body).expect("JSON");
    let asked = Asked { key: header("idempotency-key"), token: header("authorization"), body };
    lock(&shared.asked).push(asked.clone());
    let instead = lock(&shared.instead).pop_front();
    if let Some(Instead::Says(status, after)) = instead {
        let status = StatusCode::from_u16(status).expect("a status");
        let after = after.map(|seconds| [("retry-after", seconds.to_string())]);
        return (status, after.map_or_else(HeaderMap::new, |it| headers_of(&it))).into_response();
    }
    {
        let mut taken = lock(&shared.taken);
        match taken.iter().find(|it| it.key == asked.key) {
            Some(first) => assert_eq!(first.body, asked.body, "the same key for another message"),
            None => taken.push(asked),
        }
    }
    match instead {
        Some(Instead::TakesAndIsSilent) => std::future::pending().await,
        Some(Instead::TakesAndFails) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

fn headers_of(pairs: &[(&'static str, String)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| ((*name).parse().expect("a name"), value.parse().expect("a value"))).collect()
}
