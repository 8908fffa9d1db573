//! Every command that takes a key (⟲ in API.md, capability A), each ready to be sent: what is promised of one is
//! promised of all, so cases walk this list instead of booking only.

use serde_json::json;

use super::call::Call;
use super::case::{About as _, Verdict};
use super::database::Growth;
use super::fixture::{Place, plus};

/// A command that takes an `Idempotency-Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Book,
    Reschedule,
    Confirm,
    CheckIn,
    Complete,
    NoShow,
    Cancel,
    Reopen,
    Note,
    Block,
}

impl Operation {
    /// All of them.
    pub(super) const ALL: [Self; 10] = [
        Self::Book,
        Self::Reschedule,
        Self::Confirm,
        Self::CheckIn,
        Self::Complete,
        Self::NoShow,
        Self::Cancel,
        Self::Reopen,
        Self::Note,
        Self::Block,
    ];

    /// Those on an appointment that is there already.
    pub(super) fn on_an_appointment() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|operation| !matches!(operation, Self::Book | Self::Block))
    }

    /// The last part of its path; empty where it has none of its own.
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Book | Self::Block | Self::Note => "",
            Self::Reschedule => "reschedule",
            Self::Confirm => "confirm",
            Self::CheckIn => "check-in",
            Self::Complete => "complete",
            Self::NoShow => "no-show",
            Self::Cancel => "cancel",
            Self::Reopen => "reopen",
        }
    }

    /// The event it causes.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Book => "appointment.booked",
            Self::Reschedule => "appointment.rescheduled",
            Self::Confirm => "appointment.confirmed",
            Self::CheckIn => "appointment.arrived",
            Self::Complete => "appointment.fulfilled",
            Self::NoShow => "appointment.noshow",
            Self::Cancel => "appointment.cancelled",
            Self::Reopen => "appointment.reopened",
            Self::Note => "appointment.noted",
            Self::Block => "block.created",
        }
    }

    /// What brings a booked appointment to where this command is allowed.
    const fn before(self) -> &'static [&'static str] {
        match self {
            Self::Complete => &["check-in"],
            Self::Reopen => &["cancel"],
            _ => &[],
        }
    }

    /// A request of this kind that will be carried out, and one like it that means something else.
    pub(super) async fn prepare(self, place: &Place<'_>) -> Verdict<Prepared> {
        let prepared = match self {
            Self::Book => {
                let slot = place.slot().await?;
                let call = place.book_call(&slot).with("note", "the first of them");
                let other = call.with("note", "another");
                Prepared { other, growth: Growth::BOOKING, status: 201, ..Prepared::new(self, None, call) }
            }
            Self::Block => {
                let slot = place.slot().await?;
                let body = json!({
                    "clinic_id": place.clinic, "practitioner_id": slot.practitioner, "reason": "lunch",
                    "start": slot.start.to_string(), "end": plus(slot.start, 45).to_string(),
                });
                let call = place.client.post("/v1/blocks").json(&body);
                let other = call.with("reason", "leave");
                Prepared { other, growth: Growth::BLOCK, status: 201, ..Prepared::new(self, None, call) }
            }
            _ => {
                let (first, second) = (self.at_an_appointment(place).await, self.at_an_appointment(place).await);
                let ((id, call), (_, elsewhere)) =
                    (first.about(format!("{self:?}"))?, second.about(format!("{self:?}"))?);
                let other = match self {
                    Self::Note => call.with("note", "another"),
                    Self::Cancel => call.with("reason", "another"),
                    _ => elsewhere,
                };
                Prepared { other, ..Prepared::new(self, Some(id), call) }
            }
        };
        Ok(prepared)
    }

    async fn at_an_appointment(self, place: &Place<'_>) -> Verdict<(String, Call)> {
        let booked = place.book().await?;
        place.acts(&booked.id, self.before()).await?;
        let act = place.act(&booked.id, self.action());
        let call = match self {
            Self::Reschedule => {
                let to = place.slot().await?;
                act.json(&json!({"start": to.start.to_string(), "practitioner_id": to.practitioner}))
            }
            Self::Cancel => act.json(&json!({"reason": "the patient called"})),
            Self::Note => {
                let path = format!("/v1/appointments/{}", booked.id);
                place.client.call("PATCH", path).json(&json!({"note": "allergic to latex"}))
            }
            _ => act,
        };
        Ok((booked.id, call))
    }
}

/// A command ready to be sent, but for its key.
pub(super) struct Prepared {
    pub(super) operation: Operation,
    pub(super) call: Call,
    /// The same operation, meaning something else.
    pub(super) other: Call,
    /// What carrying it out is answered with.
    pub(super) status: u16,
    /// What carrying it out writes.
    pub(super) growth: Growth,
    /// The appointment it acts on, if that is there already.
    pub(super) id: Option<String>,
}

impl Prepared {
    fn new(operation: Operation, id: Option<String>, call: Call) -> Self {
        Self { operation, other: call.clone(), call, status: 200, growth: Growth::CHANGE, id }
    }
}
