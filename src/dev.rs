//! The one-command machine: a Postgres, the schema and the demo group, so that a fresh clone answers requests a few
//! seconds after `make dev`. What serves them is the same `app` as in production; this file only prepares the ground and
//! says when it is ready.

mod account;
pub mod binaries;
pub mod cluster;
mod keeper;
mod leftover;
mod lock;
mod private;
pub mod record;
pub mod seed;
mod server;
mod welcome;

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use sqlx::migrate::MigrateDatabase;
use sqlx::{Connection, PgConnection, Postgres};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Ids};
use crate::dev::binaries::Binaries;
use crate::dev::cluster::Cluster;
use crate::dev::lock::Lock;
use crate::dev::record::DevJson;
use crate::dev::seed::Demo;
use crate::store::databases::{self, Unusable};

/// What `oncebook dev` was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything the machine keeps; created if missing.
    pub data_dir: PathBuf,
    /// Where the service will listen on 127.0.0.1; only checked here. 0 is any.
    pub port: u16,
    /// `DATABASE_URL`: a database to use instead of a private Postgres. The demo group is added to what it holds, and its
    /// keys become this data dir's.
    pub database_url: Option<String>,
    /// The value of `PATH`.
    pub path_var: Option<OsString>,
    /// Tells the time.
    pub clock: Clock,
    /// Makes the secrets of the demo's keys.
    pub ids: Ids,
}

/// A prepared machine. Its Postgres stops with it.
#[derive(Debug)]
pub struct Machine {
    data_dir: PathBuf,
    database_url: String,
    demo: Demo,
    encryption_key: String,
    clock: Clock,
    ids: Ids,
    /// `None` where the database is somebody else's.
    cluster: Option<Arc<Cluster>>,
    _lock: Lock,
}

/// Brings everything up that the service needs, and tells on standard error how far it is. A first time takes some two
/// seconds, a later one some tenths.
///
/// # Errors
/// When another machine runs in this data dir, when the port is taken, when there is no Postgres to start (the message
/// says what to install), when the database refuses.
pub async fn prepare(options: Options) -> Result<Machine> {
    let Options { data_dir, port, database_url, path_var, clock, ids } = options;
    std::fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let data_dir = data_dir.canonicalize()?;
    let lock = Lock::take(&data_dir)?;
    ensure_free(port)?;
    let last = record::set_aside(&data_dir);
    let encryption_key = private::encryption_key(&data_dir, &ids)?;
    let (cluster, database_url) = if let Some(url) = database_url {
        progress("using the database of DATABASE_URL");
        (None, url)
    } else {
        let cluster = start_cluster(data_dir.join("postgres"), path_var).await?;
        let url = cluster.url("oncebook");
        (Some(Arc::new(cluster)), url)
    };
    let mut connection = connect(&database_url).await?;
    progress("bringing the schema up to date");
    databases::migrate(&mut connection).await.context("cannot bring the schema up to date")?;
    progress("looking after the demo group");
    let demo = seed::seed(&mut connection, last, clock.now(), &ids).await.context("cannot add the demo group")?;
    connection.close().await?;
    if demo.replaced_keys > 0 {
        progress(&replaced(demo.replaced_keys, &data_dir));
    }
    Ok(Machine { data_dir, database_url, demo, encryption_key, clock, ids, cluster, _lock: lock })
}

impl Machine {
    /// The database, migrated and seeded.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// What secrets in the database are sealed with: made by the first start, kept in the data dir.
    #[must_use]
    pub fn encryption_key(&self) -> &str {
        &self.encryption_key
    }

    /// What the demo group consists of, and its keys.
    #[must_use]
    pub fn demo(&self) -> &Demo {
        &self.demo
    }

    /// The private Postgres, where there is one.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// Where messages to patients are written down, where nothing is set to send them with.
    #[must_use]
    pub fn messages_folder(&self) -> PathBuf {
        self.data_dir.join("mail")
    }

    /// Starts the private Postgres again whenever it ends, until told to stop. Nothing to do where the database is somebody
    /// else's.
    ///
    /// # Errors
    /// When it does not stay up.
    pub async fn keep_running(&self, stop: &CancellationToken) -> Result<()> {
        let Some(cluster) = &self.cluster else {
            stop.cancelled().await;
            return Ok(());
        };
        keeper::keep(cluster, stop).await
    }

    /// Writes `dev.json` and prints what a newcomer does next. Call it once the service answers at `base_url`.
    ///
    /// # Errors
    /// When the file cannot be written, or when the database is gone.
    pub async fn announce(&self, base_url: &str) -> Result<()> {
        let base_url = base_url.trim_end_matches('/');
        let demo = self.demo.clone();
        let record = DevJson {
            base_url: base_url.to_owned(),
            database_url: self.database_url.clone(),
            pms_url: None,
            api_keys: demo.api_keys,
            tenant_id: demo.tenant_id,
            clinic_id: demo.clinic_id,
            other_clinic_id: demo.other_clinic_id,
            practitioner_ids: demo.practitioner_ids,
            operatory_ids: demo.operatory_ids,
            service_ids: demo.service_ids,
            patient_ids: demo.patient_ids,
        };
        let mut connection = databases::connect(&self.database_url).await?;
        let now = self.clock.now();
        let opening = welcome::opening(&mut connection, &self.demo, now).await?;
        connection.close().await?;
        let path = record::write(&self.data_dir, &record)?;
        print!("{}", welcome::text(&record, &path, &self.messages_folder(), opening, self.ids.uuid(now)));
        Ok(())
    }

    /// Stops Postgres. Everything that uses the database must have stopped before.
    ///
    /// # Errors
    /// When Postgres does not stop.
    pub async fn stop(self) -> Result<()> {
        let Self { cluster, _lock, .. } = self;
        // Shared with nobody any more, unless its keeper was dropped in mid-start: then it stops when that is through.
        let Some(cluster) = cluster.and_then(Arc::into_inner) else { return Ok(()) };
        progress("stopping Postgres");
        tokio::task::spawn_blocking(|| cluster.stop()).await?
    }
}

async fn start_cluster(folder: PathBuf, path_var: Option<OsString>) -> Result<Cluster> {
    let started = tokio::task::spawn_blocking(move || {
        let binaries = Binaries::find(path_var.as_deref())?;
        let first = !folder.join("data").exists();
        progress(if first { "initialising a private Postgres" } else { "starting the private Postgres" });
        let options = cluster::Options { data_dir: folder.clone(), settings: Vec::new(), durable: true };
        let cluster = Cluster::start(&binaries, &options)?;
        if cluster.folder() != folder {
            let (wanted, found) = (folder.display(), cluster.folder().display());
            progress(&format!("Postgres's account cannot get through to {wanted}, so its data is in {found}"));
        }
        anyhow::Ok(cluster)
    });
    started.await?
}

/// Creates the database where it is missing.
async fn connect(url: &str) -> Result<PgConnection> {
    match databases::connect(url).await {
        Err(Unusable::NoDatabase(..)) => {
            Postgres::create_database(url).await.context("cannot create the database")?;
            Ok(databases::connect(url).await?)
        }
        connected => Ok(connected?),
    }
}

/// Two data dirs on one database take the keys from each other, and whoever used the first would wonder about the 401.
fn replaced(keys: usize, data_dir: &Path) -> String {
    format!(
        "{keys} demo keys of this database were not those of {}: new ones are issued, and the old ones, perhaps of another \
         data dir, work no more",
        data_dir.display()
    )
}

/// Better now than after Postgres has been started for nothing.
fn ensure_free(port: u16) -> Result<()> {
    let taken = || format!("port {port} of 127.0.0.1 is taken: stop what uses it, or choose another with --port");
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(taken).map(drop)
}

fn progress(what: &str) {
    eprintln!("oncebook: {what}");
}
