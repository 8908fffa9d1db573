//! What an earlier run left behind. Our SIGKILL can leave a postmaster running, the machine's own death leaves a
//! `postmaster.pid` whose number may by now belong to a stranger: the first is stopped, the second must never be signalled.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dev::account::Account;
use crate::dev::binaries::Install;

/// The lines of `postmaster.pid` we read. Postgres writes it on start and removes it on a clean stop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: u32,
    /// The postmaster takes connections. False while it starts, recovers or stops.
    pub(crate) ready: bool,
}

/// What runs under a number.
#[derive(Debug, PartialEq, Eq)]
enum Process {
    Postmaster,
    Stranger,
    Gone,
}

impl PidFile {
    /// `None` where there is none, or none that is whole yet.
    pub(crate) fn read(data: &Path) -> Result<Option<Self>> {
        let path = data.join("postmaster.pid");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok()?;
        // The eighth line, padded with spaces.
        let ready = lines.nth(6).is_some_and(|status| status.trim() == "ready");
        Some(Self { pid, ready })
    }
}

/// Leaves `data` with no postmaster and with nothing that would keep a new one from starting. Only under the lock, so
/// that whatever runs there is an orphan.
pub(crate) fn clear(data: &Path, account: &Account, install: &Install) -> Result<()> {
    let Some(PidFile { pid, .. }) = PidFile::read(data)? else { return Ok(()) };
    match process(pid, data) {
        // Postgres removes the file itself, after making sure that no backend of the dead postmaster is left.
        Process::Gone => Ok(()),
        Process::Stranger => disown(data),
        Process::Postmaster => {
            let stopped = ["fast", "immediate"].iter().any(|mode| {
                let mut stop = account.command(&install.program("pg_ctl"));
                stop.arg("stop").arg("-D").arg(data).args(["-m", mode, "-w", "-t", "20"]);
                stop.output().is_ok_and(|told| told.status.success()) || process(pid, data) != Process::Postmaster
            });
            ensure!(stopped, "a Postgres of an earlier run (process {pid}) does not stop");
            Ok(())
        }
    }
}

/// Postgres would take the stranger for a postmaster and refuse to start. It disregards only its parent's number, so that
/// goes there. To remove the file would also remove the id of the shared memory by which it finds surviving backends.
fn disown(data: &Path) -> Result<()> {
    let path = data.join("postmaster.pid");
    let rewrite = || {
        let text = fs::read_to_string(&path)?;
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        fs::write(&path, format!("{}\n{rest}", std::process::id()))
    };
    rewrite().context("cannot rewrite a stale postmaster.pid")
}

/// A postmaster is told from a stranger by its arguments: we start it with `-D` and this very path.
fn process(pid: u32, data: &Path) -> Process {
    let arguments = if Path::new("/proc/self/cmdline").exists() {
        // Empty, but there, for a zombie that nobody has waited for.
        fs::read(format!("/proc/{pid}/cmdline")).ok()
    } else {
        let told = Command::new("ps").args(["-ww", "-o", "args=", "-p", &pid.to_string()]).output().ok();
        told.filter(|told| told.status.success()).map(|told| told.stdout)
    };
    let data = data.as_os_str().as_encoded_bytes();
    match arguments {
        None => Process::Gone,
        Some(arguments) if arguments.windows(data.len()).any(|part| part == data) => Process::Postmaster,
        Some(_) => Process::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_ready_only_when_it_says_so() {
        let lines = |status: &str| format!("42\n/data\n1764500000\n5433\n\n127.0.0.1\n  123 4\n{status}\n");
        assert_eq!(PidFile::parse(&lines("ready   ")), Some(PidFile { pid: 42, ready: true }));
        assert_eq!(PidFile::parse(&lines("starting")), Some(PidFile { pid: 42, ready: false }));
        assert_eq!(PidFile::parse("42\n/data\n"), Some(PidFile { pid: 42, ready: false }));
        assert_eq!(PidFile::parse(""), None);
    }

    #[test]
    fn a_stranger_is_no_postmaster() {
        let us = std::process::id();
        assert_eq!(process(us, Path::new("/nowhere/at/all")), Process::Stranger);
        assert_eq!(process(u32::MAX, Path::new("/nowhere/at/all")), Process::Gone);
    }
}
