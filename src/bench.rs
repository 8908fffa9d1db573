//! `oncebook bench`: bookings and replays over HTTP beside `pgbench` running the service's own statements, on one Postgres
//! in one run, by turns. What is compared is the ratio: the machine's own speed and noise are in both.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sqlx::{Connection, PgConnection};

use crate::clock::{Clock, Ids};
use crate::config;
use crate::dev::binaries::Binaries;
use crate::dev::cluster::{self, Cluster};
use crate::store::{bench as world, databases};

mod events;
mod http;
mod meter;
mod pgbench;
mod service;

use meter::Reading;
use service::Service;
use world::World;

/// Client counts of the runs.
const CLIENTS: [usize; 3] = [1, 8, 32];

/// Different requests a client replays in turn.
const REPLAYED: u64 = 50;

/// How often HTTP and pgbench take turns within a run.
const TURNS: u32 = 2;

/// What `oncebook bench` can be told.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Seconds of one turn; a run has two over HTTP and two of pgbench.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Instead, measures what follows a commit: relay, consumers, and the time from one to the other, with so many events.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "200000", conflicts_with = "json")]
    events: Option<u32>,
    /// Also writes the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A new visit each time: look and commit.
    Booking,
    /// The same request again: look alone.
    Replay,
}

/// The figures of one kind of work at one number of clients.
#[derive(Clone, Debug, Serialize)]
struct Run {
    work: Work,
    clients: usize,
    /// Requests a second over HTTP.
    http_rps: f64,
    /// Transactions a second of pgbench running the same statements.
    pgbench_tps: f64,
    /// The first over the second.
    ratio: f64,
    /// Of a request over HTTP.
    p50_ms: f64,
    p99_ms: f64,
    /// CPU time a request over HTTP costs the service, in microseconds.
    service_cpu_us: f64,
    /// The same of Postgres, all its processes together.
    postgres_cpu_us: f64,
    /// Write-ahead log a request over HTTP causes, in bytes.
    wal_bytes: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    runs: Vec<Run>,
    /// Resident memory of the service at the end, in MiB.
    rss_mib: f64,
}

/// Runs it all and prints a table.
///
/// # Errors
/// When there is no Postgres with pgbench on this machine, or the service does not start or answers with anything but success.
pub async fn run(options: Options) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oncebook-bench-{}", std::process::id()));
    let binaries = Binaries::find(config::path().as_deref())?;
    let pgbench = binaries.folder().join("pgbench");
    let data_dir = folder.clone();
    let timed = if options.events.is_some() { "on" } else { "off" };
    let cluster = tokio::task::spawn_blocking(move || {
        // The last, for the time from one commit to another.
        let settings = [("max_connections", "200"), ("shared_buffers", "256MB"), ("track_commit_timestamp", timed)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Cluster::start(&binaries, &cluster::Options { data_dir, settings: settings.to_vec(), durable: true })
    })
    .await??;
    eprintln!("oncebook: Postgres is up, making a clinic group to book in");
    let told = match options.events {
        Some(events) => events::measure(&cluster, events).await,
        None => measure(&cluster, &pgbench, &options).await.and_then(|figures| tell(&figures, &options)),
    };
    tokio::task::spawn_blocking(move || cluster.stop()).await??;
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    print!("{}", told?);
    Ok(())
}

fn tell(figures: &Figures, options: &Options) -> Result<String> {
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(figures)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(table(figures))
}

async fn measure(cluster: &Cluster, pgbench: &std::path::Path, options: &Options) -> Result<Figures> {
    let url = cluster.url("postgres");
    let mut connection = PgConnection::connect(&url).await?;
    databases::migrate(&mut connection).await?;
    let world = World::make(&mut connection, Clock::system().now(), &Ids::random()).await?;
    let service = Service::start(&url, "api").await?;
    let postmaster = cluster.pid().context("Postgres's process id")?;
    let mut runs = Vec::new();
    let mut turn = 0;
    for work in [Work::Booking, Work::Replay] {
        for clients in CLIENTS {
            eprintln!(
                "oncebook: {} with {clients} clients",
                if work == Work::Booking { "bookings" } else { "replays" }
            );
            let mut over_http = Vec::new();
            let mut transactions = Vec::new();
            for _ in 0..TURNS {
                let seconds = Duration::from_secs(options.seconds.into());
                let connections = http::connect(service.address(), &world, work, clients, turn).await?;
                world::tidy_up(&mut connection).await?;
                let before = Reading::take(&mut connection, service.pid(), postmaster).await?;
                let answered = http::run(connections, &world, work, turn, seconds).await?;
                let after = Reading::take(&mut connection, service.pid(), postmaster).await?;
                over_http.push((answered, after - before));
                transactions.push(pgbench::run(pgbench, &url, &world, work, clients, turn + 1, options.seconds).await?);
                turn += 2;
            }
            runs.push(summary(work, clients, &over_http, &transactions));
        }
    }
    let rss_mib = meter::resident_mib(service.pid())?;
    service.stop().await?;
    connection.close().await?;
    Ok(Figures { runs, rss_mib })
}

fn summary(work: Work, clients: usize, over_http: &[(http::Answered, Reading)], transactions: &[f64]) -> Run {
    let mut latencies: Vec<f64> =
        over_http.iter().flat_map(|(answered, _)| answered.latencies_ms.iter().copied()).collect();
    latencies.sort_unstable_by(f64::total_cmp);
    let percentile = |of_hundred: usize| latencies.get(latencies.len() * of_hundred / 100).copied().unwrap_or(0.0);
    let turns = as_float(over_http.len());
    let http_rps = over_http
        .iter()
        .map(|(answered, _)| as_float(answered.latencies_ms.len()) / answered.took.as_secs_f64())
        .sum::<f64>()
        / turns;
    let pgbench_tps = transactions.iter().sum::<f64>() / turns;
    let each = |figure: fn(&Reading) -> f64| {
        over_http.iter().map(|(_, reading)| figure(reading)).sum::<f64>() / as_float(latencies.len())
    };
    Run {
        work,
        clients,
        http_rps,
        pgbench_tps,
        ratio: http_rps / pgbench_tps,
        p50_ms: percentile(50),
        p99_ms: percentile(99),
        service_cpu_us: each(|reading| reading.service_cpu_us),
        postgres_cpu_us: each(|reading| reading.postgres_cpu_us),
        wal_bytes: each(|reading| reading.wal_bytes),
    }
}

/// Counts here are far below the 2^52 that a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
const fn as_float(count: usize) -> f64 {
    count as f64
}

fn table(figures: &Figures) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "\nwork     clients   http/s  pgbench/s  ratio   p50 ms   p99 ms  service µs  postgres µs  WAL bytes\n",
    );
    for run in &figures.runs {
        let work = if run.work == Work::Booking { "booking" } else { "replay" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{work:8} {:7} {:8.0} {:10.0} {:6.2} {:8.2} {:8.2} {:11.0} {:12.0} {:10.1}",
            run.clients,
            run.http_rps,
            run.pgbench_tps,
            run.ratio,
            run.p50_ms,
            run.p99_ms,
            run.service_cpu_us,
            run.postgres_cpu_us,
            run.wal_bytes
        );
    }
    let _ = writeln!(
        text,
        "\nThe service's memory at the end: {:.0} MiB. CPU and WAL are per request over HTTP.",
        figures.rss_mib
    );
    text
}
