//! The only source of time, ids and randomness. Small values handed in, so that a test can freeze the one and seed the
//! other; `.clippy.toml` forbids asking the machine anywhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::{Timestamp, Unit};
use uuid::Uuid;

/// Tells the time, in whole microseconds, since that is what Postgres keeps.
#[derive(Clone, Debug)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still until [`Clock::set`] moves it. Clones move together.
    #[must_use]
    pub fn frozen(at: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(at.as_microsecond()))))
    }

    /// Moves a frozen clock; the system's clock does not move.
    pub fn set(&self, at: Timestamp) {
        if let Some(micros) = &self.0 {
            micros.store(at.as_microsecond(), Ordering::SeqCst);
        }
    }

    /// Now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one home of the wall clock")]
    pub fn now(&self) -> Timestamp {
        if let Some(micros) = &self.0 {
            return Timestamp::from_microsecond(micros.load(Ordering::SeqCst)).unwrap_or(Timestamp::UNIX_EPOCH);
        }
        let now = Timestamp::now();
        now.round(Unit::Microsecond).unwrap_or(now)
    }
}

/// Makes ids, secrets and jitter: random, or repeatable from a seed.
#[derive(Clone, Debug)]
pub struct Ids(Option<Arc<AtomicU64>>);

impl Ids {
    /// From the machine's entropy.
    #[must_use]
    pub const fn random() -> Self {
        Self(None)
    }

    /// The same sequence for the same seed. Never for secrets that guard anything.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Some(Arc::new(AtomicU64::new(seed))))
    }

    /// A version 7 UUID (RFC 9562): sorts by `now`, in milliseconds.
    #[must_use]
    pub fn uuid(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// 256 bits for an API key's secret.
    #[must_use]
    pub fn secret(&self) -> [u8; 32] {
        let mut secret = [0; 32];
        self.fill(&mut secret);
        secret
    }

    /// 96 random bits for an AEAD's nonce.
    #[must_use]
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        self.fill(&mut nonce);
        nonce
    }

    /// A number below `bound` (0 for 0), for back-off with full jitter.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }

    fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            // An operating system without entropy is no place to hand out secrets.
            None => getrandom::fill(bytes).expect("the operating system has entropy"),
            Some(state) => {
                for chunk in bytes.chunks_mut(8) {
                    let mixed = splitmix(state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst));
                    chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
                }
            }
        }
    }
}

/// Pauses between the tries of something that collided or was away: each is drawn from a range (full jitter) that doubles
/// with every one, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    millis: u64,
    most: u64,
}

impl Pauses {
    /// The first is below `first` milliseconds, none above `most`.
    #[must_use]
    pub const fn new((first, most): (u64, u64)) -> Self {
        Self { millis: first, most }
    }

    /// The next one.
    pub fn draw(&mut self, ids: &Ids) -> Duration {
        let pause = Duration::from_millis(ids.below(self.millis));
        self.millis = (self.millis * 2).min(self.most);
        pause
    }
}

/// `SplitMix64`'s output function (Steele, Lea and Flood 2014).
const fn splitmix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_drawn_from_a_range_that_doubles_to_its_bound() {
        let ids = Ids::seeded(7);
        let mut pauses = Pauses::new((4, 10));
        for bound in [4, 8, 10, 10] {
            assert_eq!(pauses.millis, bound);
            assert!(pauses.draw(&ids) < Duration::from_millis(bound));
        }
    }

    #[test]
    fn a_seed_repeats_and_a_frozen_clock_moves_when_told() {
        let at: Timestamp = "2026-12-01T08:00:00Z".parse().expect("a time");
        assert_eq!(Ids::seeded(7).uuid(at), Ids::seeded(7).uuid(at));
        assert_ne!(Ids::random().secret(), Ids::random().secret());
        assert_eq!(Ids::seeded(1).below(0), 0);
        let clock = Clock::frozen(at);
        let twin = clock.clone();
        clock.set(at + jiff::SignedDuration::from_secs(5));
        assert_eq!(twin.now().as_second(), at.as_second() + 5);
    }
}
