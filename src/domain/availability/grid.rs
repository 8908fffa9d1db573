//! The instants at which a visit may start: those at which the clinic's wall clock shows a multiple of its slot, counted
//! from local midnight. It promises that [`Grid::holds`] and [`Grid::after`] mean the same instants.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_MINUTES: i64 = 24 * 60;
const DAY_SECONDS: i64 = DAY_MINUTES * 60;

/// A clinic's grid (API.md, Directory: "counts from local midnight").
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    zone: &'a TimeZone,
    step_minutes: i64,
}

impl<'a> Grid<'a> {
    /// Held to a step from a minute to a day, as the schema holds it, since the grid begins anew at midnight.
    pub(super) fn new(zone: &'a TimeZone, slot_minutes: i32) -> Self {
        Self { zone, step_minutes: i64::from(slot_minutes).clamp(1, DAY_MINUTES) }
    }

    /// Whether `at` is on the grid, to the nanosecond.
    pub(super) fn holds(&self, at: Timestamp) -> bool {
        let local = self.zone.to_datetime(at);
        let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
        minute % self.step_minutes == 0 && local.second() == 0 && local.subsec_nanosecond() == 0
    }

    /// The grid's instants from `first` on, in order and without end.
    ///
    /// Walks from one change of the clocks to the next and reckons in between, where the wall clock runs evenly: a time
    /// in a gap is never met, one in an overlap twice, and the zone is asked twice a year instead of once a candidate.
    pub(super) fn after(self, first: Timestamp) -> impl Iterator<Item = Timestamp> + use<'a> {
        let step = self.step_minutes * 60;
        let mut next = first.as_second() + i64::from(first.subsec_nanosecond() > 0);
        let mut even = self.even_from(next);
        std::iter::from_fn(move || {
            loop {
                let (offset, change) = even?;
                let since_midnight = (next + offset).rem_euclid(DAY_SECONDS);
                // The next multiple, unless the day ends before it: 50 minutes do not divide it.
                let multiple = ((since_midnight + step - 1) / step * step).min(DAY_SECONDS);
                let at = next - since_midnight + multiple;
                if at < change {
                    next = at + 1;
                    return Timestamp::from_second(at).ok();
                }
                next = change;
                even = self.even_from(change);
            }
        })
    }

    /// The offset from UTC at `second`, and until when it holds, both in seconds; `None` past jiff's last instant.
    fn even_from(&self, second: i64) -> Option<(i64, i64)> {
        let at = Timestamp::from_second(second).ok()?;
        let change = self.zone.following(at).next().map_or(i64::MAX, |change| change.timestamp().as_second());
        Some((i64::from(self.zone.to_offset(at).seconds()), change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::zone;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// The grid's instants in `[from, to)`.
    fn between(name: &str, slot_minutes: i32, from: &str, to: &str) -> Vec<Timestamp> {
        let zone = zone(name).expect("a zone");
        Grid::new(&zone, slot_minutes).after(at(from)).take_while(|instant| *instant < at(to)).collect()
    }

    #[test]
    fn it_begins_anew_at_midnight() {
        let instants = between("Europe/Berlin", 50, "2026-12-01T22:20:00Z", "2026-12-01T23:51:00Z");
        assert_eq!(instants, ["2026-12-01T22:20:00Z", "2026-12-01T23:00:00Z", "2026-12-01T23:50:00Z"].map(at));
        let daily = between("Europe/Berlin", 1440, "2026-12-01T00:00:00Z", "2026-12-03T00:00:00Z");
        assert_eq!(daily, ["2026-12-01T23:00:00Z", "2026-12-02T23:00:00Z"].map(at));
        let after_a_start = between("UTC", 15, "2026-12-01T08:00:00.000000001Z", "2026-12-01T08:16:00Z");
        assert_eq!(after_a_start, [at("2026-12-01T08:15:00Z")]);
        assert_eq!(between("UTC", 15, "9999-12-30T21:50:00Z", "9999-12-30T22:00:00.9Z"), [at("9999-12-30T22:00:00Z")]);
    }

    #[test]
    fn clocks_that_change_leave_out_and_repeat() {
        // 01:00, 01:30, 03:00, 03:30.
        let spring = between("Europe/Berlin", 30, "2027-03-28T00:00:00Z", "2027-03-28T02:00:00Z");
        let expected = ["2027-03-28T00:00:00Z", "2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z"];
        assert_eq!(spring, expected.map(at));
        // 02:00, 02:00, 03:00.
        let autumn = between("Europe/Berlin", 60, "2026-10-25T00:00:00Z", "2026-10-25T02:01:00Z");
        assert_eq!(autumn, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"].map(at));
        // Lord Howe: 02:00 to 02:30 never comes in October, so 01:30, 02:30, 03:00; in April 01:30 to 02:00 comes twice.
        let october = between("Australia/Lord_Howe", 30, "2026-10-03T15:00:00Z", "2026-10-03T16:01:00Z");
        assert_eq!(october, ["2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"].map(at));
        let april = between("Australia/Lord_Howe", 45, "2026-04-04T14:00:00Z", "2026-04-04T15:46:00Z");
        assert_eq!(april, ["2026-04-04T14:30:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:45:00Z"].map(at));
    }
}
