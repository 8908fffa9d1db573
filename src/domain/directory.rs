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
    /// The clinic's id.
    pub id: Uuid,
    /// What people call it.
    #[schema(example = "Spree Dental Mitte")]
    pub name: String,
    /// IANA name of the clinic's time zone. Opening hours and the grid are wall-clock times in it.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: String,
    /// The grid, in minutes: visits start on multiples of it, counted from local midnight.
    #[schema(example = 15)]
    pub slot_minutes: i32,
    /// Whether a booking may ask to be put into a slot that is taken (`overbook`).
    pub allow_overbooking: bool,
    /// Minutes between a booking and the visit's start, at least.
    #[schema(example = 0)]
    pub min_notice_minutes: i32,
    /// Days between a booking and the visit's start, at most.
    #[schema(example = 730)]
    pub horizon_days: i32,
    /// Days after the end of a visit or block for which the answers to its commands replay under their keys, and 24
    /// hours at least. A refusal replays for 24 hours.
    #[schema(example = 7)]
    pub key_retention_days: i32,
    /// Version number, from 1, raised by every change, also of the clinic's hours and closures; in quotes it is the
    /// `ETag` of all three.
    #[schema(example = 1)]
    pub version: i32,
}

/// A clinic's week; an empty one means closed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Week {
    /// The clinic whose week it is.
    #[serde(skip)]
    pub clinic_id: Uuid,
    /// When it is open.
    pub hours: Vec<OpenHours>,
    /// The clinic's version.
    #[serde(skip)]
    pub version: i32,
}

/// A stretch in which a clinic is closed, whatever its weekly hours say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Closure {
    /// The first instant of the closure, in UTC.
    pub from: Timestamp,
    /// The first instant after the closure, in UTC.
    pub to: Timestamp,
    /// The reason, for people; null where there is none.
    #[schema(example = "Christmas")]
    pub reason: Option<String>,
}

/// A clinic's closures, by their start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Closures {
    /// The clinic whose closures they are.
    #[serde(skip)]
    pub clinic_id: Uuid,
    /// Past ones included; no two from and to the same instants.
    pub all: Vec<Closure>,
    /// The clinic's version.
    #[serde(skip)]
    pub version: i32,
}

/// Someone who treats. They belong to the group: a dentist in two clinics is not in two places.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Practitioner {
    /// The practitioner's id.
    pub id: Uuid,
    /// The practitioner's name.
    #[schema(example = "Dr. Mira Novak")]
    pub name: String,
    /// Whether they take new bookings anywhere; visits booked already stay.
    pub active: bool,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// That a practitioner works at a clinic, and when.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Membership {
    /// The practitioner's id.
    pub practitioner_id: Uuid,
    /// Id of the clinic they work at.
    pub clinic_id: Uuid,
    /// Whether they take new bookings at this clinic; visits booked already stay.
    pub active: bool,
    /// Their weekly hours at this clinic, in its zone, of which only those within the clinic's own count; null:
    /// whenever it is open.
    pub hours: Option<Vec<OpenHours>>,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// A treatment room.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Operatory {
    /// The operatory's id.
    pub id: Uuid,
    /// Id of the clinic it is in.
    pub clinic_id: Uuid,
    /// What people call it.
    #[schema(example = "Room 2")]
    pub name: String,
    /// Whether it takes new bookings; visits booked already stay.
    pub active: bool,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// What can be booked at a clinic, and how long it takes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Service {
    /// The service's id.
    pub id: Uuid,
    /// Id of the clinic that offers it.
    pub clinic_id: Uuid,
    /// What people call it.
    #[schema(example = "Check-up")]
    pub name: String,
    /// How many minutes a visit lasts.
    #[schema(example = 30)]
    pub minutes: i32,
    /// Minutes after each visit in which practitioner and operatory are still held.
    #[schema(example = 5)]
    pub buffer_minutes: i32,
    /// Whether it takes new bookings; visits booked already stay.
    pub active: bool,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}

/// How a patient wants to be told of their appointments: `email`, `sms` (text message) or `none` (not at all).
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

/// Someone who is treated. They belong to the group, not to one of its clinics.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Patient {
    /// The patient's id.
    pub id: Uuid,
    /// The patient's name.
    #[schema(example = "Ada Becker")]
    pub name: String,
    /// The patient's date of birth; null where it is not known.
    #[schema(value_type = Option<String>, format = Date, example = "1984-05-17")]
    pub birth_date: Option<Date>,
    /// The patient's e-mail address; null where it is not known.
    #[schema(example = "ada.becker@example.org")]
    pub email: Option<String>,
    /// The number for calls and text messages; null where it is not known.
    #[schema(example = "+49 30 23125 001")]
    pub phone: Option<String>,
    /// The language to address the patient in, a BCP 47 tag; null where it is not known.
    #[schema(example = "de")]
    pub language: Option<String>,
    /// How the patient wants to be told of their appointments: `email`, `sms` or `none`.
    pub preferred_channel: Channel,
    /// Version number, from 1, raised by every change; in quotes it is the `ETag`.
    #[schema(example = 1)]
    pub version: i32,
}
