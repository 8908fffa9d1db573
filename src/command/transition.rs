//! Confirm, check in, complete, no-show, cancel: one row, no new slot.

use uuid::Uuid;

use super::ground::Standing;
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, Kind, Status};
use crate::domain::event::{EventType, Notice};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::Refusal;
use crate::store::look::{Change, Question};

/// A transition asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The appointment.
    pub id: Uuid,
    /// Which one.
    pub to: To,
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// The patient has said they will come.
    Confirmed,
    /// The patient is here.
    Arrived,
    /// It has taken place.
    Fulfilled,
    /// The patient did not come.
    NoShow,
    /// It is called off.
    Cancelled {
        /// Why.
        reason: Option<String>,
    },
}

impl Command for Transition {
    type Ground = Standing;

    fn operation(&self) -> &'static str {
        match self.to {
            To::Confirmed => "confirm",
            To::Arrived => "check-in",
            To::Fulfilled => "complete",
            To::NoShow => "no-show",
            To::Cancelled { .. } => "cancel",
        }
    }

    fn permission(&self) -> Permission {
        Permission::WriteAppointments
    }

    fn lane(&self) -> Uuid {
        self.id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("id", Some(self.id));
        if let To::Cancelled { reason } = &self.to {
            fingerprint.text("reason", reason.as_deref());
        }
    }

    fn look(&self) -> Question {
        Question::Change(Change::of(self.id, Kind::Visit))
    }

    fn decide(&self, Standing { row, .. }: &Standing, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        use Status::{Arrived, Booked, Cancelled, Fulfilled, NoShow};
        let is_so = match self.to {
            To::Confirmed => row.status == Booked && row.confirmed_at.is_some(),
            To::Arrived => row.status == Arrived,
            To::Fulfilled => row.status == Fulfilled,
            To::NoShow => row.status == NoShow,
            To::Cancelled { .. } => row.status == Cancelled,
        };
        // The arrows of API.md, "Appointments".
        let drawn = matches!(
            (&self.to, row.status),
            (To::Confirmed | To::Arrived | To::NoShow, Booked)
                | (To::Fulfilled, Arrived)
                | (To::Cancelled { .. }, Booked | Arrived)
        );
        if !is_so && !drawn {
            return Err(Refusal::TransitionNotAllowed(row.status));
        }
        moment.if_match.check(row)?;
        if is_so {
            return Ok(Decision { status: 200, row: row.clone(), act: Act::Nothing });
        }
        let now = moment.now;
        let (next, event) = match &self.to {
            To::Confirmed => (Appointment { confirmed_at: Some(now), ..row.next(now) }, EventType::Confirmed),
            To::Arrived => (Appointment { status: Arrived, ..row.next(now) }, EventType::Arrived),
            To::Fulfilled => (Appointment { status: Fulfilled, ..row.next(now) }, EventType::Fulfilled),
            To::NoShow => (Appointment { status: NoShow, ..row.next_schedule(now) }, EventType::NoShow),
            To::Cancelled { reason } => {
                let (cancel_reason, cancelled_by) = (reason.clone(), Some(moment.caller.subject.clone()));
                (
                    Appointment { status: Cancelled, cancel_reason, cancelled_by, ..row.next_schedule(now) },
                    EventType::Cancelled,
                )
            }
        };
        let mut effect = Effect::of(event);
        if next.status == Cancelled {
            effect.notices.push(Notice { kind: "cancellation", due_at: now });
        }
        Ok(Decision { status: 200, row: next, act: Act::Change(effect) })
    }
}
