//! A breaker before one destination: while that is away nothing is sent to it, but for one try at a time to see whether it
//! is back. A dead destination is not a bad message, so what is held back here uses up no tries.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Ids;

/// The pause after a first failure, in milliseconds; it doubles with each up to the second, and is drawn from its upper half.
const PAUSE_MILLIS: (u64, u64) = (1_000, 60_000);

/// A try that never ended, its task gone, is waited for no longer.
const PROBE: Duration = Duration::from_mins(5);

/// See the top.
#[derive(Debug, Default)]
pub struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since the last success.
    failures: u32,
    /// Nothing before then.
    open_until: Option<Instant>,
    /// Somebody is seeing whether it is back.
    probing_since: Option<Instant>,
}

impl Breaker {
    /// Whether to go ahead. Whoever does says how it went.
    ///
    /// # Errors
    /// How long to wait before asking again.
    pub fn admit(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.lock();
        if state.failures == 0 {
            return Ok(());
        }
        let open_for = state.open_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if !open_for.is_zero() {
            return Err(open_for);
        }
        match state.probing_since {
            Some(since) if now.saturating_duration_since(since) < PROBE => Err(Duration::from_millis(PAUSE_MILLIS.0)),
            _ => {
                state.probing_since = Some(now);
                Ok(())
            }
        }
    }

    /// The destination is there.
    pub fn is_there(&self) {
        *self.lock() = State::default();
    }

    /// Whoever went ahead found nothing out.
    pub fn pass(&self) {
        self.lock().probing_since = None;
    }

    /// The destination is away, for at least as long as it says itself.
    pub fn is_away(&self, now: Instant, ids: &Ids, says: Option<Duration>) {
        let mut state = self.lock();
        // Several that set out together find it away once.
        if state.open_until.is_none_or(|until| until <= now) {
            state.failures = state.failures.saturating_add(1);
        }
        let (first, most) = PAUSE_MILLIS;
        let pause = first.saturating_mul(1 << (state.failures - 1).min(16)).min(most);
        let pause = Duration::from_millis(pause / 2 + ids.below(pause / 2)).max(says.unwrap_or_default());
        state.open_until = Some(now + pause).max(state.open_until);
        state.probing_since = None;
    }

    /// Whether anything is held back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().failures > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_sees_whether_it_is_back() {
        let (breaker, ids, mut now) = (Breaker::default(), Ids::seeded(5), Instant::now());
        assert_eq!([breaker.admit(now), breaker.admit(now)], [Ok(()), Ok(())]);
        breaker.is_away(now, &ids, None);
        breaker.is_away(now, &ids, None);
        let pause = breaker.admit(now).expect_err("open");
        assert!(pause <= Duration::from_secs(1), "the second of two at once counts for nothing: {pause:?}");
        now += pause;
        assert_eq!(breaker.admit(now), Ok(()));
        assert!(breaker.admit(now).is_err(), "one at a time");
        breaker.is_away(now, &ids, Some(Duration::from_secs(90)));
        assert_eq!(breaker.admit(now), Err(Duration::from_secs(90)), "as it says");
        now += Duration::from_secs(90);
        assert_eq!(breaker.admit(now), Ok(()));
        now += PROBE;
        assert_eq!(breaker.admit(now), Ok(()), "one that never ended");
        breaker.pass();
        assert_eq!(breaker.admit(now), Ok(()), "one that found nothing out");
        breaker.is_there();
        assert!(!breaker.is_open() && breaker.admit(now).is_ok() && breaker.admit(now).is_ok());
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        let (breaker, ids, mut now) = (Breaker::default(), Ids::seeded(5), Instant::now());
        let mut longest = Duration::ZERO;
        for _ in 0..40 {
            breaker.is_away(now, &ids, None);
            let pause = breaker.admit(now).expect_err("open");
            longest = longest.max(pause);
            now += pause;
        }
        assert!((Duration::from_secs(30)..=Duration::from_mins(1)).contains(&longest), "{longest:?}");
    }
}
