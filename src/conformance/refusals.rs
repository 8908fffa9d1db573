//! Case 51 of `docs/CONFORMANCE.md`, precedence: when several refusals apply, API.md says which one is told.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::case::{About as _, Case, Verdict, skip};
use super::fixture::{Place, Settings, Slot};
use super::world::World;

/// Case 51, precedence.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(51, "of two refusals of a booking the earlier in API.md's order is told, for all pairs", |w| {
            Box::pin(bookings(w))
        }),
        Case::new(51, "of two refusals of a move the earlier in API.md's order is told, for all pairs", |w| {
            Box::pin(moves(w))
        }),
        Case::new(51, "of two refusals of a transition the earlier in API.md's order is told", |w| {
            Box::pin(transitions(w))
        }),
    ]
}

/// One reason to refuse, in API.md's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    LocalTime,
    Reference,
    Inactive,
    Horizon,
    Grid,
    Hours,
    Overbooking,
    Transition,
    IfMatch,
    Duplicate,
    Taken,
}

impl Reason {
    const fn answer(self) -> (u16, &'static str) {
        match self {
            Self::LocalTime => (422, "nonexistent_local_time"),
            Self::Reference => (422, "unknown_reference"),
            Self::Inactive => (422, "inactive_reference"),
            Self::Horizon => (422, "too_far_ahead"),
            Self::Grid => (422, "off_grid"),
            Self::Hours => (422, "outside_hours"),
            Self::Overbooking => (422, "overbooking_not_allowed"),
            Self::Transition => (409, "transition_not_allowed"),
            Self::IfMatch => (412, "version_mismatch"),
            Self::Duplicate => (409, "duplicate_intent"),
            Self::Taken => (409, "slot_taken"),
        }
    }
}

/// The reasons that apply to one request.
struct Reasons<'a>(&'a [Reason]);

impl Reasons<'_> {
    fn has(&self, reason: Reason) -> bool {
        self.0.contains(&reason)
    }

    /// The clinic in which those apply that lie with the clinic: so a slot that is taken can be off its grid, too.
    fn settings(&self) -> Settings {
        let usual = Settings::default();
        Settings {
            horizon_days: if self.has(Reason::Horizon) { 2 } else { usual.horizon_days },
            // Midnight only.
            slot_minutes: if self.has(Reason::Grid) { 1440 } else { usual.slot_minutes },
            hours: if self.has(Reason::Hours) { json!([]) } else { usual.hours.clone() },
            ..usual
        }
    }

    /// The request in which those apply that lie with it.
    fn applied(&self, world: &World, gap: Option<&Value>, mut call: Call) -> Call {
        if self.has(Reason::Reference) {
            call = call.with("operatory_id", world.id());
        }
        if self.has(Reason::Overbooking) {
            call = call.with("overbook", true);
        }
        if self.has(Reason::IfMatch) {
            call = call.header("If-Match", "\"77\"");
        }
        match gap {
            Some(gap) if self.has(Reason::LocalTime) => {
                call.with("start", gap.clone()).with("time_zone", "Europe/Berlin")
            }
            _ => call,
        }
    }

    /// Puts the clinic and a service as these reasons want them.
    async fn settle(&self, place: &Place<'_>, service: &str) -> Verdict {
        place.settle(&self.settings()).await?;
        let mut body = place.service(30, 0);
        body["active"] = json!(!self.has(Reason::Inactive));
        place.put(&format!("/v1/services/{service}"), &body).await?;
        Ok(())
    }

    async fn told(&self, call: &Call, world: &World) -> Verdict {
        let first = self.0.iter().min().copied().unwrap_or(Reason::Taken);
        let (status, code) = first.answer();
        call.key(&world.key()).send().await?.refused(status, code).about(format!("{:?}", self.0))?;
        Ok(())
    }
}

/// A local time that Berlin skips, within the next two years.
fn skipped(world: &World) -> Option<Value> {
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").ok()?;
    let now: Timestamp = world.now();
    let change = zone.following(now).find(|change| change.dst().is_dst())?;
    let date = change.timestamp().to_zoned(zone).date();
    Some(json!(date.at(2, 30, 0, 0).to_string()))
}

fn pairs(reasons: &[Reason]) -> Vec<[Reason; 2]> {
    let mut pairs = Vec::new();
    for (at, first) in reasons.iter().enumerate() {
        for second in &reasons[at..] {
            pairs.push([*first, *second]);
        }
    }
    pairs
}

async fn bookings(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let Some(gap) = skipped(world) else { return skip("Berlin skips no hour any more") };
    let taken = place.book().await?;
    let others: Vec<&String> = place.patients.iter().filter(|id| **id != taken.slot.patient).collect();
    for pair in pairs(&[
        Reason::LocalTime,
        Reason::Reference,
        Reason::Inactive,
        Reason::Horizon,
        Reason::Grid,
        Reason::Hours,
        Reason::Overbooking,
        Reason::Duplicate,
        Reason::Taken,
    ]) {
        let reasons = Reasons(&pair);
        let slot = if reasons.has(Reason::Duplicate) {
            taken.slot.clone()
        } else if reasons.has(Reason::Taken) {
            Slot { patient: others[0].clone(), ..taken.slot.clone() }
        } else {
            place.slot().await?
        };
        reasons.settle(&place, &place.services[1]).await?;
        reasons.told(&reasons.applied(world, Some(&gap), place.book_call(&slot)), world).await?;
    }
    Ok(())
}

async fn moves(world: &World) -> Verdict {
    let place = Place::with(world, Settings { practitioners: 8, ..Settings::default() }).await?;
    let Some(gap) = skipped(world) else { return skip("Berlin skips no hour any more") };
    let taken = place.book().await?;
    let other = place.patients.iter().find(|id| **id != taken.slot.patient).cloned().unwrap_or_default();
    let all = [
        Reason::LocalTime,
        Reason::Reference,
        Reason::Inactive,
        Reason::Horizon,
        Reason::Grid,
        Reason::Hours,
        Reason::Overbooking,
        Reason::Transition,
        Reason::IfMatch,
        Reason::Duplicate,
        Reason::Taken,
    ];
    for pair in pairs(&all) {
        let reasons = Reasons(&pair);
        Reasons(&[]).settle(&place, &place.services[2]).await?;
        // Of the patient whose visit is in the way, the move makes the same visit twice; of another, it is just taken.
        let patient = if reasons.has(Reason::Duplicate) { taken.slot.patient.clone() } else { other.clone() };
        let from = Slot { patient, ..place.slot().await? };
        let mover = place.booked(from.clone(), place.book_call(&from)).await?;
        if reasons.has(Reason::Transition) {
            place.acts(&mover.id, &["check-in"]).await?;
        }
        let to = if reasons.has(Reason::Duplicate) || reasons.has(Reason::Taken) {
            taken.slot.clone()
        } else {
            place.slot().await?
        };
        reasons.settle(&place, &place.services[2]).await?;
        let mut body = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
        if reasons.has(Reason::Inactive) {
            // Another than it has: deactivating stops new bookings only, so its own would be in nobody's way.
            body["service_id"] = json!(place.services[2]);
        }
        let call = reasons.applied(world, Some(&gap), place.act(&mover.id, "reschedule").json(&body));
        reasons.told(&call, world).await?;
    }
    Ok(())
}

async fn transitions(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    place.acts(&booked.id, &["check-in", "complete"]).await?;
    let wrong = Reasons(&[Reason::Transition, Reason::IfMatch]);
    for action in ["check-in", "no-show", "cancel", "reopen"] {
        wrong.told(&wrong.applied(world, None, place.act(&booked.id, action)), world).await.about(action)?;
    }
    // Reopened, an appointment asks for its slot again, and its visit must not be another's by now.
    let gone = place.book().await?;
    place.acts(&gone.id, &["cancel"]).await?;
    let again = place.booked(gone.slot.clone(), gone.call.clone()).await?;
    let reopen = place.act(&gone.id, "reopen");
    for pair in [[Reason::IfMatch, Reason::Duplicate], [Reason::Duplicate, Reason::Taken]] {
        let reasons = Reasons(&pair);
        reasons.told(&reasons.applied(world, None, reopen.clone()), world).await?;
    }
    place.acts(&again.id, &["cancel"]).await?;
    let other = place.patients.iter().find(|id| **id != gone.slot.patient).cloned();
    place.booked(gone.slot.clone(), gone.call.with("patient_id", json!(other))).await?;
    for pair in [[Reason::IfMatch, Reason::Taken], [Reason::Taken, Reason::Taken]] {
        let reasons = Reasons(&pair);
        reasons.told(&reasons.applied(world, None, reopen.clone()), world).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_once_and_each_alone() {
        let pairs = pairs(&[Reason::Grid, Reason::Hours, Reason::Taken]);
        assert_eq!(pairs.len(), 6);
        assert!(pairs.iter().all(|[first, second]| first <= second));
    }
}
