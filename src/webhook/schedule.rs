//! When a delivery is tried again: the pauses of Standard Webhooks, drawn with full jitter, until a day has passed since the
//! first attempt. The last attempt is made when the day is over, however the pauses fell.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::Ids;

/// A delivery is tried for so long.
pub const TRIED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// The longest pause after the first attempt, the second and so on; after those, always the last.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
];

/// The pause after an attempt that failed, the `attempt`th of its round, which began with `first_at`; none where it is given
/// up. What the receiver asked for is kept to, as far as the day goes.
#[must_use]
pub fn pause(
    attempt: i32,
    first_at: Timestamp,
    now: Timestamp,
    receivers: Option<Duration>,
    ids: &Ids,
) -> Option<Duration> {
    let passed = now.duration_since(first_at);
    let left: Duration = (TRIED_FOR - passed).try_into().ok().filter(|left: &Duration| !left.is_zero())?;
    let nth = usize::try_from(attempt.max(1) - 1).unwrap_or_default().min(PAUSES.len() - 1);
    let longest = u64::try_from(PAUSES[nth].as_millis()).unwrap_or(u64::MAX);
    let drawn = Duration::from_millis(ids.below(longest));
    Some(drawn.max(receivers.unwrap_or_default()).min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_the_last_attempt_is_made_when_the_day_is_over() {
        let ids = Ids::seeded(7);
        let first: Timestamp = "2026-12-01T08:00:00Z".parse().expect("a time");
        for _ in 0..50 {
            let (mut now, mut attempt) = (first, 1);
            while let Some(pause) = pause(attempt, first, now, None, &ids) {
                let longest = PAUSES[usize::try_from(attempt - 1).expect("small").min(5)];
                assert!(pause <= longest, "{attempt}: {pause:?}");
                now += SignedDuration::try_from(pause).expect("a day at most");
                attempt += 1;
            }
            assert_eq!(now.duration_since(first), TRIED_FOR);
            assert!((6..30).contains(&attempt), "{attempt} attempts");
        }
    }

    #[test]
    fn a_receiver_is_left_alone_as_long_as_it_asks_within_the_day() {
        let (ids, first) = (Ids::seeded(7), Timestamp::UNIX_EPOCH);
        let after = |receivers| pause(1, first, first, Some(receivers), &ids);
        assert_eq!(after(Duration::from_hours(1)), Some(Duration::from_hours(1)));
        assert_eq!(after(Duration::MAX), Some(Duration::from_hours(24)));
        assert!(after(Duration::ZERO) < Some(Duration::from_secs(5)));
    }
}
