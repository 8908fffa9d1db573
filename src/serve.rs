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
use crate::notify::notifier::Notifier;
use crate::notify::senders::{Patience, Senders, Unusable};
use crate::relay::Relay;
use crate::store::databases;
use crate::webhook;
use crate::worker::{self, Worker};

/// While the database cannot be used at the start, it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Does what the roles say until told to stop; then finishes what runs and refuses what comes.
pub async fn run(app: Arc<App>, roles: &[Role], listeners: Listeners, stop: CancellationToken) {
    let background = Background { app: &app, tasks: TaskTracker::new(), stop: &stop };
    if !roles.contains(&Role::Api) {
        app.pulses.decide();
    }
    if roles.contains(&Role::Janitor) {
        background.start(Janitor(Arc::clone(&app)));
    }
    background.start(Flusher(Arc::clone(&app)));
    background.what_leaves(&app, roles);
    let logged = Hint::default();
    match app.config.log {
        Log::Postgres => background.work_on(&PostgresLog::of(&app), roles, &logged),
        #[cfg(feature = "kafka")]
        Log::Kafka => {
            let link = kafka::Link::of(&app.config.kafka);
            background.work_on(&kafka::KafkaLog::of(&app, link, logged.clone()), roles, &logged);
        }
    }
    if let Some(admin) = listeners.admin {
        background.tasks.spawn(listen::serve(admin, http::admin_router(&app), Arc::clone(&app), stop.clone()));
    }
    match listeners.api {
        Some(api) => listen::serve(api, http::router(&app), Arc::clone(&app), stop.clone()).await,
        None => stop.cancelled().await,
    }
    for tasks in [&app.tasks, &background.tasks] {
        tasks.close();
        tasks.wait().await;
    }
    if let Err(problem) = Flusher(Arc::clone(&app)).step().await {
        tracing::warn!(code = problem.code.as_str(), "the last minute's replays are not counted");
    }
    app.store.close();
}

/// What goes on in the background of a process.
struct Background<'a> {
    app: &'a App,
    tasks: TaskTracker,
    stop: &'a CancellationToken,
}

impl Background<'_> {
    /// Starts a worker, whose pulse is felt from now on.
    fn start(&self, worker: impl Worker) {
        let pulse = self.app.pulses.begin(worker.name(), worker.rest());
        self.tasks.spawn(worker::run(worker, pulse, self.app.ids.clone(), self.stop.clone()));
    }

    /// Starts what sends to people and programs outside.
    fn what_leaves(&self, app: &Arc<App>, roles: &[Role]) {
        if roles.contains(&Role::Notifier) {
            let patience = Patience::default();
            match Senders::of(&app.config, patience) {
                Ok(senders) => self.start(Notifier::of(Arc::clone(app), senders, patience)),
                // Whoever starts a process has asked before: see `check`.
                Err(error) => tracing::error!(%error, "nobody is told of their visits"),
            }
        }
        if roles.contains(&Role::Webhooks) {
            self.start(webhook::keep::Keeper(Arc::clone(app)));
            if let Some(deliverer) = webhook::deliverer(app, &self.tasks) {
                self.start(deliverer);
            }
        }
    }

    /// Starts what works on the log, whichever it is.
    fn work_on<L: EventLog + Clone>(&self, log: &L, roles: &[Role], logged: &Hint) {
        if roles.contains(&Role::Relay) {
            let (store, clock) = (self.app.store.clone(), self.app.clock.clone());
            let outbox = self.app.commands.told.clone();
            self.start(Relay { log: log.clone(), store, clock, outbox, logged: logged.clone() });
        }
        if roles.contains(&Role::Consumers) {
            self.start(Consumer::of(self.app, log.clone(), notify::Supersede, logged.clone()));
            self.start(Consumer::of(self.app, log.clone(), webhook::FanOut, logged.clone()));
            self.start(Consumer::of(self.app, log.clone(), changes::Keep, logged.clone()));
        }
    }
}

/// Says at the start what would only show in the middle of the work.
///
/// # Errors
/// What is set makes no sender of notifications.
pub fn check(config: &Config, roles: &[Role]) -> Result<(), Unusable> {
    if roles.contains(&Role::Notifier) { Senders::of(config, Patience::default()).map(drop) } else { Ok(()) }
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
