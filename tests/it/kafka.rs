//! The service on Kafka, from a booking to its effects: processes that are killed, brokers that are away, stop dead or start
//! again. What any log must keep is in `logs.rs`.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use oncebook::config::Kafka;
use oncebook::hint::Hint;
use oncebook::log::EventLog;
use oncebook::log::kafka::{KafkaLog, Link};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use sqlx::PgConnection;
use tokio::time::sleep;

use crate::app::{Trial, Visit, eventually};
use crate::broker::{self, Broker};
use crate::client::Desk;
use crate::events::{busy_at, read_all};
use crate::process::Process;

async fn count(connection: &mut PgConnection, of: &'static str) -> i64 {
    sqlx::query_scalar(of).fetch_one(connection).await.expect("a count")
}

/// A process with these roles, on Kafka.
async fn process(trial: &Trial, way: &Kafka, roles: &str) -> Process {
    let brokers = way.brokers.join(",");
    let knobs = [
        ("ONCEBOOK_ROLES", roles),
        ("ONCEBOOK_LOG", "kafka"),
        ("ONCEBOOK_KAFKA_BROKERS", &brokers),
        ("ONCEBOOK_KAFKA_TOPIC", &way.topic),
    ];
    trial.process_with(&trial.url(), &knobs).await
}

/// Waits until the consumers have done everything that was committed.
async fn all_done(connection: &mut PgConnection) {
    eventually("every version is processed by all", async || {
        let left = "select (select count(*) from outbox) + (
          select count(*) from appointment_history h cross join consumers c
          where not exists (select from inbox i where i.subject_id = h.appointment_id and i.sequence = h.version
                              and i.logical_consumer_id = c.logical_consumer_id and i.state = 'PROCESSED'))";
        count(connection, left).await == 0
    })
    .await;
}

/// The feed has every version once, each after the one before it.
async fn feed_is_whole(trial: &Trial, desk: &Desk, connection: &mut PgConnection) -> usize {
    let changes = read_all(trial, desk).await;
    let mut last = HashMap::new();
    for change in &changes {
        let (subject, sequence) = (change["subject"].to_string(), change["sequence"].as_i64().expect("a number"));
        assert_eq!(last.insert(subject, sequence).unwrap_or(0) + 1, sequence, "{change}");
    }
    let versions = count(connection, "select count(*) from appointment_history").await;
    assert_eq!(i64::try_from(changes.len()), Ok(versions), "every version, once");
    let untrue = "select count(*) from notification_intents n join appointments a
      on a.tenant_id = n.tenant_id and a.id = n.appointment_id
      where (n.state = 'PENDING') <> (n.schedule_version = a.schedule_version)";
    assert_eq!(count(connection, untrue).await, 0, "what was overtaken is not told, and what was not is");
    changes.len()
}

#[tokio::test]
async fn what_is_committed_reaches_its_consumer_on_kafka() {
    let trial = Trial::new().await;
    let way = broker::shared().await;
    let process = process(&trial, &way, "api,relay,consumers").await;
    let desk = trial.desk_at(&process.base);
    busy_at(&trial, &desk, 12).await;
    let mut connection = trial.connect().await;
    all_done(&mut connection).await;
    assert_eq!(feed_is_whole(&trial, &desk, &mut connection).await, 28);
    process.stop().await;
    let records = broker::bring_home(&mut connection, &way).await;
    assert_eq!(records.len(), 28, "one relay sends each once");
    for record in &records {
        let event = record.event();
        assert_eq!(record.key, format!("{}/{}", event.subject_kind, event.subject_id));
        assert_eq!(record.partition, i32::from(event.subject_id.as_bytes()[15] & 15));
        assert!(record.content_type.starts_with("application/cloudevents+json"), "{record:?}");
    }
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn a_process_killed_beside_another_loses_and_doubles_nothing_on_kafka() {
    let trial = Trial::new().await;
    let way = broker::shared().await;
    let stays = process(&trial, &way, "api,relay,consumers").await;
    let desk = trial.desk_at(&stays.base);
    let mut visit = 0;
    for round in 0..2_u64 {
        let killed = process(&trial, &way, "api,relay,consumers").await;
        // Both have partitions by then, some of the time.
        let until = tokio::time::Instant::now() + Duration::from_millis(3500 + 700 * round);
        while tokio::time::Instant::now() < until {
            desk.say(&trial.book(Visit { slot: visit, ..Visit::default() })).await.expect(201, "");
            visit += 1;
            sleep(Duration::from_millis(30)).await;
        }
        killed.kill().await;
    }
    let mut connection = trial.connect().await;
    all_done(&mut connection).await;
    assert_eq!(feed_is_whole(&trial, &desk, &mut connection).await, visit);
    stays.stop().await;
    broker::bring_home(&mut connection, &way).await;
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn while_the_broker_is_away_events_wait_and_no_transaction_does() {
    let mut trial = Trial::new().await;
    let mut broker = Broker::new();
    let way = broker.way();
    let app = trial.serve(trial.setup()).await;
    busy_at(&trial, &trial.desk(), 6).await;
    let log = KafkaLog::of(&app, Link::of(&way), Hint::default());
    log.relay().await.expect_err("there is no broker");
    let mut connection = trial.connect().await;
    assert_eq!(count(&mut connection, "select count(*) from outbox").await, 14);
    broker.start().await;
    assert_eq!(log.relay().await.expect("relayed").events, 14);
    // It takes connections and requests, and answers nothing.
    trial.desk().say(&trial.book(Visit { slot: 50, ..Visit::default() })).await.expect(201, "");
    broker.signal("STOP").await;
    let watched = async {
        sleep(Duration::from_millis(1500)).await;
        let busy =
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
          and (xact_start is not null or state <> 'idle')";
        assert_eq!(count(&mut connection, busy).await, 0, "the database has nothing to do with it");
        let leased = "select count(*) from log_partitions where lease_until > clock_timestamp()";
        assert_eq!(count(&mut connection, leased).await, 1);
        assert_eq!(count(&mut connection, "select count(*) from outbox").await, 1, "nothing was acknowledged");
    };
    let (relayed, ()) = tokio::join!(log.relay(), watched);
    relayed.expect_err("nobody answered");
    assert_eq!(count(&mut connection, "select count(*) from outbox").await, 1);
    broker.signal("CONT").await;
    eventually("it goes out once the broker answers", async || log.relay().await.is_ok_and(|moved| moved.events == 1))
        .await;
    drop(log);
    broker::bring_home(&mut connection, &way).await;
    broker.kill().await;
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn a_topic_of_another_shape_is_refused() {
    let mut trial = Trial::new().await;
    let way = broker::shared().await;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &way.brokers[0]).create().expect("a client");
    let small = NewTopic::new(&way.topic, 3, TopicReplication::Fixed(1));
    admin.create_topics(&[small], &AdminOptions::new()).await.expect("made");
    let app = trial.serve(trial.setup()).await;
    let log = KafkaLog::of(&app, Link::of(&way), Hint::default());
    let refused = log.relay().await.expect_err("it has too few partitions").to_string();
    assert!(refused.contains("has 3 partitions, and 16 are needed"), "{refused}");
    log.join("all").await.expect_err("nobody reads it either");
    drop(log);
    trial.end().await;
}

#[tokio::test]
#[ignore = "make test-kafka-restart: its broker takes ten minutes to build"]
async fn a_broker_killed_and_started_again_loses_nothing() {
    let trial = Trial::new().await;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kafka-{}.db", std::process::id()));
    let mut broker = Broker::new();
    broker.start_on(&file).await;
    let way = broker.way();
    let process = process(&trial, &way, "api,relay,consumers").await;
    let desk = trial.desk_at(&process.base);
    let mut connection = trial.connect().await;
    let mut visit = 0;
    let mut book = async |visits: usize| {
        for _ in 0..visits {
            desk.say(&trial.book(Visit { slot: visit, ..Visit::default() })).await.expect(201, "");
            visit += 1;
            sleep(Duration::from_millis(10)).await;
        }
    };
    book(40).await;
    all_done(&mut connection).await;
    let before = broker::records(&way).await.len();
    for _ in 0..2 {
        book(40).await;
        broker.kill().await;
        // Whoever books notices nothing.
        book(20).await;
        broker.start_on(&file).await;
        book(20).await;
    }
    all_done(&mut connection).await;
    assert_eq!(feed_is_whole(&trial, &desk, &mut connection).await, 200);
    process.stop().await;
    let records = broker::bring_home(&mut connection, &way).await;
    println!("{before} records before, {} in the end for 200 events", records.len());
    assert!(records.len() >= 200, "what it had acknowledged it still has");
    broker.kill().await;
    for left in ["", "-wal", "-shm"] {
        let left = std::path::PathBuf::from(format!("{}{left}", file.display()));
        if left.exists() {
            std::fs::remove_file(left).expect("removed");
        }
    }
    drop(connection);
    trial.end().await;
}
