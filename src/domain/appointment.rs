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

/// The status of an appointment, in FHIR's words: `booked` (expected), `arrived` (the patient is here), `fulfilled` (it
/// has taken place), `cancelled`, `noshow` (the patient did not come). Only `booked` and `arrived` hold practitioner
/// and operatory.
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

/// A booking's id in another system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// Which system: a name of your choice, 1 to 200 characters, always written the same.
    #[schema(example = "recall-app", min_length = 1, max_length = 200)]
    pub system: String,
    /// The booking's id there, 1 to 200 characters. A clinic has one appointment with it at most.
    #[schema(example = "4711", min_length = 1, max_length = 200)]
    pub id: String,
}

/// A row of `appointments`, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Appointment {
    /// Its id.
    pub id: Uuid,
    /// The clinic it is at.
    pub clinic_id: Uuid,
    /// Visit or block.
    pub kind: Kind,
    /// The patient; none for a block.
    pub patient_id: Option<Uuid>,
    /// The practitioner it holds; a visit has one.
    pub practitioner_id: Option<Uuid>,
    /// The operatory it holds, if any.
    pub operatory_id: Option<Uuid>,
    /// The service; none for a block.
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

/// An appointment: a patient's visit to a practitioner, for a service of a clinic.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Appointment)]
pub struct AppointmentView<'a> {
    /// The appointment's id, a UUID of version 7.
    pub id: Uuid,
    /// Id of the clinic it is at.
    pub clinic_id: Uuid,
    /// Id of the patient who comes.
    pub patient_id: Option<Uuid>,
    /// Id of the practitioner who treats.
    pub practitioner_id: Option<Uuid>,
    /// Id of the operatory (treatment room) held for it; null where none is.
    pub operatory_id: Option<Uuid>,
    /// Id of the service it is booked for.
    pub service_id: Option<Uuid>,
    /// When the visit starts, in UTC.
    #[schema(example = "2027-11-02T08:00:00Z")]
    pub start: Timestamp,
    /// When the visit ends, in UTC. The service's buffer comes after it: practitioner and operatory are held until that
    /// has passed.
    #[schema(example = "2027-11-02T08:30:00Z")]
    pub end: Timestamp,
    /// `start` on the wall clock at `time_zone`, without an offset.
    #[schema(value_type = String, example = "2027-11-02T09:00:00")]
    pub local_start: civil::DateTime,
    /// IANA name of the time zone that came with the request, else the clinic's.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: &'a str,
    /// Its status: `booked`, `arrived`, `fulfilled`, `cancelled` or `noshow`.
    pub status: Status,
    /// When the patient's confirmation was noted; null where there is none.
    pub confirmed_at: Option<Timestamp>,
    /// Whether it was put into a slot that was taken.
    pub overbooked: bool,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
    /// The front desk's note; null where there is none.
    pub note: Option<&'a str>,
    /// Its id in another system; null where none was given.
    pub external: Option<&'a External>,
    /// The reason given for its cancellation; null where there is none.
    pub cancel_reason: Option<&'a str>,
    /// When it was booked, in UTC.
    pub created_at: Timestamp,
    /// When it was last changed, in UTC.
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

/// One version of an appointment: what it came to, by whom, by which command and request.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct HistoryEntry {
    /// The version's number; the first is 1.
    #[schema(example = 1)]
    pub version: i32,
    /// The status it had in this version.
    pub status: Status,
    /// When the visit was to start, in UTC.
    #[schema(example = "2027-11-02T08:00:00Z")]
    pub start: Timestamp,
    /// When the visit was to end, in UTC, without the service's buffer.
    #[schema(example = "2027-11-02T08:30:00Z")]
    pub end: Timestamp,
    /// Id of the practitioner it was with.
    pub practitioner_id: Option<Uuid>,
    /// Id of the operatory held for it; null where none was.
    pub operatory_id: Option<Uuid>,
    /// Id of the service it was booked for.
    pub service_id: Option<Uuid>,
    /// Whether it stood in a slot that was taken.
    pub overbooked: bool,
    /// The command that made this version: `book`, `reschedule`, `cancel` and so on.
    #[schema(example = "book")]
    pub operation: String,
    /// The person or system behind the credential that sent it.
    #[schema(example = "front desk")]
    pub subject: String,
    /// Id of the credential that sent it.
    pub credential_id: Uuid,
    /// Id of the request: the `X-Request-Id` that it was answered with.
    pub request_id: Uuid,
    /// The caller's own `X-Request-Id`; null where it sent none.
    pub caller_request_id: Option<String>,
    /// When this version was made, in UTC.
    #[schema(example = "2026-11-30T10:15:00.25Z")]
    pub at: Timestamp,
}

/// A block: a stretch kept free of visits.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Block)]
pub struct BlockView<'a> {
    /// The block's id, a UUID of version 7.
    pub id: Uuid,
    /// Id of the clinic it is at.
    pub clinic_id: Uuid,
    /// Id of the practitioner whose time is kept free; null where it is for an operatory alone.
    pub practitioner_id: Option<Uuid>,
    /// Id of the operatory (treatment room) that is kept free; null where it is for a practitioner alone.
    pub operatory_id: Option<Uuid>,
    /// When it starts, in UTC.
    #[schema(example = "2027-11-02T11:00:00Z")]
    pub start: Timestamp,
    /// When it ends, in UTC.
    #[schema(example = "2027-11-02T12:00:00Z")]
    pub end: Timestamp,
    /// The reason given for it; null where there is none.
    pub reason: Option<&'a str>,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
    /// When it was made, in UTC.
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
