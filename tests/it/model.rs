//! A small model of the contract (API.md, "Appointments"), in memory and without haste, and a walk of random commands
//! through it and through the service: their answers are the same, step by step, and so are all rows at the end.

use jiff::{SignedDuration, Timestamp};
use oncebook::clock::Ids;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::app::{SLOTS_A_DAY, slot};

mod walk;

pub(crate) use walk::walk;

/// Quarter hours of the demo's services, and the one that follows the shortest: the walk gives it a buffer.
const LENGTH: [i64; 3] = [1, 2, 4];
const BUFFER: [i64; 3] = [1, 0, 0];

/// A practitioner the walk sets inactive.
const AWAY: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Booked,
    Arrived,
    Fulfilled,
    Cancelled,
    NoShow,
}

impl Status {
    const fn text(self) -> &'static str {
        match self {
            Self::Booked => "booked",
            Self::Arrived => "arrived",
            Self::Fulfilled => "fulfilled",
            Self::Cancelled => "cancelled",
            Self::NoShow => "noshow",
        }
    }
}

/// Where and when, by place in the demo; the start in minutes from the first day's opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    practitioner: Option<usize>,
    operatory: Option<usize>,
    start: i64,
    /// In quarter hours: the visit, and what follows it.
    length: i64,
    buffer: i64,
}

impl Place {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |place: &Self| place.start + 15 * (place.length + place.buffer);
        let shares = |mine: Option<usize>, theirs: Option<usize>| mine.is_some() && mine == theirs;
        self.start < end(other)
            && other.start < end(self)
            && (shares(self.practitioner, other.practitioner) || shares(self.operatory, other.operatory))
    }
}

/// A row.
#[derive(Clone, Debug)]
struct Row {
    id: Uuid,
    /// Who and for what; none for a block.
    visit: Option<(usize, usize)>,
    place: Place,
    status: Status,
    confirmed: bool,
    overbooked: bool,
    version: i64,
    note: Option<String>,
}

/// A command.
#[derive(Clone, Debug)]
enum Command {
    Book { patient: usize, service: usize, place: Place, overbook: bool },
    Move { row: usize, place: Place, service: Option<usize>, overbook: bool },
    Step { row: usize, what: &'static str },
    Note { row: usize, note: Option<String> },
    Block { place: Place },
    Unblock { row: usize },
}

/// What the contract says to it: a status, and a code where it is a no.
type Answer = (u16, &'static str);

/// All rows there are.
struct Model {
    rows: Vec<Row>,
    overbooks: bool,
}

const fn held(status: Status) -> bool {
    matches!(status, Status::Booked | Status::Arrived)
}

impl Model {
    /// Whether anybody else is there.
    fn taken(&self, place: &Place, but: Option<usize>) -> bool {
        self.others(but).any(|row| row.place.overlaps(place))
    }

    /// The same visit, under whatever key.
    fn twin(&self, visit: (usize, usize), place: &Place, but: Option<usize>) -> bool {
        self.others(but).any(|row| {
            row.visit == Some(visit) && (row.place.practitioner, row.place.start) == (place.practitioner, place.start)
        })
    }

    fn others(&self, but: Option<usize>) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(n, row)| Some(*n) != but && held(row.status)).map(|(_, row)| row)
    }

    /// What the contract says, in the order of its refusals; a row that is made has yet to be given its id.
    fn answer(&mut self, command: &Command, if_match: Option<i64>) -> Answer {
        match command {
            Command::Book { patient, service, place, overbook } => self.book(*patient, *service, *place, *overbook),
            Command::Move { row, place, service, overbook } => self.moved(*row, *place, *service, *overbook, if_match),
            Command::Step { row, what: "reopen" } => self.reopened(*row, if_match),
            Command::Step { row, what } => self.stepped(*row, what, if_match),
            Command::Note { row, note } => self.noted(*row, note.as_ref(), if_match),
            Command::Block { place } => self.block(*place),
            Command::Unblock { row } => self.unblocked(*row, if_match),
        }
    }

    fn time(place: &Place) -> Option<Answer> {
        let day = i64::try_from(SLOTS_A_DAY).expect("small") * 15;
        match place.start {
            start if start < -24 * 60 * 7 => Some((422, "in_the_past")),
            start if start > 730 * 24 * 60 => Some((422, "too_far_ahead")),
            start if start % 15 != 0 => Some((422, "off_grid")),
            start if start < 0 || start + place.length * 15 > day => Some((422, "outside_hours")),
            _ => None,
        }
    }

    fn book(&mut self, patient: usize, service: usize, place: Place, overbook: bool) -> Answer {
        let taken = self.taken(&place, None);
        if place.practitioner == Some(AWAY) {
            return (422, "inactive_reference");
        }
        if let Some(refusal) = Self::time(&place) {
            return refusal;
        }
        if overbook && !self.overbooks {
            return (422, "overbooking_not_allowed");
        }
        if self.twin((patient, service), &place, None) {
            return (409, "duplicate_intent");
        }
        if taken && !overbook {
            return (409, "slot_taken");
        }
        self.add(Some((patient, service)), place, taken);
        (201, "")
    }

    fn add(&mut self, visit: Option<(usize, usize)>, place: Place, overbooked: bool) {
        let (status, confirmed, version, note) = (Status::Booked, false, 1, None);
        self.rows.push(Row { id: Uuid::nil(), visit, place, status, confirmed, overbooked, version, note });
    }

    fn moved(&mut self, at: usize, to: Place, service: Option<usize>, overbook: bool, if_match: Option<i64>) -> Answer {
        let row = self.rows[at].clone();
        let Some((patient, has)) = row.visit else { return (404, "not_found") };
        let wanted = service.unwrap_or(has);
        let (length, buffer) =
            if wanted == has { (row.place.length, row.place.buffer) } else { (LENGTH[wanted], BUFFER[wanted]) };
        let practitioner = to.practitioner.or(row.place.practitioner);
        let place = Place { practitioner, operatory: to.operatory.or(row.place.operatory), length, buffer, ..to };
        let stays = place == row.place && wanted == has;
        if to.practitioner == Some(AWAY) && row.place.practitioner != Some(AWAY) {
            return (422, "inactive_reference");
        }
        if let Some(refusal) = Self::time(&place).filter(|_| !stays) {
            return refusal;
        }
        if overbook && !self.overbooks {
            return (422, "overbooking_not_allowed");
        }
        if row.status != Status::Booked {
            return (409, "transition_not_allowed");
        }
        if if_match.is_some_and(|version| version != row.version) {
            return (412, "version_mismatch");
        }
        if stays {
            return (200, "");
        }
        if self.twin((patient, wanted), &place, Some(at)) {
            return (409, "duplicate_intent");
        }
        let overbooked = self.taken(&place, Some(at));
        if overbooked && !overbook {
            return (409, "slot_taken");
        }
        let visit = Some((patient, wanted));
        self.rows[at] = Row { visit, place, confirmed: false, overbooked, version: row.version + 1, ..row };
        (200, "")
    }

    fn stepped(&mut self, at: usize, what: &str, if_match: Option<i64>) -> Answer {
        use Status::{Arrived, Booked, Cancelled, Fulfilled, NoShow};
        let row = &mut self.rows[at];
        if row.visit.is_none() {
            return (404, "not_found");
        }
        let (is_so, drawn, next) = match what {
            "confirm" => (row.status == Booked && row.confirmed, row.status == Booked, Booked),
            "check-in" => (row.status == Arrived, row.status == Booked, Arrived),
            "complete" => (row.status == Fulfilled, row.status == Arrived, Fulfilled),
            "no-show" => (row.status == NoShow, row.status == Booked, NoShow),
            _ => (row.status == Cancelled, matches!(row.status, Booked | Arrived), Cancelled),
        };
        if !is_so && !drawn {
            return (409, "transition_not_allowed");
        }
        if if_match.is_some_and(|version| version != row.version) {
            return (412, "version_mismatch");
        }
        if !is_so {
            (row.status, row.version) = (next, row.version + 1);
            row.confirmed |= what == "confirm";
        }
        (200, "")
    }

    fn reopened(&mut self, at: usize, if_match: Option<i64>) -> Answer {
        let row = self.rows[at].clone();
        let Some(visit) = row.visit else { return (404, "not_found") };
        if row.status == Status::Fulfilled {
            return (409, "transition_not_allowed");
        }
        if if_match.is_some_and(|version| version != row.version) {
            return (412, "version_mismatch");
        }
        if row.status == Status::Booked {
            return (200, "");
        }
        let enters = !held(row.status);
        if self.twin(visit, &row.place, Some(at)) {
            return (409, "duplicate_intent");
        }
        if enters && self.taken(&row.place, Some(at)) {
            return (409, "slot_taken");
        }
        let overbooked = row.overbooked && !enters;
        let (status, version) = (Status::Booked, row.version + 1);
        self.rows[at] = Row { status, confirmed: false, overbooked, version, ..row };
        (200, "")
    }

    fn noted(&mut self, at: usize, note: Option<&String>, if_match: Option<i64>) -> Answer {
        let row = &mut self.rows[at];
        if row.visit.is_none() {
            return (404, "not_found");
        }
        if if_match.is_some_and(|version| version != row.version) {
            return (412, "version_mismatch");
        }
        // Left out, it stays; empty, it goes.
        let next = note.map_or_else(|| row.note.clone(), |note| Some(note.clone()).filter(|note| !note.is_empty()));
        if next != row.note {
            (row.note, row.version) = (next, row.version + 1);
        }
        (200, "")
    }

    fn block(&mut self, place: Place) -> Answer {
        if self.taken(&place, None) {
            return (409, "slot_taken");
        }
        self.add(None, place, false);
        (201, "")
    }

    fn unblocked(&mut self, at: usize, if_match: Option<i64>) -> Answer {
        let row = &mut self.rows[at];
        if row.visit.is_some() {
            return (404, "not_found");
        }
        if row.status != Status::Cancelled {
            if if_match.is_some_and(|version| version != row.version) {
                return (412, "version_mismatch");
            }
            (row.status, row.version) = (Status::Cancelled, row.version + 1);
        }
        (204, "")
    }
}

/// An instant so many minutes after the first day's opening.
fn instant(minutes: i64) -> Timestamp {
    slot(0) + SignedDuration::from_mins(minutes)
}

/// What of a row's representation the model knows.
fn known(view: &Value) -> Value {
    let confirmed = !view["confirmed_at"].is_null();
    let [start, end, status, version, overbooked, note] =
        ["start", "end", "status", "version", "overbooked", "note"].map(|member| view[member].clone());
    json!({ "start": start, "end": end, "status": status, "version": version, "overbooked": overbooked, "note": note,
            "practitioner": view["practitioner_id"], "operatory": view["operatory_id"], "confirmed": confirmed })
}

/// A number below `bound`.
fn below(ids: &Ids, bound: u64) -> usize {
    usize::try_from(ids.below(bound)).expect("small")
}
