//! A business no: decided on what stands in the database, stored under its key and replayed like any other answer.

use jiff::Timestamp;
use uuid::Uuid;

use super::appointment::{Appointment, Status};
use super::availability::{Opening, TimeRefusal};
use super::problem::{Code, Problem};
use super::time::Span;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The clinic has no such thing; the field names it.
    UnknownReference(&'static str),
    /// It takes no new bookings; the field names it.
    InactiveReference(&'static str),
    /// The time does not fit.
    Time(TimeRefusal),
    /// The clinic does not overbook.
    OverbookingNotAllowed,
    /// The status does not allow it.
    TransitionNotAllowed(Status),
    /// `If-Match` names another version than this one.
    VersionMismatch(i32),
    /// This visit is booked already.
    DuplicateIntent(Uuid),
    /// Its name in the other system is that of another appointment, whatever has become of it.
    ExternalIdTaken(Uuid),
    /// The practitioner or the operatory is taken.
    SlotTaken(Option<Wanted>),
}

/// What the caller wanted, to look for what else there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The practitioner asked for.
    pub practitioner: Uuid,
    /// The operatory asked for.
    pub operatory: Option<Uuid>,
    /// Minutes of the visit.
    pub minutes: i32,
    /// Minutes of its buffer.
    pub buffer_minutes: i32,
    /// The start asked for.
    pub start: Timestamp,
}

impl Wanted {
    /// What a row wants that is to stand with a practitioner.
    #[must_use]
    pub fn of(row: &Appointment, practitioner: Uuid) -> Self {
        let (minutes, buffer_minutes) = row.minutes();
        Self { practitioner, operatory: row.operatory_id, minutes, buffer_minutes, start: row.during.start }
    }
}

/// How far a refusal looks for other openings, in days (API.md, "Problems").
const LOOK_AHEAD_DAYS: i32 = 14;

impl Wanted {
    /// Where other openings are looked for: from the start asked for, or from now if that has passed.
    #[must_use]
    pub fn range(&self, now: Timestamp) -> Span {
        Span::from_length(self.start.max(now), LOOK_AHEAD_DAYS * 24 * 60)
    }
}

impl Refusal {
    /// The problem a caller reads. `openings` are what else there is, for a slot that is taken.
    #[must_use]
    pub fn problem(&self, openings: &[Opening]) -> Problem {
        match self {
            Self::UnknownReference(field) => {
                Problem::new(Code::UnknownReference, format!("This clinic has no such {}.", noun(field)))
                    .with("field", field)
            }
            Self::InactiveReference(field) => {
                Problem::new(Code::InactiveReference, format!("The {} takes no new bookings.", noun(field)))
                    .with("field", field)
            }
            Self::Time(refusal) => match refusal {
                TimeRefusal::InThePast => Code::InThePast,
                TimeRefusal::TooSoon => Code::TooSoon,
                TimeRefusal::TooFarAhead => Code::TooFarAhead,
                TimeRefusal::OffGrid => Code::OffGrid,
                TimeRefusal::OutsideHours => Code::OutsideHours,
            }
            .into(),
            Self::OverbookingNotAllowed => Code::OverbookingNotAllowed.into(),
            Self::TransitionNotAllowed(from) => {
                Problem::new(Code::TransitionNotAllowed, format!("The appointment is {}.", from.as_str()))
                    .with("status_now", from)
            }
            Self::VersionMismatch(current) => {
                Problem::new(Code::VersionMismatch, format!("The appointment is at version {current}."))
                    .with("version", current)
            }
            Self::DuplicateIntent(id) => Problem::from(Code::DuplicateIntent).with("appointment_id", id),
            Self::ExternalIdTaken(id) => Problem::new(
                Code::DuplicateIntent,
                "This `external` id is that of another appointment, which keeps it though it may be cancelled.",
            )
            .with("appointment_id", id),
            Self::SlotTaken(_) => Problem::from(Code::SlotTaken).with("next_openings", openings),
        }
    }
}

fn noun(field: &str) -> &str {
    field.strip_suffix("_id").unwrap_or(field)
}
