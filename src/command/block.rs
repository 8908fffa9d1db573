//! Block and unblock: time off, lunch, "keep 14:00 free". A block is a row like a visit, so it excludes bookings.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::book::check_references;
use super::ground::{Fresh, Standing};
use super::{Act, Command, Decision, Effect, Moment};
use crate::domain::access::Permission;
use crate::domain::appointment::{Appointment, Kind, Status};
use crate::domain::availability::TimeRefusal;
use crate::domain::event::EventType;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::refusal::Refusal;
use crate::domain::time::{self, Span};
use crate::store::look::{Change, NewRow, Question};
use crate::store::seen::Reference;

/// A stretch to be kept free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where.
    pub clinic_id: Uuid,
    /// Whose time.
    pub practitioner_id: Option<Uuid>,
    /// Which room; a block has a practitioner, an operatory or both.
    pub operatory_id: Option<Uuid>,
    /// From when until when.
    pub during: Span,
    /// Why.
    pub reason: Option<String>,
}

impl Command for Block {
    type Ground = Fresh;

    fn operation(&self) -> &'static str {
        "block"
    }

    fn permission(&self) -> Permission {
        Permission::WriteAppointments
    }

    fn lane(&self) -> Uuid {
        self.practitioner_id.or(self.operatory_id).unwrap_or(self.clinic_id)
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("clinic_id", Some(self.clinic_id));
        fingerprint.id("practitioner_id", self.practitioner_id);
        fingerprint.id("operatory_id", self.operatory_id);
        fingerprint.time("start", Some(self.during.start));
        fingerprint.time("end", Some(self.during.end));
        fingerprint.text("reason", self.reason.as_deref());
    }

    fn look(&self) -> Question {
        Question::New(NewRow {
            clinic: self.clinic_id,
            practitioner: self.practitioner_id,
            operatory: self.operatory_id,
            start: self.during.start,
            end: Some(self.during.end),
            ..NewRow::default()
        })
    }

    fn decide(&self, Fresh { clinic, slot }: &Fresh, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        // Whoever takes no new bookings may still be kept free.
        let known = |asked: Option<Uuid>, reference| match (asked, reference) {
            (Some(_), Reference::Unknown) => Reference::Unknown,
            _ => Reference::Active,
        };
        check_references(&[
            ("practitioner_id", known(self.practitioner_id, slot.practitioner)),
            ("operatory_id", known(self.operatory_id, slot.operatory)),
        ])?;
        let horizon = SignedDuration::from_hours(24 * i64::from(clinic.rules.horizon_days));
        if self.during.end <= moment.now {
            return Err(Refusal::Time(TimeRefusal::InThePast));
        }
        if self.during.end > moment.now.saturating_add(horizon).unwrap_or(Timestamp::MAX) {
            return Err(Refusal::Time(TimeRefusal::TooFarAhead));
        }
        if slot.held {
            return Err(Refusal::SlotTaken(None));
        }
        let (time_zone, local_start) = time::wall_clock(self.during.start, None, &clinic.time_zone);
        let row = Appointment {
            id: moment.new_id,
            clinic_id: self.clinic_id,
            kind: Kind::Block,
            patient_id: None,
            practitioner_id: self.practitioner_id,
            operatory_id: self.operatory_id,
            service_id: None,
            during: self.during,
            busy_until: self.during.end,
            time_zone,
            local_start,
            status: Status::Booked,
            confirmed_at: None,
            overbooked: false,
            version: 1,
            schedule_version: 1,
            intent: None,
            note: None,
            block_reason: self.reason.clone(),
            external: None,
            cancel_reason: None,
            cancelled_by: None,
            created_at: moment.now,
            updated_at: moment.now,
        };
        let near = slot.overbooking_near || clinic.allow_overbooking;
        let resources =
            if near { [self.practitioner_id, self.operatory_id].into_iter().flatten().collect() } else { vec![] };
        let effect = Effect { resources, recheck: near, ..Effect::of(EventType::BlockCreated) };
        Ok(Decision { status: 201, row, act: Act::Insert(effect) })
    }
}

/// The removal of a block. It needs no key: a block that is removed stays removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unblock {
    /// The block.
    pub id: Uuid,
}

impl Command for Unblock {
    type Ground = Standing;

    fn operation(&self) -> &'static str {
        "unblock"
    }

    fn permission(&self) -> Permission {
        Permission::WriteAppointments
    }

    fn lane(&self) -> Uuid {
        self.id
    }

    fn fields(&self, fingerprint: &mut Fingerprint) {
        fingerprint.id("id", Some(self.id));
    }

    fn look(&self) -> Question {
        Question::Change(Change::of(self.id, Kind::Block))
    }

    fn decide(&self, Standing { row, .. }: &Standing, moment: &Moment<'_>) -> Result<Decision, Refusal> {
        if row.status == Status::Cancelled {
            return Ok(Decision { status: 204, row: row.clone(), act: Act::Nothing });
        }
        moment.if_match.check(row)?;
        let cancelled_by = Some(moment.caller.subject.clone());
        let next = Appointment { status: Status::Cancelled, cancelled_by, ..row.next_schedule(moment.now) };
        Ok(Decision { status: 204, row: next, act: Act::Change(Effect::of(EventType::BlockRemoved)) })
    }
}
