//! A private Postgres cluster in a folder of ours, for `dev`, `bench` and the tests.
//!
//! The folder holds `data`, `postgres.log`, `password`, `port` and `lock`. Postgres listens on TCP at 127.0.0.1 alone and
//! asks for a password of 256 random bits. There is no Unix socket: its path may be at most 107 bytes long, which a
//! clone's folder often exceeds, and a URL with a host and a port is what every client understands. However the owner
//! dies, the next start finds a usable folder.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use crate::clock::Ids;
use crate::dev::account::{Account, LOCALE};
use crate::dev::binaries::{Binaries, Install};
use crate::dev::leftover;
use crate::dev::lock::Lock;
use crate::dev::private;
use crate::dev::server::{Launch, NotStarted, Server, Stop};
use crate::store::databases;

/// The superuser, and the only one.
const USER: &str = "oncebook";

/// How to run a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder the cluster owns, created if missing. See [`Cluster::folder`] for where it ends up.
    pub data_dir: PathBuf,
    /// Settings beside ours, which they overrule (the address and the port aside).
    pub settings: Vec<(String, String)>,
    /// False for data nobody misses: no fsync, a third of the time.
    pub durable: bool,
}

/// A running cluster. Its methods block, `create_database` and `drop_database` aside; dropping it stops it.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    launch: Launch,
    port: u16,
    password: String,
    /// `None` once stopped.
    server: Mutex<Option<Server>>,
    _lock: Lock,
}

impl Cluster {
    /// Initialises the folder if it holds no cluster, stops what an earlier run left running there, and returns once
    /// Postgres takes connections: about a second the first time, a tenth of that later.
    ///
    /// # Errors
    /// When another process runs this cluster, when no installation can open what is there, when Postgres refuses to start.
    pub fn start(binaries: &Binaries, options: &Options) -> Result<Self> {
        let wanted = std::path::absolute(&options.data_dir)?;
        let account = Account::for_data(&wanted.join("data"))?;
        let folder = account.home_for(&wanted)?;
        let lock = Lock::take(&folder)?;
        let data = folder.join("data");
        // Again, since the folder may have moved to where a cluster is already.
        let account = Account::for_data(&data)?;
        let install = installation_for(binaries, &data)?.clone();
        if data.join("PG_VERSION").exists() {
            leftover::clear(&data, &account, &install)?;
        } else {
            initialise(&folder, &account, &install, options.durable)?;
        }
        let password = fs::read_to_string(folder.join("password"))
            .with_context(|| format!("cannot read {}", folder.join("password").display()))?;
        let settings = settings(options);
        let launch = Launch { install, account, data, log: folder.join("postgres.log"), settings };
        let (server, port) = start_somewhere(&launch, &folder.join("port"))?;
        Ok(Self { folder, launch, port, password, server: Mutex::new(Some(server)), _lock: lock })
    }

    /// A URL for a database of this cluster, the password in it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Creates a database, empty or as a copy of `template`, to which nobody may be connected. Names are lower-case
    /// letters, digits and underscores.
    ///
    /// # Errors
    /// When the name is taken or is none, or when the template is in use.
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<()> {
        databases::create(&self.url("postgres"), name, template).await.with_context(|| format!("cannot create {name}"))
    }

    /// Drops a database if it exists, ending its sessions.
    ///
    /// # Errors
    /// When Postgres cannot be reached, or when `name` is no name.
    pub async fn drop_database(&self, name: &str) -> Result<()> {
        databases::drop(&self.url("postgres"), name).await.with_context(|| format!("cannot drop {name}"))
    }

    /// The postmaster's process, while there is one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server().as_ref().map(Server::pid)
    }

    /// The port on 127.0.0.1. Stays the same through [`Cluster::restart_immediate`], and from run to run where it can.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What Postgres says: all of it, appended to from run to run.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.launch.log
    }

    /// Where the cluster is. Not `data_dir` when we are root and Postgres's account has no way there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How Postgres ended by itself or by somebody else's hand, or that it did not start again; none while it runs.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&self) -> Result<Option<String>> {
        match self.server().as_mut() {
            Some(server) => Ok(server.ended()?.map(|status| status.to_string())),
            None => Ok(Some("it did not start".to_owned())),
        }
    }

    /// Crashes Postgres and starts it again on the same port; starts it if it died otherwise.
    ///
    /// # Errors
    /// When it does not stop, or does not come back.
    pub fn restart_immediate(&self) -> Result<()> {
        let mut server = self.server();
        if let Some(mut running) = server.take() {
            running.stop(&self.launch, Stop::Immediate)?;
        }
        match Server::start(&self.launch, self.port) {
            Ok(started) => *server = Some(started),
            Err(NotStarted::PortTaken) => bail!("port {} was taken while Postgres restarted", self.port),
            Err(NotStarted::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    /// Ends all sessions, writes a checkpoint, and returns when Postgres is gone.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn stop(self) -> Result<()> {
        self.stop_now()
    }

    fn stop_now(&self) -> Result<()> {
        match self.server().take() {
            Some(mut running) => running.stop(&self.launch, Stop::Fast),
            None => Ok(()),
        }
    }

    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop_now() {
            tracing::warn!(%error, "Postgres was left running");
        }
    }
}

fn installation_for<'a>(binaries: &'a Binaries, data: &Path) -> Result<&'a Install> {
    let major = match fs::read_to_string(data.join("PG_VERSION")) {
        Ok(text) => Some(text.trim().parse().context("PG_VERSION holds no version")?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot look into {}", data.display())),
    };
    binaries.for_major(major).with_context(|| {
        let (theirs, ours) = (major.unwrap_or_default(), binaries.major());
        let data = data.display();
        format!(
            "{data} was made by Postgres {theirs}, and this machine has {ours}: install {theirs}, or remove the folder"
        )
    })
}

/// Made beside its place and moved there whole, so that a kill in the middle never leaves half a cluster.
fn initialise(folder: &Path, account: &Account, install: &Install, durable: bool) -> Result<()> {
    const MAKING: &str = "data.making.";
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(MAKING) {
            // An initdb orphaned a moment ago may still write there: what is left now goes another time.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let making = folder.join(format!("{MAKING}{}", std::process::id()));
    account.create_private(&making)?;
    let password = folder.join("password");
    private::write(&password, &private::hex(&Ids::random().secret()))?;
    account.give(&password)?;
    // The password goes over the loopback as it is: whoever can listen there can read the file too, and SCRAM would cost a
    // debug build's client 40 ms for each connection.
    let mut initdb = account.command(&install.program("initdb"));
    initdb.arg("-D").arg(&making).arg("--pwfile").arg(&password);
    initdb.args(["-U", USER, "--auth=password", "--encoding=UTF8"]).arg(format!("--locale={LOCALE}"));
    if !durable {
        initdb.arg("--no-sync");
    }
    let told = initdb.output().context("cannot run initdb")?;
    ensure!(
        told.status.success(),
        "initdb failed ({}):\n{}{}",
        told.status,
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr).trim_end()
    );
    fs::rename(&making, folder.join("data")).context("cannot move the new cluster into its place")
}

/// Ours, then the caller's, then what must not change.
fn settings(options: &Options) -> Vec<String> {
    let given = options.settings.iter().map(|(name, value)| format!("{name}={value}"));
    let ours = ["max_connections=200", "log_error_verbosity=terse", "log_timezone=UTC", "log_line_prefix=%m [%p] "];
    // Commits stay synchronous: Postgres's own crash, which tests bring about, must not lose what it acknowledged.
    let careless = ["fsync=off", "full_page_writes=off"];
    let careless = if options.durable { [].as_slice() } else { careless.as_slice() };
    let fixed = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "logging_collector=off"];
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    own(&ours).into_iter().chain(own(careless)).chain(given).chain(own(&fixed)).collect()
}

/// On the port of the last run if it is free, so that a URL noted somewhere goes on working; on any other if not.
fn start_somewhere(launch: &Launch, note: &Path) -> Result<(Server, u16)> {
    let last = fs::read_to_string(note).ok().and_then(|text| text.trim().parse().ok());
    let mut port = last.unwrap_or(0);
    // A free port can be taken between asking for it and Postgres's start, but hardly five times in a row.
    for _ in 0..5 {
        let Ok(free) = free_port(port).or_else(|_| free_port(0)) else { bail!("127.0.0.1 has no free port") };
        match Server::start(launch, free) {
            Ok(server) => {
                fs::write(note, free.to_string()).with_context(|| format!("cannot write {}", note.display()))?;
                return Ok((server, free));
            }
            Err(NotStarted::PortTaken) => port = 0,
            Err(NotStarted::Failed(error)) => return Err(error),
        }
    }
    bail!("every port tried was taken")
}

fn free_port(wanted: u16) -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, wanted))?.local_addr()?.port())
}
