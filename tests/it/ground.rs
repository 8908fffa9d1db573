//! What the trials stand on: one private Postgres for the run, a database in it that is migrated and seeded, and copies of
//! that for each trial. Postgres stops with this process, however that ends; the next run uses its folder again and drops
//! what this one left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncebook::clock::{Clock, Ids};
use oncebook::config;
use oncebook::dev::binaries::Binaries;
use oncebook::dev::cluster::{Cluster, Options};
use oncebook::dev::seed::{self, Demo};
use oncebook::store::databases;
use sqlx::{Connection, PgConnection};
use tokio::sync::{Mutex, OnceCell};

/// The database the others are copied from.
const TEMPLATE: &str = "demo";

/// Databases of trials, by the start of their names.
const COPIES: &str = "trial_";

/// A Postgres and the demo in it.
pub(crate) struct Ground {
    pub(crate) cluster: Cluster,
    pub(crate) demo: Demo,
    copies: AtomicU32,
    /// Copies are made one after another: each is some tens of milliseconds of writing.
    copying: Mutex<()>,
}

static SHARED: OnceCell<Arc<Ground>> = OnceCell::const_new();

impl Ground {
    /// The run's own.
    pub(crate) async fn shared() -> Arc<Self> {
        Arc::clone(SHARED.get_or_init(|| Self::lay("shared")).await)
    }

    /// One for a trial that stops Postgres, which the others would not forgive.
    pub(crate) async fn private(name: &'static str) -> Arc<Self> {
        Self::lay(name).await
    }

    async fn lay(name: &'static str) -> Arc<Self> {
        let cluster = tokio::task::spawn_blocking(move || start(name)).await.expect("the start does not panic");
        sweep(&cluster).await;
        cluster.create_database(TEMPLATE, None).await.expect("a database");
        let mut connection = PgConnection::connect(&cluster.url(TEMPLATE)).await.expect("connected");
        databases::migrate(&mut connection).await.expect("migrated");
        let now = Clock::system().now();
        let demo = seed::seed(&mut connection, None, now, &Ids::random()).await.expect("seeded");
        // Nobody may be connected to a database that is copied.
        connection.close().await.expect("closed");
        Arc::new(Self { cluster, demo, copies: AtomicU32::new(0), copying: Mutex::new(()) })
    }

    /// A database of its own for a trial; tells its name.
    pub(crate) async fn copy(&self) -> String {
        let name = format!("{COPIES}{}", self.copies.fetch_add(1, Ordering::Relaxed));
        let _turn = self.copying.lock().await;
        self.cluster.create_database(&name, Some(TEMPLATE)).await.expect("a copy");
        name
    }
}

fn start(name: &str) -> Cluster {
    let binaries = Binaries::find(config::path().as_deref()).expect("Postgres is installed");
    let settings = [
        // Which trial a line of the log belongs to.
        ("log_line_prefix", "%m [%p] %d "),
        // A trial has two processes of 16 connections, and there are as many trials at once as the machine has cores.
        ("max_connections", "500"),
    ];
    let options = Options {
        data_dir: Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ground-{name}")),
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        durable: false,
    };
    Cluster::start(&binaries, &options).expect("Postgres starts")
}

/// Drops what an earlier run left.
async fn sweep(cluster: &Cluster) {
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await.expect("connected");
    let left: Vec<String> = sqlx::query_scalar("select datname from pg_database where datname like $1 or datname = $2")
        .bind(format!("{COPIES}%"))
        .bind(TEMPLATE)
        .fetch_all(&mut connection)
        .await
        .expect("names");
    connection.close().await.expect("closed");
    for name in left {
        cluster.drop_database(&name).await.expect("dropped");
    }
}
