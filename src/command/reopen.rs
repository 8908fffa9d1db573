//! Reopen: takes an arrived, missed or cancelled visit back to booked, with a fresh check of its slot and its intent.

use uuid::Uuid;

use super::ground::Moving;
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, Kind, Status};
use crate::domain::event::{EventType, notices};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::{Refusal, Wanted};
use crate::store::look::{Change, Question};

/// A reopening asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopen {
    /// The appointment.
    pub id: Uuid,
}

impl Command for Reopen {
    type Ground = Moving;

    fn operation(&self) -> &'static str {
        "reopen"
    }

    fn permission(&self) -> Permission {
        Permission::Overrule
    }

    fn lane(&self) -> Uuid {
        self.id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("id", Some(self.id));
    }

    fn look(&self) -> Question {
        Question::Change(Change { enters_slot: true, ..Change::of(self.id, Kind::Visit) })
    }

    fn decide(&self, Moving { clinic, row, slot }: &Moving, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        if row.status == Status::Fulfilled {
            return Err(Refusal::TransitionNotAllowed(row.status));
        }
        moment.if_match.check(row)?;
        if row.status == Status::Booked {
            return Ok(Decision { status: 200, row: row.clone(), act: Act::Nothing });
        }
        // An arrived visit never let go of its slot.
        let enters = !row.status.holds_slot();
        if let Some(twin) = slot.twin {
            return Err(Refusal::DuplicateIntent(twin));
        }
        if enters && slot.held {
            return Err(Refusal::SlotTaken(row.practitioner_id.map(|practitioner| Wanted::of(row, practitioner))));
        }
        let next = Appointment {
            status: Status::Booked,
            confirmed_at: None,
            overbooked: row.overbooked && !enters,
            cancel_reason: None,
            cancelled_by: None,
            ..row.next_schedule(moment.now)
        };
        let effect = Effect {
            event: EventType::Reopened,
            notices: notices("confirmation", row.during.start, clinic.reminder_hours, moment.now),
            resources: [row.practitioner_id, row.operatory_id].into_iter().flatten().collect(),
            recheck: enters && slot.overbooking_near,
        };
        Ok(Decision { status: 200, row: next, act: Act::Change(effect) })
    }
}
