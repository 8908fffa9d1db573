//! Case 51 of `docs/CONFORMANCE.md`: what a slot is, who holds it, and when a clinic takes bookings.

use jiff::ToSpan as _;
use serde_json::{Value, json};

use super::call::Call;
use super::case::{About as _, Case, Verdict, ensure, failed};
use super::fixture::{Place, Settings, Slot, hours, instant, plus, text};
use super::world::World;

/// Case 51, the rules.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(51, "back to back they touch and do not overlap, for practitioner and operatory", |w| {
            Box::pin(back_to_back(w))
        }),
        Case::new(51, "a buffer holds practitioner and operatory after the visit", |w| Box::pin(buffers(w))),
        Case::new(51, "a block excludes bookings, and is excluded by them, until it is removed", |w| {
            Box::pin(blocks(w))
        }),
        Case::new(51, "past, too soon, beyond the horizon, year 9999: each refused with its code", |w| {
            Box::pin(times(w))
        }),
        Case::new(51, "off the grid, outside hours, over a closure, beyond the practitioner's own hours", |w| {
            Box::pin(openings(w))
        }),
        Case::new(51, "unknown and inactive references, each by its field", |w| Box::pin(references(w))),
        Case::new(51, "slot_taken names up to three next openings, and they can be booked", |w| {
            Box::pin(next_openings(w))
        }),
        Case::new(51, "overbooking: only where allowed, asked for and needed; never the same visit twice", |w| {
            Box::pin(overbooking(w))
        }),
        Case::new(51, "what is held is not offered, what is offered is on the grid and within hours", |w| {
            Box::pin(offers(w))
        }),
    ]
}

async fn booked(place: &Place<'_>, call: &Call, about: &str) -> Verdict<String> {
    let answer = call.key(&place.world.key()).send().await?;
    answer.is(201).about(about)?.member("id")
}

async fn refused(place: &Place<'_>, call: &Call, status: u16, code: &str, about: &str) -> Verdict<Value> {
    call.key(&place.world.key()).send().await?.refused(status, code).about(about)
}

/// A clinic with one practitioner, and its first slots an hour apart.
async fn alone(world: &World) -> Verdict<Place<'_>> {
    Place::with(world, Settings { practitioners: 1, ..Settings::default() }).await
}

async fn back_to_back(world: &World) -> Verdict {
    let place = alone(world).await?;
    let _first_hour = place.slot().await?;
    let slot = place.slot().await?;
    booked(&place, &place.book_call(&slot), "half an hour").await?;
    for minutes in [-15, 15] {
        refused(&place, &place.book_call(&slot.later(minutes)), 409, "slot_taken", "half overlapping").await?;
    }
    let hour = place.book_call(&slot.later(-15)).with("service_id", place.services[2].as_str());
    refused(&place, &hour, 409, "slot_taken", "an hour around it").await?;
    for minutes in [-30, 30] {
        booked(&place, &place.book_call(&slot.later(minutes)), "touching").await?;
    }
    let place = Place::fresh(world).await?;
    let room = place.operatories[0].as_str();
    let slot = place.slot().await?;
    booked(&place, &place.book_call(&slot).with("operatory_id", room), "in a room").await?;
    let other = Slot { practitioner: place.practitioners[1].clone(), ..slot.clone() };
    refused(&place, &place.book_call(&other).with("operatory_id", room), 409, "slot_taken", "the same room").await?;
    let elsewhere = place.book_call(&other).with("operatory_id", place.operatories[1].as_str());
    booked(&place, &elsewhere, "another room").await?;
    booked(&place, &place.book_call(&other.later(30)).with("operatory_id", room), "the room, touching").await?;
    Ok(())
}

async fn buffers(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let service = world.id();
    place.put(&format!("/v1/services/{service}"), &place.service(30, 40)).await?;
    let room = place.operatories[0].as_str();
    let slot = place.slot().await?;
    let call = place.book_call(&slot).with("service_id", service.as_str()).with("operatory_id", room);
    let answer = call.key(&world.key()).send().await?;
    let shown = answer.is(201)?.json()?;
    answer.ensure(instant(&shown, "end") == Some(slot.later(30).start), "an end without the buffer")?;
    let other = Slot { practitioner: place.practitioners[1].clone(), ..slot.clone() };
    for minutes in [30, 45, 60] {
        let call = place.book_call(&slot.later(minutes));
        refused(&place, &call, 409, "slot_taken", "the practitioner within the buffer").await?;
        let call = place.book_call(&other.later(minutes)).with("operatory_id", room);
        refused(&place, &call, 409, "slot_taken", "the operatory within the buffer").await?;
    }
    booked(&place, &place.book_call(&slot.later(75)), "after the buffer").await?;
    booked(&place, &place.book_call(&other.later(75)).with("operatory_id", room), "the room after the buffer").await?;
    // A buffer may not reach into the next visit either, but may reach past closing time.
    let late = Slot { start: place.at(place.working_day(2), 17, 30), ..slot.clone() };
    booked(&place, &place.book_call(&late).with("service_id", service.as_str()), "a buffer past closing").await?;
    let before = Slot { start: plus(late.start, -60), ..slot.clone() };
    let call = place.book_call(&before).with("service_id", service.as_str());
    refused(&place, &call, 409, "slot_taken", "a buffer into the next visit").await?;
    Ok(())
}

async fn blocks(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let (seat, room) = (place.practitioners[0].as_str(), place.operatories[0].as_str());
    for resources in [
        json!({"practitioner_id": seat}),
        json!({"operatory_id": room}),
        json!({"practitioner_id": seat, "operatory_id": room}),
    ] {
        let mut slot = place.slot().await?;
        while slot.practitioner != seat {
            slot = place.slot().await?;
        }
        let times = json!({"clinic_id": place.clinic, "start": slot.start.to_string(), "end": slot.later(30).start.to_string()});
        let block = resources
            .as_object()
            .into_iter()
            .flatten()
            .fold(place.client.post("/v1/blocks").json(&times), |call, (member, value)| {
                call.with(member, value.clone())
            });
        let answer = block.key(&world.key()).send().await?;
        let id = answer.is(201).about(&resources)?.member("id")?;
        let visit = place.book_call(&slot).with("operatory_id", room);
        refused(&place, &visit, 409, "slot_taken", &format!("booked over {resources}")).await?;
        refused(&place, &block, 409, "slot_taken", "blocked over a block").await?;
        let path = format!("/v1/blocks/{id}");
        let read = place.client.get(path.clone()).send().await?;
        read.is(200)?.ensure(read.body == answer.body, "the block as it was answered")?;
        let listed = format!("/v1/blocks?clinic_id={}&from={}&to={}", place.clinic, slot.start, slot.later(30).start);
        let ids = place.client.get(listed.clone()).send().await?.items()?;
        ensure(ids.iter().any(|item| item["id"] == id.as_str()), "the block in the list", format!("{ids:?}"))?;
        for _ in 0..2 {
            let gone = place.client.call("DELETE", path.clone()).send().await?;
            gone.is(204)?.ensure(gone.body.is_empty(), "no body")?;
        }
        let visit_id = booked(&place, &visit, "where the block was").await?;
        refused(&place, &block, 409, "slot_taken", "blocked over a booking").await?;
        place.acts(&visit_id, &["cancel"]).await?;
        booked(&place, &block, "blocked where a booking was").await?;
    }
    let slot = place.slot().await?;
    let past = json!({"clinic_id": place.clinic, "practitioner_id": seat, "start": slot.start.to_string(), "end": slot.later(30).start.to_string()});
    for (member, field) in [("practitioner_id", "practitioner_id"), ("operatory_id", "operatory_id")] {
        let call = place.client.post("/v1/blocks").json(&past).with(member, world.id());
        let problem = refused(&place, &call, 422, "unknown_reference", "a block of nobody").await?;
        ensure(problem["field"] == field, format!("field: {field}"), problem.to_string())?;
    }
    Ok(())
}

async fn times(world: &World) -> Verdict {
    let settings = Settings { hours: super::fixture::round_the_clock(), ..Settings::default() };
    let place = Place::with(world, settings).await?;
    let today = world.now().to_zoned(place.zone.clone()).date();
    let day = |days: i64| place.at(today.checked_add(days.days()).unwrap_or(today), 12, 0);
    let slot = place.slot().await?;
    let at = |start: String| place.book_call(&slot).with("start", start);
    for start in
        [day(-1).to_string(), day(-4000).to_string(), "1970-01-01T00:00:00Z".into(), "0001-01-01T00:00:00Z".into()]
    {
        refused(&place, &at(start.clone()), 422, "in_the_past", &start).await?;
    }
    for start in [
        day(732).to_string(),
        "2099-01-01T12:00:00Z".into(),
        "9999-12-31T12:00:00Z".into(),
        "9999-12-31T23:45:00Z".into(),
    ] {
        refused(&place, &at(start.clone()), 422, "too_far_ahead", &start).await?;
    }
    booked(&place, &at(day(728).to_string()), "within the horizon").await?;
    booked(&place, &at(day(1).to_string()), "tomorrow").await?;
    place
        .settle(&Settings {
            min_notice_minutes: 3 * 24 * 60,
            hours: super::fixture::round_the_clock(),
            horizon_days: 10,
            ..Settings::default()
        })
        .await?;
    refused(&place, &at(day(2).to_string()), 422, "too_soon", "within the notice").await?;
    refused(&place, &at(day(-2).to_string()), 422, "in_the_past", "past comes before the notice").await?;
    refused(&place, &at(day(12).to_string()), 422, "too_far_ahead", "beyond a nearer horizon").await?;
    booked(&place, &at(day(5).to_string()), "between notice and horizon").await?;
    let early = place.availability(place.services.get(1), day(0), day(3), "").await?;
    let late = place.availability(place.services.get(1), day(11), day(14), "").await?;
    let soon = early.iter().filter(|slot| instant(slot, "start").is_some_and(|start| start < day(2))).count();
    ensure(soon == 0 && late.is_empty(), "nothing offered too soon or too far ahead", format!("{soon}, {}", late.len()))
}

async fn openings(world: &World) -> Verdict {
    let place = alone(world).await?;
    let (day, slot) = (place.working_day(0), place.slot().await?);
    let at = |hour, minute| place.book_call(&Slot { start: place.at(day, hour, minute), ..slot.clone() });
    for minute in [1, 7, 14, 29] {
        refused(&place, &at(10, minute), 422, "off_grid", &format!("10:{minute:02}")).await?;
    }
    let seconds = at(10, 0).with("start", plus(place.at(day, 10, 0), 0).to_string().replace(":00Z", ":01Z"));
    refused(&place, &seconds, 422, "off_grid", "a second past").await?;
    for (hour, minute) in [(7, 45), (17, 45), (18, 0), (3, 0)] {
        refused(&place, &at(hour, minute), 422, "outside_hours", &format!("{hour}:{minute:02}")).await?;
    }
    let sunday = place.at(place.working_day(0).checked_add(6.days()).unwrap_or(day), 10, 0);
    refused(&place, &place.book_call(&Slot { start: sunday, ..slot.clone() }), 422, "outside_hours", "on Sunday")
        .await?;
    booked(&place, &at(17, 30), "until closing").await?;
    let closures = format!("/v1/clinics/{}/closures", place.clinic);
    let closed = |from, to| json!([{"from": place.at(day, from, 0).to_string(), "to": place.at(day, to, 0).to_string(), "reason": "training"}]);
    place.put(&closures, &closed(12, 14)).await?;
    for (hour, minute) in [(11, 45), (12, 0), (13, 45)] {
        refused(&place, &at(hour, minute), 422, "outside_hours", &format!("closed, {hour}:{minute:02}")).await?;
    }
    booked(&place, &at(11, 30), "until it closes").await?;
    booked(&place, &at(14, 0), "from when it opens again: closures are half-open").await?;
    place.put(&closures, &json!([])).await?;
    booked(&place, &at(12, 30), "the closure taken back").await?;
    let membership = format!("/v1/practitioners/{}/clinics/{}", place.practitioners[0], place.clinic);
    // Wider than the clinic's in the morning: the intersection counts.
    let own = hours(&["monday"], "06:00", "09:00");
    place.put(&membership, &json!({"active": true, "hours": own})).await?;
    refused(&place, &at(7, 0), 422, "outside_hours", "before the clinic opens").await?;
    refused(&place, &at(9, 0), 422, "outside_hours", "after the practitioner leaves").await?;
    booked(&place, &at(8, 30), "within both").await?;
    place.put(&membership, &json!({"active": true})).await?;
    booked(&place, &at(9, 0), "the clinic's hours again").await?;
    Ok(())
}

/// A part of the directory that can be switched off: what, where, and the body that says so.
type Switch<'a> = (&'a str, String, Box<dyn Fn(bool) -> Value + Send + Sync + 'a>);

async fn references(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let neighbour = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot);
    for (member, next_door) in [
        ("patient_id", None),
        ("practitioner_id", neighbour.practitioners.first()),
        ("operatory_id", neighbour.operatories.first()),
        ("service_id", neighbour.services.first()),
    ] {
        for id in [Some(&world.id()), next_door].into_iter().flatten() {
            let problem = refused(&place, &call.with(member, id.as_str()), 422, "unknown_reference", member).await?;
            ensure(problem["field"] == member, format!("field: {member}"), problem.to_string())?;
        }
    }
    let room = place.operatories[0].clone();
    let of_clinic = |active| json!({"clinic_id": place.clinic, "name": "x", "active": active});
    let service =
        |active| json!({"clinic_id": place.clinic, "name": "x", "minutes": 30, "buffer_minutes": 0, "active": active});
    let switches: [Switch; 4] = [
        (
            "practitioner",
            format!("/v1/practitioners/{}", slot.practitioner),
            Box::new(|active| json!({"name": "x", "active": active})),
        ),
        (
            "membership",
            format!("/v1/practitioners/{}/clinics/{}", slot.practitioner, place.clinic),
            Box::new(|active| json!({"active": active})),
        ),
        ("operatory", format!("/v1/operatories/{room}"), Box::new(of_clinic)),
        ("service", format!("/v1/services/{}", place.services[1]), Box::new(service)),
    ];
    let call = call.with("operatory_id", room.as_str());
    for (about, path, body) in switches {
        place.put(&path, &body(false)).await?;
        refused(&place, &call, 422, "inactive_reference", about).await?;
        let more = format!("&practitioner_id={}&operatory_id={room}", slot.practitioner);
        let offered = place.availability(place.services.get(1), slot.start, slot.later(30).start, &more).await?;
        ensure(offered.is_empty(), format!("nothing offered while the {about} is inactive"), format!("{offered:?}"))?;
        place.put(&path, &body(true)).await?;
    }
    booked(&place, &call, "all of them active").await?;
    Ok(())
}

async fn next_openings(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let taken = place.book().await?;
    let patient = place.patients.iter().find(|id| **id != taken.slot.patient).cloned();
    let rival = taken.call.with("patient_id", json!(patient));
    let problem = refused(&place, &rival, 409, "slot_taken", "taken").await?;
    let openings = problem["next_openings"].as_array().cloned().unwrap_or_default();
    ensure((1..=3).contains(&openings.len()), "one to three next_openings", problem.to_string())?;
    let same = openings.first().is_some_and(|opening| opening["practitioner_id"] == taken.slot.practitioner.as_str());
    ensure(same, "the same practitioner first", problem.to_string())?;
    for opening in &openings {
        let (Some(start), Some(end)) = (instant(opening, "start"), instant(opening, "end")) else {
            return failed("start and end of an opening", opening.to_string());
        };
        let near = start >= world.now() && start <= plus(taken.slot.start, 14 * 24 * 60);
        ensure(near && end == plus(start, 30), "half an hour within 14 days", opening.to_string())?;
        let slot = Slot { practitioner: text(opening, "practitioner_id"), start, ..taken.slot.clone() };
        booked(&place, &place.book_call(&slot), "a next opening").await?;
    }
    // Nothing free within reach: the list is there, and empty.
    let place = Place::with(world, Settings { hours: json!([]), ..Settings::default() }).await?;
    place.settle(&Settings { hours: hours(&["monday"], "08:00", "08:30"), ..Settings::default() }).await?;
    let slot = Slot { start: place.at(place.working_day(0), 8, 0), ..place.slot().await? };
    booked(&place, &place.book_call(&slot), "the only opening").await?;
    place
        .settle(&Settings { hours: hours(&["monday"], "08:00", "08:30"), horizon_days: 1000, ..Settings::default() })
        .await?;
    let patient = place.patients.iter().find(|id| **id != slot.patient).cloned();
    let rival = place.book_call(&slot).with("patient_id", json!(patient));
    let problem = refused(&place, &rival, 409, "slot_taken", "the only opening taken").await?;
    ensure(problem["next_openings"].is_array(), "next_openings, if only empty", problem.to_string())
}

async fn overbooking(world: &World) -> Verdict {
    let place =
        Place::with(world, Settings { allow_overbooking: true, practitioners: 1, ..Settings::default() }).await?;
    let slot = place.slot().await?;
    let of = |patient: usize| place.book_call(&Slot { patient: place.patients[patient].clone(), ..slot.clone() });
    let needless = of(0).with("overbook", true).key(&world.key()).send().await?;
    needless.is(201)?.ensure(needless.json()?["overbooked"] == false, "overbooked only where the slot was taken")?;
    refused(&place, &of(1), 409, "slot_taken", "not asked for").await?;
    let second = of(1).with("overbook", true).key(&world.key()).send().await?;
    second.is(201)?.ensure(second.json()?["overbooked"] == true, "overbooked: true")?;
    refused(&place, &of(1).with("overbook", true), 409, "duplicate_intent", "the same visit even then").await?;
    place.acts(&needless.member("id")?, &["cancel"]).await?;
    // Now only an overbooked visit holds the slot; that is enough.
    refused(&place, &of(2), 409, "slot_taken", "over an overbooked one").await?;
    let offered = place.availability(place.services.get(1), slot.start, slot.later(30).start, "").await?;
    ensure(offered.is_empty(), "a slot held by an overbooked visit not offered", format!("{offered:?}"))?;
    let third = of(2).with("overbook", true).key(&world.key()).send().await?;
    third.is(201)?.ensure(third.json()?["overbooked"] == true, "overbooked: true, over an overbooked one")?;
    let id = third.member("id")?;
    let to = place.slot().await?;
    let moved =
        place.act(&id, "reschedule").json(&json!({"start": to.start.to_string()})).key(&world.key()).send().await?;
    moved.is(200)?.ensure(moved.json()?["overbooked"] == false, "overbooked cleared by a move")?;
    let back = place.act(&id, "reschedule").json(&json!({"start": slot.start.to_string()}));
    refused(&place, &back, 409, "slot_taken", "a move without asking").await?;
    let back = back.with("overbook", true).key(&world.key()).send().await?;
    back.is(200)?.ensure(back.json()?["overbooked"] == true, "a move that asks")?;
    place.settle(&Settings { allow_overbooking: false, ..Settings::default() }).await?;
    refused(&place, &of(0).with("overbook", true), 422, "overbooking_not_allowed", "no longer allowed").await?;
    Ok(())
}

async fn offers(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let day = place.working_day(0);
    let taken = place.book().await?;
    let (from, to) = (place.at(day, 0, 0), place.at(day, 23, 45));
    let slots = place.availability(place.services.get(1), from, to, "").await?;
    // Two practitioners from 08:00 to 17:30 by quarters; of one of them the starts that overlap 08:00 to 08:30 are gone.
    let expected = 2 * 39 - if taken.slot.start == place.at(day, 8, 0) { 2 } else { 3 };
    ensure(slots.len() == expected, format!("{expected} slots"), slots.len().to_string())?;
    for slot in &slots {
        let (Some(start), Some(end)) = (instant(slot, "start"), instant(slot, "end")) else {
            return failed("start and end", slot.to_string());
        };
        let local = start.to_zoned(place.zone.clone());
        let fits =
            local.hour() >= 8 && plus(start, 30) == end && end <= place.at(day, 18, 0) && local.minute() % 15 == 0;
        ensure(fits, "half an hour on the grid, within hours", slot.to_string())?;
    }
    let one = place
        .availability(place.services.get(1), from, to, &format!("&practitioner_id={}", place.practitioners[1]))
        .await?;
    let only = one.iter().all(|slot| text(slot, "practitioner_id") == place.practitioners[1]);
    ensure(only && one.len() == 39, "only the practitioner asked for", format!("{} slots", one.len()))
}
