//! Databases as a whole, for tools and tests: reach, create, copy, drop, and bring the schema up to date.

use std::time::Duration;

use deadpool::managed::BuildError;
use sqlx::error::DatabaseError;
use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Error, PgConnection};
use tokio::time::timeout;

use super::StoreError;

/// The schema, forward only, compiled in.
pub static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// A server that takes longer to let somebody in is as good as none: behind a firewall that drops packets, the system alone
/// would wait for minutes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a database is of no use, in words for whoever runs the service. It names the server and never quotes the URL, which
/// has the password in it.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The URL is not one of Postgres's.
    #[error("not the URL of a Postgres database ({0}): postgres://user:password@host:5432/database is wanted")]
    NotAUrl(String),
    /// Nobody lets anybody in there: the server, and what was found instead of one.
    #[error("no connection to Postgres at {0}: {1}")]
    Away(String, String),
    /// The server has no database of that name; the server, and its own words.
    #[error("no connection to Postgres at {0}: {1}")]
    NoDatabase(String, String),
    /// The database lacks migrations that this build needs: the newest it has, the newest this build knows.
    #[error("the database is not migrated ({found}, this release needs {needed}): run `oncebook migrate` first")]
    NotMigrated {
        /// In words.
        found: String,
        /// Its number.
        needed: i64,
    },
    /// A fault of ours.
    #[error("no pool of connections to it: {0}")]
    NoPool(#[from] BuildError),
    /// Its migrations cannot be read.
    #[error("the database's migrations cannot be read: {0}")]
    Unreadable(#[from] StoreError),
}

/// Reads a database's URL.
///
/// # Errors
/// [`Unusable::NotAUrl`]. sqlx would take any scheme for Postgres's.
pub fn options(url: &str) -> Result<PgConnectOptions, Unusable> {
    let not_a_url = |why: &str| Unusable::NotAUrl(why.to_owned());
    let (scheme, _) = url.split_once("://").ok_or_else(|| not_a_url("it has no scheme"))?;
    if !["postgres", "postgresql"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(not_a_url("its scheme is another"));
    }
    url.parse().map_err(|error| match error {
        Error::Configuration(why) => Unusable::NotAUrl(why.to_string()),
        other => Unusable::NotAUrl(other.to_string()),
    })
}

/// Opens a connection, whatever the database holds.
///
/// # Errors
/// When the URL is none of Postgres's, when nobody answers there, when nobody is let in, when there is no such database.
pub async fn connect(url: &str) -> Result<PgConnection, Unusable> {
    let options = options(url)?;
    let socket = options.get_socket().map(|socket| socket.display().to_string());
    let server = socket.unwrap_or_else(|| format!("{}:{}", options.get_host(), options.get_port()));
    match timeout(PATIENCE, options.connect()).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(match error.as_database_error().map(|said| (said.code(), said.message())) {
            // Postgres's invalid_catalog_name.
            Some((Some(code), said)) if code == "3D000" => Unusable::NoDatabase(server, said.to_owned()),
            Some((_, said)) => Unusable::Away(server, said.to_owned()),
            None => match error {
                Error::Io(error) => Unusable::Away(server, error.to_string()),
                other => Unusable::Away(server, other.to_string()),
            },
        }),
        Err(_) => Err(Unusable::Away(server, format!("no answer within {PATIENCE:?}"))),
    }
}

/// Opens a connection to a database that this build can work with.
///
/// # Errors
/// As [`connect`], and [`Unusable::NotMigrated`].
pub async fn open(url: &str) -> Result<PgConnection, Unusable> {
    let mut connection = connect(url).await?;
    let Schema { version, complete } = schema(&mut connection).await?;
    if complete {
        return Ok(connection);
    }
    let found = version.map_or_else(|| "it has no migration".to_owned(), |version| format!("it is at {version}"));
    Err(Unusable::NotMigrated { found, needed: newest().unwrap_or_default() })
}

/// Applies what is missing. Processes that start together take turns (an advisory lock).
///
/// # Errors
/// When Postgres refuses, or when the database has a migration this build does not know.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    MIGRATIONS.run(connection).await
}

/// Where a database's schema stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Its newest migration; none where nothing was ever migrated.
    pub version: Option<i64>,
    /// Whether it has every migration this build knows. It may have newer ones: they come before the processes that need them.
    pub complete: bool,
}

/// The newest migration this build knows.
#[must_use]
pub fn newest() -> Option<i64> {
    MIGRATIONS.iter().map(|migration| migration.version).max()
}

/// Reads where the schema stands.
///
/// # Errors
/// As [`StoreError`].
pub async fn schema(connection: &mut PgConnection) -> Result<Schema, StoreError> {
    let applied = match connection.list_applied_migrations(&MIGRATIONS.table_name).await {
        Ok(applied) => applied,
        Err(MigrateError::Execute(error)) if is_undefined_table(&error) => Vec::new(),
        Err(MigrateError::Execute(error)) => return Err(error.into()),
        Err(other) => return Err(StoreError::Broken(other.into())),
    };
    let has = |version| applied.iter().any(|migration| migration.version == version);
    Ok(Schema {
        version: applied.iter().map(|migration| migration.version).max(),
        complete: MIGRATIONS.iter().all(|migration| has(migration.version)),
    })
}

fn is_undefined_table(error: &Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42P01")
}

/// Creates `name`, over a connection to any other database of the cluster; as a copy of `template` where given.
///
/// # Errors
/// When the name is taken, when somebody is connected to the template, or when a name is not one (`Error::Configuration`).
pub async fn create(url: &str, name: &str, template: Option<&str>) -> Result<(), Error> {
    let copied = template.unwrap_or("template1");
    run(url, &[name, copied], format!("create database {name} template {copied}")).await
}

/// Drops `name` if it exists, and ends its sessions.
///
/// # Errors
/// When Postgres refuses, or when the name is not one (`Error::Configuration`).
pub async fn drop(url: &str, name: &str) -> Result<(), Error> {
    run(url, &[name], format!("drop database if exists {name} with (force)")).await
}

/// These statements take no parameters, so the names in them are held to letters, digits and underscores.
async fn run(url: &str, names: &[&str], statement: String) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if let Some(odd) = names.iter().find(|name| name.is_empty() || !name.chars().all(plain)) {
        return Err(Error::Configuration(format!("`{odd}` is no name for a database").into()));
    }
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_postgres_has_urls_here_and_what_is_none_is_not_quoted() {
        for url in ["postgres://a:s3cret@h/d", "POSTGRESQL://h", "postgres:///d?host=/run/postgresql"] {
            options(url).expect(url);
        }
        for url in [
            "",
            "a database",
            "s3cret@host/d",
            "mysql://a:s3cret@h/d",
            "postgres:/a:s3cret@h/d",
            "postgres://a:s3cret@h:port/d",
            "postgres://a:s3/cret@h/d",
            "postgres://a:s3cret@h/d?sslmode=perhaps",
            "postgres://a:s3cret@h/d?port=s3cret",
        ] {
            let why = options(url).expect_err(url).to_string();
            assert!(why.contains("postgres://") && !why.contains("s3cret"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_without_the_password() {
        let why = open("postgres://a:s3cret@127.0.0.1:1/d").await.expect_err("nobody there").to_string();
        assert!(why.starts_with("no connection to Postgres at 127.0.0.1:1: ") && why.contains("refused"), "{why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
}
