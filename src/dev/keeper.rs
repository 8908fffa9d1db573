//! Keeps the private Postgres running. Whoever kills it under a running machine, the system for want of memory or a person
//! by mistake, finds it again a moment later; one that does not stay up ends the machine with a word on where to look.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::dev::cluster::Cluster;
use crate::dev::progress;

/// Short beside a developer's patience, long beside what a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Starts in a row that are no use: something is wrong that starting again does not mend.
const TRIES: u32 = 3;

/// After a start that failed: a port or a disk may be free again.
const PAUSE: Duration = Duration::from_secs(1);

/// Up for so long, the next end is a new story.
const WELL_AFTER: Duration = Duration::from_mins(1);

/// Starts the cluster again whenever it ended, until told to stop; a start in hand is finished.
///
/// # Errors
/// When it does not stay up. The message names its log.
pub(crate) async fn keep(cluster: &Arc<Cluster>, stop: &CancellationToken) -> Result<()> {
    let (mut tries, mut started) = (0, Instant::now());
    while stop.run_until_cancelled(sleep(LOOK_EVERY)).await.is_some() {
        let Some(how) = cluster.ended()? else { continue };
        if started.elapsed() > WELL_AFTER {
            tries = 0;
        }
        if tries == TRIES {
            bail!("Postgres ends again and again ({how}); {} says why", cluster.log_path().display());
        }
        tries += 1;
        progress(&format!("Postgres is gone ({how}), starting it again"));
        let restarting = Arc::clone(cluster);
        match tokio::task::spawn_blocking(move || restarting.restart_immediate()).await.context("starting Postgres")? {
            Ok(()) => progress("Postgres is back"),
            Err(error) => {
                progress(&format!("{error:#}"));
                stop.run_until_cancelled(sleep(PAUSE)).await;
            }
        }
        started = Instant::now();
    }
    Ok(())
}
