//! The order of checks (API.md, "Who may do what"): requests with two faults are told of the earlier one.

use serde_json::json;

use super::call::Call;
use super::case::{About as _, Case, Verdict};
use super::fixture::{Booked, Place};
use super::world::{Seat, World};

/// Case 43, the order.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(43, "of two faults in a booking the earlier check answers, for all pairs", |w| Box::pin(booking(w))),
        Case::new(43, "of two faults in a command on an appointment the earlier check answers, for all pairs", |w| {
            Box::pin(change(w))
        }),
    ]
}

/// One thing wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Credential,
    Role,
    Size,
    MediaType,
    Shape,
    Query,
    NoKey,
    Clinic,
    Row,
    NoId,
    KeyUsed,
    Business,
}

impl Fault {
    /// In the order in which they must be noticed; those of one check together.
    const ORDER: [&'static [Self]; 8] = [
        &[Self::Credential],
        &[Self::Role],
        &[Self::Size],
        &[Self::MediaType],
        &[Self::Shape, Self::Query, Self::NoKey],
        &[Self::Clinic, Self::Row, Self::NoId],
        &[Self::KeyUsed],
        &[Self::Business],
    ];

    const fn answer(self) -> (u16, &'static str) {
        match self {
            Self::Credential => (401, "unauthenticated"),
            Self::Role | Self::Clinic => (403, "forbidden"),
            Self::Size => (413, "body_too_large"),
            Self::MediaType => (415, "unsupported_media_type"),
            Self::Shape | Self::Query => (400, "malformed_request"),
            Self::NoKey => (400, "idempotency_key_missing"),
            Self::Row | Self::NoId => (404, "not_found"),
            Self::KeyUsed => (409, "idempotency_key_reused"),
            Self::Business => (422, "in_the_past"),
        }
    }

    /// The request with this fault. Faults of what the body says come before faults of its bytes.
    fn applied(self, world: &World, booked: &Booked, call: &Call) -> Verdict<Call> {
        Ok(match self {
            Self::Business => call.with("start", "2001-01-01T09:00:00Z"),
            Self::Clinic => call.with("clinic_id", world.id()),
            Self::Shape => call.with("colour", "red"),
            Self::Row => call.at(call.path().replace(&booked.id, &world.id())),
            Self::NoId => call.at(call.path().replace(&booked.id, "nothing")),
            Self::KeyUsed => call.key(&booked.key),
            Self::NoKey => call.clone().without("idempotency-key"),
            Self::Query => call.at(format!("{}?colour=red", call.path())),
            Self::Size => call.padded(70_000),
            Self::MediaType => call.retyped("text/plain"),
            Self::Role => call.under(&world.seat(Seat::LedgerApprover)?),
            Self::Credential => call.clone().without("authorization"),
        })
    }

    /// In which faults can be put onto one request, none undoing another.
    const APPLIED: [Self; 12] = [
        Self::Business,
        Self::Clinic,
        Self::Shape,
        Self::Row,
        Self::NoId,
        Self::KeyUsed,
        Self::NoKey,
        Self::Query,
        Self::Size,
        Self::MediaType,
        Self::Role,
        Self::Credential,
    ];
}

/// Every pair of these faults on this request.
async fn pairs(world: &World, booked: &Booked, call: &Call, faults: &[Fault]) -> Verdict {
    let stages: Vec<Vec<Fault>> = Fault::ORDER
        .iter()
        .map(|stage| stage.iter().copied().filter(|fault| faults.contains(fault)).collect())
        .collect();
    for (at, earlier) in stages.iter().enumerate() {
        for first in earlier {
            let later = stages[at..].iter().flatten();
            for second in later {
                // Without a key there is none that was used before.
                if [*first, *second] == [Fault::NoKey, Fault::KeyUsed] {
                    continue;
                }
                let mut request = call.clone();
                for fault in Fault::APPLIED.into_iter().filter(|fault| fault == first || fault == second) {
                    request = fault.applied(world, booked, &request)?;
                }
                // The one refusal among them that is stored, and it is not to use up the key all the others share.
                if [*first, *second] == [Fault::Business; 2] {
                    request = request.key(&world.key());
                }
                let answer = request.send().await?;
                let (status, code) = first.answer();
                let alike = earlier.contains(second) && (answer.status, answer.code().as_str()) == second.answer();
                if !alike {
                    answer.refused(status, code).about(format!("{first:?} and {second:?}"))?;
                }
            }
        }
    }
    Ok(())
}

fn without_roles(world: &World, faults: &[Fault]) -> Vec<Fault> {
    let several = world.dev().is_ok();
    faults.iter().copied().filter(|fault| several || *fault != Fault::Role).collect()
}

async fn booking(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let faults = without_roles(
        world,
        &[
            Fault::Credential,
            Fault::Role,
            Fault::Size,
            Fault::MediaType,
            Fault::Shape,
            Fault::Query,
            Fault::NoKey,
            Fault::Clinic,
            Fault::KeyUsed,
            Fault::Business,
        ],
    );
    // A key is used within its clinic, so with another clinic it is not used at all: still the clinic's refusal.
    pairs(world, &booked, &call, &faults).await?;
    call.send().await?.is(201)?.replayed(false)?;
    Ok(())
}

async fn change(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let to = place.slot().await?;
    let call = place.act(&booked.id, "reschedule").json(&json!({"start": to.start.to_string()})).key(&world.key());
    let faults = without_roles(
        world,
        &[
            Fault::Credential,
            Fault::Role,
            Fault::Size,
            Fault::MediaType,
            Fault::Shape,
            Fault::Query,
            Fault::NoKey,
            Fault::Row,
            Fault::NoId,
            Fault::KeyUsed,
            Fault::Business,
        ],
    );
    pairs(world, &booked, &call, &faults).await?;
    call.send().await?.is(200)?.replayed(false)?;
    Ok(())
}
