//! One run of the postmaster: start it, wait until it takes connections, signal it, and see that it goes when we go.
//! Blocking throughout, so that a destructor can stop it too.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::dev::account::Account;
use crate::dev::binaries::Install;
use crate::dev::leftover::PidFile;

/// Recovery after a crash in mid-load reads all the log since the last checkpoint.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// A fast stop writes a checkpoint, which a slow disk draws out.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// Short beside a start (about 60 ms), long beside what a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Larger logs are set aside at the next start.
const LOG_BYTES: u64 = 10 * 1024 * 1024;

/// Waits for our end of the pipe to close, which the kernel does however we die, and stops the postmaster if it is still
/// the one it was started for. A signal on the parent's death would do the same on Linux only, and need unsafe code.
const WATCH: &str = r#"read -r _; read -r pid < "$1/postmaster.pid" && [ "$pid" = "$2" ] && kill -INT "$2""#;

/// What every start of a cluster has in common.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) install: Install,
    pub(crate) account: Account,
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    /// `name=value`, later ones win.
    pub(crate) settings: Vec<String>,
}

/// Why a postmaster did not come up.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// Somebody else has the port by now.
    PortTaken,
    Failed(anyhow::Error),
}

/// A running postmaster. Dropping it asks it to stop.
#[derive(Debug)]
pub(crate) struct Server {
    postmaster: Child,
    watch: Child,
}

/// How a postmaster ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// Ends sessions, writes a checkpoint.
    Fast,
    /// As a crash: the next start recovers.
    Immediate,
}

impl Server {
    /// Returns once it takes connections on `port` of 127.0.0.1.
    pub(crate) fn start(launch: &Launch, port: u16) -> Result<Self, NotStarted> {
        // A killed postmaster's backends need a moment to notice; until then a new one refuses to start.
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            let log_starts = set_aside(&launch.log).map_err(NotStarted::Failed)?;
            let mut server = Self::spawn(launch, port).map_err(NotStarted::Failed)?;
            match server.wait_ready(launch).map_err(NotStarted::Failed)? {
                None => return Ok(server),
                Some(status) => {
                    server.dismiss_watch().map_err(|error| NotStarted::Failed(error.into()))?;
                    let said = tail(&launch.log, log_starts);
                    if said.contains("could not create any TCP/IP sockets") {
                        return Err(NotStarted::PortTaken);
                    }
                    if !said.contains("pre-existing shared memory block") || Instant::now() > give_up {
                        let log = launch.log.display();
                        let error =
                            anyhow::anyhow!("Postgres did not start ({status}). {log} ends:\n{}", said.trim_end());
                        return Err(NotStarted::Failed(error));
                    }
                    sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn spawn(launch: &Launch, port: u16) -> Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(&launch.log);
        let log = log.with_context(|| format!("cannot write {}", launch.log.display()))?;
        let mut postgres = launch.account.command(&launch.install.program("postgres"));
        postgres.arg("-D").arg(&launch.data).args(["-p", &port.to_string()]);
        postgres.args(launch.settings.iter().flat_map(|setting| ["-c", setting]));
        postgres.stdout(log.try_clone()?).stderr(log);
        let postmaster = postgres.spawn().context("cannot run postgres")?;
        let mut shell = launch.account.command(Path::new("/bin/sh"));
        shell.args(["-c", WATCH, "oncebook-watch"]).arg(&launch.data).arg(postmaster.id().to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = shell.spawn().context("cannot run /bin/sh")?;
        Ok(Self { postmaster, watch })
    }

    /// The exit status if it ended instead.
    fn wait_ready(&mut self, launch: &Launch) -> Result<Option<ExitStatus>> {
        let patience = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.postmaster.try_wait()? {
                return Ok(Some(status));
            }
            // Until the new postmaster has written its own, an earlier one's file may lie there.
            match PidFile::read(&launch.data)? {
                Some(file) if file.ready && file.pid == self.pid() => return Ok(None),
                _ if Instant::now() > patience => {
                    bail!("Postgres was not ready within {READY_WITHIN:?}; see {}", launch.log.display())
                }
                _ => sleep(LOOK_EVERY),
            }
        }
    }

    /// Lets it look for a postmaster that is gone, and go too.
    fn dismiss_watch(&mut self) -> std::io::Result<()> {
        drop(self.watch.stdin.take());
        self.watch.wait().map(drop)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    /// How it ended, if it has: nobody asked it to through us, or it would be no more.
    pub(crate) fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.postmaster.try_wait()
    }

    /// Stops it and waits. Nothing to do where it has died already.
    pub(crate) fn stop(&mut self, launch: &Launch, how: Stop) -> Result<()> {
        let pid = self.pid().to_string();
        let signals = match how {
            Stop::Fast => ["INT", "QUIT"].as_slice(),
            Stop::Immediate => ["QUIT"].as_slice(),
        };
        for signal in signals {
            if self.postmaster.try_wait()?.is_none() {
                // The standard library sends no signal but SIGKILL, which would leave the backends to themselves.
                let mut kill = launch.account.command(&launch.install.program("pg_ctl"));
                kill.args(["kill", signal, &pid]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            }
            let patience = Instant::now() + STOPPED_WITHIN;
            while Instant::now() < patience {
                if self.postmaster.try_wait()?.is_some() {
                    return Ok(self.dismiss_watch()?);
                }
                sleep(LOOK_EVERY);
            }
        }
        bail!("Postgres (process {pid}) does not stop")
    }
}

/// Moves a large log out of the way and tells where the next run's begins.
fn set_aside(log: &Path) -> Result<u64> {
    match log.metadata().map(|it| it.len()) {
        Ok(bytes) if bytes > LOG_BYTES => {
            fs::rename(log, log.with_extension("log.old"))?;
            Ok(0)
        }
        Ok(bytes) => Ok(bytes),
        Err(_) => Ok(0),
    }
}

/// What the log says from `start` on; at most its last 4,000 bytes, which is more than a refusal to start ever says.
fn tail(log: &Path, start: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(end.saturating_sub(4_000))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(cannot be read: {error})"))
}
