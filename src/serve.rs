//! Start and stop: listeners, background work by role, signals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::changes;
use crate::config::{Config, Log, Role};
use crate::consumer::Consumer;
use crate::hint::Hint;
use crate::http::{self, listen};
use crate::janitor::{Flusher, Janitor};
use crate::log::EventLog;
#[cfg(feature = "kafka")]
use crate::log::kafka;
use crate::log::postgres::PostgresLog;
use crate::notify;
use crate::relay::Relay;
use crate::store::databases;
use crate::worker::{self, Worker};

/// While the database cannot be used at the start, it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Does what the roles say until told to stop; then finishes what runs and refuses what comes.
pub async fn run(app: Arc<App>, roles: &[Role], listeners: Listeners, stop: CancellationToken) {
    let background = TaskTracker::new();
    if roles.contains(&Role::Janitor) {
        background.spawn(worker::run(Janitor(Arc::clone(&app)), app.ids.clone(), stop.clone()));
    }
    background.spawn(worker::run(Flusher(Arc::clone(&app)), app.ids.clone(), stop.clone()));
    let logged = Hint::default();
    let hands = Hands { app: &app, roles, background: &background, stop: &stop };
    match app.config.log {
        Log::Postgres => hands.work_on(&PostgresLog::of(&app), &logged),
        #[cfg(feature = "kafka")]
        Log::Kafka => {
            let link = kafka::Link::of(&app.config.kafka);
            hands.work_on(&kafka::KafkaLog::of(&app, link, logged.clone()), &logged);
        }
    }
    if let Some(admin) = listeners.admin {
        background.spawn(listen::serve(admin, http::admin_router(&app), Arc::clone(&app), stop.clone()));
    }
    match listeners.api {
        Some(api) => listen::serve(api, http::router(&app), Arc::clone(&app), stop.clone()).await,
        None => stop.cancelled().await,
    }
    for tasks in [&app.tasks, &background] {
        tasks.close();
        tasks.wait().await;
    }
    if let Err(problem) = Flusher(Arc::clone(&app)).step().await {
        tracing::warn!(code = problem.code.as_str(), "the last minute's replays are not counted");
    }
    app.store.close();
}

/// What works in the background on the log, whichever it is.
struct Hands<'a> {
    app: &'a App,
    roles: &'a [Role],
    background: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Hands<'_> {
    fn work_on<L: EventLog + Clone>(&self, log: &L, logged: &Hint) {
        if self.roles.contains(&Role::Relay) {
            let (outbox, clock) = (self.app.commands.told.clone(), self.app.clock.clone());
            self.work(Relay { log: log.clone(), clock, outbox, logged: logged.clone() });
        }
        if self.roles.contains(&Role::Consumers) {
            self.work(Consumer::of(self.app, log.clone(), notify::Supersede, logged.clone()));
            self.work(Consumer::of(self.app, log.clone(), changes::Keep, logged.clone()));
        }
    }

    fn work(&self, worker: impl Worker) {
        self.background.spawn(worker::run(worker, self.app.ids.clone(), self.stop.clone()));
    }
}

/// Where a process listens.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For callers of the API.
    pub api: Option<TcpListener>,
    /// For those who run the service: metrics, readiness. With the API where there is none.
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Binds what the roles and the configuration ask for.
    ///
    /// # Errors
    /// With the address, when it cannot be had.
    pub async fn bind(config: &Config, roles: &[Role]) -> std::io::Result<Self> {
        let api = if roles.contains(&Role::Api) { Some(bind(config.listen).await?) } else { None };
        let admin = match config.admin_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { api, admin })
    }
}

async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let named =
        |error: std::io::Error| std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

/// Says why the database cannot be used, once for each reason, until it can. Whoever serves goes on trying meanwhile: a
/// database that comes up later is nothing to end for.
pub async fn tell_why_away(database_url: &str) {
    let mut told = String::new();
    loop {
        match databases::open(database_url).await {
            Ok(connection) => {
                // All that was wanted of it.
                drop(connection.close().await);
                if !told.is_empty() {
                    tracing::info!("the database can be used");
                }
                return;
            }
            Err(why) => {
                let why = why.to_string();
                if why != told {
                    tracing::warn!(why, "the database cannot be used yet");
                    told = why;
                }
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// A token that the first SIGTERM or Ctrl-C cancels; a second one ends the process where it stands.
///
/// # Errors
/// If the system does not let us listen for signals.
pub fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "it lives as long as the process, which stops for nobody's signal twice"
    )]
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        told.cancel();
        next().await;
        tracing::warn!("told to stop again: ending at once");
        std::process::exit(130);
    });
    Ok(stop)
}
