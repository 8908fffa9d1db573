//! A receiver: a real HTTP server that writes down what it gets and answers as it was told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn event(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn id(&self) -> Uuid {
        self.headers["webhook-id"].parse().expect("an id")
    }

    pub(crate) fn subject(&self) -> String {
        self.event()["subject"].as_str().expect("a subject").to_owned()
    }

    pub(crate) fn sequence(&self) -> i64 {
        self.event()["sequence"].as_i64().expect("a number")
    }
}

/// What it does about one.
pub(crate) enum Say {
    /// Answers with this status and these header lines.
    Status(u16, String),
    /// Closes the connection without a word.
    Close,
    /// Says 200, and then something for ever.
    Endless,
    /// Says 204 once it is told to.
    Wait(Arc<Notify>),
    /// Says that once it is told to.
    After(Arc<Notify>, u16),
}

pub(crate) fn status(status: u16) -> Say {
    Say::Status(status, String::new())
}

type Mind = Box<dyn Fn(&Received, usize) -> Say + Send + Sync>;

struct Shared {
    received: Mutex<Vec<Received>>,
    connections: Mutex<usize>,
    streamed: Mutex<usize>,
    mind: Mutex<Mind>,
}

/// See the top. It stops with its value.
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    /// One that answers 204 to everything.
    pub(crate) async fn new() -> Self {
        Self::that(|_, _| status(204)).await
    }

    /// One that decides by the request, and by how many it has had before.
    pub(crate) async fn that(mind: impl Fn(&Received, usize) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (received, connections, streamed) = (Mutex::default(), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { received, connections, streamed, mind: Mutex::new(Box::new(mind)) });
        let mut tasks = JoinSet::new();
        let served = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *served.connections.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                connections.spawn(serve(stream, Arc::clone(&served)));
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes its mind.
    pub(crate) fn now(&self, mind: impl Fn(&Received, usize) -> Say + Send + Sync + 'static) {
        *self.shared.mind.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(mind);
    }

    /// All it has had, in order.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of endless answers it got rid of.
    pub(crate) fn streamed(&self) -> usize {
        *self.shared.streamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often somebody has connected.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    while let Some(received) = read(&mut stream).await {
        let say = {
            let mut all = shared.received.lock().unwrap_or_else(PoisonError::into_inner);
            let before = all.len();
            all.push(received.clone());
            shared.mind.lock().unwrap_or_else(PoisonError::into_inner)(&received, before)
        };
        let answer = match say {
            Say::Close => return,
            Say::Endless => {
                let head = b"HTTP/1.1 200 Told\r\ncontent-length: 99999999999\r\n\r\n".as_slice();
                let much = vec![b'x'; 1 << 16];
                let mut written = stream.write_all(head).await;
                while written.is_ok() {
                    *shared.streamed.lock().unwrap_or_else(PoisonError::into_inner) += 1 << 16;
                    written = stream.write_all(&much).await;
                }
                return;
            }
            Say::Wait(told) => {
                told.notified().await;
                "HTTP/1.1 204 Late\r\n\r\n".to_owned()
            }
            Say::After(told, status) => {
                told.notified().await;
                format!("HTTP/1.1 {status} Late\r\ncontent-length: 0\r\n\r\n")
            }
            Say::Status(204, lines) => format!("HTTP/1.1 204 Done\r\n{lines}\r\n"),
            Say::Status(status, lines) => format!("HTTP/1.1 {status} Told\r\n{lines}content-length: 4\r\n\r\ntold"),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let mut more = [0; 4096];
        let count = stream.read(&mut more).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&more[..count]);
    };
    let text = String::from_utf8(bytes[..head].to_vec()).expect("a head");
    let mut lines = text.lines();
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
        .collect();
    let mut body = bytes.split_off(head + 4);
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let here = body.len();
    body.resize(length, 0);
    if here < length {
        stream.read_exact(&mut body[here..]).await.ok()?;
    }
    Some(Received { line, headers, body })
}
