//! Fields of bodies, parsed once at the edge: a text that can be stored, a start that is an instant.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Deserializer, de};

use crate::domain::problem::{Code, Problem};
use crate::domain::time::{self, LocalTimeError, Span, Written};

/// Longest name, in characters.
pub const NAME: usize = 200;

/// Longest reason, in characters.
pub const REASON: usize = 1000;

/// A text of at most `MAX` characters without NUL, which Postgres cannot keep.
#[derive(Clone, Debug, PartialEq, Eq, utoipa::ToSchema)]
#[schema(value_type = String)]
pub struct Text<const MAX: usize>(pub String);

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(de::Error::custom("a text without NUL is wanted"));
        }
        if text.chars().count() > MAX {
            return Err(de::Error::custom(format!("at most {MAX} characters are wanted")));
        }
        Ok(Self(text))
    }
}

/// A name: a [`Text`] that says something.
#[derive(Clone, Debug, PartialEq, Eq, utoipa::ToSchema)]
#[schema(value_type = String)]
pub struct Name<const MAX: usize>(pub String);

impl<'de, const MAX: usize> Deserialize<'de> for Name<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::<MAX>::deserialize(deserializer)?;
        if text.trim().is_empty() {
            return Err(de::Error::custom("a text that is not empty is wanted"));
        }
        Ok(Self(text))
    }
}

/// A whole number, however it is written: `1`, `1.0` and `1e0` are one (RFC 8259 has only numbers).
///
/// # Errors
/// For a fraction, and for what does not fit.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let wanted = || de::Error::custom("a whole number is wanted");
    if let Some(number) = number.as_i64() {
        return i32::try_from(number).map_err(|_| wanted());
    }
    let number = number
        .as_f64()
        .filter(|number| number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX))
        .ok_or_else(wanted)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and fits")]
    Ok(number as i32)
}

/// A [`whole`] number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<const MIN: i32, const MAX: i32>(pub i32);

impl<'de, const MIN: i32, const MAX: i32> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = whole(deserializer)?;
        if !(MIN..=MAX).contains(&number) {
            return Err(de::Error::custom(format!("a number from {MIN} to {MAX} is wanted")));
        }
        Ok(Self(number))
    }
}

/// The name of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(pub String);

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if time::zone(&name).is_none() {
            return Err(de::Error::custom("an IANA time zone name is wanted, such as Europe/Berlin"));
        }
        Ok(Self(name))
    }
}

/// An instant, written with its offset (RFC 3339), of the years that can be written back so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant(pub Timestamp);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match time::parse_written(&String::deserialize(deserializer)?).map_err(de::Error::custom)? {
            Written::Instant(instant) => kept(micros(instant)).map(Self).map_err(de::Error::custom),
            Written::Local(_) => Err(de::Error::custom("a time with its offset is wanted, such as Z or +01:00")),
        }
    }
}

/// An instant that is to be kept as it is, so that it must be one that RFC 3339 can write: years 0000 to 9999 in UTC. What lies
/// beyond what jiff holds was read as its first or last instant, and is not kept as that.
///
/// # Errors
/// What is wanted, in words.
pub fn kept(instant: Timestamp) -> Result<Timestamp, &'static str> {
    let year = Offset::UTC.to_datetime(instant).year();
    if year < 0 || instant.as_microsecond() == Timestamp::MAX.as_microsecond() {
        return Err("a time from 0000-01-01T00:00:00Z to 9999-12-30T22:00:00Z is wanted");
    }
    Ok(instant)
}

/// The instant a caller means by `start` and, for a local time, the `time_zone` beside it.
///
/// # Errors
/// 400 for what is no time, 422 for a local time that does not exist or comes twice; nothing has been looked up by then.
pub fn instant(pointer: &str, start: &str, time_zone: Option<&str>) -> Result<Timestamp, Problem> {
    let written = time::parse_written(start).map_err(|error| Problem::malformed(pointer, error.to_string()))?;
    let zone = match time_zone {
        Some(name) => Some(time::zone(name).ok_or_else(|| {
            Problem::malformed("/time_zone", "An IANA time zone name is wanted, such as Europe/Berlin.")
        })?),
        None => None,
    };
    let local = match written {
        Written::Instant(instant) => return Ok(micros(instant)),
        Written::Local(local) => local,
    };
    let Some(zone) = zone else {
        return Err(Problem::malformed("/time_zone", "A time without an offset needs its time_zone beside it."));
    };
    match time::resolve_local(local, &zone) {
        Ok(instant) => Ok(micros(instant)),
        Err(LocalTimeError::Nonexistent) => {
            Err(Problem::new(Code::NonexistentLocalTime, format!("{local} does not exist there: the clocks skip it.")))
        }
        Err(LocalTimeError::Ambiguous { earlier, later }) => {
            Err(Problem::new(Code::AmbiguousLocalTime, format!("{local} comes twice there."))
                .with("instants", [earlier, later]))
        }
    }
}

/// A bound of a range in a query: an instant, so written with its offset. `name` is the parameter's.
///
/// # Errors
/// 400 for anything else.
pub fn bound(name: &str, text: &str) -> Result<Timestamp, Problem> {
    match time::parse_written(text) {
        Ok(Written::Instant(instant)) => Ok(micros(instant)),
        _ => Err(Problem::malformed(
            name,
            "An RFC 3339 time with its offset is wanted, such as 2026-12-01T08:00:00Z; in a URL a + is written %2B.",
        )),
    }
}

/// Two bounds of a half-open range, either of which may be left out.
///
/// # Errors
/// 400 as for [`bound`], and when the range ends before it begins.
pub fn bounds(from: Option<&str>, to: Option<&str>) -> Result<(Option<Timestamp>, Option<Timestamp>), Problem> {
    let from = from.map(|from| bound("from", from)).transpose()?;
    let to = to.map(|to| bound("to", to)).transpose()?;
    if from.zip(to).is_some_and(|(from, to)| to <= from) {
        return Err(backwards());
    }
    Ok((from, to))
}

/// A half-open range.
///
/// # Errors
/// As [`bounds`].
pub fn range(from: &str, to: &str) -> Result<Span, Problem> {
    Span::new(bound("from", from)?, bound("to", to)?).ok_or_else(backwards)
}

fn backwards() -> Problem {
    Problem::malformed("to", "A `to` after `from` is wanted.")
}

/// What Postgres can keep of it. A finer start is not on any grid, so nothing is lost that could have been booked.
fn micros(instant: Timestamp) -> Timestamp {
    if instant.subsec_nanosecond() % 1000 == 0 {
        return instant;
    }
    // One microsecond further on: still on no grid, and never equal to a start that is.
    Timestamp::from_microsecond(instant.as_microsecond() | 1).unwrap_or(instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_written_back() {
        let read = |text: &str| serde_json::from_value::<Instant>(text.into()).map(|Instant(at)| at.to_string());
        for (text, kept) in [
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
            ("0000-01-01T00:01:00+00:01", "0000-01-01T00:00:00Z"),
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(read(text).ok().as_deref(), Some(kept));
        }
        for text in ["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59Z", "9999-12-31T00:00:00+01:00"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_has_instants_for_bounds() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let [from, to] = ["2026-12-01T09:00:00+01:00", "2026-12-02T08:00:00Z"];
        assert_eq!(bounds(Some(from), Some(to)), Ok((Some(at("2026-12-01T08:00:00Z")), Some(at(to)))));
        assert_eq!(bounds(None, Some(to)), Ok((None, Some(at(to)))));
        let refused = |from, to| bounds(from, to).map_err(|problem| problem.extra["errors"][0]["pointer"].clone());
        for text in ["", "2026-12-01", "2026-12-01T09:00:00", "2026-12-01T09:00:00 01:00", "tomorrow"] {
            assert_eq!(refused(Some(text), Some(to)), Err("from".into()), "{text}");
        }
        assert_eq!(refused(Some(to), Some(from)), Err("to".into()));
        assert_eq!(refused(Some(from), Some(from)), Err("to".into()), "an empty range is a mistake");
    }
}
