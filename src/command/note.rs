//! Note: `PATCH /v1/appointments/{id}`. Leaves the schedule as it is, so it kills no reminder.

use uuid::Uuid;

use super::ground::Standing;
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, Kind};
use crate::domain::event::EventType;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::Refusal;
use crate::store::look::{Change, Question};

/// A note to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The appointment.
    pub id: Uuid,
    /// The text; the empty one clears, none leaves it as it is.
    pub note: Option<String>,
}

impl Command for Note {
    type Ground = Standing;

    fn operation(&self) -> &'static str {
        "note"
    }

    fn permission(&self) -> Permission {
        Permission::WriteAppointments
    }

    fn lane(&self) -> Uuid {
        self.id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("id", Some(self.id));
        fingerprint.text("note", self.note.as_deref());
    }

    fn look(&self) -> Question {
        Question::Change(Change::of(self.id, Kind::Visit))
    }

    fn decide(&self, Standing { row, .. }: &Standing, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        moment.if_match.check(row)?;
        let note = match &self.note {
            Some(note) => Some(note.clone()).filter(|note| !note.is_empty()),
            None => row.note.clone(),
        };
        if note == row.note {
            return Ok(Decision { status: 200, row: row.clone(), act: Act::Nothing });
        }
        let next = Appointment { note, ..row.next(moment.now) };
        Ok(Decision { status: 200, row: next, act: Act::Change(Effect::of(EventType::Noted)) })
    }
}
