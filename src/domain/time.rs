//! Instants, wall-clock times and the stretches between instants. Owns how a caller writes a start and what a wall-clock
//! time means in a zone. It promises that nothing is guessed: a time that does not exist, or exists twice, is said to
//! be so. It must never ask what time it is.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// A half-open stretch of time, `[start, end)`. Two that touch do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant in it.
    pub start: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
}

impl Span {
    /// From `start` to `end`; `None` unless `start` is before `end`, since an empty stretch conflicts with nothing.
    #[must_use]
    pub fn new(start: Timestamp, end: Timestamp) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// The `minutes` that follow `start`. Ends at jiff's limit where they would pass it, so it is empty at the limit
    /// itself; booking's horizon ends a month before that.
    #[must_use]
    pub fn from_length(start: Timestamp, minutes: i32) -> Self {
        Self { start, end: later_by(start, i64::from(minutes)) }
    }

    /// Whether an instant lies in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether `other` lies wholly inside.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// `minutes` after `start`, or jiff's limit where that lies beyond it.
pub(super) fn later_by(start: Timestamp, minutes: i64) -> Timestamp {
    // Only calendar units can fail, and a duration has none.
    start.saturating_add(SignedDuration::from_secs(minutes.saturating_mul(60))).unwrap_or(Timestamp::MAX)
}

/// Spans joined wherever they touch or overlap: ascending, with a gap between any two, so that one binary search
/// answers for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretches(Vec<Span>);

impl Stretches {
    /// Whether `span` lies wholly inside one stretch.
    #[must_use]
    pub fn cover(&self, span: &Span) -> bool {
        let reaching = self.0.partition_point(|stretch| stretch.end < span.end);
        self.0.get(reaching).is_some_and(|stretch| stretch.contains(span))
    }

    /// The stretch that an instant lies in.
    #[must_use]
    pub fn around(&self, at: Timestamp) -> Option<Span> {
        let unfinished = self.0.partition_point(|stretch| stretch.end <= at);
        self.0.get(unfinished).filter(|stretch| stretch.start <= at).copied()
    }

    /// Whether `span` has an instant in common with any stretch.
    #[must_use]
    pub fn meet(&self, span: &Span) -> bool {
        let unfinished = self.0.partition_point(|stretch| stretch.end <= span.start);
        self.0.get(unfinished).is_some_and(|stretch| stretch.overlaps(span))
    }
}

impl FromIterator<Span> for Stretches {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Self {
        let mut spans: Vec<Span> = spans.into_iter().collect();
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            if joins {
                kept.end = kept.end.max(next.end);
            }
            joins
        });
        Self(spans)
    }
}

/// What a caller wrote for a start (API.md, Appointments).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It had an offset.
    Instant(Timestamp),
    /// It had none: wall-clock time, which needs a zone beside it.
    Local(DateTime),
}

/// Why a text is no time we take; says what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It is not of RFC 3339's form.
    #[error(
        "expected RFC 3339: YYYY-MM-DDTHH:MM:SS, then a fraction of at most 9 digits if any, then Z or ±HH:MM, \
         or neither for wall-clock time"
    )]
    Form,
    /// It has the form, but no calendar has that day or no clock that time.
    #[error("expected a day of the calendar and a time from 00:00:00 to 23:59:59; leap seconds are not taken")]
    NoSuchTime,
}

/// Reads RFC 3339's `date-time`, with the offset left out or not; section 5.6 with `T` and `Z` in either case. Stricter
/// than jiff, which also takes week dates, `[zone]` annotations and missing seconds, and rounds second 60 down: a
/// fingerprint must not depend on what a later release of it takes.
///
/// An instant that jiff cannot hold becomes its first or last one, so that the horizon refuses it with its own code.
///
/// # Errors
///
/// [`Malformed`] for anything else.
pub fn parse_written(text: &str) -> Result<Written, Malformed> {
    let (stamp, rest) = text.as_bytes().split_first_chunk::<19>().ok_or(Malformed::Form)?;
    let separated = matches!(stamp, [_, _, _, _, b'-', _, _, b'-', _, _, b'T' | b't', _, _, b':', _, _, b':', _, _]);
    if !separated {
        return Err(Malformed::Form);
    }
    let year = i16::try_from(number(&stamp[..4])?).map_err(|_| Malformed::Form)?;
    let [month, day] = [two(&stamp[5..7])?, two(&stamp[8..10])?];
    let [hour, minute, second] = [two(&stamp[11..13])?, two(&stamp[14..16])?, two(&stamp[17..])?];
    let (nanos, rest) = fraction(rest)?;
    let offset = offset(rest)?;
    let local = DateTime::new(year, month, day, hour, minute, second, nanos).map_err(|_| Malformed::NoSuchTime)?;
    Ok(offset.map_or(Written::Local(local), |offset| Written::Instant(instant(local, offset))))
}

/// The offset of an instant that [`parse_written`] has read.
#[must_use]
pub fn written_offset(text: &str) -> Option<Offset> {
    let (_, rest) = text.as_bytes().split_first_chunk::<19>()?;
    let (_, rest) = fraction(rest).ok()?;
    offset(rest).ok()?
}

/// The fraction a text begins with, in nanoseconds, and what follows it.
fn fraction(text: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    let [b'.', text @ ..] = text else { return Ok((0, text)) };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&digits) {
        return Err(Malformed::Form);
    }
    let mut nanos = *b"000000000";
    nanos[..digits].copy_from_slice(&text[..digits]);
    Ok((number(&nanos)?, &text[digits..]))
}

/// The offset that a text consists of; `None` when it is empty.
fn offset(text: &[u8]) -> Result<Option<Offset>, Malformed> {
    match text {
        [] => Ok(None),
        b"Z" | b"z" => Ok(Some(Offset::UTC)),
        [sign @ (b'+' | b'-'), hours @ .., b':', m, n] if hours.len() == 2 => {
            let [hours, minutes] = [number(hours)?, number(&[*m, *n])?];
            if hours > 23 || minutes > 59 {
                return Err(Malformed::NoSuchTime);
            }
            let seconds = (hours * 60 + minutes) * if *sign == b'-' { -60 } else { 60 };
            Offset::from_seconds(seconds).map(Some).map_err(|_| Malformed::NoSuchTime)
        }
        _ => Err(Malformed::Form),
    }
}

/// The number that at most nine digits write.
fn number(digits: &[u8]) -> Result<i32, Malformed> {
    digits.iter().try_fold(0, |number, byte| match byte {
        b'0'..=b'9' => Ok(number * 10 + i32::from(byte - b'0')),
        _ => Err(Malformed::Form),
    })
}

/// The number that two digits write.
fn two(digits: &[u8]) -> Result<i8, Malformed> {
    i8::try_from(number(digits)?).map_err(|_| Malformed::Form)
}

/// `local` at `offset`, or jiff's limit on that side.
fn instant(local: DateTime, offset: Offset) -> Timestamp {
    offset.to_timestamp(local).unwrap_or(if local.year() > 0 { Timestamp::MAX } else { Timestamp::MIN })
}

/// Why wall-clock time names no single instant in its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LocalTimeError {
    /// The clocks skip it.
    #[error("the clocks skip this time in this zone")]
    Nonexistent,
    /// The clocks show it twice.
    #[error("the clocks show this time twice in this zone: {earlier} and {later}")]
    Ambiguous {
        /// The first of the two.
        earlier: Timestamp,
        /// The second.
        later: Timestamp,
    },
}

/// The one instant at which clocks in `zone` show `local`; as with [`parse_written`], jiff's limit where that is
/// beyond it.
///
/// # Errors
///
/// [`LocalTimeError`] when there is none, or two: which was meant is the caller's to say (API.md, Appointments).
pub fn resolve_local(local: DateTime, zone: &TimeZone) -> Result<Timestamp, LocalTimeError> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => Ok(instant(local, offset)),
        AmbiguousOffset::Gap { .. } => Err(LocalTimeError::Nonexistent),
        AmbiguousOffset::Fold { before, after } => {
            Err(LocalTimeError::Ambiguous { earlier: instant(local, before), later: instant(local, after) })
        }
    }
}

/// The zone of an IANA name, spelt as IANA spells it, so that what we store and hand back works with every client's
/// database. `None` for anything else, fixed offsets and POSIX strings included. Cached by jiff: tens of nanoseconds.
#[must_use]
pub fn zone(name: &str) -> Option<TimeZone> {
    // Found in zone directories and in jiff, but not names of places: the machine's own zone, and two ways to say "none".
    let unfit = matches!(name, "localtime" | "posixrules" | "Factory" | "Etc/Unknown");
    let well_formed = name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+'));
    if unfit || !well_formed {
        return None;
    }
    // jiff finds names in any case.
    jiff::tz::db().get(name).ok().filter(|zone| zone.iana_name() == Some(name))
}

/// RFC 3339 in UTC with `Z`, byte for byte what JSON output shows.
#[must_use]
pub fn canonical_text(at: Timestamp) -> String {
    at.to_string()
}

/// What a row keeps of a start as it was intended: the zone it was written in, else the clinic's, and the wall clock there.
#[must_use]
pub fn wall_clock(start: Timestamp, written_in: Option<&str>, clinic_zone: &str) -> (String, DateTime) {
    let name = written_in.unwrap_or(clinic_zone);
    let known = zone(name).unwrap_or(TimeZone::UTC);
    (name.to_owned(), known.to_datetime(start))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::clock::Ids;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn span(start: i64, end: i64) -> Span {
        let second = |n| Timestamp::from_second(n).expect("in range");
        Span::new(second(start), second(end)).expect("not empty")
    }

    #[test]
    fn spans_are_half_open() {
        assert_eq!(Span::new(at("2026-12-01T08:00:00Z"), at("2026-12-01T08:00:00Z")), None);
        assert_eq!(Span::from_length(at("2026-12-01T08:00:00Z"), 90).end, at("2026-12-01T09:30:00Z"));
        assert_eq!(Span::from_length(Timestamp::MAX, 90).end, Timestamp::MAX);
        assert!(!span(0, 10).overlaps(&span(10, 20)) && !span(10, 20).overlaps(&span(0, 10)));
        assert!(span(0, 11).overlaps(&span(10, 20)) && span(0, 20).overlaps(&span(5, 6)));
        assert!(span(0, 10).contains(&span(0, 10)) && !span(0, 10).contains(&span(0, 11)));
    }

    #[test]
    fn stretches_answer_as_their_seconds_do() {
        let ids = Ids::seeded(1);
        let random = |limit: u64| i64::try_from(ids.below(limit)).expect("small");
        for _ in 0..2000 {
            let mut one = |_| {
                let start = random(60);
                span(start, start + 1 + random(12))
            };
            let (spans, asked) = ((0..6).map(&mut one).collect::<Vec<_>>(), one(0));
            let stretches: Stretches = spans.iter().copied().collect();
            let held = |second: i64| spans.iter().any(|span| span.contains(&self::span(second, second + 1)));
            let mut seconds = asked.start.as_second()..asked.end.as_second();
            assert_eq!(stretches.cover(&asked), seconds.clone().all(held), "{spans:?} {asked:?}");
            assert_eq!(stretches.meet(&asked), seconds.any(held), "{spans:?} {asked:?}");
        }
        assert_eq!([span(5, 9), span(0, 5)].into_iter().collect::<Stretches>(), Stretches(vec![span(0, 9)]));
    }

    #[test]
    fn instants_and_wall_clock_times_are_read() {
        for (text, instant) in [
            ("2026-12-01T09:00:00+01:00", "2026-12-01T08:00:00Z"),
            ("2026-12-01t08:00:00z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T08:00:00.5-00:00", "2026-12-01T08:00:00.5Z"),
            ("2026-12-01T00:00:00.123456789-23:59", "2026-12-01T23:59:00.123456789Z"),
            ("2028-02-29T23:59:59Z", "2028-02-29T23:59:59Z"),
            ("0000-01-01T00:00:00+23:59", "-000001-12-31T00:01:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.999999999Z"),
            ("9999-12-31T23:59:59-23:00", "9999-12-30T22:00:00.999999999Z"),
        ] {
            assert_eq!(parse_written(text), Ok(Written::Instant(at(instant))), "{text}");
        }
        let local = date(2026, 10, 25).at(2, 30, 0, 70_000_000);
        assert_eq!(parse_written("2026-10-25T02:30:00.07"), Ok(Written::Local(local)));
        assert_eq!(canonical_text(at("2026-12-01T09:00:00.250+01:00")), "2026-12-01T08:00:00.25Z");
    }

    #[test]
    fn nothing_else_is_read() {
        let malformed = "|2026-12-01|2026-12-01T08:00|2026-12-01T08:00Z|2026-12-01 08:00:00Z|20261201T080000Z|\
            2026-W49-2T08:00:00Z|2026-12-01T08:00:00Z[Europe/Berlin]|2026-12-01T08:00:00[UTC]|2026-12-01T08:00:00+01|\
            2026-12-01T08:00:00+0100|2026-12-01T08:00:00+1:00|+2026-12-01T08:00:00Z|2026-12-01T08:00:00+01:00:00|\
            2026-12-01T08:00:00.Z|2026-12-01T08:00:00,5Z| 2026-12-01T08:00:00Z|2026-12-01T08:00:00.1234567890Z|\
            2026-12-01T08:00:00Z |2026-12-01T08:00:00−01:00|2026-1-01T08:00:00Z|٢٠٢٦-12-01T08:00:00Z|\
            2026-12-01T08:00:00ZZ|2026-12-01T+8:00:00Z|-026-12-01T08:00:00Z|2026-12-01T08:00:00.5.5Z|now";
        for text in malformed.split('|') {
            assert_eq!(parse_written(text), Err(Malformed::Form), "{text}");
        }
        let impossible = "2026-12-31T23:59:60Z|2016-12-31T23:59:60|2026-12-01T24:00:00Z|2026-12-01T08:60:00Z|\
            2026-02-29T08:00:00Z|2026-04-31T08:00:00Z|2026-13-01T08:00:00Z|2026-00-01T08:00:00Z|2026-12-32T08:00:00Z|\
            2026-12-00T08:00:00|2026-12-01T08:00:00+24:00|2026-12-01T08:00:00+01:60";
        for text in impossible.split('|') {
            assert_eq!(parse_written(text), Err(Malformed::NoSuchTime), "{text}");
        }
    }

    #[test]
    fn gaps_and_overlaps_are_told_apart() {
        let [berlin, lord_howe] = ["Europe/Berlin", "Australia/Lord_Howe"].map(|name| zone(name).expect("a zone"));
        let twice = |earlier, later| Err(LocalTimeError::Ambiguous { earlier: at(earlier), later: at(later) });
        let spring = |hour, minute| resolve_local(date(2027, 3, 28).at(hour, minute, 0, 0), &berlin);
        assert_eq!(spring(1, 59), Ok(at("2027-03-28T00:59:00Z")));
        assert_eq!([spring(2, 0), spring(2, 59)], [Err(LocalTimeError::Nonexistent); 2]);
        assert_eq!(spring(3, 0), Ok(at("2027-03-28T01:00:00Z")));
        let autumn = |hour, minute| resolve_local(date(2026, 10, 25).at(hour, minute, 0, 0), &berlin);
        assert_eq!(autumn(1, 59), Ok(at("2026-10-24T23:59:00Z")));
        assert_eq!(autumn(2, 0), twice("2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"));
        assert_eq!(autumn(3, 0), Ok(at("2026-10-25T02:00:00Z")));
        // Lord Howe moves its clocks by half an hour only.
        let howe = |month, day, hour, minute| resolve_local(date(2026, month, day).at(hour, minute, 0, 0), &lord_howe);
        assert_eq!(howe(10, 4, 2, 15), Err(LocalTimeError::Nonexistent));
        assert_eq!(howe(10, 4, 2, 30), Ok(at("2026-10-03T15:30:00Z")));
        assert_eq!(howe(4, 5, 1, 45), twice("2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"));
        assert_eq!(resolve_local(DateTime::MAX, &berlin), Ok(Timestamp::MAX));
        assert_eq!(resolve_local(DateTime::MIN, &lord_howe), Ok(Timestamp::MIN));
    }

    #[test]
    fn zones_are_iana_names() {
        for name in ["Europe/Berlin", "America/Argentina/Buenos_Aires", "UTC", "Etc/GMT+5", "EST5EDT", "GB-Eire"] {
            assert_eq!(zone(name).expect(name).iana_name(), Some(name));
        }
        let names = "|+01:00|+01|-05|UTC+1|CET-1CEST|CET-1CEST,M3.5.0,M10.5.0/3|localtime|posixrules|Factory|factory|\
            Etc/Unknown|etc/unknown|posix/Europe/Berlin|right/Europe/Berlin|Europe|Europe/Berlin\0|../../etc/passwd|\
            Europe/../Europe/Berlin|europe/berlin|utc|zone.tab|tzdata.zi|leapseconds|Europe//Berlin| UTC|Mars/Phobos";
        for name in names.split('|').chain(["a".repeat(65).as_str()]) {
            assert!(zone(name).is_none(), "{name}");
        }
    }
}
