//! What became of a command, for a caller in doubt (API.md, "Idempotency").
//!
//! The order of the questions is the proof. First whether the key is at work, in this process (registry) or another
//! (locks), then what is stored, in a later snapshot. A commit shows its row before it lets go of its locks, and a process
//! strikes a key off its registry after the commit: whatever was not at work any more is stored by the second question.

use jiff::Timestamp;
use serde::Serialize;

use crate::domain::access::Permission;
use crate::store::keys::Kept;

/// What became of a command: `finished` (it was answered, and the answer is stored: the same request with the same key
/// gets it), `running`, or `unknown` (nothing is known of it; final once 10 seconds have passed since it was sent, or a
/// second more than the service gives a command, where that is longer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = CommandState)]
pub enum State {
    /// It was answered, and the answer is stored: the same request with the same key gets it.
    Finished,
    /// It is at work.
    Running,
    /// Nothing is known of it. Final once 10 seconds have passed since it was sent.
    Unknown,
}

/// What became of a command, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = CommandFate)]
pub struct Fate {
    /// What became of it: `finished`, `running` or `unknown`. The other members are there only when it is `finished`.
    pub state: State,
    /// The HTTP status it was answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 201)]
    pub status: Option<u16>,
    /// The command's name: `book`, `reschedule`, `cancel` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "book")]
    pub operation: Option<String>,
    /// When it was answered, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2026-11-30T10:15:00.25Z")]
    pub finished_at: Option<Timestamp>,
    /// Until when its answer replays under its key, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2027-11-09T08:30:00Z")]
    pub expires_at: Option<Timestamp>,
}

impl Fate {
    /// Of a key that was at work or not, and of which this was stored afterwards.
    #[must_use]
    pub fn of(at_work: bool, kept: Option<Kept>) -> Self {
        let nothing = Self {
            state: if at_work { State::Running } else { State::Unknown },
            status: None,
            operation: None,
            finished_at: None,
            expires_at: None,
        };
        match kept {
            Some(kept) => Self {
                state: State::Finished,
                status: Some(kept.status),
                operation: Some(kept.operation),
                finished_at: Some(kept.finished_at),
                expires_at: Some(kept.expires_at),
            },
            None => nothing,
        }
    }
}

/// What it takes to see the fate of a stored operation: what it took to ask for it. Nothing for an operation this release
/// does not know, which nobody may see here.
#[must_use]
pub fn permission(operation: &str) -> Option<Permission> {
    match operation {
        "book" | "reschedule" | "confirm" | "check-in" | "complete" | "no-show" | "cancel" | "note" | "block" => {
            Some(Permission::WriteAppointments)
        }
        "reopen" => Some(Permission::Overrule),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::command::Command;
    use crate::command::block::Block;
    use crate::command::book::Book;
    use crate::command::note::Note;
    use crate::command::reopen::Reopen;
    use crate::command::reschedule::Reschedule;
    use crate::command::transition::{To, Transition};
    use crate::domain::time::Span;

    #[test]
    fn what_is_stored_goes_before_what_was_at_work() {
        let kept = Kept {
            operation: "book".to_owned(),
            status: 201,
            finished_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::MAX,
        };
        assert_eq!(Fate::of(true, Some(kept.clone())), Fate::of(false, Some(kept.clone())));
        assert_eq!(Fate::of(true, Some(kept)).state, State::Finished);
        assert_eq!([true, false].map(|at_work| Fate::of(at_work, None).state), [State::Running, State::Unknown]);
    }

    #[test]
    fn every_command_with_a_key_can_be_asked_about_by_whoever_may_send_it() {
        fn check(command: &impl Command) {
            assert_eq!(permission(command.operation()), Some(command.permission()), "{}", command.operation());
        }
        let (id, start) = (Uuid::nil(), Timestamp::UNIX_EPOCH);
        check(&Book {
            clinic_id: id,
            patient_id: id,
            practitioner_id: id,
            operatory_id: None,
            service_id: id,
            start,
            time_zone: None,
            note: None,
            overbook: false,
            external: None,
        });
        check(&Reschedule {
            id,
            start,
            time_zone: None,
            practitioner_id: None,
            operatory_id: None,
            service_id: None,
            overbook: false,
        });
        for to in [To::Confirmed, To::Arrived, To::Fulfilled, To::NoShow, To::Cancelled { reason: None }] {
            check(&Transition { id, to });
        }
        check(&Note { id, note: None });
        check(&Reopen { id });
        let during = Span::from_length(start, 60);
        check(&Block { clinic_id: id, practitioner_id: None, operatory_id: None, during, reason: None });
        assert_eq!(permission("something newer"), None);
    }
}
