//! Finds the Postgres server programs this machine already has. Looks, runs `postgres --version`, and starts nothing.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest major version whose behaviour the statements were tested for.
const OLDEST: u32 = 14;

/// Folders that hold one installation a version: (parent, what the names start with, where the programs are inside).
const PER_VERSION: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
];

/// Every usable installation, the preferred one first. Never empty.
#[derive(Clone, Debug)]
pub struct Binaries(Vec<Install>);

/// `initdb`, `postgres` and `pg_ctl` of one version, in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Install {
    folder: PathBuf,
    pub(crate) major: u32,
}

/// No usable server programs. Says what to install.
#[derive(Debug)]
pub struct NotFound {
    too_old: Option<Install>,
}

impl Binaries {
    /// Looks in `path_var` (the value of `PATH`), asks `pg_config`, then tries the folders Debian, Homebrew, Postgres.app,
    /// the PGDG packages and Alpine use, newest version first.
    ///
    /// # Errors
    /// [`NotFound`] when no folder has all three programs in version 14 or newer.
    pub fn find(path_var: Option<&OsStr>) -> Result<Self, NotFound> {
        let mut found: Vec<Install> = Vec::new();
        let mut too_old = None;
        for folder in candidates(path_var) {
            if found.iter().any(|known| known.folder == folder) {
                continue;
            }
            match Install::in_folder(folder) {
                Some(install) if install.major >= OLDEST => found.push(install),
                Some(install) => too_old = Some(install),
                None => {}
            }
        }
        if found.is_empty() { Err(NotFound { too_old }) } else { Ok(Self(found)) }
    }

    /// The installation that can open a data directory of this major version; of any, for a new one.
    pub(crate) fn for_major(&self, major: Option<u32>) -> Option<&Install> {
        self.0.iter().find(|install| major.is_none_or(|major| install.major == major))
    }

    /// The folder of the preferred installation, where `psql` and `pgbench` usually are too.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0[0].folder
    }

    /// The preferred installation's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.0[0].major
    }
}

impl Install {
    fn in_folder(folder: PathBuf) -> Option<Self> {
        let whole = ["initdb", "postgres", "pg_ctl"].iter().all(|program| folder.join(program).is_file());
        if !whole {
            return None;
        }
        let told = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let major = major_in(&String::from_utf8_lossy(&told.stdout))?;
        Some(Self { folder, major })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no Postgres server found: initdb, postgres and pg_ctl, version {OLDEST} or newer")?;
        if let Some(Install { folder, major }) = &self.too_old {
            writeln!(f, "  (version {major} in {} is too old)", folder.display())?;
        }
        writeln!(f, "Install one:")?;
        writeln!(f, "  Debian, Ubuntu   sudo apt-get install postgresql")?;
        writeln!(f, "  Fedora           sudo dnf install postgresql-server postgresql-contrib")?;
        writeln!(f, "  macOS            brew install postgresql@17")?;
        write!(f, "or set DATABASE_URL to a Postgres in which tables may be created.")
    }
}

impl std::error::Error for NotFound {}

/// Folders worth a look, in order of preference; may repeat and may not exist.
fn candidates(path_var: Option<&OsStr>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in path_var.into_iter().flat_map(std::env::split_paths) {
        // Distributions link single programs into PATH; the others stand beside the link's target.
        if let Ok(initdb) = folder.join("initdb").canonicalize() {
            folders.extend(initdb.parent().map(Path::to_path_buf));
        }
    }
    if let Ok(told) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&told.stdout).trim()));
    }
    for (parent, prefix, inside) in PER_VERSION {
        folders.extend(versions_in(Path::new(parent), prefix).into_iter().map(|folder| folder.join(inside)));
    }
    folders.retain(|folder| folder.is_absolute());
    folders.into_iter().map(|folder| folder.canonicalize().unwrap_or(folder)).collect()
}

/// The folders in `parent` named `prefix` and a version, newest first.
fn versions_in(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix(prefix)?;
            Some((leading_number(version)?, entry.path()))
        })
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// `15` of `postgres (PostgreSQL) 15.18 (Debian …)`, `18` of `… 18beta1`.
fn major_in(version: &str) -> Option<u32> {
    leading_number(version.split_once("(PostgreSQL)")?.1.trim_start())
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pretend(folder: &Path, version: &str) {
        std::fs::create_dir_all(folder).expect("a folder");
        for program in ["initdb", "postgres", "pg_ctl"] {
            let path = folder.join(program);
            std::fs::write(&path, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).expect("a file");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
        }
    }

    #[test]
    fn path_comes_first_and_what_is_old_or_incomplete_is_passed_over() {
        let root = std::env::temp_dir().join(format!("oncebook-binaries-{}", std::process::id()));
        let (old, half, good) = (root.join("old"), root.join("half"), root.join("good"));
        pretend(&old, "13.4");
        pretend(&half, "17.1");
        std::fs::remove_file(half.join("pg_ctl")).expect("removed");
        pretend(&good, "98devel");
        let path = std::env::join_paths([&root.join("missing"), &old, &half, &good]).expect("a PATH");

        let found = Binaries::find(Some(&path)).expect("binaries");

        assert_eq!((found.folder(), found.major()), (good.canonicalize().expect("real").as_path(), 98));
        assert_eq!(found.for_major(Some(98)).map(|i| i.program("initdb")), Some(found.folder().join("initdb")));
        assert!(found.for_major(Some(13)).is_none());
        std::fs::remove_dir_all(&root).expect("cleaned");
    }

    #[test]
    fn versions_are_read_and_sorted_as_numbers() {
        assert_eq!(major_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_in("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_in("something else"), None);
        let root = std::env::temp_dir().join(format!("oncebook-versions-{}", std::process::id()));
        for name in ["pg9.6", "pg15", "pg120", "other"] {
            std::fs::create_dir_all(root.join(name)).expect("a folder");
        }
        let names: Vec<_> =
            versions_in(&root, "pg").iter().filter_map(|f| f.file_name()?.to_str().map(String::from)).collect();
        assert_eq!(names, ["pg120", "pg15", "pg9.6"]);
        std::fs::remove_dir_all(&root).expect("cleaned");
    }

    #[test]
    fn the_message_says_what_to_do() {
        let message = NotFound { too_old: None }.to_string();
        assert!(message.contains("apt-get install postgresql") && message.contains("DATABASE_URL"), "{message}");
    }
}
