//! What Postgres said of one trial's database.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use oncebook::dev::cluster::Cluster;

/// Errors that are the commit's way of saying "look again". A deadlock is never among them.
const EXPECTED: [&str; 10] = [
    // A command was given up, and its statement with it.
    "connection to client lost",
    "\"idempotency_keys_pk\"",
    "\"appointments_practitioner_free\"",
    "\"appointments_operatory_free\"",
    "\"appointments_one_per_intent\"",
    "\"appointments_one_per_external_id\"",
    "\"appointments_practitioner_fk\"",
    "\"appointments_operatory_fk\"",
    "\"appointments_service_fk\"",
    "\"appointments_patient_fk\"",
];

/// A place in the log.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Its end as it is.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self(cluster.log_path().metadata().map_or(0, |it| it.len()))
    }

    /// What was said about a database since then, the errors alone, without time and process.
    pub(crate) fn errors(self, cluster: &Cluster, database: &str) -> Vec<String> {
        let mut file = File::open(cluster.log_path()).expect("Postgres keeps a log");
        file.seek(SeekFrom::Start(self.0)).expect("it only grows");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("it can be read");
        let about = format!("] {database} ");
        let text = String::from_utf8_lossy(&text);
        let said = text.lines().filter_map(|line| line.split_once(&about).map(|(_, said)| said));
        said.filter(|said| ["ERROR:", "FATAL:", "PANIC:"].iter().any(|kind| said.starts_with(kind)))
            .map(str::to_owned)
            .collect()
    }
}

/// The errors that are neither expected nor tolerated by the trial.
pub(crate) fn unexpected(errors: Vec<String>, tolerated: &[&str]) -> Vec<String> {
    let fine = |error: &String| EXPECTED.iter().chain(tolerated).any(|part| error.contains(part));
    errors.into_iter().filter(|error| !fine(error) || error.contains("deadlock detected")).collect()
}
