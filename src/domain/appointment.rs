//! An appointment (a visit or a block), its states, and what a caller sees of it.

use jiff::{Timestamp, civil};
use serde::Serialize;
use uuid::Uuid;

use super::fingerprint::Fingerprint;
use super::time::Span;

/// What keeps a practitioner or an operatory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A patient's visit.
    Visit,
    /// Lunch, leave, "keep 14:00 free".
    Block,
}

impl Kind {
    /// As it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Visit => "visit",
            Self::Block => "block",
        }
    }
}

/// Where an appointment is in its life, in FHIR's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Expected.
    Booked,
    /// The patient is here.
    Arrived,
    /// It has taken place.
    Fulfilled,
    /// It was called off.
    Cancelled,
    /// The patient did not come.
    NoShow,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Booked, Self::Arrived, Self::Fulfilled, Self::Cancelled, Self::NoShow];

    /// As it travels and is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Booked => "booked",
            Self::Arrived => "arrived",
            Self::Fulfilled => "fulfilled",
            Self::Cancelled => "cancelled",
            Self::NoShow => "noshow",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether it keeps its practitioner and operatory from others.
    #[must_use]
    pub const fn holds_slot(self) -> bool {
        matches!(self, Self::Booked | Self::Arrived)
    }
}

/// A booking's name in another system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The system's name.
    #[schema(example = "recall-app", min_length = 1, max_length = 200)]
    pub system: String,
    /// The id there; one appointment of a clinic at the most.
    #[schema(example = "4711", min_length = 1, max_length = 200)]
    pub id: String,
}

/// A row of `appointments`, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Appointment {
    /// Its id.
    pub id: Uuid,
    /// Where.
    pub clinic_id: Uuid,
    /// Visit or block.
    pub kind: Kind,
    /// Who comes; none for a block.
    pub patient_id: Option<Uuid>,
    /// Who treats; a visit has one.
    pub practitioner_id: Option<Uuid>,
    /// In which room, if one is kept.
    pub operatory_id: Option<Uuid>,
    /// For what; none for a block.
    pub service_id: Option<Uuid>,
    /// The visit itself.
    pub during: Span,
    /// Until when practitioner and operatory are kept: the visit's end and its buffer.
    pub busy_until: Timestamp,
    /// The zone it was intended in.
    pub time_zone: String,
    /// The wall clock there.
    pub local_start: civil::DateTime,
    /// Where it is in its life.
    pub status: Status,
    /// When the patient confirmed.
    pub confirmed_at: Option<Timestamp>,
    /// Whether it stands in a slot that was taken.
    pub overbooked: bool,
    /// Raised by every change.
    pub version: i32,
    /// Raised by book, move, cancel, no-show and reopen.
    pub schedule_version: i32,
    /// The visit's identity across keys; none for a block.
    pub intent: Option<[u8; 32]>,
    /// What the front desk wrote.
    pub note: Option<String>,
    /// Why a block is there.
    pub block_reason: Option<String>,
    /// Its name elsewhere.
    pub external: Option<External>,
    /// Why it was cancelled.
    pub cancel_reason: Option<String>,
    /// The subject who cancelled it.
    pub cancelled_by: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Appointment {
    /// Minutes of the visit and of its buffer. Both are at most a day, so they fit.
    #[must_use]
    pub fn minutes(&self) -> (i32, i32) {
        let between =
            |start: Timestamp, end: Timestamp| i32::try_from(end.duration_since(start).as_mins()).unwrap_or(0);
        (between(self.during.start, self.during.end), between(self.during.end, self.busy_until))
    }

    /// The next version of the row, changed at `now`.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Self {
        Self { version: self.version + 1, updated_at: now, ..self.clone() }
    }

    /// The next version with a new place in the schedule, so that what was planned for the old one no longer holds.
    #[must_use]
    pub fn next_schedule(&self, now: Timestamp) -> Self {
        Self { schedule_version: self.schedule_version + 1, ..self.next(now) }
    }
}

/// The identity of a visit whatever key it is asked for with: patient, practitioner, service and start.
#[must_use]
pub fn intent(patient: Uuid, practitioner: Uuid, service: Uuid, start: Timestamp) -> [u8; 32] {
    let mut intent = Fingerprint::for_purpose("appointment intent");
    intent.id("patient", Some(patient));
    intent.id("practitioner", Some(practitioner));
    intent.id("service", Some(service));
    intent.time("start", Some(start));
    intent.finish()
}

/// A visit as callers see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Appointment)]
pub struct AppointmentView<'a> {
    /// Its id (UUID version 7).
    pub id: Uuid,
    /// The clinic.
    pub clinic_id: Uuid,
    /// The patient.
    pub patient_id: Option<Uuid>,
    /// The practitioner.
    pub practitioner_id: Option<Uuid>,
    /// The operatory, if one is kept.
    pub operatory_id: Option<Uuid>,
    /// The service.
    pub service_id: Option<Uuid>,
    /// In UTC.
    #[schema(example = "2027-11-02T08:00:00Z")]
    pub start: Timestamp,
    /// In UTC, without the buffer.
    #[schema(example = "2027-11-02T08:30:00Z")]
    pub end: Timestamp,
    /// The wall clock at `time_zone`, as intended.
    #[schema(value_type = String, example = "2027-11-02T09:00:00")]
    pub local_start: civil::DateTime,
    /// IANA name.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: &'a str,
    /// Where it is in its life.
    pub status: Status,
    /// When the patient confirmed.
    pub confirmed_at: Option<Timestamp>,
    /// Whether it stands in a slot that was taken.
    pub overbooked: bool,
    /// The number in the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
    /// What the front desk wrote.
    pub note: Option<&'a str>,
    /// Its name in another system.
    pub external: Option<&'a External>,
    /// Why it was cancelled.
    pub cancel_reason: Option<&'a str>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl<'a> From<&'a Appointment> for AppointmentView<'a> {
    fn from(row: &'a Appointment) -> Self {
        Self {
            id: row.id,
            clinic_id: row.clinic_id,
            patient_id: row.patient_id,
            practitioner_id: row.practitioner_id,
            operatory_id: row.operatory_id,
            service_id: row.service_id,
            start: row.during.start,
            end: row.during.end,
            local_start: row.local_start,
            time_zone: &row.time_zone,
            status: row.status,
            confirmed_at: row.confirmed_at,
            overbooked: row.overbooked,
            version: row.version,
            note: row.note.as_deref(),
            external: row.external.as_ref(),
            cancel_reason: row.cancel_reason.as_deref(),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// One version of an appointment, as its history tells it: what it came to, by whose doing, by which command and request.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct HistoryEntry {
    /// Its number; the first is 1.
    #[schema(example = 1)]
    pub version: i32,
    /// Where it was in its life.
    pub status: Status,
    /// In UTC.
    #[schema(example = "2027-11-02T08:00:00Z")]
    pub start: Timestamp,
    /// In UTC, without the buffer.
    #[schema(example = "2027-11-02T08:30:00Z")]
    pub end: Timestamp,
    /// The practitioner.
    pub practitioner_id: Option<Uuid>,
    /// The operatory, if one was kept.
    pub operatory_id: Option<Uuid>,
    /// The service.
    pub service_id: Option<Uuid>,
    /// Whether it stood in a slot that was taken.
    pub overbooked: bool,
    /// What was done: `book`, `reschedule`, `cancel` and so on.
    #[schema(example = "book")]
    pub operation: String,
    /// Who did it: the person or system behind the credential.
    #[schema(example = "front desk")]
    pub subject: String,
    /// With which credential.
    pub credential_id: Uuid,
    /// By which request: the `X-Request-Id` it was answered with.
    pub request_id: Uuid,
    /// The caller's own id of that request, if it sent one.
    pub caller_request_id: Option<String>,
    /// When.
    #[schema(example = "2026-11-30T10:15:00.25Z")]
    pub at: Timestamp,
}

/// A block as callers see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Block)]
pub struct BlockView<'a> {
    /// Its id (UUID version 7).
    pub id: Uuid,
    /// The clinic.
    pub clinic_id: Uuid,
    /// Whom it keeps.
    pub practitioner_id: Option<Uuid>,
    /// Which room it keeps.
    pub operatory_id: Option<Uuid>,
    /// In UTC.
    #[schema(example = "2027-11-02T11:00:00Z")]
    pub start: Timestamp,
    /// In UTC.
    #[schema(example = "2027-11-02T12:00:00Z")]
    pub end: Timestamp,
    /// Why it is there.
    pub reason: Option<&'a str>,
    /// The number in the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
    /// When it was made.
    pub created_at: Timestamp,
}

impl<'a> From<&'a Appointment> for BlockView<'a> {
    fn from(row: &'a Appointment) -> Self {
        Self {
            id: row.id,
            clinic_id: row.clinic_id,
            practitioner_id: row.practitioner_id,
            operatory_id: row.operatory_id,
            start: row.during.start,
            end: row.during.end,
            reason: row.block_reason.as_deref(),
            version: row.version,
            created_at: row.created_at,
        }
    }
}
