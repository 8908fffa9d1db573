//! Book: `POST /v1/appointments`.

use jiff::Timestamp;
use uuid::Uuid;

use super::ground::Fresh;
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, External, Kind, Status, intent};
use crate::domain::availability::check_time;
use crate::domain::event::{EventType, notices};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::{Refusal, Wanted};
use crate::domain::time::{self, Span};
use crate::store::look::{NewRow, Question};
use crate::store::seen::{Clinic, Reference, Slot};

/// A visit asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Book {
    /// Where.
    pub clinic_id: Uuid,
    /// Who comes.
    pub patient_id: Uuid,
    /// Who treats.
    pub practitioner_id: Uuid,
    /// In which room, if one is to be kept.
    pub operatory_id: Option<Uuid>,
    /// For what.
    pub service_id: Uuid,
    /// When; a local time has been resolved by now.
    pub start: Timestamp,
    /// The zone it was written in. Not part of the fingerprint: the instant is.
    pub time_zone: Option<String>,
    /// What the front desk wrote.
    pub note: Option<String>,
    /// Into a slot that is taken, if need be.
    pub overbook: bool,
    /// Its name in another system.
    pub external: Option<External>,
}

impl Book {
    fn intent(&self) -> [u8; 32] {
        intent(self.patient_id, self.practitioner_id, self.service_id, self.start)
    }
}

impl Command for Book {
    type Ground = Fresh;

    fn operation(&self) -> &'static str {
        "book"
    }

    fn permission(&self) -> Permission {
        if self.overbook { Permission::Overrule } else { Permission::WriteAppointments }
    }

    fn lane(&self) -> Uuid {
        self.practitioner_id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("clinic_id", Some(self.clinic_id));
        fingerprint.id("patient_id", Some(self.patient_id));
        fingerprint.id("practitioner_id", Some(self.practitioner_id));
        fingerprint.id("operatory_id", self.operatory_id);
        fingerprint.id("service_id", Some(self.service_id));
        fingerprint.time("start", Some(self.start));
        fingerprint.text("note", self.note.as_deref());
        fingerprint.flag("overbook", self.overbook);
        fingerprint.text("external.system", self.external.as_ref().map(|external| external.system.as_str()));
        fingerprint.text("external.id", self.external.as_ref().map(|external| external.id.as_str()));
    }

    fn look(&self) -> Question {
        Question::New(NewRow {
            clinic: self.clinic_id,
            patient: Some(self.patient_id),
            practitioner: Some(self.practitioner_id),
            operatory: self.operatory_id,
            service: Some(self.service_id),
            start: self.start,
            end: None,
            intent: Some(self.intent()),
            external: self.external.clone(),
        })
    }

    /// The refusals, in the order of API.md, "Problems": the first that applies is the answer.
    fn decide(&self, Fresh { clinic, slot }: &Fresh, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        let references = [
            ("patient_id", slot.patient),
            ("practitioner_id", slot.practitioner),
            ("operatory_id", if self.operatory_id.is_some() { slot.operatory } else { Reference::Active }),
            ("service_id", slot.service),
        ];
        check_references(&references)?;
        let during = Span::from_length(self.start, slot.minutes);
        fits(clinic, slot, &during, moment.now)?;
        if self.overbook && !clinic.allow_overbooking {
            return Err(Refusal::OverbookingNotAllowed);
        }
        if let Some(twin) = slot.twin {
            return Err(Refusal::DuplicateIntent(twin));
        }
        if let Some(twin) = slot.external_twin {
            return Err(Refusal::ExternalIdTaken(twin));
        }
        if slot.held && !self.overbook {
            return Err(Refusal::SlotTaken(Some(Wanted {
                practitioner: self.practitioner_id,
                operatory: self.operatory_id,
                minutes: slot.minutes,
                buffer_minutes: slot.buffer_minutes,
                start: self.start,
            })));
        }
        let row = self.row(clinic, slot, during, moment);
        let effect = Effect {
            event: EventType::Booked,
            notices: notices("confirmation", self.start, clinic.reminder_hours, moment.now),
            resources: if slot.overbooking_near {
                [Some(self.practitioner_id), self.operatory_id].into_iter().flatten().collect()
            } else {
                vec![]
            },
            recheck: slot.overbooking_near,
        };
        Ok(Decision { status: 201, row, act: Act::Insert(effect) })
    }
}

impl Book {
    fn row(&self, clinic: &Clinic, slot: &Slot, during: Span, moment: &Moment<'_>) -> Appointment {
        let (time_zone, local_start) = time::wall_clock(self.start, self.time_zone.as_deref(), &clinic.time_zone);
        Appointment {
            id: moment.new_id,
            clinic_id: self.clinic_id,
            kind: Kind::Visit,
            patient_id: Some(self.patient_id),
            practitioner_id: Some(self.practitioner_id),
            operatory_id: self.operatory_id,
            service_id: Some(self.service_id),
            during,
            busy_until: Span::from_length(during.end, slot.buffer_minutes).end,
            time_zone,
            local_start,
            status: Status::Booked,
            confirmed_at: None,
            // Stored only where the slot was indeed taken.
            overbooked: slot.held,
            version: 1,
            schedule_version: 1,
            intent: Some(self.intent()),
            note: self.note.clone().filter(|note| !note.is_empty()),
            block_reason: None,
            external: self.external.clone(),
            cancel_reason: None,
            cancelled_by: None,
            created_at: moment.now,
            updated_at: moment.now,
        }
    }
}

/// What a request refers to must be known, all of it, and then in use, all of it.
pub(super) fn check_references(references: &[(&'static str, Reference)]) -> Result<(), Refusal> {
    let first = |wanted| references.iter().find(|(_, reference)| *reference == wanted).map(|(field, _)| *field);
    match (first(Reference::Unknown), first(Reference::Inactive)) {
        (Some(field), _) => Err(Refusal::UnknownReference(field)),
        (None, Some(field)) => Err(Refusal::InactiveReference(field)),
        (None, None) => Ok(()),
    }
}

/// Whether a visit's time fits the clinic: the same check that availability makes.
pub(super) fn fits(clinic: &Clinic, slot: &Slot, during: &Span, now: Timestamp) -> Result<(), Refusal> {
    // To add a rule of one clinic ("no same-day bookings"), add it to availability::check_time: booking, moving and
    // availability all ask there.
    let closures: &[Span] = if slot.closed { std::slice::from_ref(during) } else { &[] };
    check_time(&clinic.rules, slot.practitioner_hours.as_deref(), closures, during, now).map_err(Refusal::Time)
}
