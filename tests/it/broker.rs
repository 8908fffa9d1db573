//! Brokers that speak Kafka's protocol, for the trials, and a look at a topic with no part of the service between. It is
//! `.ci/kafka-broker` that runs them, and that ends them when this process ends, however that happens.

use std::collections::{BTreeMap, HashSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use oncebook::config::Kafka;
use oncebook::domain::cloud_event::CloudEvent;
use oncebook::domain::event::Event;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Headers;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use sqlx::PgConnection;
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::app::eventually;

const PARTITIONS: i32 = 16;

/// A broker of a trial's own, to do to it what it likes.
pub(crate) struct Broker {
    port: u16,
    running: Option<(Child, ChildStdin)>,
}

static SHARED: OnceCell<u16> = OnceCell::const_new();

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr()).expect("a port").port()
}

/// The way to the run's own broker, with a topic for one trial.
pub(crate) async fn shared() -> Kafka {
    let port = SHARED.get_or_init(|| async {
        let mut broker = Broker::new();
        broker.start().await;
        let port = broker.port;
        // It lives as long as this process holds its standard input.
        std::mem::forget(broker);
        port
    });
    way(*port.await)
}

fn way(port: u16) -> Kafka {
    let topic = format!("trial.{}", uuid::Builder::from_u128(rand()).into_uuid().simple());
    Kafka { brokers: vec![format!("127.0.0.1:{port}")], topic, properties: None }
}

fn rand() -> u128 {
    let secret = oncebook::clock::Ids::random().secret();
    u128::from_le_bytes(secret[..16].try_into().expect("16 bytes"))
}

impl Broker {
    /// One that is not running yet.
    pub(crate) fn new() -> Self {
        Self { port: free_port(), running: None }
    }

    /// The way to it, with a topic for one trial.
    pub(crate) fn way(&self) -> Kafka {
        way(self.port)
    }

    /// Starts it, in memory: it begins empty.
    pub(crate) async fn start(&mut self) {
        self.start_with(None).await;
    }

    /// Starts it on a file: it finds again what it had.
    pub(crate) async fn start_on(&mut self, file: &Path) {
        self.start_with(Some(file)).await;
    }

    async fn start_with(&mut self, file: Option<&Path>) {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/kafka-broker"));
        command.arg(self.port.to_string()).args(file).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(false);
        command.env("RUST_LOG", "warn");
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kafka-{}.log", self.port));
        command.stderr(std::fs::File::create(log).expect("a file"));
        let mut child = command.spawn().expect("the broker's script starts");
        let stdin = child.stdin.take().expect("its standard input");
        self.running = Some((child, stdin));
        let address = ("127.0.0.1", self.port);
        eventually("the broker listens", async || TcpStream::connect(address).await.is_ok()).await;
    }

    /// SIGKILL. Returns when it is gone.
    pub(crate) async fn kill(&mut self) {
        let (mut child, stdin) = self.running.take().expect("it runs");
        drop(stdin);
        child.wait().await.expect("gone");
    }

    /// Stops it where it stands, or lets it go on.
    pub(crate) async fn signal(&self, name: &str) {
        let parent = self.running.as_ref().and_then(|(child, _)| child.id()).expect("it runs").to_string();
        let sent = Command::new("pkill").args([&format!("-{name}"), "-P", &parent, "-f", " broker "]).status().await;
        assert!(sent.expect("pkill runs").success(), "no broker to tell");
    }
}

/// A record as any reader of the topic sees it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: String,
    pub(crate) content_type: String,
    pub(crate) event: CloudEvent,
}

impl Record {
    pub(crate) fn event(&self) -> Event {
        self.event.clone().try_into().expect("an event of ours")
    }
}

/// All that is in a topic, by partition and offset.
pub(crate) async fn records(way: &Kafka) -> Vec<Record> {
    let (brokers, topic) = (way.brokers.join(","), way.topic.clone());
    spawn_blocking(move || read(&brokers, &topic)).await.expect("read")
}

fn read(brokers: &str, topic: &str) -> Vec<Record> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "trials").set("enable.partition.eof", "true");
    let consumer: BaseConsumer = config.set("enable.auto.commit", "false").create().expect("a consumer");
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset(topic, partition, Offset::Offset(0)).expect("a partition");
    }
    consumer.assign(&all).expect("assigned");
    let (mut records, mut ended) = (Vec::new(), HashSet::new());
    let patience = Instant::now() + Duration::from_secs(20);
    while ended.len() < 16 {
        assert!(Instant::now() < patience, "the topic has no end");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(record)) => {
                let header = record.headers().and_then(|headers| {
                    headers.iter().find(|header| header.key == "content-type").and_then(|header| header.value)
                });
                let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text");
                records.push(Record {
                    partition: record.partition(),
                    offset: record.offset(),
                    key: text(record.key()),
                    content_type: text(header),
                    event: serde_json::from_slice(record.payload().expect("a value")).expect("an event"),
                });
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            Some(Err(_)) | None => {}
        }
    }
    records.sort_by_key(|record| (record.partition, record.offset));
    records
}

/// Copies what a topic has into the table of the other log, each event where it first came: a trial's end then holds it to the
/// same promises.
pub(crate) async fn bring_home(connection: &mut PgConnection, way: &Kafka) -> Vec<Record> {
    let records = records(way).await;
    let (mut known, mut next) = (HashSet::new(), BTreeMap::new());
    for record in &records {
        let event = record.event();
        if !known.insert(event.id) {
            continue;
        }
        let offset: &mut i64 = next.entry(record.partition).or_default();
        let statement = r#"insert into event_log (partition, "offset", event_id, tenant_id, clinic_id, subject_kind, subject_id,
             sequence, type, payload, traceparent, occurred_at, logged_at)
           values ($1::int, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::timestamptz, clock_timestamp())"#;
        let insert = sqlx::query(statement).bind(record.partition).bind(*offset).bind(event.id).bind(event.tenant_id);
        let insert = insert.bind(event.clinic_id).bind(event.subject_kind).bind(event.subject_id).bind(event.sequence);
        let insert = insert.bind(event.kind).bind(event.data).bind(event.traceparent);
        insert.bind(jiff_sqlx::ToSqlx::to_sqlx(event.occurred_at)).execute(&mut *connection).await.expect("a row");
        *offset += 1;
    }
    for (partition, offset) in next {
        let statement = "update log_partitions set next_offset = $2 where partition = $1::int";
        sqlx::query(statement).bind(partition).bind(offset).execute(&mut *connection).await.expect("counted");
    }
    records
}
