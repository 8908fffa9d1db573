//! The service: its parts put together, its start and its stop.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use metrics_exporter_prometheus::PrometheusHandle;
use scoped_futures::ScopedFutureExt;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clock::{Clock, Ids};
use crate::command::Bounds;
use crate::command::run::Commands;
use crate::config::{Config, Role};
use crate::consumer::{Consumer, Handler};
use crate::domain::problem::{Code, Problem};
use crate::hint::Hint;
use crate::http;
use crate::http::edge::RequestIds;
use crate::http::guard::SignedIn;
use crate::http::listen;
use crate::janitor::{Flusher, Janitor};
use crate::log::EventLog;
use crate::log::postgres::PostgresLog;
use crate::notify;
use crate::relay::Relay;
use crate::store::credentials::{self, RefusedCall};
use crate::store::databases::{self, Schema, Unusable};
use crate::store::seen::Credential;
use crate::store::{Answering, Store};
use crate::worker::{self, Worker};

/// How old a copy of a credential may be that lets a command's request in.
const COPY_AGE: Duration = Duration::from_secs(5);

/// Copies of credentials kept at the most; beyond that all are forgotten and read again.
const COPIES: usize = 10_000;

/// Who asks for the schema gets what another was told no longer ago than this: whoever may ask as often as they like must
/// not keep a database busy.
const SCHEMA_AGE: Duration = Duration::from_millis(250);

/// While the database cannot be used at the start, it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a read tries again when the database is away.
const READ_PATIENCE: Duration = Duration::from_secs(4);

/// Refusals of one credential noted in the audit: this many a second.
const NOTED_A_SECOND: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

/// The parts every handler can reach.
pub struct App {
    /// Its knobs.
    pub config: Config,
    /// Its database.
    pub store: Store,
    /// Its time.
    pub clock: Clock,
    /// Its ids.
    pub ids: Ids,
    /// The command path.
    pub commands: Arc<Commands>,
    /// Copies of credentials.
    pub credentials: Copies,
    /// Rate limits.
    pub limits: Limits,
    /// Where the schema stood when it was last asked for; none where nobody answered.
    schema: tokio::sync::Mutex<Option<(Instant, Option<Schema>)>>,
    /// What `/metrics` shows.
    pub metrics: Option<PrometheusHandle>,
    /// What stopping waits for.
    pub tasks: TaskTracker,
}

/// Rate limits; none where switched off.
pub struct Limits {
    /// By client address, before the credential is looked at.
    pub address: Option<DefaultKeyedRateLimiter<IpAddr>>,
    /// By credential.
    pub credential: Option<DefaultKeyedRateLimiter<Uuid>>,
    noted: DefaultKeyedRateLimiter<Uuid>,
}

impl Limits {
    fn new(config: &Config) -> Self {
        let quota = |rate: u32, burst: u32| {
            Some(Quota::per_second(NonZeroU32::new(rate)?).allow_burst(NonZeroU32::new(burst)?))
        };
        Self {
            address: quota(config.rate_per_address, config.rate_per_address).map(RateLimiter::keyed),
            credential: quota(config.rate_per_credential, config.rate_per_credential.saturating_mul(2))
                .map(RateLimiter::keyed),
            noted: RateLimiter::keyed(Quota::per_second(NOTED_A_SECOND)),
        }
    }

    /// Forgets callers who have been quiet, so that memory does not grow with the number of addresses seen.
    pub fn forget_the_quiet(&self) {
        self.address.iter().for_each(RateLimiter::retain_recent);
        self.credential.iter().for_each(RateLimiter::retain_recent);
        self.noted.retain_recent();
    }
}

/// Copies of credentials, seconds old: they may let a command's request in, and its look decides.
#[derive(Default)]
pub struct Copies(Mutex<HashMap<Uuid, (Credential, Instant)>>);

impl Copies {
    /// The copy, if there is one that is young enough.
    #[must_use]
    pub fn copy(&self, id: Uuid) -> Option<Credential> {
        let copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copies.get(&id).filter(|(_, at)| at.elapsed() < COPY_AGE).map(|(credential, _)| credential.clone())
    }

    fn keep(&self, credential: &Credential) {
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.len() >= COPIES {
            copies.clear();
        }
        copies.insert(credential.caller.credential_id, (credential.clone(), Instant::now()));
    }
}

impl App {
    /// Puts the parts together. Nothing is opened yet.
    ///
    /// # Errors
    /// [`Unusable::NotAUrl`].
    pub fn new(
        config: Config,
        database_url: &str,
        clock: Clock,
        ids: Ids,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Arc<Self>, Unusable> {
        let store = Store::new(database_url, config.database_connections.get(), "oncebook")?;
        let tasks = TaskTracker::new();
        let bounds = Bounds { deadline: config.command_timeout, wait: config.idempotency_wait };
        let commands = Arc::new(Commands::new(store.clone(), clock.clone(), ids.clone(), bounds, tasks.clone()));
        let limits = Limits::new(&config);
        Ok(Arc::new(Self {
            config,
            store,
            clock,
            ids,
            commands,
            credentials: Copies::default(),
            limits,
            schema: tokio::sync::Mutex::default(),
            metrics,
            tasks,
        }))
    }

    /// Runs a statement that may be repeated, while the database comes and goes.
    ///
    /// # Errors
    /// 503 when it stays away, 500 for a fault of ours.
    pub async fn insist<'a, T>(
        &self,
        statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, Problem> {
        Ok(self.store.insist(Instant::now() + READ_PATIENCE, &self.ids, statement).await?)
    }

    /// Where the database's schema stands; none where it does not answer within `patience`. One statement at a time,
    /// however many ask.
    pub async fn schema(&self, patience: Duration) -> Option<Schema> {
        let mut last = self.schema.lock().await;
        if let Some((at, schema)) = *last
            && at.elapsed() < SCHEMA_AGE
        {
            return schema;
        }
        let asked =
            self.store.once(Instant::now() + patience, |connection| databases::schema(connection).scope_boxed()).await;
        if let Err(error) = &asked {
            tracing::warn!(%error, "not ready");
        }
        let schema = asked.ok();
        *last = Some((Instant::now(), schema));
        schema
    }

    /// Reads a credential as it stands now.
    ///
    /// # Errors
    /// As [`App::insist`].
    pub async fn read_credential(&self, id: Uuid) -> Result<Option<Credential>, Problem> {
        let found = self.insist(|connection| credentials::find(connection, id).scope_boxed()).await?;
        if let Some(credential) = &found {
            self.credentials.keep(credential);
        }
        Ok(found)
    }

    /// Notes a signed-in caller's 403 in the audit, so many a second; other answers are noted by whoever gave them.
    pub fn note_refusal(
        self: &Arc<Self>,
        signed_in: &SignedIn,
        ids: &RequestIds,
        method: &str,
        path: &str,
        code: Option<Code>,
    ) {
        if code != Some(Code::Forbidden) || self.limits.noted.check_key(&signed_in.caller.credential_id).is_err() {
            return;
        }
        let at = self.clock.now();
        let refused = RefusedCall {
            caller: signed_in.caller.clone(),
            operation: format!("{method} {path}"),
            request_id: ids.ours,
            caller_request_id: ids.callers.clone(),
            at,
            id: self.ids.uuid(at),
        };
        let app = Arc::clone(self);
        self.tasks.spawn(async move {
            let noted = app.insist(|connection| credentials::note_refusal(connection, &refused).scope_boxed()).await;
            if let Err(problem) = noted {
                tracing::warn!(code = problem.code.as_str(), "a refusal could not be noted");
            }
        });
    }

    /// A logical consumer on this database.
    pub fn consumer<L: EventLog, H: Handler>(&self, log: L, handler: H, logged: Hint) -> Consumer<L, H> {
        let (store, clock, ids) = (self.store.clone(), self.clock.clone(), self.ids.clone());
        Consumer::new(log, store, clock, ids, handler, logged)
    }

    /// Does what the roles say until told to stop; then finishes what runs and refuses what comes.
    pub async fn run(self: Arc<Self>, roles: &[Role], listeners: Listeners, stop: CancellationToken) {
        let background = TaskTracker::new();
        if roles.contains(&Role::Janitor) {
            background.spawn(worker::run(Janitor(Arc::clone(&self)), self.ids.clone(), stop.clone()));
        }
        background.spawn(worker::run(Flusher(Arc::clone(&self)), self.ids.clone(), stop.clone()));
        let log = PostgresLog::new(self.store.clone(), self.clock.clone(), self.ids.clone());
        let logged = Hint::default();
        if roles.contains(&Role::Relay) {
            let (outbox, clock) = (self.commands.told.clone(), self.clock.clone());
            let relay = Relay { log: log.clone(), clock, outbox, logged: logged.clone() };
            background.spawn(worker::run(relay, self.ids.clone(), stop.clone()));
        }
        if roles.contains(&Role::Consumers) {
            let consumer = self.consumer(log, notify::Supersede, logged);
            background.spawn(worker::run(consumer, self.ids.clone(), stop.clone()));
        }
        if let Some(admin) = listeners.admin {
            background.spawn(listen::serve(admin, http::admin_router(&self), self.tasks.clone(), stop.clone()));
        }
        match listeners.api {
            Some(api) => listen::serve(api, http::router(&self), self.tasks.clone(), stop.clone()).await,
            None => stop.cancelled().await,
        }
        for tasks in [&self.tasks, &background] {
            tasks.close();
            tasks.wait().await;
        }
        if let Err(problem) = Flusher(Arc::clone(&self)).step().await {
            tracing::warn!(code = problem.code.as_str(), "the last minute's replays are not counted");
        }
        self.store.close();
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
    TaskTracker::new().spawn(async move {
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
