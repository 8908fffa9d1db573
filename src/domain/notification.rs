//! What a patient is told of a visit, and when that is no longer, or not yet, to be told. Pure: the notifier asks here
//! before each try, and does what it is told.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::appointment::Status;
use super::hours::{self, OpenHours, TimeOfDay, Weekday};
use super::template::Templates;
use super::time::Span;

/// Hours before a visit at which its reminder falls due, unless the clinic says otherwise.
pub const REMINDER_HOURS: i32 = 24;

/// What was due longer ago is not told any more: nobody wants yesterday's news, and a first notifier is not to send a
/// year of old confirmations.
const LATEST: SignedDuration = SignedDuration::from_hours(24);

/// What a notification tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A visit is booked.
    Confirmation,
    /// It has moved.
    Change,
    /// It is called off.
    Cancellation,
    /// It is near.
    Reminder,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Confirmation, Self::Change, Self::Cancellation, Self::Reminder];

    /// As it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirmation => "confirmation",
            Self::Change => "change",
            Self::Cancellation => "cancellation",
            Self::Reminder => "reminder",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Hours of each day in which nobody is disturbed, on the clinic's wall clock. A `to` not after `from` is on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// When they begin, from "00:00" to "23:59".
    #[schema(example = "20:00")]
    pub from: TimeOfDay,
    /// When they end, from "00:00" to "24:00" (midnight); not after `from`: on the next day. The same time twice: 400.
    #[schema(example = "08:00")]
    pub to: TimeOfDay,
}

impl QuietHours {
    /// Whether they leave some of the day, and begin within it.
    #[must_use]
    pub fn is_real(self) -> bool {
        self.from != TimeOfDay::MIDNIGHT && self.from.minutes() != self.to.minutes() % TimeOfDay::MIDNIGHT.minutes()
    }

    /// When the quiet hours end that `at` lies in; none where it lies in none. Where the clocks change, they begin and end
    /// as opening hours do ([`hours::stretches`]).
    #[must_use]
    pub fn end_of(self, zone: &TimeZone, at: Timestamp) -> Option<Timestamp> {
        use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
        let week = [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday].map(|weekday| OpenHours {
            weekday,
            opens: self.from,
            closes: self.to,
        });
        hours::stretches(&week, zone, &Span::from_length(at, 1)).around(at).map(|quiet| quiet.end)
    }
}

/// What a clinic has set for its notifications.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = NotificationSettings)]
pub struct Settings {
    /// Whose they are.
    #[serde(skip)]
    pub clinic_id: Uuid,
    /// Hours before a visit at which its reminder falls due; 0: no reminders.
    #[schema(example = 24)]
    pub reminder_hours: i32,
    /// Hours of each day in which nothing is sent; null: there are none.
    pub quiet_hours: Option<QuietHours>,
    /// What is sent, by kind; null for a kind with the default text.
    pub templates: Templates,
    /// Version number, from 0 for a clinic that has set nothing yet, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

impl Settings {
    /// Those of a clinic that has set nothing.
    #[must_use]
    pub fn unset(clinic_id: Uuid) -> Self {
        let templates = Templates::default();
        Self { clinic_id, reminder_hours: REMINDER_HOURS, quiet_hours: None, templates, version: 0 }
    }
}

/// A notification that has fallen due.
#[derive(Clone, Copy, Debug)]
pub struct Due<'a> {
    /// What it tells.
    pub kind: Kind,
    /// When it fell due.
    pub since: Timestamp,
    /// When the visit starts.
    pub start: Timestamp,
    /// Where the visit is in its life.
    pub status: Status,
    /// The clinic's settings.
    pub settings: &'a Settings,
    /// The clinic's zone.
    pub zone: &'a TimeZone,
}

/// What is to become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent now.
    Send,
    /// It is looked at again then; the code says why.
    Wait(Timestamp, &'static str),
    /// It is never sent; the code says why.
    Suppress(&'static str),
}

impl Due<'_> {
    /// What is to become of it now.
    ///
    /// Too late: a confirmation, a change or a reminder once the visit has begun, and whatever was due more than a day
    /// ago. In quiet hours it waits for their end. What would then be too late is not kept for nobody: of a visit that starts
    /// before they end, a confirmation, a change and a cancellation are sent at once, since the patient may set out for it,
    /// and a reminder is left out.
    #[must_use]
    pub fn verdict(&self, now: Timestamp) -> Verdict {
        let begun = self.start <= now || matches!(self.status, Status::Arrived | Status::Fulfilled);
        if self.kind != Kind::Cancellation && begun {
            return Verdict::Suppress("visit_begun");
        }
        let mut since = self.since;
        if self.kind == Kind::Reminder {
            if self.settings.reminder_hours == 0 {
                return Verdict::Suppress("reminders_off");
            }
            // The clinic may have set other hours since it was written.
            let due = reminder_at(self.start, self.settings.reminder_hours);
            if due > now {
                return Verdict::Wait(due, "reminder_moved");
            }
            since = since.max(due);
        }
        if now.duration_since(since) > LATEST {
            return Verdict::Suppress("overdue");
        }
        let quiet = self.settings.quiet_hours.and_then(|quiet| quiet.end_of(self.zone, now));
        match quiet {
            Some(end) if end < self.start && end.duration_since(since) <= LATEST => Verdict::Wait(end, "quiet_hours"),
            Some(_) if self.kind == Kind::Reminder => Verdict::Suppress("quiet_until_too_late"),
            _ => Verdict::Send,
        }
    }
}

/// When the reminder of a visit falls due. With 0 hours that is its start, when it is too late: so none is sent, and one
/// that the clinic asks for later finds the intent there.
#[must_use]
pub fn reminder_at(start: Timestamp, hours: i32) -> Timestamp {
    start.saturating_sub(SignedDuration::from_hours(hours.into())).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::super::time::zone;
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn quiet(from: &str, to: &str) -> QuietHours {
        QuietHours { from: from.parse().expect("a time"), to: to.parse().expect("a time") }
    }

    /// Of a visit at nine in Berlin on the first of December, a Tuesday.
    fn verdict(kind: Kind, due_at: &str, quiet_hours: Option<QuietHours>, now: &str) -> Verdict {
        verdict_of(kind, due_at, quiet_hours, Status::Booked, 24, now)
    }

    fn verdict_of(
        kind: Kind,
        due_at: &str,
        quiet_hours: Option<QuietHours>,
        status: Status,
        reminder_hours: i32,
        now: &str,
    ) -> Verdict {
        let settings = Settings { reminder_hours, quiet_hours, ..Settings::unset(Uuid::nil()) };
        let (start, zone) = (at("2026-12-01T08:00:00Z"), zone("Europe/Berlin").expect("a zone"));
        Due { kind, since: at(due_at), start, status, settings: &settings, zone: &zone }.verdict(at(now))
    }

    #[test]
    fn nothing_is_told_too_late() {
        use Verdict::{Send, Suppress};
        let due = "2026-11-30T20:00:00Z";
        for kind in [Kind::Confirmation, Kind::Change, Kind::Reminder] {
            assert_eq!(verdict(kind, due, None, "2026-12-01T07:59:59.999999Z"), Send, "{kind:?}");
            assert_eq!(verdict(kind, due, None, "2026-12-01T08:00:00Z"), Suppress("visit_begun"), "{kind:?}");
            let arrived = verdict_of(kind, due, None, Status::Arrived, 24, "2026-12-01T07:00:00Z");
            assert_eq!(arrived, Suppress("visit_begun"), "{kind:?}");
        }
        assert_eq!(verdict(Kind::Cancellation, due, None, "2026-12-01T08:00:00Z"), Send);
        assert_eq!(verdict(Kind::Cancellation, due, None, "2026-12-01T20:00:00Z"), Send, "a day to the microsecond");
        assert_eq!(verdict(Kind::Cancellation, due, None, "2026-12-01T20:00:00.000001Z"), Suppress("overdue"));
        let early = "2026-11-20T08:00:00Z";
        assert_eq!(verdict(Kind::Confirmation, early, None, "2026-11-21T08:00:00Z"), Send);
        assert_eq!(verdict(Kind::Confirmation, early, None, "2026-11-21T08:00:00.000001Z"), Suppress("overdue"));
    }

    #[test]
    fn a_reminder_follows_the_clinics_hours() {
        let of = |hours, now| verdict_of(Kind::Reminder, "2026-11-30T08:00:00Z", None, Status::Booked, hours, now);
        assert_eq!(of(24, "2026-11-30T08:00:00Z"), Verdict::Send);
        let moved = Verdict::Wait(at("2026-12-01T06:00:00Z"), "reminder_moved");
        assert_eq!([of(2, "2026-11-30T08:00:00Z"), of(2, "2026-12-01T05:59:59Z")], [moved; 2]);
        assert_eq!(of(2, "2026-12-01T06:00:00Z"), Verdict::Send);
        assert_eq!(of(0, "2026-11-30T08:00:00Z"), Verdict::Suppress("reminders_off"));
        // Written by far more hours than the clinic has by now: it is not overdue for that.
        let early = |now| verdict_of(Kind::Reminder, "2026-11-20T08:00:00Z", None, Status::Booked, 48, now);
        assert_eq!(early("2026-11-28T08:00:00Z"), Verdict::Wait(at("2026-11-29T08:00:00Z"), "reminder_moved"));
        assert_eq!(early("2026-11-30T08:00:00Z"), Verdict::Send);
        assert_eq!(early("2026-11-30T08:00:00.000001Z"), Verdict::Suppress("overdue"));
    }

    #[test]
    fn in_quiet_hours_it_waits_unless_that_is_too_late() {
        let night = Some(quiet("20:00", "08:00"));
        let end = Verdict::Wait(at("2026-12-01T07:00:00Z"), "quiet_hours");
        for kind in Kind::ALL {
            // Quiet from 19:00 to 07:00 in UTC, the visit at 08:00.
            assert_eq!(verdict(kind, "2026-11-30T18:59:00Z", night, "2026-11-30T18:59:59Z"), Verdict::Send, "{kind:?}");
            assert_eq!(verdict(kind, "2026-11-30T19:00:00Z", night, "2026-11-30T19:00:00Z"), end, "{kind:?}");
            assert_eq!(verdict(kind, "2026-11-30T19:00:00Z", night, "2026-12-01T06:59:59Z"), end, "{kind:?}");
            assert_eq!(verdict(kind, "2026-11-30T19:00:00Z", night, "2026-12-01T07:00:00Z"), Verdict::Send, "{kind:?}");
            // Until the visit's start and beyond it.
            for to in ["09:00", "10:00"] {
                let told = verdict(kind, "2026-12-01T05:00:00Z", Some(quiet("20:00", to)), "2026-12-01T05:00:00Z");
                let left_out = Verdict::Suppress("quiet_until_too_late");
                assert_eq!(told, if kind == Kind::Reminder { left_out } else { Verdict::Send }, "{kind:?}");
            }
        }
        // After the night it would be overdue: due at 06:30 the day before.
        let told = verdict(Kind::Confirmation, "2026-11-30T06:30:00Z", night, "2026-11-30T20:00:00Z");
        assert_eq!(told, Verdict::Send);
    }

    #[test]
    fn quiet_hours_are_the_wall_clock_s() {
        let of = |zone_name: &str, from, to, now| {
            let end = quiet(from, to).end_of(&zone(zone_name).expect("a zone"), at(now));
            end.map(|end| end.to_string())
        };
        let berlin = |from, to, now| of("Europe/Berlin", from, to, now);
        let ends = |text: &str| Some(text.to_owned());
        assert_eq!(berlin("12:00", "14:00", "2026-12-01T11:00:00Z"), ends("2026-12-01T13:00:00Z"));
        assert_eq!(
            [berlin("12:00", "14:00", "2026-12-01T10:59:59Z"), berlin("12:00", "14:00", "2026-12-01T13:00:00Z")],
            [None, None]
        );
        // Over midnight, and to it.
        assert_eq!(berlin("22:00", "07:00", "2026-12-01T23:30:00Z"), ends("2026-12-02T06:00:00Z"));
        assert_eq!(berlin("22:00", "07:00", "2026-12-01T05:30:00Z"), ends("2026-12-01T06:00:00Z"));
        assert_eq!(berlin("22:00", "24:00", "2026-12-01T22:59:59Z"), ends("2026-12-01T23:00:00Z"));
        assert_eq!(berlin("22:00", "00:00", "2026-12-01T22:59:59Z"), ends("2026-12-01T23:00:00Z"));
        // The night the clocks go forward is an hour shorter, the one they go back an hour longer.
        assert_eq!(berlin("22:00", "07:00", "2027-03-27T21:00:00Z"), ends("2027-03-28T05:00:00Z"));
        assert_eq!(berlin("22:00", "07:00", "2026-10-24T20:00:00Z"), ends("2026-10-25T06:00:00Z"));
        // They end at a time that is skipped, and at one that comes twice: the second.
        assert_eq!(berlin("22:00", "02:30", "2027-03-28T00:30:00Z"), ends("2027-03-28T01:00:00Z"));
        assert_eq!(berlin("22:00", "02:30", "2026-10-25T00:45:00Z"), ends("2026-10-25T01:30:00Z"));
        assert_eq!(of("America/New_York", "20:00", "08:00", "2026-12-02T01:00:00Z"), ends("2026-12-02T13:00:00Z"));
        assert!(quiet("20:00", "08:00").is_real() && quiet("00:00", "06:00").is_real());
        assert!(
            !quiet("08:00", "08:00").is_real()
                && !quiet("00:00", "24:00").is_real()
                && !quiet("24:00", "08:00").is_real()
        );
    }

    #[test]
    fn a_reminder_is_so_many_hours_before() {
        assert_eq!(reminder_at(at("2026-12-01T08:00:00Z"), 24), at("2026-11-30T08:00:00Z"));
        assert_eq!(reminder_at(at("2026-12-01T08:00:00Z"), 0), at("2026-12-01T08:00:00Z"));
    }
}
