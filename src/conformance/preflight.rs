//! Before anything is checked: whether there is anything to check. A hundred failures that say "connection refused" tell
//! less than one line.

use std::sync::Arc;

use anyhow::{bail, ensure};

use super::Target;
use super::call::Client;
use super::case::{Stop, Verdict};
use super::database::Database;

/// Asks whether somebody answers, knows the API key, and whether the database is there. What they answer beyond that is
/// for the cases to judge.
pub(super) async fn reach(target: &Target) -> anyhow::Result<()> {
    for base in [Some(&target.base_url), target.peer_base_url.as_ref()].into_iter().flatten() {
        let base = base.trim_end_matches('/');
        let known = ["http://", "https://"].iter().any(|scheme| base.starts_with(scheme));
        ensure!(known, "a service is wanted as http://host:port or https://host:port, not {base}");
        let client = Client::new(vec![base.to_owned()], &target.api_key, Arc::default())?;
        if let Some(why) = lost(client.get("/healthz").send().await) {
            bail!("nobody answers at {base}: {why}");
        }
        let asked = client.get("/v1/clinics?limit=1").send().await;
        let known = !asked.is_ok_and(|answer| answer.status == 401);
        ensure!(known, "{base} answers 401 to the API key: is it a key of that service, and still in use?");
    }
    let Some(url) = &target.database_url else { return Ok(()) };
    if let Some(why) = lost(Database::new(url.clone()).connect().await) {
        bail!("the database of --database-url cannot be reached: {why}");
    }
    Ok(())
}

/// Why there was no answer, if there was none.
fn lost<T>(verdict: Verdict<T>) -> Option<String> {
    match verdict.err()? {
        Stop::Failed(failure) => Some(failure.came),
        Stop::Skipped(why) => Some(why),
    }
}
