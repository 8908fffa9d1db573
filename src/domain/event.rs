//! What is told of a change: ids and times only, never a patient's data.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::appointment::{Appointment, Kind};
use super::notification::reminder_at;

/// An event's type, a past fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// `appointment.booked`
    Booked,
    /// `appointment.rescheduled`
    Rescheduled,
    /// `appointment.confirmed`
    Confirmed,
    /// `appointment.arrived`
    Arrived,
    /// `appointment.fulfilled`
    Fulfilled,
    /// `appointment.cancelled`
    Cancelled,
    /// `appointment.noshow`
    NoShow,
    /// `appointment.reopened`
    Reopened,
    /// `appointment.noted`
    Noted,
    /// `block.created`
    BlockCreated,
    /// `block.removed`
    BlockRemoved,
}

impl EventType {
    /// Every type there is.
    pub const ALL: [Self; 11] = [
        Self::Booked,
        Self::Rescheduled,
        Self::Confirmed,
        Self::Arrived,
        Self::Fulfilled,
        Self::Cancelled,
        Self::NoShow,
        Self::Reopened,
        Self::Noted,
        Self::BlockCreated,
        Self::BlockRemoved,
    ];

    /// The type that travels under that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// As it travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Booked => "appointment.booked",
            Self::Rescheduled => "appointment.rescheduled",
            Self::Confirmed => "appointment.confirmed",
            Self::Arrived => "appointment.arrived",
            Self::Fulfilled => "appointment.fulfilled",
            Self::Cancelled => "appointment.cancelled",
            Self::NoShow => "appointment.noshow",
            Self::Reopened => "appointment.reopened",
            Self::Noted => "appointment.noted",
            Self::BlockCreated => "block.created",
            Self::BlockRemoved => "block.removed",
        }
    }
}

/// An event, as it lies in the outbox and in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its identity: whoever has seen it has seen this event.
    pub id: Uuid,
    /// Whose.
    pub tenant_id: Uuid,
    /// Where.
    pub clinic_id: Uuid,
    /// What it is about: `appointment` or `block`.
    pub subject_kind: String,
    /// Which one.
    pub subject_id: Uuid,
    /// Its place in the order of its subject, from 1 on without gaps: the version it made.
    pub sequence: i32,
    /// One of [`EventType`], as it travels.
    pub kind: String,
    /// A [`Standing`].
    pub data: Value,
    /// W3C trace context of the request that made it.
    pub traceparent: Option<String>,
    /// When.
    pub occurred_at: Timestamp,
}

/// Where in the log an event lies: a partition's offsets rise. In Postgres they are dense and begin with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which partition.
    pub partition: i16,
    /// Where in it.
    pub offset: i64,
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// Where.
    pub place: Place,
    /// What.
    pub event: Event,
}

/// What stands after a change: ids, times, status. Never a patient's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// When it begins, RFC 3339 in UTC.
    pub start: Timestamp,
    /// When it ends, RFC 3339 in UTC.
    pub end: Timestamp,
    /// The status, in FHIR's words; of a block `booked` or `cancelled`.
    #[schema(example = "booked")]
    pub status: String,
    /// Raised only by what changes when, where or whether: a note leaves it as it is.
    pub schedule_version: i32,
    /// Who is busy then; null for a block of an operatory.
    #[schema(required)]
    pub practitioner_id: Option<Uuid>,
    /// Where; null where it does not matter.
    #[schema(required)]
    pub operatory_id: Option<Uuid>,
    /// What is done; null for a block.
    #[schema(required)]
    pub service_id: Option<Uuid>,
}

/// The event's data for the row as it now stands.
#[must_use]
pub fn standing(row: &Appointment) -> Standing {
    Standing {
        start: row.during.start,
        end: row.during.end,
        status: row.status.as_str().to_owned(),
        schedule_version: row.schedule_version,
        practitioner_id: row.practitioner_id,
        operatory_id: row.operatory_id,
        service_id: row.service_id,
    }
}

/// The kind of subject an event is about; with its id and the row's version it is the event's place in order.
#[must_use]
pub const fn subject_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Visit => "appointment",
        Kind::Block => "block",
    }
}

/// What a patient is to be told, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `confirmation`, `change`, `cancellation` or `reminder`.
    pub kind: &'static str,
    /// Not before then.
    pub due_at: Timestamp,
}

/// What follows from a visit having been booked, moved or reopened: `first` at once, and a reminder, so many hours before it
/// as its clinic has set, if there is time for one.
#[must_use]
pub fn notices(first: &'static str, start: Timestamp, reminder_hours: i32, now: Timestamp) -> Vec<Notice> {
    let reminder = reminder_at(start, reminder_hours);
    let mut notices = vec![Notice { kind: first, due_at: now }];
    if reminder > now {
        notices.push(Notice { kind: "reminder", due_at: reminder });
    }
    notices
}

/// What is wrong with an event's form, if anything: its type, its subject, its place in the order, its data.
#[must_use]
pub fn fault(event: &Event) -> Option<&'static str> {
    let Some(kind) = EventType::parse(&event.kind) else { return Some("unknown_type") };
    let of = match kind {
        EventType::BlockCreated | EventType::BlockRemoved => "block",
        _ => "appointment",
    };
    let whole = event.subject_kind == of && event.sequence >= 1 && Standing::deserialize(&event.data).is_ok();
    (!whole).then_some("bad_schema")
}
