//! Databases as a whole, for tools and tests: create, copy, drop, and bring the schema up to date.

use sqlx::error::DatabaseError;
use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection, Error, PgConnection};

use super::StoreError;

/// The schema, forward only, compiled in.
pub static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

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
