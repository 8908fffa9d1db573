//! What is told of a change: ids and times only, never a patient's data.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::appointment::{Appointment, Kind};

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

/// The event's data for the row as it now stands.
#[must_use]
pub fn payload(row: &Appointment) -> Value {
    json!({
        "start": row.during.start, "end": row.during.end, "status": row.status.as_str(), "schedule_version": row.schedule_version,
        "practitioner_id": row.practitioner_id, "operatory_id": row.operatory_id, "service_id": row.service_id,
    })
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

/// Hours before a visit at which its reminder falls due.
const REMINDER_HOURS: i64 = 24;

/// What follows from a visit having been booked, moved or reopened: `first` at once, and a reminder if there is time for one.
#[must_use]
pub fn notices(first: &'static str, start: Timestamp, now: Timestamp) -> Vec<Notice> {
    let reminder = start.saturating_sub(jiff::SignedDuration::from_hours(REMINDER_HOURS)).unwrap_or(now);
    let mut notices = vec![Notice { kind: first, due_at: now }];
    if reminder > now {
        notices.push(Notice { kind: "reminder", due_at: reminder });
    }
    notices
}
