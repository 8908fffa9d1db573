//! Databases as a whole, for tools and tests: create, copy, drop, and bring the schema up to date.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection, Error, PgConnection};

/// The schema, forward only, compiled in.
pub static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Applies what is missing. Processes that start together take turns (an advisory lock).
///
/// # Errors
/// When Postgres refuses, or when the database has a migration this build does not know.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    MIGRATIONS.run(connection).await
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
