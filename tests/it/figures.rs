//! Times that were measured. They are always printed; they are held to a limit only where the build is a release and the
//! machine has nothing else to do (`make soak`).

use std::fmt;
use std::time::Duration;

use crate::client::Heard;

/// How much of a trial there is, and how strict it is about time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) strict: bool,
}

/// In every test run.
pub(crate) const SHORT: Size = Size { rounds: 8, seconds: 8, strict: false };

/// `make soak`.
pub(crate) const LONG: Size = Size { rounds: 50, seconds: 300, strict: true };

/// Times, in the order they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<Duration>);

impl Figures {
    pub(crate) fn add<'a>(&mut self, heard: impl IntoIterator<Item = &'a Heard>) {
        self.0.extend(heard.into_iter().map(|heard| heard.took));
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// So many of a hundred took no longer.
    pub(crate) fn percentile(&self, hundredths: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, most] = [50, 99, 100].map(|hundredths| self.percentile(hundredths));
        write!(f, "{} answers, p50 {p50:.1?}, p99 {p99:.1?}, longest {most:.1?}", self.len())
    }
}
