//! When a visit may start: the one decision that booking and the availability endpoint share, so that what is offered
//! can be booked. [`check_time`] judges one start; [`openings`] finds those it would pass, with nobody busy. Both are
//! built from the same four parts: `Bounds`, the `Grid`, the stretches of opening hours, the stretches that are taken.

mod grid;

use std::cell::OnceCell;
use std::slice;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use self::grid::Grid;
use super::hours::{OpenHours, open_throughout, stretches};
use super::time::{Span, Stretches, later_by};

const DAY_MINUTES: i64 = 24 * 60;

/// No visit starts after this, whatever the horizon: 9999-12-01, a month before jiff's time ends, so that no visit and
/// no buffer is cut short there and year 9999 is refused as too far ahead.
const LAST_START: Timestamp = Timestamp::constant(253_399_622_400, 0);

/// How many openings a refused booking offers instead (API.md, Problems: `next_openings`).
const OFFERED_INSTEAD: usize = 3;

/// A clinic's settings about time (API.md, Directory).
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where its wall clock hangs.
    pub zone: TimeZone,
    /// The grid: visits start on multiples of this many minutes since local midnight, 1 to 1440.
    pub slot_minutes: i32,
    /// How long before its start a visit must be asked for, in minutes, 0 or more.
    pub min_notice_minutes: i32,
    /// How far ahead a visit may start, in days of 24 hours.
    pub horizon_days: i32,
    /// When it is open; empty means never.
    pub hours: Vec<OpenHours>,
}

/// Why a visit cannot be at its time, whoever else has which appointment (API.md, Problems, 422).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeRefusal {
    /// It would have begun already.
    InThePast,
    /// It begins before the clinic's notice is over.
    TooSoon,
    /// It begins after the clinic's horizon.
    TooFarAhead,
    /// It does not begin on the grid.
    OffGrid,
    /// The clinic or the practitioner is not there for all of it, closures included.
    OutsideHours,
}

/// Judges everything about a visit's time that depends on no other appointment. `visit` is without its buffer, which
/// may run past closing; `practitioner_hours` narrow the clinic's when given; closures need no order.
///
/// # Errors
///
/// The first [`TimeRefusal`] that applies, in the order API.md gives them.
pub fn check_time(
    rules: &Rules,
    practitioner_hours: Option<&[OpenHours]>,
    closures: &[Span],
    visit: &Span,
    now: Timestamp,
) -> Result<(), TimeRefusal> {
    Bounds::at(rules, now).admit(visit.start)?;
    if !Grid::new(&rules.zone, rules.slot_minutes).holds(visit.start) {
        return Err(TimeRefusal::OffGrid);
    }
    let open = |hours: &[OpenHours]| open_throughout(hours, &rules.zone, visit);
    let closed = closures.iter().any(|closure| closure.overlaps(visit));
    if closed || !open(&rules.hours) || !practitioner_hours.is_none_or(open) {
        return Err(TimeRefusal::OutsideHours);
    }
    Ok(())
}

/// From when to when a visit may start, as of now.
struct Bounds {
    now: Timestamp,
    earliest: Timestamp,
    latest: Timestamp,
}

impl Bounds {
    fn at(rules: &Rules, now: Timestamp) -> Self {
        let horizon = later_by(now, i64::from(rules.horizon_days) * DAY_MINUTES);
        let earliest = later_by(now, i64::from(rules.min_notice_minutes));
        Self { now, earliest, latest: horizon.min(LAST_START) }
    }

    fn admit(&self, start: Timestamp) -> Result<(), TimeRefusal> {
        if start < self.now {
            Err(TimeRefusal::InThePast)
        } else if start < self.earliest {
            Err(TimeRefusal::TooSoon)
        } else if start > self.latest {
            Err(TimeRefusal::TooFarAhead)
        } else {
            Ok(())
        }
    }
}

/// One who may be booked, and when not.
#[derive(Clone, Debug)]
pub struct Person {
    /// Who.
    pub practitioner_id: Uuid,
    /// Hours at this clinic, which narrow the clinic's; `None` means the clinic's.
    pub hours: Option<Vec<OpenHours>>,
    /// What holds them, sorted by start: visits with their buffers, overbooked ones included, and blocks.
    pub busy: Vec<Span>,
}

/// What is asked: who could begin a visit of this length, and when.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The clinic's.
    pub rules: &'a Rules,
    /// The clinic's, those that overlap the range at least.
    pub closures: &'a [Span],
    /// How long the visit is.
    pub minutes: i32,
    /// How long practitioner and operatory are held after it.
    pub buffer_minutes: i32,
    /// Who is asked about, in the order to offer them.
    pub people: &'a [Person],
    /// What holds the operatory, when one is asked for.
    pub operatory_busy: Option<&'a [Span]>,
    /// Starts lie in here.
    pub range: Span,
    /// As of when.
    pub now: Timestamp,
}

/// A slot that can be booked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Opening {
    /// When the visit would start, in UTC.
    pub start: Timestamp,
    /// When the visit would end, in UTC, without the service's buffer.
    pub end: Timestamp,
    /// Id of the practitioner it would be with.
    pub practitioner_id: Uuid,
}

/// A person's hours and appointments, ready to be searched.
struct Diary {
    open: Option<Stretches>,
    busy: Stretches,
}

/// Every visit that [`check_time`] passes and that finds practitioner and operatory free to the end of its buffer, by
/// start, then in the order of `people`. Lazy: a caller that takes three pays for little more.
///
/// 31 days of 96 slots and 20 practitioners take about 3 ms in a release build: what concerns the
/// clinic is asked once a start, and a diary is read once and searched by halves.
pub fn openings(question: &Question<'_>) -> impl Iterator<Item = Opening> {
    let &Question { rules, people, range, minutes, buffer_minutes, .. } = question;
    let bounds = Bounds::at(rules, question.now);
    let first = range.start.max(bounds.earliest);
    // Hours must be complete to the end of the last visit.
    let reach = Span { start: first, end: Span::from_length(range.end.min(bounds.latest), minutes).end };
    let clinic = stretches(&rules.hours, &rules.zone, &reach);
    let closed: Stretches = question.closures.iter().copied().collect();
    let operatory: Stretches = question.operatory_busy.into_iter().flatten().copied().collect();
    let mut diaries: Vec<OnceCell<Diary>> = Vec::new();
    diaries.resize_with(people.len(), OnceCell::new);
    let read = move |person: &Person| Diary {
        open: person.hours.as_ref().map(|hours| stretches(hours, &rules.zone, &reach)),
        busy: person.busy.iter().copied().collect(),
    };
    Grid::new(&rules.zone, rules.slot_minutes)
        .after(first)
        .take_while(move |start| *start < range.end && *start <= bounds.latest)
        .map(move |start| {
            (Span::from_length(start, minutes), Span::from_length(start, minutes.saturating_add(buffer_minutes)))
        })
        .filter(move |(visit, held)| clinic.cover(visit) && !closed.meet(visit) && !operatory.meet(held))
        .flat_map(move |(visit, held)| {
            let free = people.iter().zip(&diaries).filter(|(person, diary)| {
                let diary = diary.get_or_init(|| read(person));
                diary.open.as_ref().is_none_or(|open| open.cover(&visit)) && !diary.busy.meet(&held)
            });
            let with = |practitioner_id| Opening { start: visit.start, end: visit.end, practitioner_id };
            free.map(|(person, _)| with(person.practitioner_id)).collect::<Vec<_>>()
        })
}

/// Up to three openings for a booking refused because its slot is taken: those of the `preferred` practitioner first,
/// then the others', each by start (API.md, Problems: `slot_taken`). No two of them clash, so that a caller could take them
/// all. Stops at the third.
#[must_use]
pub fn next_openings(question: &Question<'_>, preferred: Option<Uuid>) -> Vec<Opening> {
    let own = question.people.iter().find(|person| Some(person.practitioner_id) == preferred);
    let alone = Question { people: own.map_or(&[], slice::from_ref), ..*question };
    let others = openings(question).filter(|opening| Some(opening.practitioner_id) != preferred);
    let mut offered: Vec<Opening> = Vec::with_capacity(OFFERED_INSTEAD);
    let held = |opening: &Opening| Span::from_length(opening.start, question.minutes + question.buffer_minutes);
    for opening in openings(&alone).chain(others) {
        let shares =
            |other: &Opening| question.operatory_busy.is_some() || other.practitioner_id == opening.practitioner_id;
        if !offered.iter().any(|other| shares(other) && held(other).overlaps(&held(&opening))) {
            offered.push(opening);
        }
        if offered.len() == OFFERED_INSTEAD {
            break;
        }
    }
    offered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Ids;
    use crate::domain::time::{Written, parse_written, zone};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn week(opens: &str, closes: &str) -> Vec<OpenHours> {
        let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        let entry = |day| serde_json::json!({"weekday": day, "opens": opens, "closes": closes});
        days.map(|day| serde_json::from_value(entry(day)).expect("valid")).into()
    }

    fn rules(name: &str, slot_minutes: i32, hours: Vec<OpenHours>) -> Rules {
        Rules { zone: zone(name).expect("a zone"), slot_minutes, min_notice_minutes: 0, horizon_days: 730, hours }
    }

    fn person(number: u128, busy: &[Span]) -> Person {
        Person { practitioner_id: Uuid::from_u128(number), hours: None, busy: busy.to_vec() }
    }

    fn ask<'a>(rules: &'a Rules, people: &'a [Person], from: &str, to: &str) -> Question<'a> {
        let range = Span::new(at(from), at(to)).expect("not empty");
        let now = at("2026-01-01T00:00:00Z");
        Question { rules, closures: &[], minutes: 30, buffer_minutes: 0, people, operatory_busy: None, range, now }
    }

    fn starts(question: &Question<'_>) -> Vec<String> {
        openings(question).map(|opening| opening.start.to_string()).collect()
    }

    #[test]
    fn the_first_reason_is_given() {
        let berlin =
            Rules { min_notice_minutes: 60, horizon_days: 30, ..rules("Europe/Berlin", 20, week("08:00", "18:00")) };
        let now = at("2026-12-01T08:00:00Z");
        let closure = Span::from_length(at("2026-12-03T10:00:00Z"), 60);
        let mornings = week("08:00", "12:00");
        let check = |own: Option<&[OpenHours]>, start: &str, minutes| {
            check_time(&berlin, own, &[closure], &Span::from_length(at(start), minutes), now)
        };
        for (expected, starts) in [
            (Err(TimeRefusal::InThePast), &["01T07:59:59.999999"][..]),
            (Err(TimeRefusal::TooSoon), &["01T08:00:00", "01T08:59:00"]),
            (Err(TimeRefusal::TooFarAhead), &["31T08:00:00.000001"]),
            (Err(TimeRefusal::OffGrid), &["02T03:10:00", "02T09:00:01", "02T09:00:00.000000001"]),
            (Err(TimeRefusal::OutsideHours), &["02T06:40:00", "02T16:40:00", "03T09:40:00", "03T10:20:00"]),
            (Ok(()), &["01T09:00:00", "02T07:00:00", "03T11:00:00", "31T08:00:00"]),
        ] {
            for start in starts {
                assert_eq!(check(None, &format!("2026-12-{start}Z"), 30), expected, "{start}");
            }
        }
        assert_eq!(check(None, "2026-12-03T09:40:00Z", 20), Ok(()), "a closure is half-open");
        assert_eq!(check(Some(&mornings), "2026-12-02T10:40:00Z", 20), Ok(()));
        assert_eq!(check(Some(&mornings), "2026-12-02T10:40:00Z", 21), Err(TimeRefusal::OutsideHours));
        assert_eq!(check(Some(&[]), "2026-12-02T10:40:00Z", 20), Err(TimeRefusal::OutsideHours));
    }

    #[test]
    fn year_9999_is_too_far_ahead_whatever_the_horizon() {
        let always = Rules { horizon_days: i32::MAX, ..rules("UTC", 1, week("00:00", "24:00")) };
        for text in ["9999-12-31T23:59:59Z", "9999-12-30T21:00:00Z", "9999-12-01T00:01:00Z"] {
            let Ok(Written::Instant(start)) = parse_written(text) else { panic!("{text} is an instant") };
            let checked = check_time(&always, None, &[], &Span::from_length(start, 30), at("2026-12-01T08:00:00Z"));
            assert_eq!(checked, Err(TimeRefusal::TooFarAhead), "{text}");
        }
    }

    #[test]
    fn buffers_hold_and_neighbours_touch() {
        let berlin = rules("Europe/Berlin", 15, week("08:00", "10:00"));
        let busy =
            [Span::from_length(at("2026-12-01T07:00:00Z"), 30), Span::from_length(at("2026-12-01T08:15:00Z"), 15)];
        let (people, operatory) = ([person(1, &busy)], [Span::from_length(at("2026-12-01T07:30:00Z"), 5)]);
        let question = ask(&berlin, &people, "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z");
        let times = ["2026-12-01T07:30:00Z", "2026-12-01T07:45:00Z", "2026-12-01T08:30:00Z"];
        assert_eq!(starts(&question), times, "between the two, and up to closing");
        // The last one's buffer may pass closing.
        assert_eq!(starts(&Question { buffer_minutes: 15, ..question }), [times[0], times[2]]);
        assert_eq!(starts(&Question { operatory_busy: Some(&operatory), ..question }), [times[1], times[2]]);
    }

    #[test]
    fn instead_of_a_taken_slot_the_same_practitioner_comes_first() {
        let berlin = rules("Europe/Berlin", 30, week("08:00", "10:00"));
        let full = Span::from_length(at("2026-12-01T00:00:00Z"), 24 * 60);
        let people = [person(1, &[]), person(2, &[full]), person(3, &[])];
        let question = ask(&berlin, &people, "2026-12-01T07:00:00Z", "2026-12-02T07:30:00Z");
        let next = |preferred| {
            let found = next_openings(&question, preferred);
            let slots = found.iter().map(|slot| (slot.start.to_string(), slot.practitioner_id.as_u128()));
            slots.collect::<Vec<_>>()
        };
        let slot = |time: &str, number| (format!("2026-12-0{time}:00Z"), number);
        assert_eq!(next(Some(Uuid::from_u128(2))), [slot("2T07:00", 2), slot("1T07:00", 1), slot("1T07:00", 3)]);
        assert_eq!(next(Some(Uuid::from_u128(3))), [slot("1T07:00", 3), slot("1T07:30", 3), slot("1T08:00", 3)]);
        let any = [slot("1T07:00", 1), slot("1T07:00", 3), slot("1T07:30", 1)];
        assert_eq!([next(None), next(Some(Uuid::nil()))], [any.clone(), any]);
        let alone = Question { people: &people[1..2], ..question };
        assert_eq!(next_openings(&alone, Some(Uuid::from_u128(2))).len(), 1, "not offered twice");
        // Openings instead do not clash with one another.
        let (quarters, people) = (rules("Europe/Berlin", 15, week("08:00", "18:00")), [person(1, &[])]);
        let day = ask(&quarters, &people, "2026-12-01T07:00:00Z", "2026-12-02T07:00:00Z");
        let question = Question { buffer_minutes: 10, ..day };
        let found: Vec<_> = next_openings(&question, None).iter().map(|slot| slot.start).collect();
        assert_eq!(found, ["07:00", "07:45", "08:30"].map(|time| at(&format!("2026-12-01T{time}:00Z"))));
    }

    #[test]
    fn what_is_offered_is_what_can_be_booked() {
        let ids = Ids::seeded(3);
        let below = |bound: u64| i32::try_from(ids.below(bound)).expect("small");
        let pick = |from: &[i32]| from[usize::try_from(ids.below(from.len() as u64)).expect("small")];
        // An ordinary day, gaps and overlaps: at night, of half an hour, at and over midnight, and a day that never was.
        let changes = [
            ("Europe/Berlin", ["2026-12-01T08:00:00Z", "2027-03-28T01:00:00Z", "2026-10-25T01:00:00Z"]),
            ("Australia/Lord_Howe", ["2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z", "2026-12-01T08:00:00Z"]),
            ("America/Sao_Paulo", ["2018-11-04T03:00:00Z", "2018-02-18T02:00:00Z", "2018-12-01T08:00:00Z"]),
            ("America/St_Johns", ["2010-11-07T02:31:00Z", "2010-03-14T03:31:00Z", "2010-12-01T08:00:00Z"]),
            ("Pacific/Apia", ["2011-12-30T10:00:00Z", "2011-09-24T14:00:00Z", "2011-04-02T14:00:00Z"]),
        ];
        let mut found = 0;
        for round in 0..150 {
            let (name, instants) = changes[round % changes.len()];
            let near = |minutes| Span::from_length(at(instants[round % instants.len()]), minutes).end;
            let spans = |most: u64, length: u64| {
                let mut starts: Vec<i32> = (0..below(most + 1)).map(|_| below(1800) - 900).collect();
                starts.sort_unstable();
                starts.iter().map(|start| Span::from_length(near(*start), 1 + below(length))).collect::<Vec<_>>()
            };
            let time = || format!("{:02}:{:02}", below(24), below(4) * 15);
            let hours = || [week(&time(), &time()), week(&time(), &time())].concat();
            let rules = Rules {
                min_notice_minutes: below(300),
                horizon_days: 1 + below(2),
                ..rules(name, pick(&[5, 7, 15, 20, 50, 60, 90]), hours())
            };
            let people =
                [1, 2, 3].map(|number| Person { hours: (below(2) == 0).then(hours), ..person(number, &spans(6, 240)) });
            let (closures, operatory) = (spans(2, 300), spans(4, 120));
            let question = Question {
                closures: &closures,
                minutes: pick(&[10, 30, 60, 1440]),
                buffer_minutes: pick(&[0, 15]),
                operatory_busy: (below(2) == 0).then_some(&operatory),
                range: Span { start: near(below(600) - 900), end: near(below(900)) },
                now: near(below(900) - 1800),
                ..ask(&rules, &people, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
            };
            let offered: Vec<Opening> = openings(&question).collect();
            assert_eq!(offered, brute_force(&question), "{question:?}");
            found += offered.len();
        }
        assert!(found > 3000, "enough was offered to mean something: {found}");
    }

    /// The definition of offered: booking's decision, asked every minute.
    fn brute_force(question: &Question<'_>) -> Vec<Opening> {
        let Question { rules, closures, range, now, .. } = *question;
        let mut found = Vec::new();
        let starts = (0..).map(|minute| Span::from_length(range.start, minute).end);
        for start in starts.take_while(|start| *start < range.end) {
            let visit = Span::from_length(start, question.minutes);
            let held = Span::from_length(start, question.minutes + question.buffer_minutes);
            let free = |busy: &[Span]| !busy.iter().any(|busy| busy.overlaps(&held));
            for person in question.people {
                let passes = check_time(rules, person.hours.as_deref(), closures, &visit, now).is_ok();
                if passes && free(&person.busy) && question.operatory_busy.is_none_or(free) {
                    found.push(Opening { start, end: visit.end, practitioner_id: person.practitioner_id });
                }
            }
        }
        found
    }
}
