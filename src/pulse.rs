//! The pulse of background work: when each worker's last step succeeded, since when its steps fail, and how far behind it
//! is. `worker.rs` feels it, `/readyz` and `/metrics` show it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::domain::problem::Code;

/// What waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behind {
    /// Pieces of work; of a great many it may be a lower bound.
    pub items: u64,
    /// The age of the oldest, in seconds; 0 where nothing waits.
    pub seconds: f64,
}

impl Behind {
    /// So many, the oldest of which is from then.
    #[must_use]
    pub fn since(oldest: Option<Timestamp>, items: u64, now: Timestamp) -> Self {
        Self { items, seconds: oldest.map_or(0.0, |oldest| age(oldest, now)) }
    }
}

/// Seconds from then to now. Two machines' clocks may differ a little: an age is never below zero.
#[must_use]
pub fn age(then: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(then).as_secs_f64().max(0.0)
}

/// One worker's.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    /// How long it rests with nothing to do, jitter included: so long without a step is no sign of anything.
    rest: Duration,
    clock: Clock,
    beat: Mutex<Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    began: Instant,
    last_ok: Option<Instant>,
    failing: Option<Failing>,
    behind: Option<Behind>,
}

/// Steps that fail, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failing {
    /// When the first of them did.
    pub since: Timestamp,
    /// Why the last of them did.
    pub code: Code,
    first: Instant,
}

impl Pulse {
    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step has succeeded.
    pub fn succeeded(&self) {
        let mut beat = self.lock();
        (beat.last_ok, beat.failing) = (Some(Instant::now()), None);
    }

    /// A step has failed.
    pub fn failed(&self, code: Code) {
        let (since, first) = (self.clock.now(), Instant::now());
        let mut beat = self.lock();
        let failing = beat.failing.get_or_insert(Failing { since, code, first });
        failing.code = code;
    }

    /// How far behind it is; none where it has no queue, or nobody knows.
    pub fn lags(&self, behind: Option<Behind>) {
        self.lock().behind = behind;
    }

    /// As it stands, held against a bound.
    fn look(&self, bound: Duration, now: Instant) -> Look {
        let beat = *self.lock();
        let ago = |at: Instant| now.saturating_duration_since(at);
        let late = beat.behind.is_some_and(|behind| behind.seconds > bound.as_secs_f64());
        let failed = beat.failing.is_some_and(|failing| ago(failing.first) > bound);
        // A step that does not end neither succeeds nor fails.
        let stuck = ago(beat.last_ok.unwrap_or(beat.began)) > bound + self.rest;
        Look {
            name: self.name,
            ok: !(late || failed || stuck),
            last_ok: beat.last_ok.map(ago),
            failing: beat.failing,
            behind: beat.behind,
        }
    }
}

/// A pulse at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Whose.
    pub name: &'static str,
    /// Whether it neither fails, nor is stuck, nor is behind, for longer than the bound.
    pub ok: bool,
    /// How long ago its last step succeeded; none if none has.
    pub last_ok: Option<Duration>,
    /// What it fails with.
    pub failing: Option<Failing>,
    /// What waits for it.
    pub behind: Option<Behind>,
}

/// Those of all workers of a process.
#[derive(Debug)]
pub struct Pulses {
    clock: Clock,
    bound: Duration,
    all: Mutex<Vec<Arc<Pulse>>>,
    decide: AtomicBool,
}

impl Pulses {
    /// None yet. A worker may fail, or be behind, for as long as `bound`.
    #[must_use]
    pub fn new(clock: Clock, bound: Duration) -> Self {
        Self { clock, bound, all: Mutex::default(), decide: AtomicBool::new(false) }
    }

    /// One more, of a worker that begins now, and rests about so long with nothing to do.
    pub fn begin(&self, name: &'static str, rest: Duration) -> Arc<Pulse> {
        let beat = Beat { began: Instant::now(), last_ok: None, failing: None, behind: None };
        let rest = rest + rest / 2;
        let pulse = Arc::new(Pulse { name, rest, clock: self.clock.clone(), beat: Mutex::new(beat) });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pulse));
        pulse
    }

    /// Workers are all that this process does: without them it is not ready.
    pub fn decide(&self) {
        self.decide.store(true, Ordering::Relaxed);
    }

    /// As they stand.
    #[must_use]
    pub fn look(&self) -> Vec<Look> {
        self.look_at(Instant::now())
    }

    fn look_at(&self, now: Instant) -> Vec<Look> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|pulse| pulse.look(self.bound, now)).collect()
    }

    /// Whether, as far as workers decide it, the process is ready.
    #[must_use]
    pub fn ready(&self, looks: &[Look]) -> bool {
        !self.decide.load(Ordering::Relaxed) || looks.iter().all(|look| look.ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_mins(1);
    const REST: Duration = Duration::from_secs(15);
    /// Far more than a test takes, far less than a bound.
    const MARGIN: Duration = Duration::from_secs(3);
    const NEARLY: Duration = Duration::from_secs(57);

    fn one() -> (Pulses, Arc<Pulse>) {
        let pulses = Pulses::new(Clock::system(), BOUND);
        let pulse = pulses.begin("one", Duration::from_secs(10));
        pulses.decide();
        (pulses, pulse)
    }

    /// Whether the process is ready, so long after now.
    fn ready(pulses: &Pulses, after: Duration) -> bool {
        pulses.ready(&pulses.look_at(Instant::now() + after))
    }

    #[test]
    fn one_that_fails_is_told_at_once_and_counts_after_the_bound() {
        let (pulses, pulse) = one();
        pulse.succeeded();
        pulse.failed(Code::Unavailable);
        pulse.failed(Code::Internal);
        let look = pulses.look()[0];
        assert_eq!((look.ok, look.failing.map(|failing| failing.code)), (true, Some(Code::Internal)));
        assert!(ready(&pulses, NEARLY));
        assert!(!ready(&pulses, BOUND + MARGIN), "it is the first failure that counts");
        pulse.succeeded();
        assert!(ready(&pulses, BOUND + MARGIN) && pulses.look()[0].failing.is_none());
    }

    #[test]
    fn one_whose_step_does_not_end_counts_after_its_rest_and_the_bound() {
        let (pulses, pulse) = one();
        assert!(ready(&pulses, NEARLY + REST) && !ready(&pulses, BOUND + REST + MARGIN), "not even the first");
        pulse.succeeded();
        assert!(ready(&pulses, NEARLY + REST) && !ready(&pulses, BOUND + REST + MARGIN));
    }

    #[test]
    fn one_that_is_behind_counts_only_where_workers_decide() {
        let (pulses, pulse) = one();
        for (seconds, ok) in [(60.0, true), (60.5, false)] {
            pulse.lags(Some(Behind { items: 1, seconds }));
            assert_eq!(ready(&pulses, Duration::ZERO), ok, "{seconds}");
        }
        pulse.lags(None);
        assert!(ready(&pulses, Duration::ZERO));
        let serving = Pulses::new(Clock::system(), BOUND);
        serving.begin("one", Duration::ZERO).lags(Some(Behind { items: 1, seconds: 61.0 }));
        assert!(!serving.look()[0].ok && ready(&serving, Duration::ZERO), "requests are answered all the same");
    }
}
