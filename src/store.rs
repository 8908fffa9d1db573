//! SQL and nothing else: statements, the rows they take and give, and the connections they run on.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, RecycleResult};
use scoped_futures::ScopedBoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep, timeout_at};

use crate::clock::{Ids, Pauses};
use databases::Unusable;

pub mod aging;
pub mod appointments;
pub mod audit;
pub mod bench;
pub mod changes;
pub mod commit;
pub mod credentials;
pub mod credentials_admin;
pub mod databases;
pub mod deliveries;
pub mod demo;
pub mod directory;
pub mod group;
#[cfg(feature = "kafka")]
pub mod groups;
pub mod inbox;
pub mod janitor;
pub mod keys;
pub mod log;
pub mod look;
pub mod notifications;
#[cfg(feature = "kafka")]
pub mod outbox;
pub mod schedule;
pub mod seen;
pub mod watch;
pub mod webhooks;

/// Connections to one database.
///
/// Not sqlx's own pool: that one sends a Sync for every connection on its way back, one more round trip a statement.
#[derive(Clone)]
pub struct Store(managed::Pool<Connect>);

/// Opens connections.
struct Connect(PgConnectOptions);

impl managed::Manager for Connect {
    type Type = PgConnection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<PgConnection, sqlx::Error> {
        self.0.connect().await
    }

    /// A broken connection shows when its next statement fails, and the command looks again: no ping before every use.
    async fn recycle(&self, _: &mut PgConnection, _: &Metrics) -> RecycleResult<sqlx::Error> {
        Ok(())
    }
}

/// Why a statement did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something went stale, collided or went away: look again. The text is for the log.
    #[error("try again: {0}")]
    Again(String),
    /// The connection is lost, and with it the word on what its statement did: look again.
    #[error("try again, the connection is gone: {0}")]
    Gone(String),
    /// The deadline passed.
    #[error("the deadline passed")]
    Late,
    /// A fault of ours.
    #[error(transparent)]
    Broken(sqlx::Error),
}

/// The constraints of the commit and the states of a server that comes back: after these, look again.
/// Anything else Postgres may say is a fault of ours.
const AGAIN: [&str; 9] = [
    "23505", // unique_violation: the key was claimed, or the intent
    "23P01", // exclusion_violation: the slot
    "23503", // foreign_key_violation: the directory changed
    "40001", // serialization_failure
    "40P01", // deadlock_detected
    "55P03", // lock_not_available
    "57014", // query_canceled
    // undefined_table, undefined_column: statements are checked against the schema when they are built, so the database is
    // not migrated yet.
    "42P01", "42703",
];

/// Classes of states in which the server is full or in trouble, and the connection as good as any other.
const AGAIN_CLASSES: [&str; 2] = ["53", "58"];

/// States, or classes of them, in which the connection leads nowhere any more: to a server that goes (57), or to one that
/// only reads since another took its place (25006).
const GONE: [&str; 3] = ["08", "57", "25006"];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let state = error.as_database_error().and_then(|database| database.code().map(std::borrow::Cow::into_owned));
        let of = |classes: &[&str], state: &str| classes.iter().any(|class| state.starts_with(class));
        match (&error, state) {
            (_, Some(state)) if AGAIN.contains(&state.as_str()) || of(&AGAIN_CLASSES, &state) => {
                Self::Again(error.to_string())
            }
            (_, Some(state)) if of(&GONE, &state) => Self::Gone(error.to_string()),
            (
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed,
                None,
            ) => Self::Gone(error.to_string()),
            _ => Self::Broken(error),
        }
    }
}

impl Store {
    /// Prepares a pool of at most `connections`, for statements of commands that may take as long as `longest`; none is opened
    /// yet.
    ///
    /// # Errors
    /// [`Unusable::NotAUrl`].
    pub fn new(database_url: &str, connections: usize, name: &str, longest: Duration) -> Result<Self, Unusable> {
        let options = databases::options(database_url)?;
        let options = options.options(session(longest)).disable_statement_logging().application_name(name);
        let pool = managed::Pool::builder(Connect(options))
            .max_size(connections)
            // The one used last: its statements are prepared. In turn, each that a burst has opened would make some caller
            // wait for that.
            .queue_mode(managed::QueueMode::Lifo)
            .runtime(deadpool::Runtime::Tokio1)
            .build()?;
        Ok(Self(pool))
    }

    /// Runs one statement on one connection, once, and no longer than until the deadline.
    ///
    /// Where it does not come to its end, because the deadline passed or the caller went away, its connection is closed: what
    /// it is doing is unknown.
    ///
    /// # Errors
    /// What the statement says; [`StoreError::Late`] past the deadline; [`StoreError::Gone`] when there is no server.
    pub async fn once<'a, T>(
        &self,
        deadline: Instant,
        statement: impl FnOnce(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, StoreError> {
        let mut lent = self.lend(deadline).await?;
        let Ok(answered) = timeout_at(deadline, statement(&mut lent)).await else {
            return Err(StoreError::Late);
        };
        self.take_back(lent, &answered);
        answered
    }

    /// Runs statements in one transaction: all of them stand, or none. As with [`Store::once`], its connection is closed where
    /// it does not come to its end, and with it the transaction.
    ///
    /// # Errors
    /// As [`Store::once`]; when that is [`StoreError::Gone`] or [`StoreError::Late`], it may stand all the same.
    pub async fn transact<'a, T: Send>(
        &self,
        deadline: Instant,
        statements: impl FnOnce(&mut PgConnection) -> Answering<'a, '_, T> + Send,
    ) -> Result<T, StoreError> {
        let mut lent = self.lend(deadline).await?;
        let work = async {
            #[expect(clippy::disallowed_methods, reason = "the home of transactions, which no request has")]
            let mut transaction = lent.begin().await?;
            let answered = statements(&mut transaction).await;
            match answered {
                Ok(_) => transaction.commit().await?,
                Err(_) => transaction.rollback().await?,
            }
            answered
        };
        let Ok(answered) = timeout_at(deadline, work).await else { return Err(StoreError::Late) };
        self.take_back(lent, &answered);
        answered
    }

    async fn lend(&self, deadline: Instant) -> Result<Lent, StoreError> {
        match timeout_at(deadline, self.0.get()).await {
            Ok(Ok(object)) => Ok(Lent(Some(object))),
            // Whatever keeps us out, a wrong password included, it is no answer of the statement's.
            Ok(Err(error)) => Err(StoreError::Gone(error.to_string())),
            Err(_) => Err(StoreError::Late),
        }
    }

    fn take_back<T>(&self, lent: Lent, answered: &Result<T, StoreError>) {
        match answered {
            // Whatever is idle was opened to the same server, and would fail the same way one by one.
            Err(StoreError::Gone(_)) => drop(self.0.retain(|_, _| false)),
            Err(StoreError::Broken(error)) => {
                tracing::error!(%error, "a statement failed");
                lent.hand_back();
            }
            _ => lent.hand_back(),
        }
    }

    /// Runs a statement that may be repeated, until it answers or the deadline passes.
    ///
    /// # Errors
    /// [`StoreError::Late`] past the deadline, [`StoreError::Broken`] for a fault of ours.
    pub async fn insist<'a, T>(
        &self,
        deadline: Instant,
        ids: &Ids,
        statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, StoreError> {
        let mut pauses = Pauses::new(INSIST_MILLIS);
        let mut why = "no connection was free, or no answer came".to_owned();
        loop {
            match self.once(deadline, &statement).await {
                Err(error @ (StoreError::Again(_) | StoreError::Gone(_))) => why = error.to_string(),
                Err(StoreError::Late) => break,
                answered => return answered,
            }
            tracing::debug!(why, "asking again");
            sleep(Duration::from_millis(1) + pauses.draw(ids)).await;
            if Instant::now() >= deadline {
                break;
            }
        }
        tracing::warn!(why, "the database did not answer before the deadline");
        Err(StoreError::Late)
    }

    /// How many connections are open, and how many of them are idle.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        let status = self.0.status();
        (status.size, status.available)
    }

    /// Closes what is idle and opens nothing more.
    pub fn close(&self) {
        self.0.close();
    }
}

/// Session settings of every connection of the service, whose commands take no longer than `longest`.
#[must_use]
pub fn session(longest: Duration) -> [(&'static str, String); 6] {
    // A net below the commands' own deadline, and above it on purpose: a command that lets go of its key's locks between two
    // tries loses its place to a duplicate in another process. For the same reason there is no lock_timeout.
    let net = longest + Duration::from_secs(1);
    [
        ("statement_timeout", format!("{}ms", net.as_millis())),
        ("idle_in_transaction_session_timeout", "10s".to_owned()),
        // A command that was given up ends while it still waits for a lock, well before its caller may try again.
        ("client_connection_check_interval", "100ms".to_owned()),
        // The commands' statements have one good plan each; planning them anew costs more than running them.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        // And a plan made while a table was empty must be the right one when it is not.
        ("enable_seqscan", "off".to_owned()),
        ("jit", "off".to_owned()),
    ]
}

/// The pause before a statement is repeated is drawn from a range that doubles from the first to the second: a server on its
/// way back is not rushed.
const INSIST_MILLIS: (u64, u64) = (8, 256);

/// A statement at work on a connection that is lent to it for `'c`; what it was made of lives for `'a`.
///
/// A future in a box, since no async closure that borrows is known to be `Send`: an allocation beside a round trip.
pub type Answering<'a, 'c, T> = ScopedBoxFuture<'a, 'c, Result<T, StoreError>>;

/// A connection on loan for one statement; closed unless it is handed back.
struct Lent(Option<Object<Connect>>);

impl Lent {
    fn hand_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_ref().expect("it is there until it is handed back")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("it is there until it is handed back")
    }
}
