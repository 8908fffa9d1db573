//! The black-box checks: `docs/API.md` as a list of cases, run over real sockets against any base URL.
//!
//! Promise: a case fails only where the contract is broken, says what was expected and what came, and can be run again
//! on the same server, since it books in clinics and slots of its own. Must never use the service's own code to decide
//! what is right: only `clock.rs` is shared. Where no database is given, rows are not counted, and nothing pretends so.
//!
//! One file a section of `docs/CONFORMANCE.md`; `call.rs`, `answer.rs` and `raw.rs` speak HTTP, `fixture.rs` makes clinics,
//! `operations.rs` lists every command, `database.rs` counts, ages and locks rows, `seen.rs` watches every answer,
//! `preflight.rs` sees whether there is anything to check.

mod answer;
mod call;
mod case;
mod clockwork;
mod concurrency;
mod contract;
mod database;
mod directory;
mod documents;
mod domain;
mod expiry;
mod fingerprint;
mod fixture;
mod held;
mod key;
mod malformed;
mod operations;
mod order;
mod preflight;
mod raw;
mod reads;
mod refusals;
mod report;
mod roles;
mod rules;
mod scope;
mod seen;
mod stale;
mod stored;
mod waiting;
mod world;

use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;

pub use self::case::{Case, Failure, Need, Outcome};
pub use self::report::Summary;
use self::world::World;

/// Arguments of `oncebook conformance`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The service to check, as `http://host:port`. The default is the one in --dev-json
    #[arg(long, value_name = "URL", required_unless_present_any = ["dev_json", "list"])]
    pub base_url: Option<String>,
    /// A second process on the same database: cases about two processes take turns between both
    #[arg(long, value_name = "URL")]
    pub peer_base_url: Option<String>,
    /// The API key of a `CLINIC_ADMIN` for all clinics: the checks make clinics of their own
    #[arg(long, value_name = "KEY", required_unless_present_any = ["dev_json", "list"])]
    pub api_key: Option<String>,
    /// The dev.json of `oncebook dev`: runs the cases that need several credentials, too
    #[arg(long, value_name = "FILE")]
    pub dev_json: Option<PathBuf>,
    /// The service's database: rows are counted, aged and locked from outside. Never one that matters
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Also write the results there, as XML in the form of `JUnit`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Only cases of this number or with this text in their name; several, with commas between
    #[arg(long, value_name = "PATTERN")]
    pub only: Option<String>,
    /// Print the cases and what they need, and run none
    #[arg(long)]
    pub list: bool,
}

/// What `oncebook dev` writes when it is ready (API.md, "Starting it"), as far as the checks read it.
#[derive(Clone, Debug, Deserialize)]
pub struct DevJson {
    /// Where the service answers.
    pub base_url: String,
    /// One API key a role.
    pub api_keys: DevKeys,
    /// The demo clinic.
    pub clinic_id: String,
    /// The group's other clinic.
    pub other_clinic_id: String,
    /// The demo clinic's practitioners.
    pub practitioner_ids: Vec<String>,
    /// The demo clinic's operatories.
    pub operatory_ids: Vec<String>,
    /// The demo clinic's services: 15, 30 and 60 minutes.
    pub service_ids: Vec<String>,
    /// The group's patients.
    pub patient_ids: Vec<String>,
}

/// The API keys of [`DevJson`].
#[derive(Clone, Debug, Deserialize)]
pub struct DevKeys {
    /// `CLINIC_ADMIN`, all clinics.
    pub admin: String,
    /// `FRONT_DESK` of the demo clinic.
    pub front_desk: String,
    /// `FRONT_DESK` of the other clinic.
    pub other_clinic: String,
    /// `INTEGRATION`, all clinics.
    pub integration: String,
    /// `APPOINTMENT_REPLAY_OPERATOR`, all clinics.
    pub operator: String,
    /// `LEDGER_APPROVER`, all clinics.
    pub ledger_approver: String,
    /// `PMS_WORKER` of the demo clinic.
    pub worker: String,
    /// `FRONT_DESK` of another group.
    pub other_tenant: String,
}

/// What the cases run against.
#[derive(Clone, Debug)]
pub struct Target {
    /// The service, as `http://host:port`.
    pub base_url: String,
    /// A second process on the same database, for the cases marked ⇉.
    pub peer_base_url: Option<String>,
    /// The demo group and its credentials; without it, cases that need several credentials are skipped.
    pub dev: Option<DevJson>,
    /// The API key of a `CLINIC_ADMIN` for all clinics.
    pub api_key: String,
    /// The service's database; without it, no row is counted, aged or locked.
    pub database_url: Option<String>,
}

impl Target {
    /// What the arguments name.
    ///
    /// # Errors
    /// When `dev.json` cannot be read, or neither it nor both of URL and key are given.
    pub fn from_options(options: &Options) -> anyhow::Result<Self> {
        let dev = match &options.dev_json {
            None => None,
            Some(file) => {
                let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                let dev: DevJson =
                    serde_json::from_str(&text).with_context(|| format!("{} is not a dev.json", file.display()))?;
                Some(dev)
            }
        };
        let base_url = options.base_url.clone().or_else(|| dev.as_ref().map(|dev| dev.base_url.clone()));
        let api_key = options.api_key.clone().or_else(|| dev.as_ref().map(|dev| dev.api_keys.admin.clone()));
        Ok(Self {
            base_url: base_url.context("give --base-url or --dev-json")?,
            peer_base_url: options.peer_base_url.clone(),
            dev,
            api_key: api_key.context("give --api-key or --dev-json")?,
            database_url: options.database_url.clone(),
        })
    }
}

/// Every case, in the order of `docs/CONFORMANCE.md`.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for section in [
        contract::cases(),
        documents::cases(),
        concurrency::cases(),
        stale::cases(),
        held::cases(),
        waiting::cases(),
        stored::cases(),
        malformed::cases(),
        fingerprint::cases(),
        key::cases(),
        scope::cases(),
        roles::cases(),
        order::cases(),
        expiry::cases(),
        domain::cases(),
        clockwork::cases(),
        rules::cases(),
        refusals::cases(),
        directory::cases(),
        reads::cases(),
    ] {
        cases.extend(section);
    }
    // Stable, so that a section's own order holds within a number.
    cases.sort_by_key(|case| case.number);
    cases
}

/// Runs the cases the options choose, prints a line for each and a summary, and writes the report asked for.
///
/// # Errors
/// When the target cannot be made out or reached, or the report cannot be written; a failed case is no error, but in the
/// summary.
pub async fn run(options: Options) -> anyhow::Result<Summary> {
    let chosen: Vec<Case> = cases().into_iter().filter(|case| case.chosen(options.only.as_deref())).collect();
    if options.list {
        for case in &chosen {
            println!("{case}");
        }
        return Ok(Summary::default());
    }
    anyhow::ensure!(!chosen.is_empty(), "no case has that number or name; --list shows them all");
    let target = Target::from_options(&options)?;
    preflight::reach(&target).await?;
    let world = World::new(target)?;
    let mut report = report::Report::default();
    // What watches every answer reports last, when there is something to have watched.
    let (watching, acting): (Vec<Case>, Vec<Case>) = chosen.into_iter().partition(|case| case.watches);
    for case in acting.iter().chain(&watching) {
        let started = std::time::Instant::now();
        let outcome = case.run(&world).await;
        report.add(case, outcome, started.elapsed());
    }
    if let Some(file) = &options.report {
        std::fs::write(file, report.junit()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let summary = report.summary();
    println!("{summary}");
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// A server that answers everything alike; its base URL, while the set lives.
    async fn parrot(answer: &'static str) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}", listener.local_addr().expect("its address"));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                open.spawn(async move {
                    let mut buffer = vec![0; 200_000];
                    // One read is the whole of a small request; the rest of a large one is not waited for.
                    let _ = stream.read(&mut buffer).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
        (base_url, serving)
    }

    #[tokio::test]
    async fn no_case_passes_against_a_server_that_does_nothing() {
        for answer in [
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 400 No\r\nConnection: close\r\nContent-Length: 28\r\n\r\n{\"code\":\"malformed_request\"}",
        ] {
            let (base_url, _serving) = parrot(answer).await;
            let api_key = "ob_x_y".to_owned();
            let target = Target { base_url, peer_base_url: None, dev: None, api_key, database_url: None };
            let world = World::new(target).expect("a client");
            for case in cases().into_iter().filter(|case| !case.watches) {
                let outcome = case.run(&world).await;
                assert_ne!(outcome, Outcome::Passed, "{case}");
            }
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_arguments_ask_for_a_url_and_a_key_or_for_a_dev_json() {
        use clap::{CommandFactory as _, Parser as _};
        Line::command().debug_assert();
        let parsed = |words: &str| Line::try_parse_from(words.split(' ')).map(|line| line.options);
        for enough in ["x --base-url http://h --api-key k", "x --dev-json f", "x --list"] {
            parsed(enough).expect(enough);
        }
        for lacking in ["x --base-url http://h", "x --api-key k", "x --only 3"] {
            parsed(lacking).expect_err(lacking);
        }
    }

    #[test]
    fn cases_have_names_of_their_own_and_numbers_of_the_list() {
        let cases = cases();
        let names: HashSet<_> = cases.iter().map(|case| (case.number, case.name)).collect();
        assert_eq!(names.len(), cases.len());
        // 27 needs a panic inside the service, which nobody causes from outside.
        for number in (1..=18).chain(24..=52).filter(|number| *number != 27) {
            assert!(cases.iter().any(|case| case.number == number), "no case for {number}");
        }
    }
}
