//! Whom Postgres runs as. It refuses to be root, so root lends it the account `postgres` or `nobody`; anyone else runs it
//! as themselves. Every server program is started from here, with an environment of its own.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Unicode rules, English messages (some are recognised in `server.rs`), and present wherever Postgres is. Also keeps
/// macOS from starting threads for the locale inside the postmaster, which makes it refuse to start.
pub(crate) const LOCALE: &str = if cfg!(target_os = "linux") { "C.UTF-8" } else { "en_US.UTF-8" };

/// An account to run programs as.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// User and group to become; `None` stays who we are.
    become_: Option<(u32, u32)>,
    path_var: OsString,
}

impl Account {
    /// For the cluster in `data`: its owner if it exists and we are root, ourselves if we are not.
    pub(crate) fn for_data(data: &Path) -> Result<Self> {
        // For the shell and what it calls; the server programs are run by their full path.
        let path_var = OsString::from("/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        if id(&["-u"])? != 0 {
            return Ok(Self { become_: None, path_var });
        }
        let owner = data.metadata().ok().map(|it| (it.uid(), it.gid())).filter(|(user, _)| *user != 0);
        let become_ = owner.or_else(|| {
            ["postgres", "nobody"].iter().find_map(|name| Some((id(&["-u", name]).ok()?, id(&["-g", name]).ok()?)))
        });
        ensure!(
            become_.is_some(),
            "Postgres refuses to run as root, and this machine has neither an account `postgres` nor `nobody`"
        );
        Ok(Self { become_, path_var })
    }

    /// A program under this account: in its own process group, so that a terminal's Ctrl-C reaches us and not Postgres
    /// under our feet; without the caller's `PG…` variables; from a folder everyone may enter.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", &self.path_var).env("LC_ALL", LOCALE).env("TZ", "UTC");
        command.current_dir("/").process_group(0).stdin(Stdio::null());
        if let Some((user, group)) = self.become_ {
            // Becoming another user also drops root's supplementary groups.
            command.uid(user).gid(group);
        }
        command
    }

    /// Creates a folder only this account can enter.
    pub(crate) fn create_private(&self, folder: &Path) -> Result<()> {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(folder)
            .and_then(|()| self.give(folder))
            .with_context(|| format!("cannot create {}", folder.display()))
    }

    /// Makes this account the owner.
    pub(crate) fn give(&self, path: &Path) -> std::io::Result<()> {
        match self.become_ {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// Where a cluster wanted at `folder` can be: there, or under `/var/tmp` when we are root and the account cannot get
    /// through to it (a clone in root's home). Created if missing.
    pub(crate) fn home_for(&self, folder: &Path) -> Result<PathBuf> {
        create_open(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        if self.become_.is_none() || self.can_enter(&folder) {
            return Ok(folder);
        }
        let digest = format!("{:x}", Sha256::digest(folder.as_os_str().as_encoded_bytes()));
        let instead = PathBuf::from(format!("/var/tmp/oncebook-{}", &digest[..16]));
        create_open(&instead).with_context(|| format!("cannot create {}", instead.display()))?;
        // Anyone may write to /var/tmp: what somebody else put there is not ours to fill.
        let found = instead.symlink_metadata()?;
        if !found.is_dir() || found.uid() != 0 || !self.can_enter(&instead) {
            bail!("Postgres's account can enter neither {} nor {}", folder.display(), instead.display());
        }
        Ok(instead)
    }

    fn can_enter(&self, folder: &Path) -> bool {
        let mut shell = self.command(Path::new("/bin/sh"));
        shell.args(["-c", "cd \"$1\"", "sh"]).arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    }
}

/// A folder others may pass through but not list.
fn create_open(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::DirBuilder::new().mode(0o711).create(folder)?;
    // Again, since the umask may have taken the others' way through.
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o711))
}

/// `id`, since the standard library names no users.
fn id(arguments: &[&str]) -> Result<u32> {
    let told = Command::new("id").args(arguments).output().context("cannot run `id`")?;
    let told = String::from_utf8_lossy(&told.stdout);
    told.trim().parse().with_context(|| format!("`id {}` told no number", arguments.join(" ")))
}
