//! When a clinic is open: weekly hours on the wall clock, and the stretches between instants they come to. It promises
//! that a day with a change of clocks opens and closes as the clock on the wall says. It knows no date of its own and no
//! closures.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

use super::time::{Span, Stretches};

/// More than a week of any clinic needs; bounds the work per question.
const MOST_ENTRIES: usize = 50;

/// One weekly stretch of opening hours, in the clinic's zone. A `closes` not after `opens` is on the next day, so the
/// same time twice is 24 hours.
#[derive(Serialize, Deserialize, ToSchema, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"weekday": "monday", "opens": "08:00", "closes": "18:00"}))]
pub struct OpenHours {
    /// The day of the week on which it opens.
    pub weekday: Weekday,
    /// When it opens on the wall clock, from "00:00" to "23:59".
    #[serde(deserialize_with = "before_midnight")]
    pub opens: TimeOfDay,
    /// When it closes on the wall clock, from "00:00" to "24:00" (midnight); not after `opens`: on the next day.
    pub closes: TimeOfDay,
}

/// A day of the week, as JSON writes it.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schema(example = "monday")]
#[expect(missing_docs, reason = "the names say all there is to say")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl From<jiff::civil::Weekday> for Weekday {
    fn from(weekday: jiff::civil::Weekday) -> Self {
        match weekday {
            jiff::civil::Weekday::Monday => Self::Monday,
            jiff::civil::Weekday::Tuesday => Self::Tuesday,
            jiff::civil::Weekday::Wednesday => Self::Wednesday,
            jiff::civil::Weekday::Thursday => Self::Thursday,
            jiff::civil::Weekday::Friday => Self::Friday,
            jiff::civil::Weekday::Saturday => Self::Saturday,
            jiff::civil::Weekday::Sunday => Self::Sunday,
        }
    }
}

/// A time on the wall clock in whole minutes since midnight, 0 to 1440, written "HH:MM"; "24:00" is the midnight that
/// ends the day.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$", example = "08:00")]
pub struct TimeOfDay(i16);

impl TimeOfDay {
    /// The midnight that ends a day.
    pub const MIDNIGHT: Self = Self(24 * 60);

    /// From minutes since midnight; `None` outside 0 to 1440.
    #[must_use]
    pub fn from_minutes(minutes: i16) -> Option<Self> {
        (0..=Self::MIDNIGHT.0).contains(&minutes).then_some(Self(minutes))
    }

    /// Minutes since midnight, 0 to 1440.
    #[must_use]
    pub fn minutes(self) -> i16 {
        self.0
    }

    /// This time on `date`; `None` past the last day jiff knows.
    fn on(self, date: Date) -> Option<DateTime> {
        let [hour, minute] = [self.0 / 60, self.0 % 60].map(|part| i8::try_from(part).unwrap_or(0));
        if self == Self::MIDNIGHT {
            Some(date.tomorrow().ok()?.at(0, 0, 0, 0))
        } else {
            Some(date.at(hour, minute, 0, 0))
        }
    }
}

impl FromStr for TimeOfDay {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let &[h @ b'0'..=b'2', hh @ b'0'..=b'9', b':', m @ b'0'..=b'5', mm @ b'0'..=b'9'] = text.as_bytes() else {
            return Err("expected a time of day, HH:MM from 00:00 to 24:00");
        };
        let digit = |byte: u8| i16::from(byte - b'0');
        Self::from_minutes((digit(h) * 10 + digit(hh)) * 60 + digit(m) * 10 + digit(mm))
            .ok_or("expected a time of day no later than 24:00")
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        time.to_string()
    }
}

/// Reads `opens`: a day cannot open as it ends.
fn before_midnight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeOfDay, D::Error> {
    let opens = TimeOfDay::deserialize(deserializer)?;
    if opens == TimeOfDay::MIDNIGHT {
        return Err(de::Error::custom("opens at 24:00: write 00:00 of the next day"));
    }
    Ok(opens)
}

/// Whether a week of hours can be kept. Entries may overlap; they merge.
///
/// # Errors
///
/// What is wrong with it, for the caller: more than 50 entries, or one that opens at "24:00".
pub fn validate(hours: &[OpenHours]) -> Result<(), String> {
    if hours.len() > MOST_ENTRIES {
        return Err(format!("at most {MOST_ENTRIES} entries, not {}", hours.len()));
    }
    if hours.iter().any(|entry| entry.opens == TimeOfDay::MIDNIGHT) {
        return Err("opens at 24:00: write 00:00 of the next day".to_owned());
    }
    Ok(())
}

/// Whether `visit` lies wholly inside opening hours. Entries that touch or overlap count as one, those that run past
/// midnight included. See [`stretches`] for days on which the clocks change.
#[must_use]
pub fn open_throughout(hours: &[OpenHours], zone: &TimeZone, visit: &Span) -> bool {
    stretches(hours, zone, visit).cover(visit)
}

/// The stretches of opening hours in and around `within`, complete only inside it. Opening or closing at a time the
/// clocks skip happens when they skip it; of a time they show twice, opening is the first and closing the second, so
/// that a clinic is never shut while its wall clock says it is open.
#[must_use]
pub fn stretches(hours: &[OpenHours], zone: &TimeZone, within: &Span) -> Stretches {
    // An entry reaches into the next day, and where the clocks go back over midnight that day's end comes twice, as
    // does the start of the day after `within`: hence a day more on either side.
    let first = zone.to_datetime(within.start).date().saturating_sub(2.days());
    let last = zone.to_datetime(within.end).date().saturating_add(1.day());
    std::iter::successors(Some(first), |date| date.tomorrow().ok())
        .take_while(|date| *date <= last)
        .flat_map(|date| {
            let weekday = Weekday::from(date.weekday());
            hours.iter().filter(move |entry| entry.weekday == weekday).filter_map(move |entry| entry.on(date, zone))
        })
        .collect()
}

impl OpenHours {
    /// What this entry comes to when it opens on `date`; `None` when the clocks skip all of it.
    fn on(&self, date: Date, zone: &TimeZone) -> Option<Span> {
        let closing_date = if self.closes > self.opens { date } else { date.tomorrow().ok()? };
        let start = instant(self.opens.on(date)?, zone, Edge::Opens)?;
        Span::new(start, instant(self.closes.on(closing_date)?, zone, Edge::Closes)?)
    }
}

/// Which end of a stretch a wall-clock time is.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Opens,
    Closes,
}

/// The instant at which `local` comes; `None` outside jiff's range.
fn instant(local: DateTime, zone: &TimeZone, edge: Edge) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
        AmbiguousOffset::Fold { before, after } => {
            if edge == Edge::Opens { before } else { after }.to_timestamp(local).ok()
        }
        // Read with the offset that holds after the gap, a skipped time comes just before it.
        AmbiguousOffset::Gap { after, .. } => {
            let skip = zone.following(after.to_timestamp(local).ok()?).next()?;
            Some(skip.timestamp())
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::super::time::{resolve_local, zone};
    use super::*;
    use crate::clock::Ids;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn span(start: &str, end: &str) -> Span {
        Span::new(at(start), at(end)).expect("not empty")
    }

    fn hours(entries: &[(&str, &str, &str)]) -> Vec<OpenHours> {
        let time = |text: &str| text.parse().expect("a time of day");
        let weekday = |text: &str| serde_json::from_value(text.into()).expect("a weekday");
        entries
            .iter()
            .map(|(day, from, to)| OpenHours { weekday: weekday(day), opens: time(from), closes: time(to) })
            .collect()
    }

    /// The stretches in zone `name` that lie around the given time.
    fn open(name: &str, entries: &[(&str, &str, &str)], around: &str) -> Stretches {
        let within = Span::from_length(at(around), 1);
        stretches(&hours(entries), &zone(name).expect("a zone"), &within)
    }

    fn is_open(name: &str, entries: &[(&str, &str, &str)], start: &str, end: &str) -> bool {
        open_throughout(&hours(entries), &zone(name).expect("a zone"), &span(start, end))
    }

    #[test]
    fn json_is_strict_and_comes_back_as_it_went() {
        let text = r#"{"weekday":"monday","opens":"08:00","closes":"24:00"}"#;
        let entry: OpenHours = serde_json::from_str(text).expect("valid");
        assert_eq!((entry.weekday, entry.opens.minutes(), entry.closes.minutes()), (Weekday::Monday, 480, 1440));
        assert_eq!(serde_json::to_string(&entry).expect("serialises"), text);
        for bad in ["24:01", "29:00", "8:00", "08:60", "08:00:00", "-1:00", "+8:00", "08.00", "", "٠8:00"] {
            assert!(serde_json::from_str::<OpenHours>(&text.replace("24:00", bad)).is_err(), "{bad}");
        }
        for (good, bad) in [("08:00", "24:00"), ("monday", "Monday"), ("closes", "shuts"), ("\"24:00\"", "1440")] {
            assert!(serde_json::from_str::<OpenHours>(&text.replace(good, bad)).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<OpenHours>(&text.replace('}', ",\"room\":1}")).is_err());
    }

    #[test]
    fn a_week_has_a_limit() {
        let mut week = hours(&[("monday", "08:00", "18:00"); 50]);
        assert_eq!(validate(&week), Ok(()));
        week[0].opens = TimeOfDay::MIDNIGHT;
        assert!(validate(&week).is_err_and(|why| why.contains("24:00")));
        assert_eq!(validate(&hours(&[("monday", "08:00", "18:00"); 51])), Err("at most 50 entries, not 51".to_owned()));
        assert_eq!(
            [0, 1440, 1441, -1].map(|minutes| TimeOfDay::from_minutes(minutes).is_some()),
            [true, true, false, false]
        );
    }

    #[test]
    fn ordinary_days_have_edges() {
        let day = [("tuesday", "08:00", "18:00")];
        assert!(is_open("Europe/Berlin", &day, "2026-12-01T07:00:00Z", "2026-12-01T17:00:00Z"));
        assert!(!is_open("Europe/Berlin", &day, "2026-12-01T06:59:00Z", "2026-12-01T07:30:00Z"));
        assert!(!is_open("Europe/Berlin", &day, "2026-12-01T16:45:00Z", "2026-12-01T17:01:00Z"));
        assert!(!is_open("Europe/Berlin", &day, "2026-12-02T08:00:00Z", "2026-12-02T09:00:00Z"), "a Wednesday");
        assert!(!is_open("Europe/Berlin", &[], "2026-12-01T08:00:00Z", "2026-12-01T09:00:00Z"));
    }

    #[test]
    fn stretches_merge_over_midnight() {
        let week = [
            ("monday", "22:00", "06:00"),
            ("tuesday", "06:00", "12:00"),
            ("tuesday", "11:00", "24:00"),
            ("wednesday", "00:00", "02:00"),
        ];
        let merged: Stretches = [span("2026-11-30T22:00:00Z", "2026-12-02T02:00:00Z")].into_iter().collect();
        assert_eq!(open("UTC", &week, "2026-12-01T12:00:00Z"), merged);
        assert!(is_open("UTC", &week, "2026-12-01T02:00:00Z", "2026-12-02T02:00:00Z"), "a visit of 24 hours");
        // Sunday night reaches into Monday; the same time twice is a whole day.
        assert!(is_open("UTC", &[("sunday", "22:00", "06:00")], "2026-11-30T00:00:00Z", "2026-11-30T06:00:00Z"));
        let whole: Stretches = [span("2026-12-01T08:00:00Z", "2026-12-02T08:00:00Z")].into_iter().collect();
        assert_eq!(open("UTC", &[("tuesday", "08:00", "08:00")], "2026-12-01T12:00:00Z"), whole);
    }

    #[test]
    fn clocks_that_change_move_the_edges() {
        let only = |start, end| [span(start, end)].into_iter().collect::<Stretches>();
        let [spring, autumn] = ["2027-03-28T01:00:00Z", "2026-10-25T01:00:00Z"];
        let berlin = |opens, closes, around| open("Europe/Berlin", &[("sunday", opens, closes)], around);
        assert_eq!(berlin("02:00", "05:00", spring), only(spring, "2027-03-28T03:00:00Z"));
        assert_eq!(berlin("02:30", "05:00", spring), only(spring, "2027-03-28T03:00:00Z"));
        assert_eq!(berlin("01:00", "02:30", spring), only("2027-03-28T00:00:00Z", spring));
        assert_eq!(berlin("02:10", "02:50", spring), Stretches::default());
        assert_eq!(berlin("00:00", "24:00", spring), only("2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"));
        assert_eq!(berlin("02:30", "05:00", autumn), only("2026-10-25T00:30:00Z", "2026-10-25T04:00:00Z"));
        assert_eq!(berlin("01:00", "02:30", autumn), only("2026-10-24T23:00:00Z", "2026-10-25T01:30:00Z"));
        assert_eq!(berlin("08:00", "08:00", autumn), only("2026-10-25T07:00:00Z", "2026-10-26T07:00:00Z"));
        // Half an hour on Lord Howe; at midnight in São Paulo; over midnight in St John's; a whole day in Samoa.
        let howe = |opens, closes, around| open("Australia/Lord_Howe", &[("sunday", opens, closes)], around);
        assert_eq!(
            howe("02:15", "04:00", "2026-10-03T15:30:00Z"),
            only("2026-10-03T15:30:00Z", "2026-10-03T17:00:00Z")
        );
        assert_eq!(
            howe("01:45", "01:45", "2026-04-04T15:00:00Z"),
            only("2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z")
        );
        let paulo = open(
            "America/Sao_Paulo",
            &[("saturday", "20:00", "24:00"), ("sunday", "00:00", "02:00")],
            "2018-11-04T03:00:00Z",
        );
        assert_eq!(paulo, only("2018-11-03T23:00:00Z", "2018-11-04T04:00:00Z"));
        let johns =
            |day, opens, closes, end| is_open("America/St_Johns", &[(day, opens, closes)], "2010-11-07T02:30:00Z", end);
        assert!(johns("sunday", "00:00", "01:00", "2010-11-07T02:45:00Z"), "Sunday began, then Saturday came back");
        assert!(johns("friday", "23:45", "23:30", "2010-11-07T03:00:00Z"), "Saturday closes after Sunday began");
        assert!(!johns("friday", "23:45", "23:30", "2010-11-07T03:01:00Z"));
        assert!(!is_open(
            "Pacific/Apia",
            &[("friday", "00:00", "24:00")],
            "2011-12-30T09:00:00Z",
            "2011-12-30T11:00:00Z"
        ));
    }

    /// Minute by minute, on the wall clock: the definition, without a stretch in sight.
    #[test]
    fn a_visit_is_open_when_each_of_its_minutes_is() {
        let (ids, berlin) = (Ids::seeded(2), zone("Europe/Berlin").expect("a zone"));
        let below = |bound: i16| i16::try_from(ids.below(bound.unsigned_abs().into())).expect("small");
        let days = ["monday", "saturday", "sunday"];
        let mut found = [0, 0];
        for round in 0..600 {
            let autumn = round % 3 == 0;
            let date = [date(2026, 10, 24), date(2027, 3, 27), date(2026, 12, 5)][round % 3];
            let edge = || match below(48) * 30 {
                // Closing at a time shown twice is the second of the two, which a wall clock cannot tell.
                minutes @ 120..180 if autumn => minutes + 60,
                minutes => minutes,
            };
            let time = || TimeOfDay(edge()).to_string();
            let entries = [0; 4].map(|_| (days[usize::from(below(3).unsigned_abs())], time(), time()));
            let week = hours(&entries.each_ref().map(|(day, opens, closes)| (*day, opens.as_str(), closes.as_str())));
            let noon = resolve_local(date.at(12, 0, 0, 0), &berlin).expect("once");
            let minute = |n| Span::from_length(Span::from_length(noon, n).end, 1);
            let first = i32::from(below(24 * 60));
            let last = first + i32::from(below(8 * 60));
            let visit = Span { start: minute(first).start, end: minute(last).end };
            let expected = (first..=last).all(|n| on_the_wall(&week, berlin.to_datetime(minute(n).start)));
            assert_eq!(open_throughout(&week, &berlin, &visit), expected, "{visit:?} {entries:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found[0] > 100 && found[1] > 100, "both answers occur: {found:?}");
    }

    fn on_the_wall(week: &[OpenHours], now: DateTime) -> bool {
        let minute = i16::from(now.hour()) * 60 + i16::from(now.minute());
        let today = Weekday::from(now.date().weekday());
        let yesterday = Weekday::from(now.date().yesterday().expect("in range").weekday());
        week.iter().any(|entry| {
            let (opens, closes) = (entry.opens.minutes(), entry.closes.minutes());
            let overnight = closes <= opens;
            (entry.weekday == today && opens <= minute && (overnight || minute < closes))
                || (entry.weekday == yesterday && overnight && minute < closes)
        })
    }
}
