//! The directory: clinics, the people who work there, rooms, services and patients, as callers put and see them
//! (API.md, "Directory"). What a value may be is checked where it is read; here it is a value.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::hours::OpenHours;

/// One clinic of a group, with the settings booking reads.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Clinic {
    /// Its id.
    pub id: Uuid,
    /// What people call it.
    #[schema(example = "Spree Dental Mitte")]
    pub name: String,
    /// IANA name. Opening hours and the grid are wall-clock times in it.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: String,
    /// The grid: visits start on multiples of this, counted from local midnight.
    #[schema(example = 15)]
    pub slot_minutes: i32,
    /// Whether a visit may be put into a slot that is taken, when asked for.
    pub allow_overbooking: bool,
    /// A visit is booked at least so long before it starts.
    #[schema(example = 0)]
    pub min_notice_minutes: i32,
    /// A visit is booked at most so long before it starts.
    #[schema(example = 730)]
    pub horizon_days: i32,
    /// A success replays under its key until so long after the end of its appointment.
    #[schema(example = 7)]
    pub key_retention_days: i32,
    /// Raised by every change of the clinic, its hours and its closures; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// A clinic's week; an empty one means closed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Week {
    /// Whose.
    #[serde(skip)]
    pub clinic_id: Uuid,
    /// When it is open.
    pub hours: Vec<OpenHours>,
    /// The clinic's.
    #[serde(skip)]
    pub version: i32,
}

/// A stretch in which a clinic is closed whatever its hours say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Closure {
    /// The first instant of it.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// For people.
    #[schema(example = "Christmas")]
    pub reason: Option<String>,
}

/// A clinic's closures, by their start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Closures {
    /// Whose.
    #[serde(skip)]
    pub clinic_id: Uuid,
    /// Past ones included; no two from and to the same instants.
    pub all: Vec<Closure>,
    /// The clinic's.
    #[serde(skip)]
    pub version: i32,
}

/// Someone who treats. They belong to the group: a dentist in two clinics is not in two places.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Practitioner {
    /// Their id.
    pub id: Uuid,
    /// Their name.
    #[schema(example = "Dr. Mira Novak")]
    pub name: String,
    /// Whether they take new bookings anywhere.
    pub active: bool,
    /// Raised by every change; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// That a practitioner works at a clinic, and when.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Membership {
    /// Who.
    pub practitioner_id: Uuid,
    /// Where.
    pub clinic_id: Uuid,
    /// Whether they take new bookings there.
    pub active: bool,
    /// When they are there, within the clinic's hours; null: whenever it is open.
    pub hours: Option<Vec<OpenHours>>,
    /// Raised by every change; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// A treatment room.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Operatory {
    /// Its id.
    pub id: Uuid,
    /// Where it is.
    pub clinic_id: Uuid,
    /// What people call it.
    #[schema(example = "Room 2")]
    pub name: String,
    /// Whether it takes new bookings.
    pub active: bool,
    /// Raised by every change; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// What one may book at a clinic.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Service {
    /// Its id.
    pub id: Uuid,
    /// Where it is offered.
    pub clinic_id: Uuid,
    /// What people call it.
    #[schema(example = "Check-up")]
    pub name: String,
    /// How long the visit takes.
    #[schema(example = 30)]
    pub minutes: i32,
    /// Follows the visit; holds practitioner and operatory.
    #[schema(example = 5)]
    pub buffer_minutes: i32,
    /// Whether it takes new bookings.
    pub active: bool,
    /// Raised by every change; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// How a patient wants to be told of their appointments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// By e-mail.
    Email,
    /// By text message.
    Sms,
    /// Not at all.
    #[default]
    None,
}

impl Channel {
    /// As it travels and is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Sms => "sms",
            Self::None => "none",
        }
    }

    /// The channel of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Email, Self::Sms, Self::None].into_iter().find(|channel| channel.as_str() == text)
    }
}

/// Someone who is treated. They belong to the group.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Patient {
    /// Their id.
    pub id: Uuid,
    /// Their name.
    #[schema(example = "Ada Becker")]
    pub name: String,
    /// Their date of birth.
    #[schema(value_type = Option<String>, format = Date, example = "1984-05-17")]
    pub birth_date: Option<Date>,
    /// Where e-mail reaches them.
    #[schema(example = "ada.becker@example.org")]
    pub email: Option<String>,
    /// Where calls and text messages reach them.
    #[schema(example = "+49 30 23125 001")]
    pub phone: Option<String>,
    /// What they want to be addressed in (BCP 47).
    #[schema(example = "de")]
    pub language: Option<String>,
    /// How they want to be told of their appointments.
    pub preferred_channel: Channel,
    /// Raised by every change; the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}
