//! The only background loop. A worker is a step: a bounded amount of work, safe to run twice, on two machines, and to be
//! dropped anywhere. The loop steps until there is nothing to do, rests, backs off when a step fails, and stops when told.
//! It feels the worker's pulse on the way: a new worker is in `/readyz`, `/metrics` and the alerts without a word of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::Ids;
use crate::domain::problem::Problem;
use crate::hint::{Hint, Hints};
use crate::pulse::{Behind, Pulse};

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

    /// How far behind it is; none where it has no queue. Asked every few seconds, beside the steps: it must be cheap
    /// however much waits.
    fn behind(&self) -> impl Future<Output = Result<Option<Behind>, Problem>> + Send {
        std::future::ready(Ok(None))
    }
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

/// How often a worker is asked how far behind it is.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After the stop a step in hand may finish for this long, as long as a command in hand may. One that waits for somebody
/// else's lock may take for ever; it is let go, which is what a crash would do to it, and a step is safe to be dropped.
const FINISH_PATIENCE: Duration = Duration::from_secs(8);

/// Runs a worker until told to stop; a step in hand is finished, if that does not take too long.
pub async fn run(worker: impl Worker, pulse: Arc<Pulse>, ids: Ids, stop: CancellationToken) {
    let too_late = async {
        stop.cancelled().await;
        sleep(FINISH_PATIENCE).await;
    };
    tokio::select! {
        () = steps(&worker, &pulse, &ids, &stop) => {}
        () = lags(&worker, &pulse, &ids) => {}
        () = too_late => tracing::warn!(worker = worker.name(), "a step did not finish in time, and is let go"),
    }
}

async fn steps(worker: &impl Worker, pulse: &Pulse, ids: &Ids, stop: &CancellationToken) {
    let name = worker.name();
    let took = metrics::histogram!("oncebook_worker_step_seconds", "worker" => name);
    let mut back_off = SHORTEST_BACK_OFF;
    let mut hints = worker.hint().map(Hint::listen);
    while !stop.is_cancelled() {
        // Before it looks: what is added in between is seen by this step or wakes it from the rest after it.
        hints.iter_mut().for_each(Hints::forget);
        let began = Instant::now();
        let did = worker.step().await;
        took.record(began.elapsed().as_secs_f64());
        let pause = match did {
            Ok(did) => {
                pulse.succeeded();
                back_off = SHORTEST_BACK_OFF;
                if did == Did::Work {
                    continue;
                }
                worker.rest()
            }
            Err(problem) => {
                let code = problem.code.as_str();
                pulse.failed(problem.code);
                metrics::counter!("oncebook_worker_failures_total", "worker" => name, "code" => code).increment(1);
                tracing::warn!(worker = name, code, "a step failed");
                let pause = back_off;
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
                pause
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(jittered(pause, ids)) => {}
            () = hinted(&mut hints) => {}
        }
    }
}

/// Asks how far behind the worker is, now and then, for ever. Beside the steps, not between them: a step that does not end
/// is when it matters most.
async fn lags(worker: &impl Worker, pulse: &Pulse, ids: &Ids) {
    loop {
        // What could not be asked is not known. Why not is the steps' to tell: they need the same database.
        pulse.lags(worker.behind().await.unwrap_or(None));
        sleep(jittered(LOOK_EVERY, ids)).await;
    }
}

/// Processes that were started together need not work together.
fn jittered(pause: Duration, ids: &Ids) -> Duration {
    pause / 2 + Duration::from_millis(ids.below(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)))
}
