//! Move: `POST /v1/appointments/{id}/reschedule`. The id stays, the old slot is freed and the new one held in one statement.

use jiff::Timestamp;
use uuid::Uuid;

use super::book::{check_references, fits};
use super::ground::Moving;
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, Kind, Status, intent};
use crate::domain::event::{EventType, notices};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::{Refusal, Wanted};
use crate::domain::time::{self, Span};
use crate::store::look::{Change, Question};
use crate::store::seen::Reference;

/// A move asked for; what is left out stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Reschedule {
    /// The appointment.
    pub id: Uuid,
    /// To when; a local time has been resolved by now.
    pub start: Timestamp,
    /// The zone it was written in.
    pub time_zone: Option<String>,
    /// To whom.
    pub practitioner_id: Option<Uuid>,
    /// Into which room.
    pub operatory_id: Option<Uuid>,
    /// For what; it brings its own length.
    pub service_id: Option<Uuid>,
    /// Into a slot that is taken, if need be.
    pub overbook: bool,
}

impl Command for Reschedule {
    type Ground = Moving;

    fn operation(&self) -> &'static str {
        "reschedule"
    }

    fn permission(&self) -> Permission {
        if self.overbook { Permission::Overrule } else { Permission::WriteAppointments }
    }

    fn lane(&self) -> Uuid {
        self.id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("id", Some(self.id));
        fingerprint.time("start", Some(self.start));
        fingerprint.id("practitioner_id", self.practitioner_id);
        fingerprint.id("operatory_id", self.operatory_id);
        fingerprint.id("service_id", self.service_id);
        fingerprint.flag("overbook", self.overbook);
    }

    fn look(&self) -> Question {
        Question::Change(Change {
            id: self.id,
            kind: Kind::Visit,
            practitioner: self.practitioner_id,
            operatory: self.operatory_id,
            service: self.service_id,
            start: Some(self.start),
            enters_slot: true,
        })
    }

    /// The refusals, in the order of API.md, "Problems".
    fn decide(&self, Moving { clinic, row, slot }: &Moving, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        let next = self.moved(row, slot.minutes, slot.buffer_minutes, &clinic.time_zone, moment.now);
        let stays = next.during == row.during
            && (next.practitioner_id, next.operatory_id, next.service_id)
                == (row.practitioner_id, row.operatory_id, row.service_id);
        // Deactivating stops new bookings only: what the visit has already may stay.
        let newly = |asked: Option<Uuid>, has: Option<Uuid>, reference| {
            if asked.is_none() || asked == has { Reference::Active } else { reference }
        };
        check_references(&[
            ("practitioner_id", newly(self.practitioner_id, row.practitioner_id, slot.practitioner)),
            ("operatory_id", newly(self.operatory_id, row.operatory_id, slot.operatory)),
            ("service_id", newly(self.service_id, row.service_id, slot.service)),
        ])?;
        if !stays {
            fits(clinic, slot, &next.during, moment.now)?;
        }
        if self.overbook && !clinic.allow_overbooking {
            return Err(Refusal::OverbookingNotAllowed);
        }
        if row.status != Status::Booked {
            return Err(Refusal::TransitionNotAllowed(row.status));
        }
        moment.if_match.check(row)?;
        if stays {
            return Ok(Decision { status: 200, row: row.clone(), act: Act::Nothing });
        }
        if let Some(twin) = slot.twin {
            return Err(Refusal::DuplicateIntent(twin));
        }
        if slot.held && !self.overbook {
            return Err(Refusal::SlotTaken(next.practitioner_id.map(|practitioner| Wanted::of(&next, practitioner))));
        }
        let effect = Effect {
            event: EventType::Rescheduled,
            notices: notices("change", self.start, clinic.reminder_hours, moment.now),
            // Every resource it leaves and enters: two moves into one slot would else wait for each other in a deadlock.
            resources: [row.practitioner_id, row.operatory_id, next.practitioner_id, next.operatory_id]
                .into_iter()
                .flatten()
                .collect(),
            recheck: slot.overbooking_near,
        };
        Ok(Decision { status: 200, row: Appointment { overbooked: slot.held, ..next }, act: Act::Change(effect) })
    }
}

impl Reschedule {
    /// The row as it would stand, its slot being free.
    fn moved(
        &self,
        row: &Appointment,
        minutes: i32,
        buffer_minutes: i32,
        clinic_zone: &str,
        now: Timestamp,
    ) -> Appointment {
        let same_service = self.service_id.is_none_or(|service| Some(service) == row.service_id);
        let (minutes, buffer_minutes) = if same_service { row.minutes() } else { (minutes, buffer_minutes) };
        let during = Span::from_length(self.start, minutes);
        let (time_zone, local_start) = time::wall_clock(self.start, self.time_zone.as_deref(), clinic_zone);
        let mut next = row.next_schedule(now);
        next.practitioner_id = self.practitioner_id.or(row.practitioner_id);
        next.operatory_id = self.operatory_id.or(row.operatory_id);
        next.service_id = self.service_id.or(row.service_id);
        next.intent = match (row.patient_id, next.practitioner_id, next.service_id) {
            (Some(patient), Some(practitioner), Some(service)) => {
                Some(intent(patient, practitioner, service, self.start))
            }
            _ => row.intent,
        };
        next.busy_until = Span::from_length(during.end, buffer_minutes).end;
        Appointment { during, time_zone, local_start, confirmed_at: None, overbooked: false, ..next }
    }
}
