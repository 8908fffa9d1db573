//! What a person at a terminal is told when something is missing: one line that says what, never with a password in it.

use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Command;

use crate::app::eventually;
use crate::ground::Ground;
use crate::process::Process;

/// In every URL here that leads nowhere; in no line that says so.
const PASSWORD: &str = "s3cret";

/// Nobody listens there.
fn nowhere() -> String {
    format!("postgres://oncebook:{PASSWORD}@127.0.0.1:1/oncebook")
}

fn oncebook(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebook"));
    command.args(arguments.split(' ')).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The one line of a command that ends with this code.
async fn told(arguments: &str, database_url: Option<&str>, code: i32) -> String {
    let output =
        oncebook(arguments).envs(database_url.map(|url| ("DATABASE_URL", url))).output().await.expect("it runs");
    let (out, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!((output.status.code(), out.as_ref()), (Some(code), ""), "{told}");
    assert!(told.starts_with("oncebook: ") && told.lines().count() == 1 && !told.contains(PASSWORD), "{told}");
    told
}

/// An empty database; the next run drops it.
async fn empty(ground: &Ground, name: &str) -> String {
    ground.cluster.create_database(name, None).await.expect("an empty database");
    ground.cluster.url(name)
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_named_with_its_fault() {
    let ground = Ground::shared().await;
    let empty = empty(&ground, "trial_terminal").await;
    let stranger = format!("postgres://oncebook:{PASSWORD}@127.0.0.1:{}/trial_terminal", ground.cluster.port());
    for command in ["serve", "migrate", "keys list", "audit"] {
        for url in [None, Some("")] {
            let told = told(command, url, 1).await;
            assert!(told.contains("DATABASE_URL") && told.contains("--database-url"), "{told}");
        }
        for url in [format!("mysql://a:{PASSWORD}@127.0.0.1/d"), PASSWORD.to_owned()] {
            let told = told(command, Some(&url), 1).await;
            assert!(told.contains("not the URL of a Postgres database"), "{told}");
        }
    }
    let faults = [
        (nowhere(), "127.0.0.1:1: Connection refused"),
        (stranger, "password authentication failed"),
        (ground.cluster.url("trial_of_nobody"), "does not exist"),
        (empty, "`oncebook migrate` first"),
    ];
    for (url, fault) in &faults {
        for command in ["keys list", "keys revoke 019e0000-0000-7000-8000-000000000001", "audit"] {
            let told = told(command, Some(url), 1).await;
            assert!(told.contains(fault), "{told}");
        }
    }
    for (url, fault) in &faults[..3] {
        let told = told("migrate", Some(url), 1).await;
        assert!(told.contains(fault), "{told}");
    }
}

#[tokio::test]
async fn the_service_says_why_its_database_is_away_and_goes_on_trying() {
    let ground = Ground::shared().await;
    let url = empty(&ground, "trial_terminal_serve").await;
    // The janitor would call what it finds a fault, as it is later on.
    let process = Process::start(&url, &[("ONCEBOOK_ROLES", "api")], &Arc::default()).await;
    let said = |what: &str| process.said().iter().filter(|line| line.contains(what)).count();
    eventually("it says what to do", async || said("`oncebook migrate` first") == 1).await;
    assert!(oncebook("migrate").env("DATABASE_URL", &url).output().await.expect("it runs").status.success());
    eventually("it says that it can work", async || said("the database can be used\"") == 1).await;
    assert_eq!(said("`oncebook migrate` first"), 1, "once");
    process.stop().await;
}

#[tokio::test]
async fn conformance_says_in_a_line_that_there_is_nothing_to_check() {
    let nobody = told("conformance --base-url http://127.0.0.1:1 --api-key ob_x_y", None, 2).await;
    assert!(nobody.contains("nobody answers at http://127.0.0.1:1"), "{nobody}");
    let process = Process::start(&nowhere(), &[], &Arc::default()).await;
    let unknown = told(&format!("conformance --base-url {} --api-key ob_x_y", process.base), None, 2).await;
    assert!(unknown.contains("401"), "{unknown}");
    process.stop().await;
}
