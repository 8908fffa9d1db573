//! Look, decide, commit: what a command is. The loop all of them go through is in [`run`].
//!
//! A command says what it must see, decides on that alone, and hands over what is to be written; it does no I/O itself.
//! Whatever goes stale between look and commit leaves nothing behind, and the answer is always to look again, until the
//! command's deadline. There is no committed state "in progress", so there is nothing to sweep after a crash.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::access::{Caller, Permission};
use crate::domain::appointment::Appointment;
use crate::domain::event::{EventType, Notice};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::key::KeyHash;
use crate::domain::problem::{Code, Problem};
use crate::domain::refusal::Refusal;
use crate::store::StoreError;
use crate::store::commit::Reply;
use crate::store::look::Question;

pub mod admit;
pub mod block;
pub mod book;
pub mod claim;
pub mod fate;
pub mod ground;
pub mod group;
pub mod lanes;
pub mod note;
mod openings;
pub mod put;
pub mod registry;
pub mod reopen;
pub mod replays;
pub mod reply;
pub mod reschedule;
pub mod run;
pub mod transition;

use admit::Token;
use ground::Ground;

/// One thing one may ask for.
pub trait Command: Send + Sync + 'static {
    /// What its decision stands on.
    type Ground: Ground;

    /// Its name: part of the fingerprint, and what history and audit call it.
    fn operation(&self) -> &'static str;

    /// What the caller must be allowed to do.
    fn permission(&self) -> Permission;

    /// What it takes turns on: a practitioner, an operatory or the row.
    fn lane(&self) -> Uuid;

    /// Every field that makes it this request and no other.
    fn fields(&self, fingerprint: &mut Fingerprint);

    /// What it must see.
    fn look(&self) -> Question;

    /// Decides. Pure: the same ground and the same moment give the same decision.
    ///
    /// # Errors
    /// A [`Refusal`] is a decision too; it is stored and replayed.
    fn decide(&self, ground: &Self::Ground, moment: &Moment<'_>) -> Result<Decision, Refusal>;
}

/// What a decision may know beside its ground.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The time of the decision: what "past", notice and horizon are judged by, and what the row is dated with.
    pub now: Timestamp,
    /// The credential that asks, as the same look has proved it.
    pub caller: &'a Caller,
    /// The versions that the change may be made to; any where the request has no `If-Match`.
    pub if_match: &'a IfMatch,
    /// The id of the row, where the decision makes one.
    pub new_id: Uuid,
}

/// `If-Match` (RFC 9110, section 13.1.1); `If-None-Match` has the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IfMatch {
    /// Not sent, or `*`: any version will do.
    #[default]
    Any,
    /// One of these versions. A tag that is none of ours is in here as a version no row has.
    Versions(Vec<i32>),
}

impl IfMatch {
    /// Its part of the fingerprint.
    pub fn fields(&self, fingerprint: &mut Fingerprint) {
        if let Self::Versions(versions) = self {
            for version in versions {
                fingerprint.bytes("if-match", &version.to_le_bytes());
            }
        }
    }

    /// Whether a row of that version is among what was sent.
    #[must_use]
    pub fn names(&self, version: i32) -> bool {
        match self {
            Self::Any => true,
            Self::Versions(versions) => versions.contains(&version),
        }
    }

    /// Whether the row may be changed.
    ///
    /// # Errors
    /// [`Refusal::VersionMismatch`] with the row's version.
    pub fn check(&self, row: &Appointment) -> Result<(), Refusal> {
        if self.names(row.version) { Ok(()) } else { Err(Refusal::VersionMismatch(row.version)) }
    }
}

/// What was decided, as data.
#[derive(Clone, Debug)]
pub struct Decision {
    /// HTTP status of the answer.
    pub status: u16,
    /// The row as it is to stand, or as it stands.
    pub row: Appointment,
    /// What is to be written, if anything.
    pub act: Act,
}

/// What is written.
#[derive(Clone, Debug)]
pub enum Act {
    /// Nothing but the key: it is so already.
    Nothing,
    /// A new row.
    Insert(Effect),
    /// The row's next version.
    Change(Effect),
}

/// What is written beside a row because it was made or changed.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The type of the event in the outbox.
    pub event: EventType,
    /// What the patient is to be told, and when.
    pub notices: Vec<Notice>,
    /// Practitioners and operatories left and entered, whose locks the commit takes.
    pub resources: Vec<Uuid>,
    /// Whether the slot is looked at once more under those locks.
    pub recheck: bool,
}

impl Effect {
    /// An event and nothing more.
    #[must_use]
    pub const fn of(event: EventType) -> Self {
        Self { event, notices: Vec::new(), resources: Vec::new(), recheck: false }
    }
}

/// What comes with a command, whatever the command is.
#[derive(Clone, Debug)]
pub struct Request {
    /// The credential's id and the hash of the secret that was shown.
    pub token: Token,
    /// The hash of the `Idempotency-Key`; only the removal of a block has none.
    pub key: Option<KeyHash>,
    /// The versions that the change may be made to; part of the fingerprint.
    pub if_match: IfMatch,
    /// Our id of the request: the `X-Request-Id` of its answer, kept in history and audit.
    pub id: Uuid,
    /// The caller's own `X-Request-Id`, kept beside ours.
    pub callers_id: Option<String>,
    /// The W3C trace context, which travels with the event.
    pub traceparent: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status, headers and body.
    pub reply: Reply,
    /// Whether it was stored before.
    pub replayed: bool,
    /// Until when it replays; none without a key.
    pub expires_at: Option<Timestamp>,
}

/// The bounds of a command.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A command takes no longer than this.
    pub deadline: Duration,
    /// A duplicate waits no longer than this for the first.
    pub wait: Duration,
}

impl From<StoreError> for Problem {
    /// What a caller is told when the database did not answer. The store has logged why.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Broken(_) => Code::Internal.into(),
            StoreError::Again(_) | StoreError::Gone(_) | StoreError::Late => Code::Unavailable.into(),
        }
    }
}
