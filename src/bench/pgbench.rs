//! The same statements from pgbench: what Postgres would do if the service cost nothing.
//!
//! pgbench has numbers and constant texts only, so a parameter that differs from booking to booking becomes a cheap
//! expression over a number.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::world::{self, World};
use super::{REPLAYED, Work};
use crate::config::Config;
use crate::store::session;

pub(super) async fn run(
    program: &Path,
    url: &str,
    world: &World,
    work: Work,
    clients: usize,
    turn: usize,
    seconds: u32,
) -> Result<f64> {
    if work == Work::Replay {
        // What is to be replayed must be there.
        pgbench(program, url, &script(world, Work::Booking, turn), clients, &format!("--transactions={REPLAYED}"))
            .await?;
    }
    pgbench(program, url, &script(world, work, turn), clients, &format!("--time={seconds}")).await
}

/// Transactions a second.
async fn pgbench(program: &Path, url: &str, script: &str, clients: usize, bound: &str) -> Result<f64> {
    let file = std::env::temp_dir().join(format!("oncebook-bench-{}.sql", std::process::id()));
    std::fs::write(&file, script)?;
    let settings =
        session(Config::from_environment().command_timeout).map(|(name, value)| format!("-c {name}={value}")).join(" ");
    let output = Command::new(program)
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--define=i=-1"])
        .args([&format!("--client={clients}"), bound, &format!("--file={}", file.display())])
        .arg(url)
        .env("PGOPTIONS", settings)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("running {}", program.display()))?;
    std::fs::remove_file(&file)?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && !err.contains("ERROR"), "pgbench failed: {err}");
    let tps = out
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    tps.with_context(|| format!("pgbench said nothing of its rate: {out}"))
}

fn script(world: &World, work: Work, turn: usize) -> String {
    let index = if work == Work::Replay { format!(":i % {REPLAYED}") } else { ":i".to_owned() };
    let first = World::first_practitioner(turn);
    let look = fill(world::LOOK, &look_parameters(world));
    let commit =
        if work == Work::Replay { String::new() } else { fill(world::COMMIT, &commit_parameters(world)) + ";\n" };
    format!(
        "\\set i :i + 1\n\\set n {index}\n\\set one {turn} * 1000000000000 + :client_id * 1000000000 + :n\n\\set who {first} + :client_id\n{look};\n{commit}"
    )
}

/// Puts expressions in the place of a statement's parameters, and leaves its comments out.
fn fill(statement: &str, parameters: &[String]) -> String {
    let code: Vec<&str> = statement
        .lines()
        .map(|line| line.split(" -- ").next().unwrap_or_default())
        .filter(|line| !line.trim_start().starts_with("--"))
        .collect();
    let mut code = code.join("\n");
    // From the last one down, or $1 would be found in $10.
    for (index, parameter) in parameters.iter().enumerate().rev() {
        code = code.replace(&format!("${}", index + 1), parameter);
    }
    code
}

fn id(tag: u8) -> String {
    format!("('{tag:08x}' || lpad(to_hex(:one::bigint), 24, '0'))::uuid")
}

fn hash(tag: u8) -> String {
    format!("decode('{tag:08x}' || lpad(to_hex(:one::bigint), 56, '0'), 'hex')")
}

fn lock(tag: u8) -> String {
    format!("({tag}000000000000000 + :one::bigint)")
}

fn look_parameters(world: &World) -> Vec<String> {
    let text = |id: uuid::Uuid| format!("'{id}'");
    vec![
        text(world.credential_id),
        text(world.clinic_id),
        hash(1),
        format!("'{}'", world.now),
        text(world.patient_id),
        practitioner(),
        "null::uuid".to_owned(),
        text(world.service_id),
        start(world, 0),
        "null".to_owned(),
        hash(2),
        "null".to_owned(),
        "null".to_owned(),
    ]
}

fn practitioner() -> String {
    format!("('{}' || lpad(to_hex(:who::bigint), 12, '0'))::uuid", World::PRACTITIONER_PREFIX)
}

/// The start of the client's n-th half hour, and so many seconds after it.
fn start(world: &World, seconds: i64) -> String {
    format!("to_timestamp({} + :n::bigint * 1800)", world.first_start.as_second() + seconds)
}

fn commit_parameters(world: &World) -> Vec<String> {
    let text = |text: &str| format!("'{text}'");
    let null = || "null".to_owned();
    let body = "x".repeat(600);
    vec![
        text(&world.tenant_id.to_string()),
        text(&world.clinic_id.to_string()),
        id(1),
        text("visit"),
        text(&world.patient_id.to_string()),
        practitioner(),
        "null::uuid".to_owned(),
        text(&world.service_id.to_string()),
        start(world, 0),
        start(world, 1800),
        start(world, 1800),
        text("UTC"),
        text("2027-01-01T09:00:00"),
        "false".to_owned(),
        hash(2),
        null(),
        null(),
        null(),
        null(),
        text(&world.now.to_string()),
        "'{}'".to_owned(),
        "false".to_owned(),
        hash(1),
        hash(3),
        "2".to_owned(),
        text("book"),
        "201".to_owned(),
        text(
            r#"{"content_type":"application/json","etag":"\"1\"","location":"/v1/appointments/01a22c69-d028-7879-93c4-c2fd86dc3a97"}"#,
        ),
        text(&body),
        start(world, 700_000),
        lock(1),
        lock(2),
        id(4),
        null(),
        text("bench"),
        text(&world.credential_id.to_string()),
        id(5),
        format!("array[{}, {}]", id(6), id(7)),
        "'{confirmation,reminder}'".to_owned(),
        format!("array[{}, {}]", start(world, -86_400), start(world, -86_400)),
        id(8),
        text("appointment.booked"),
        text(
            r#"{"start":"2026-12-07T08:00:00Z","end":"2026-12-07T08:30:00Z","status":"booked","schedule_version":1,"practitioner_id":"01a22c69-d028-7879-93c4-c2fd86dc3a97","operatory_id": null,"service_id":"01a22c69-d028-7879-93c4-c2fd86dc3a97"}"#,
        ),
        null(),
        text("appointment"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_filled_in() {
        let statement = "select $1, $10, $2 -- $3 is said here\n-- and $4 here\nfrom t";
        let parameters: Vec<String> = (1..=10).map(|number| format!("p{number}")).collect();
        assert_eq!(fill(statement, &parameters), "select p1, p10, p2\nfrom t");
    }
}
