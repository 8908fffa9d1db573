//! The only background loop. A worker is a step: a bounded amount of work, safe to run twice, on two machines, and to be
//! dropped anywhere. The loop steps until there is nothing to do, rests, backs off when a step fails, and stops when told.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::Ids;
use crate::domain::problem::Problem;
use crate::hint::{Hint, Hints};

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Some work, and there may be more.
    Work,
    /// Nothing: there was nothing to do.
    Nothing,
}

/// Something that is done in the background.
pub trait Worker: Send + Sync + 'static {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// How long it rests when there is nothing to do.
    fn rest(&self) -> Duration;

    /// What wakes it from its rest.
    fn hint(&self) -> Option<&Hint> {
        None
    }

    /// One step.
    fn step(&self) -> impl Future<Output = Result<Did, Problem>> + Send;
}

/// The pause after a step that failed; it doubles while they fail.
const SHORTEST_BACK_OFF: Duration = Duration::from_secs(1);

/// The longest pause after steps that failed.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);

/// Waits for the next hint; for ever where there is nothing to listen to.
async fn hinted(hints: &mut Option<Hints>) {
    match hints {
        Some(hints) => hints.next().await,
        None => std::future::pending().await,
    }
}

/// Runs a worker until told to stop; a step in hand is finished.
pub async fn run(worker: impl Worker, ids: Ids, stop: CancellationToken) {
    let mut back_off = SHORTEST_BACK_OFF;
    let mut hints = worker.hint().map(Hint::listen);
    while !stop.is_cancelled() {
        // Before it looks: what is added in between is seen by this step or wakes it from the rest after it.
        hints.iter_mut().for_each(Hints::forget);
        let pause = match worker.step().await {
            Ok(did) => {
                back_off = SHORTEST_BACK_OFF;
                if did == Did::Work {
                    continue;
                }
                worker.rest()
            }
            Err(problem) => {
                tracing::warn!(worker = worker.name(), code = problem.code.as_str(), "a step failed");
                let pause = back_off;
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
                pause
            }
        };
        // Processes that were started together need not work together.
        let jittered =
            pause / 2 + Duration::from_millis(ids.below(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)));
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(jittered) => {}
            () = hinted(&mut hints) => {}
        }
    }
}
