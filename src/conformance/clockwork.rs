//! Case 50 of `docs/CONFORMANCE.md`: local time, and the two nights a year in which it lies.

use std::collections::BTreeSet;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;

use super::case::{About as _, Case, Verdict, ensure, failed, skip};
use super::database::Growth;
use super::fixture::{Place, Settings, Slot, instant, plus, round_the_clock, text, wall_clock};
use super::world::World;

/// Case 50.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(50, "a local time in the gap: refused before anything is looked up, not stored, not offered", |w| {
            Box::pin(gap(w))
        }),
        Case::new(50, "a local time in the overlap: refused with both instants, each bookable once", |w| {
            Box::pin(overlap(w))
        }),
        Case::new(50, "the days of both changes are as long as they are, in many zones", |w| Box::pin(lengths(w))),
        Case::new(50, "what is offered is bookable, in zones of every kind", |w| Box::pin(offered_is_bookable(w))),
        Case::new(50, "hours past midnight, to 24:00 and over the change", |w| Box::pin(past_midnight(w))),
        Case::new(50, "a local time with another zone means that zone's clock", |w| Box::pin(other_zone(w))),
    ]
}

/// A clinic that is open in the hours in which clocks change.
async fn sleepless<'a>(world: &'a World, zone: &'static str) -> Verdict<Place<'a>> {
    let settings = Settings { zone, hours: round_the_clock(), practitioners: 1, ..Settings::default() };
    Place::with(world, settings).await
}

/// The next change of the clock there within the horizon: the instant, and how many minutes it leaps forward.
fn next_change(world: &World, zone: &TimeZone, forward: bool) -> Option<(Timestamp, i64)> {
    let now = world.now().checked_add(48.hours()).ok()?;
    let limit = now.checked_add((720 * 24).hours()).ok()?;
    let mut before = zone.to_offset(now).seconds();
    for change in zone.following(now) {
        if change.timestamp() > limit {
            return None;
        }
        let after = change.offset().seconds();
        let leap = i64::from(after - before) / 60;
        before = after;
        if leap != 0 && (leap > 0) == forward {
            return Some((change.timestamp(), leap));
        }
    }
    None
}

/// A wall-clock time within the gap or the overlap of that change, on the grid.
fn within(zone: &TimeZone, change: Timestamp, leap: i64) -> DateTime {
    // The wall clock before the change reads the start of a gap; a back leap's overlap starts that much earlier.
    let before = plus(change, -15).to_zoned(zone.clone()).datetime();
    let back = if leap < 0 { leap } else { 0 };
    let quarter = before.checked_add((15 + back).minutes()).unwrap_or(before);
    quarter.checked_add(15.minutes()).unwrap_or(quarter)
}

fn slot_at(place: &Place<'_>, start: Timestamp) -> Slot {
    Slot { practitioner: place.practitioners[0].clone(), patient: place.patients[0].clone(), start }
}

async fn gap(world: &World) -> Verdict {
    let place = sleepless(world, "Europe/Berlin").await?;
    let Some((change, leap)) = next_change(world, &place.zone, true) else {
        return skip("no such change within two years");
    };
    let local = within(&place.zone, change, leap);
    ensure(
        matches!(place.zone.to_ambiguous_timestamp(local).offset(), AmbiguousOffset::Gap { .. }),
        "a time in the gap",
        local.to_string(),
    )?;
    let call = place.book_call(&slot_at(&place, change)).with("start", local.to_string());
    let call = call.with("time_zone", "Europe/Berlin").key(&world.key());
    let mut tally = place.tally().await?;
    let refused = call.send().await?;
    refused.refused(422, "nonexistent_local_time")?;
    refused.ensure(refused.header("idempotency-expires").is_none(), "nothing stored, so no expiry")?;
    let unknown = call.with("patient_id", world.id()).with("practitioner_id", world.id()).send().await?;
    unknown.refused(422, "nonexistent_local_time").about("before anything is looked up")?;
    tally.grew(&Growth { audit: (0, 2), ..Growth::NOTHING }, &unknown).await?;
    // The same key, then, with a time that exists.
    let booked = call.with("start", local.date().at(12, 0, 0, 0).to_string()).send().await?;
    let id = booked.is(201)?.replayed(false)?.member("id")?;
    let moved = place
        .act(&id, "reschedule")
        .json(&serde_json::json!({"start": local.to_string(), "time_zone": "Europe/Berlin"}));
    moved.key(&world.key()).send().await?.refused(422, "nonexistent_local_time").about("a move")?;
    let slots = place.availability(place.services.first(), plus(change, -60), plus(change, 60), "").await?;
    for slot in &slots {
        let Some(start) = instant(slot, "start") else { return failed("a start", slot.to_string()) };
        let shown = start.to_zoned(place.zone.clone()).datetime();
        ensure(shown != local, "the gap not offered", shown.to_string())?;
    }
    // The quarters before and after touch, though the wall clock leaps between them.
    ensure(slots.len() == 8, "eight quarters in the two hours around the change", slots.len().to_string())
}

async fn overlap(world: &World) -> Verdict {
    let place = sleepless(world, "Europe/Berlin").await?;
    let Some((change, leap)) = next_change(world, &place.zone, false) else {
        return skip("no such change within two years");
    };
    let local = within(&place.zone, change, leap);
    let AmbiguousOffset::Fold { before, after } = place.zone.to_ambiguous_timestamp(local).offset() else {
        return failed("a time in the overlap", local.to_string());
    };
    let instants = [before, after].map(|offset| offset.to_timestamp(local).unwrap_or(Timestamp::MIN));
    let call = place.book_call(&slot_at(&place, change)).with("start", local.to_string());
    let call = call.with("time_zone", "Europe/Berlin").with("service_id", place.services[0].as_str()).key(&world.key());
    let mut tally = place.tally().await?;
    let refused = call.send().await?;
    let problem = refused.refused(422, "ambiguous_local_time")?;
    tally.grew(&Growth::REFUSED, &refused).await?;
    let told = instants_in(&problem);
    refused.ensure(instants.iter().all(|instant| told.contains(instant)), format!("both instants, {instants:?}"))?;
    let slots = place.availability(place.services.first(), instants[0], plus(instants[1], 15), "").await?;
    for (at, either) in instants.iter().enumerate() {
        let offers = slots.iter().filter(|slot| instant(slot, "start") == Some(*either)).count();
        ensure(offers == 1, "each instant offered once", offers.to_string())?;
        let patient = place.patients[at].as_str();
        let by_instant = call.with("start", either.to_string()).leaving_out("time_zone").with("patient_id", patient);
        let answer = by_instant.key(&world.key()).send().await?;
        let shown = answer.is(201)?.json()?;
        let wall = wall_clock(&shown, "local_start");
        answer.ensure(wall == Some(local), format!("local_start: {local}, for both"))?;
        let rival = by_instant.with("patient_id", place.patients[2].as_str()).key(&world.key());
        rival.send().await?.refused(409, "slot_taken").about("once each")?;
    }
    Ok(())
}

/// Every RFC 3339 instant among the texts of a problem, at any depth.
fn instants_in(value: &Value) -> BTreeSet<Timestamp> {
    match value {
        Value::String(text) => text.parse().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(instants_in).collect(),
        Value::Object(members) => members.values().flat_map(instants_in).collect(),
        _ => BTreeSet::new(),
    }
}

fn midnight(zone: &TimeZone, date: Date) -> Timestamp {
    zone.to_zoned(date.at(0, 0, 0, 0)).map_or(Timestamp::MIN, |zoned| zoned.timestamp())
}

async fn lengths(world: &World) -> Verdict {
    for zone in ["Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"] {
        let place = sleepless(world, zone).await?;
        let mut days = vec![place.working_day(0)];
        for forward in [true, false] {
            let change = next_change(world, &place.zone, forward);
            days.extend(change.map(|(change, _)| change.to_zoned(place.zone.clone()).date()));
        }
        for day in days {
            let next = day.checked_add(1.day()).unwrap_or(day);
            let (from, to) = (midnight(&place.zone, day), midnight(&place.zone, next));
            let quarters = to.duration_since(from).as_mins() / 15;
            let slots = place.availability(place.services.first(), from, to, "").await?;
            let starts: BTreeSet<String> = slots.iter().map(|slot| text(slot, "start")).collect();
            ensure(
                i64::try_from(starts.len()) == Ok(quarters) && slots.len() == starts.len(),
                format!("{quarters} quarters of an hour on {day} in {zone}, each once"),
                format!("{} of {}", starts.len(), slots.len()),
            )?;
        }
    }
    Ok(())
}

async fn offered_is_bookable(world: &World) -> Verdict {
    for (zone, slot_minutes) in [
        ("Europe/Berlin", 15),
        ("Asia/Kathmandu", 20),
        ("America/St_Johns", 10),
        ("Australia/Lord_Howe", 40),
        ("Africa/Casablanca", 25),
        ("Pacific/Chatham", 60),
    ] {
        let settings =
            Settings { zone, slot_minutes, hours: round_the_clock(), practitioners: 1, ..Settings::default() };
        let place = Place::with(world, settings).await?;
        let changes = [true, false].map(|forward| next_change(world, &place.zone, forward));
        let mut around: Vec<Timestamp> = changes.into_iter().flatten().map(|(change, _)| change).collect();
        around.push(place.at(place.working_day(0), 23, 0));
        for middle in around {
            let (from, to) = (plus(middle, -3 * 60), plus(middle, 3 * 60));
            let slots = place.availability(place.services.first(), from, to, "").await?;
            ensure(!slots.is_empty(), format!("something offered around {middle} in {zone}"), "nothing")?;
            let mut free_from = Timestamp::MIN;
            for slot in &slots {
                let Some(start) = instant(slot, "start") else { return failed("a start", slot.to_string()) };
                let wanted = slot_at(&place, start);
                let call = place.book_call(&wanted).with("service_id", place.services[0].as_str()).key(&world.key());
                let answer = call.send().await?;
                // Offers may overlap one another: by a grid finer than the visit, or where the clocks go back and the grid
                // starts over. Then the one booked just now holds the next.
                if start < free_from {
                    answer.refused(409, "slot_taken").about(format!("{slot} overlaps the one before, in {zone}"))?;
                } else {
                    answer.is(201).about(format!("offered, so bookable: {slot} in {zone}"))?;
                    free_from = plus(start, 15);
                }
            }
        }
    }
    Ok(())
}

async fn past_midnight(world: &World) -> Verdict {
    let night = super::fixture::hours(&["saturday"], "22:00", "04:00");
    let settings = Settings { hours: night, practitioners: 1, ..Settings::default() };
    let place = Place::with(world, settings).await?;
    let saturday = place.working_day(0).checked_add(5.days()).unwrap_or_default();
    let mut nights = BTreeSet::from([saturday]);
    for forward in [true, false] {
        let change = next_change(world, &place.zone, forward);
        // Clocks change in the small hours of a Sunday: of the night that opened on the Saturday before.
        nights.extend(
            change.and_then(|(change, _)| change.to_zoned(place.zone.clone()).date().checked_sub(1.day()).ok()),
        );
    }
    for night in nights {
        let morning = night.checked_add(1.day()).unwrap_or(night);
        let (opens, closes) = (place.at(night, 22, 0), place.at(morning, 4, 0));
        let quarters = closes.duration_since(opens).as_mins() / 15;
        let slots = place.availability(place.services.first(), plus(opens, -600), plus(closes, 600), "").await?;
        let came = format!("{} from {:?} to {:?}", slots.len(), slots.first(), slots.last());
        ensure(
            i64::try_from(slots.len()) == Ok(quarters),
            format!("{quarters} quarters in the night of {night}"),
            came,
        )?;
        let outside = [plus(opens, -15), closes];
        for start in outside {
            let call = place.book_call(&slot_at(&place, start)).with("service_id", place.services[0].as_str());
            call.key(&world.key()).send().await?.refused(422, "outside_hours").about(start)?;
        }
        let last = place.book_call(&slot_at(&place, plus(closes, -30))).key(&world.key());
        last.send().await?.is(201).about("until the night closes")?;
    }
    Ok(())
}

async fn other_zone(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for (zone, strange) in [("America/New_York", true), ("Europe/Berlin", false), ("Asia/Kolkata", true)] {
        let slot = place.slot().await?;
        let wall = slot.start.in_tz(zone).map(|zoned| zoned.datetime()).unwrap_or_default();
        let call = place.book_call(&slot).with("start", wall.to_string()).with("time_zone", zone);
        let booked = place.booked(slot.clone(), call).await?;
        let started = instant(&booked.answer.json()?, "start") == Some(slot.start);
        booked.answer.ensure(started, format!("{wall} in {zone} to be {}", slot.start))?;
        if !strange {
            let local = wall_clock(&booked.answer.json()?, "local_start");
            booked.answer.ensure(local == Some(wall), format!("local_start: {wall}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quarter_chosen_lies_in_the_gap_or_the_overlap() {
        let zone = TimeZone::get("Europe/Berlin").expect("a zone");
        let spring: Timestamp = "2027-03-28T01:00:00Z".parse().expect("a time");
        assert_eq!(within(&zone, spring, 60).to_string(), "2027-03-28T02:15:00");
        let autumn: Timestamp = "2027-10-31T01:00:00Z".parse().expect("a time");
        assert_eq!(within(&zone, autumn, -60).to_string(), "2027-10-31T02:15:00");
    }

    #[test]
    fn instants_are_found_at_any_depth() {
        let problem =
            serde_json::json!({"a": [{"b": "2027-10-31T00:15:00Z"}], "c": "2027-10-31T02:15:00+01:00", "d": "x"});
        assert_eq!(instants_in(&problem).len(), 2);
    }
}
