//! The parts of the service, put together: what handlers and workers can reach. Start and stop: `serve.rs`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use metrics_exporter_prometheus::PrometheusHandle;
use scoped_futures::ScopedFutureExt;
use sqlx::postgres::PgConnection;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clock::{Clock, Ids};
use crate::command::Bounds;
use crate::command::run::Commands;
use crate::config::Config;
use crate::domain::problem::Problem;
use crate::outbound::Guard;
use crate::pulse::Pulses;
use crate::sealed::{Keyring, NotAKey};
use crate::store::credentials::{self, RefusedCall};
use crate::store::databases::{self, Schema, Unusable};
use crate::store::seen::Credential;
use crate::store::watch::{self, Standing};
use crate::store::{Answering, Store};

/// How old a copy of a credential may be that lets a command's request in.
const COPY_AGE: Duration = Duration::from_secs(5);

/// Copies of credentials kept at the most; beyond that all are forgotten and read again.
const COPIES: usize = 10_000;

/// Who asks for the schema gets what another was told no longer ago than this: whoever may ask as often as they like must
/// not keep a database busy.
const SCHEMA_AGE: Duration = Duration::from_millis(250);

/// The same for the figures of the database; whoever scrapes every few seconds sees each anew.
const STANDING_AGE: Duration = Duration::from_secs(4);

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
    /// What secrets are sealed with; none where no key was given.
    pub keyring: Option<Keyring>,
    /// Where requests to others may go.
    pub guard: Guard,
    /// Where the schema stood when it was last asked for; none where nobody answered.
    schema: Lately<Option<Schema>>,
    /// How the service stood when it was last asked for; none where nobody answered.
    standing: Lately<Option<Arc<Standing>>>,
    /// How the workers of this process are doing.
    pub pulses: Pulses,
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

/// An answer that is kept for a while: one question at a time, however many ask.
#[derive(Default)]
struct Lately<T>(tokio::sync::Mutex<Option<(Instant, T)>>);

impl<T: Clone> Lately<T> {
    /// The answer, if it is young enough; else it is asked for anew.
    async fn or_ask(&self, age: Duration, ask: impl AsyncFnOnce() -> T) -> T {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < age
        {
            return answer.clone();
        }
        let answer = ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// What a process cannot start with.
#[derive(Debug, thiserror::Error)]
pub enum Misconfigured {
    /// It names no database.
    #[error("DATABASE_URL")]
    Database(#[from] Unusable),
    /// It is no key.
    #[error("ONCEBOOK_ENCRYPTION_KEY")]
    EncryptionKey(#[from] NotAKey),
}

impl App {
    /// Puts the parts together. Nothing is opened yet.
    ///
    /// # Errors
    /// [`Misconfigured`].
    pub fn new(
        config: Config,
        database_url: &str,
        clock: Clock,
        ids: Ids,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Arc<Self>, Misconfigured> {
        let store = Store::new(database_url, config.database_connections.get(), "oncebook", config.command_timeout)?;
        let tasks = TaskTracker::new();
        let bounds = Bounds { deadline: config.command_timeout, wait: config.idempotency_wait };
        let commands = Arc::new(Commands::new(store.clone(), clock.clone(), ids.clone(), bounds, tasks.clone()));
        let limits = Limits::new(&config);
        let pulses = Pulses::new(clock.clone(), config.ready_behind);
        let key = config.encryption_key.as_ref().map(|key| key.0.as_str()).filter(|key| !key.is_empty());
        let keyring = key.map(Keyring::read).transpose()?;
        let guard = Guard::new(config.webhook_allow_private);
        Ok(Arc::new(Self {
            config,
            store,
            clock,
            ids,
            commands,
            credentials: Copies::default(),
            limits,
            keyring,
            guard,
            schema: Lately::default(),
            standing: Lately::default(),
            pulses,
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
        let ask = async || {
            let until = Instant::now() + patience;
            let asked = self.store.once(until, |connection| databases::schema(connection).scope_boxed()).await;
            asked.inspect_err(|error| tracing::warn!(%error, "not ready")).ok()
        };
        self.schema.or_ask(SCHEMA_AGE, ask).await
    }

    /// How the service stands, by its tables; none where they do not answer within `patience`. Asked every few seconds at the
    /// most.
    pub async fn standing(&self, patience: Duration) -> Option<Arc<Standing>> {
        let ask = async || {
            let until = Instant::now() + patience;
            let asked = self.store.once(until, |connection| watch::standing(connection).scope_boxed()).await;
            asked.inspect_err(|error| tracing::warn!(%error, "no figures of the database")).ok().map(Arc::new)
        };
        self.standing.or_ask(STANDING_AGE, ask).await
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

    /// Notes a signed-in caller's refusal in the audit, so many a second of one credential.
    pub fn note_refusal(self: &Arc<Self>, refused: RefusedCall) {
        if self.limits.noted.check_key(&refused.caller.credential_id).is_err() {
            return;
        }
        let app = Arc::clone(self);
        self.tasks.spawn(async move {
            let noted = app.insist(|connection| credentials::note_refusal(connection, &refused).scope_boxed()).await;
            if let Err(problem) = noted {
                tracing::warn!(code = problem.code.as_str(), "a refusal could not be noted");
            }
        });
    }
}
