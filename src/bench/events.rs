//! What follows a commit: the relay alone, each consumer alone, and how long it takes from a commit to its effects while
//! bookings are offered at a steady rate.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::service::Service;
use super::world::{self, World};
use super::{Work, http};
use crate::app::App;
use crate::changes::Keep;
use crate::clock::{Clock, Ids};
use crate::config::Config;
use crate::consumer::Consumer;
use crate::dev::cluster::Cluster;
use crate::hint::Hint;
use crate::log::EventLog;
use crate::log::postgres::PostgresLog;
use crate::notify::Supersede;
use crate::store::databases;
use crate::worker::{Did, Worker};

/// Events of a visit.
const VERSIONS: u32 = 5;

/// Events put into the outbox at a time.
const PORTION: u32 = 50_000;

/// Bookings offered a second, and by how many clients.
const OFFERED: u32 = 1000;
const CLIENTS: usize = 32;

/// Each booking's event has an effect in each of these: notifications, changes.
const CONSUMERS: u64 = 2;

/// How long they are offered.
const LENGTH: Duration = Duration::from_secs(20);

/// Measures all of it and tells it as a table.
pub(super) async fn measure(cluster: &Cluster, events: u32) -> Result<String> {
    let url = cluster.url("postgres");
    let mut connection = PgConnection::connect(&url).await?;
    databases::migrate(&mut connection).await?;
    let world = World::make(&mut connection, Clock::system().now(), &Ids::random()).await?;
    let app = App::new(Config::from_environment(), &url, Clock::system(), Ids::random(), None)?;
    let mut table = String::new();
    let log = PostgresLog::of(&app);
    let notifications = Consumer::of(&app, log.clone(), Supersede, Hint::default());
    let changes = Consumer::of(&app, log, Keep, Hint::default());
    // They are there before the events are: every version is their business.
    settle(&notifications).await?;
    settle(&changes).await?;
    relay(&mut connection, &app, &world, &url, events, &mut table).await?;
    consumer(&mut connection, &notifications, &mut table).await?;
    consumer(&mut connection, &changes, &mut table).await?;
    steady(&mut connection, &world, &url, &mut table).await?;
    connection.close().await?;
    Ok(table)
}

/// Empties the outbox, portion by portion.
async fn relay(
    connection: &mut PgConnection,
    app: &Arc<App>,
    world: &World,
    url: &str,
    events: u32,
    table: &mut String,
) -> Result<()> {
    let service = Service::start(url, "api").await?;
    let like = http::connect(service.address(), world, Work::Booking, 1, 0).await?;
    let one = Duration::from_nanos(1);
    http::offer(like, world, 0, one, one).await?;
    service.stop().await?;
    let log = PostgresLog::of(app);
    log.relay().await?;
    let (mut took, mut moved, mut largest) = (Duration::ZERO, 0, 0);
    while moved < u64::from(events) {
        eprintln!("oncebook: relay, {moved} of {events} events");
        world::events(connection, i32::try_from(PORTION / VERSIONS)?, i32::try_from(VERSIONS)?).await?;
        largest = world::outbox_bytes(connection).await?.max(largest);
        let started = Instant::now();
        loop {
            let step = log.relay().await?.events;
            moved += step;
            if step == 0 {
                break;
            }
        }
        took += started.elapsed();
    }
    writeln!(table, "relay alone: {:.0} events/s, {moved} events in portions of {PORTION}", per_second(moved, took))?;
    writeln!(
        table,
        "outbox with its indexes: {:.1} MiB at the most, {:.1} MiB at the end",
        mib(largest),
        mib(world::outbox_bytes(connection).await?)
    )?;
    Ok(())
}

/// Lets a consumer read all there is.
async fn consumer(connection: &mut PgConnection, consumer: &impl Worker, table: &mut String) -> Result<()> {
    let name = consumer.name();
    eprintln!("oncebook: consumer {name}");
    world::tidy_up(connection).await?;
    let started = Instant::now();
    settle(consumer).await?;
    let took = started.elapsed();
    let done = world::processed(connection, name).await?;
    writeln!(table, "consumer {name} alone: {:.0} events/s, {done} events", per_second(done, took))?;
    Ok(())
}

/// Steps until there is nothing left to do.
async fn settle(worker: &impl Worker) -> Result<()> {
    while worker.step().await.map_err(|problem| anyhow::anyhow!("{}", problem.detail))? == Did::Work {}
    Ok(())
}

/// Offers bookings at a steady rate to a process that does everything.
async fn steady(connection: &mut PgConnection, world: &World, url: &str, table: &mut String) -> Result<()> {
    world::tidy_up(connection).await?;
    let service = Service::start(url, "api,relay,consumers").await?;
    eprintln!("oncebook: {OFFERED} bookings a second are offered for {} s", LENGTH.as_secs());
    let clients = http::connect(service.address(), world, Work::Booking, CLIENTS, 1).await?;
    let since = Clock::system().now();
    let every = Duration::from_secs(1) * u32::try_from(CLIENTS)? / OFFERED;
    let answered = http::offer(clients, world, 1, LENGTH, every).await?;
    let booked = u64::try_from(answered.latencies_ms.len())?;
    let patience = Instant::now() + Duration::from_mins(1);
    while world::processed_since(connection, since).await? < booked * CONSUMERS {
        ensure!(Instant::now() < patience, "the consumers did not catch up within a minute");
        sleep(Duration::from_millis(100)).await;
    }
    writeln!(table, "bookings answered: {:.0}/s of {OFFERED}/s offered", per_second(booked, answered.took))?;
    for latency in world::commit_to_processed(connection, since).await? {
        writeln!(
            table,
            "commit to PROCESSED by {}: p50 {:.1} ms, p99 {:.1} ms, {} events",
            latency.consumer, latency.p50_ms, latency.p99_ms, latency.events
        )?;
    }
    writeln!(table, "outbox with its indexes: {:.1} MiB", mib(world::outbox_bytes(connection).await?))?;
    service.stop().await.context("stopping the service")
}

/// Counts here are far below the 2^52 that a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts of events")]
fn per_second(events: u64, took: Duration) -> f64 {
    events as f64 / took.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "sizes of tables")]
fn mib(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
