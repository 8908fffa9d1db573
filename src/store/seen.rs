//! What a look brings back: everything a command's decision rests on, as of one instant.

use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::access::Caller;
use crate::domain::appointment::Appointment;
use crate::domain::availability::Rules;
use crate::domain::hours::OpenHours;

/// A credential as stored.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Who it stands for.
    pub caller: Caller,
    /// SHA-256 of its secret.
    pub secret_hash: Vec<u8>,
    /// SHA-256 of the secret before, and until when that one works.
    pub previous: Option<(Vec<u8>, Timestamp)>,
    /// When it was withdrawn.
    pub revoked_at: Option<Timestamp>,
}

/// A stored reply.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What the request was.
    pub fingerprint: Vec<u8>,
    /// By which rule.
    pub fingerprint_version: i16,
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: StoredHeaders,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Until when it replays.
    pub expires_at: Timestamp,
    /// Whether that has passed.
    pub expired: bool,
}

/// The headers of a reply that are stored: an allow-list.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredHeaders {
    /// `Content-Type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `ETag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// `Location`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

/// A clinic's settings.
#[derive(Clone, Debug)]
pub struct Clinic {
    /// What a visit's time must fit.
    pub rules: Rules,
    /// The name of its zone.
    pub time_zone: String,
    /// Whether it overbooks.
    pub allow_overbooking: bool,
    /// How long a success replays past the appointment's end.
    pub key_retention_days: i32,
    /// Hours before a visit at which its reminder falls due.
    pub reminder_hours: i32,
}

/// Something a request refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Not in this clinic.
    Unknown,
    /// Takes no new bookings.
    Inactive,
    /// In use.
    Active,
}

/// The slot a command wants to enter.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The patient.
    pub patient: Reference,
    /// The practitioner, and as a member of the clinic.
    pub practitioner: Reference,
    /// The practitioner's own hours.
    pub practitioner_hours: Option<Vec<OpenHours>>,
    /// The operatory.
    pub operatory: Reference,
    /// The service.
    pub service: Reference,
    /// Its length in minutes.
    pub minutes: i32,
    /// What follows it, in minutes.
    pub buffer_minutes: i32,
    /// Whether the clinic is closed at some point of the visit.
    pub closed: bool,
    /// Whether anyone works nearby who may overbook: then the commit takes the resource locks.
    pub overbooking_near: bool,
    /// Whether the practitioner or the operatory is taken, by an ordinary row or an overbooked one.
    pub held: bool,
    /// The same visit, booked already.
    pub twin: Option<Uuid>,
    /// The appointment that has this name elsewhere.
    pub external_twin: Option<Uuid>,
}

/// All that a command's decision rests on, as of one instant.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The credential, if there is such a one.
    pub credential: Option<Credential>,
    /// The stored reply of this key.
    pub stored: Option<Stored>,
    /// The clinic the command is about: as named, or the row's.
    pub clinic_id: Option<Uuid>,
    /// Its settings. None where a reply is stored or the clinic does not exist.
    pub clinic: Option<Clinic>,
    /// The row that is to be changed.
    pub row: Option<Appointment>,
    /// The slot that is to be entered.
    pub slot: Option<Slot>,
}
