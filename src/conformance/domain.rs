//! "Domain" of `docs/CONFORMANCE.md`, the appointment itself: states, moves, versions.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::call::Call;
use super::case::{About as _, Case, Verdict, ensure, failed};
use super::database::Growth;
use super::fixture::{Booked, Place, Settings, instant, text, wall_clock};
use super::operations::Operation;
use super::world::World;

/// Cases 47 to 49.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(47, "every state against every command: drawn, as it is already, or refused", |w| {
            Box::pin(states(w))
        }),
        Case::new(47, "what is so already: 200, no version, no event, no intent, only the key", |w| {
            Box::pin(already(w))
        }),
        Case::new(47, "what each command writes into the appointment", |w| Box::pin(written(w))),
        Case::new(48, "a move keeps the id, frees the old slot and holds the new one", |w| Box::pin(moved(w))),
        Case::new(48, "at no instant does a move hold both slots or neither", |w| Box::pin(both_or_neither(w))),
        Case::new(48, "a move takes another practitioner, operatory or service along", |w| Box::pin(moved_along(w))),
        Case::new(48, "reopen checks the slot afresh", |w| Box::pin(reopened(w))),
        Case::new(49, "If-Match: stale 412, current or * carried out, for every command", |w| Box::pin(if_match(w))),
        Case::new(49, "the history tells every version, by whom and when", |w| Box::pin(history(w))),
    ]
}

/// Each state and what brings a booked appointment there.
const STATES: [(&str, &[&str]); 5] = [
    ("booked", &[]),
    ("arrived", &["check-in"]),
    ("fulfilled", &["check-in", "complete"]),
    ("cancelled", &["cancel"]),
    ("noshow", &["no-show"]),
];

/// Each command and the states it is drawn from, and where it leads.
const DRAWN: [(&str, &[&str], &str); 5] = [
    ("check-in", &["booked"], "arrived"),
    ("complete", &["arrived"], "fulfilled"),
    ("no-show", &["booked"], "noshow"),
    ("cancel", &["booked", "arrived"], "cancelled"),
    ("reopen", &["arrived", "noshow", "cancelled"], "booked"),
];

async fn states(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for (state, actions) in STATES {
        for (action, from, leads_to) in DRAWN {
            let booked = place.book().await?;
            place.acts(&booked.id, actions).await?;
            let mut tally = place.tally().await?;
            let answer = place.act(&booked.id, action).key(&world.key()).send().await?;
            let about = format!("{action} when {state}");
            let growth = if from.contains(&state) {
                answer.is(200).about(&about)?;
                answer.ensure(answer.member("status")? == leads_to, format!("status {leads_to}")).about(&about)?;
                Growth::CHANGE
            } else if state == leads_to {
                answer.is(200).about(&about)?;
                Growth::KEY
            } else {
                answer.refused(409, "transition_not_allowed").about(&about)?;
                Growth::KEY
            };
            tally.grew(&growth, &answer).await.about(&about)?;
        }
        if state == "booked" {
            continue;
        }
        let booked = place.book().await?;
        place.acts(&booked.id, actions).await?;
        let to = json!({"start": place.slot().await?.start.to_string()});
        let answer = place.act(&booked.id, "reschedule").json(&to).key(&world.key()).send().await?;
        answer.refused(409, "transition_not_allowed").about(format!("reschedule when {state}"))?;
        // Nobody confirms a visit that is over or called off. (API.md draws no arrow for arrived.)
        if state != "arrived" {
            let answer = place.act(&booked.id, "confirm").key(&world.key()).send().await?;
            answer.refused(409, "transition_not_allowed").about(format!("confirm when {state}"))?;
        }
    }
    Ok(())
}

async fn already(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let cases: [(&str, &[&str]); 6] = [
        ("confirm", &["confirm"]),
        ("check-in", &["check-in"]),
        ("complete", &["check-in", "complete"]),
        ("no-show", &["no-show"]),
        ("cancel", &["cancel"]),
        ("reopen", &[]),
    ];
    for (action, actions) in cases {
        let booked = place.book().await?;
        place.acts(&booked.id, actions).await?;
        let path = format!("/v1/appointments/{}", booked.id);
        let before = place.client.get(path.clone()).send().await?;
        let mut tally = place.tally().await?;
        let call = place.act(&booked.id, action).key(&world.key());
        let answer = call.send().await?;
        answer.is(200).and_then(|answer| answer.replayed(false)).about(action)?;
        tally.grew(&Growth::KEY, &answer).await.about(action)?;
        answer.ensure(answer.body == before.body, "the appointment as it was").about(action)?;
        answer.ensure(answer.header("etag") == before.header("etag"), "the version as it was").about(action)?;
        call.send().await?.replays(&answer).about(action)?;
        let after = place.client.get(path).send().await?;
        after.ensure(after.body == before.body, "nothing changed").about(action)?;
    }
    // To where it is already.
    let booked = place.book().await?;
    let mut tally = place.tally().await?;
    let here = json!({"start": booked.slot.start.to_string()});
    let answer = place.act(&booked.id, "reschedule").json(&here).key(&world.key()).send().await?;
    answer.is(200)?.ensure(answer.json()?["version"] == 1, "no version").about("a move to where it is")?;
    tally.grew(&Growth::KEY, &answer).await.about("a move to where it is")?;
    Ok(())
}

async fn written(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let read = async |call: Call| -> Verdict<Value> {
        let answer = call.key(&world.key()).send().await?;
        answer.is(200)?.json()
    };
    let confirmed = read(place.act(&booked.id, "confirm")).await?;
    let told = |value: &Value| value.to_string();
    ensure(
        confirmed["confirmed_at"].is_string() && confirmed["version"] == 2,
        "confirmed_at, version 2",
        told(&confirmed),
    )?;
    ensure(confirmed["status"] == "booked", "confirmation to change no state", told(&confirmed))?;
    let note = |value: Value| {
        place.client.call("PATCH", format!("/v1/appointments/{}", booked.id)).json(&json!({"note": value}))
    };
    let noted = read(note(json!("late"))).await?;
    ensure(noted["note"] == "late" && noted["version"] == 3, "the note, version 3", told(&noted))?;
    let cleared = read(note(json!(""))).await?;
    ensure(cleared["note"].is_null() || cleared["note"] == "", "the note cleared by \"\"", told(&cleared))?;
    let cancel = place.act(&booked.id, "cancel").json(&json!({"reason": "flu"}));
    let cancelled = read(cancel).await?;
    ensure(cancelled["cancel_reason"] == "flu", "cancel_reason", told(&cancelled))?;
    let reopened = read(place.act(&booked.id, "reopen")).await?;
    ensure(reopened["status"] == "booked", "booked again", told(&reopened))?;
    ensure(reopened["cancel_reason"].is_null(), "no cancel_reason of an appointment that is on", told(&reopened))?;
    let confirmed = read(place.act(&booked.id, "confirm")).await?;
    ensure(confirmed["confirmed_at"].is_string(), "confirmed_at", told(&confirmed))?;
    let to = place.slot().await?;
    let to = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
    let moved = read(place.act(&booked.id, "reschedule").json(&to)).await?;
    ensure(moved["confirmed_at"].is_null(), "confirmed_at cleared by a move", told(&moved))
}

/// Whether a practitioner's slot of half an hour is offered.
async fn offered(place: &Place<'_>, slot: &super::fixture::Slot) -> Verdict<bool> {
    let more = format!("&practitioner_id={}", slot.practitioner);
    let slots = place.availability(place.services.get(1), slot.start, slot.later(30).start, &more).await?;
    Ok(slots.iter().any(|offer| instant(offer, "start") == Some(slot.start)))
}

async fn moved(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let (old, new) = (booked.slot.clone(), place.slot().await?);
    ensure(
        !offered(&place, &old).await? && offered(&place, &new).await?,
        "the old slot held, the new one free",
        "not so",
    )?;
    let body = json!({"start": new.start.to_string(), "practitioner_id": new.practitioner});
    let answer = place.act(&booked.id, "reschedule").json(&body).key(&world.key()).send().await?;
    let shown = answer.is(200)?.json()?;
    answer.ensure(shown["id"] == booked.id.as_str() && shown["version"] == 2, "the same id, version 2")?;
    answer.ensure(instant(&shown, "start") == Some(new.start), "the new start")?;
    answer.ensure(instant(&shown, "end") == Some(new.later(30).start), "the new end")?;
    answer.ensure(shown["practitioner_id"] == new.practitioner.as_str(), "the new practitioner")?;
    let local = new.start.to_zoned(place.zone.clone()).datetime();
    answer.ensure(wall_clock(&shown, "local_start") == Some(local), format!("local_start: {local}"))?;
    ensure(
        offered(&place, &old).await? && !offered(&place, &new).await?,
        "the old slot free, the new one held",
        "not so",
    )?;
    // Over its own time: an overlap with itself is none.
    let nudged = json!({"start": new.later(15).start.to_string()});
    place.act(&booked.id, "reschedule").json(&nudged).key(&world.key()).send().await?.is(200).about("by 15 minutes")?;
    Ok(())
}

async fn both_or_neither(world: &World) -> Verdict {
    let place = Place::with(world, Settings { practitioners: 1, ..Settings::default() }).await?;
    let booked = place.book().await?;
    let mut new = place.slot().await?;
    // The same day, so that one question sees both.
    while new.start.to_zoned(place.zone.clone()).date() != booked.slot.start.to_zoned(place.zone.clone()).date() {
        new = place.slot().await?;
    }
    let (first, second) = (booked.slot.start.min(new.start), booked.slot.start.max(new.start));
    let path = format!(
        "/v1/availability?clinic_id={}&service_id={}&from={first}&to={}",
        place.clinic,
        place.services[1],
        super::fixture::plus(second, 30)
    );
    let watch = place.client.spread().get(path);
    let mut moves = JoinSet::new();
    let call = place.act(&booked.id, "reschedule").json(&json!({})).spread();
    let keys: Vec<String> = (0..40).map(|_| world.key()).collect();
    let (here, there) = (booked.slot.start.to_string(), new.start.to_string());
    moves.spawn(async move {
        for (at, key) in keys.iter().enumerate() {
            let to = if at % 2 == 0 { &there } else { &here };
            call.with("start", to.as_str()).key(key).send().await?.is(200)?;
        }
        Ok::<(), super::case::Stop>(())
    });
    let mut looks = 0;
    while moves.try_join_next().is_none_or(|joined| !matches!(joined, Ok(Ok(())))) {
        if moves.is_empty() {
            return failed("forty moves to and fro", "one of them was refused");
        }
        let answer = watch.send().await?;
        let slots = answer.is(200)?.json()?["slots"].as_array().cloned().unwrap_or_default();
        let free = |start| slots.iter().any(|slot| instant(slot, "start") == Some(start));
        answer.ensure(free(booked.slot.start) != free(new.start), "one of both slots free, never both or neither")?;
        looks += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ensure(looks > 1, "several looks during the moves", looks.to_string())
}

async fn moved_along(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let act = |body: Value| place.act(&booked.id, "reschedule").json(&body).key(&world.key());
    let to = place.slot().await?;
    let longer = act(
        json!({"start": to.start.to_string(), "practitioner_id": to.practitioner, "service_id": place.services[2]}),
    );
    let answer = longer.send().await?;
    let shown = answer.is(200)?.json()?;
    answer.ensure(instant(&shown, "end") == Some(to.later(60).start), "a new service brings its own length")?;
    let roomed = act(json!({"start": to.start.to_string(), "operatory_id": place.operatories[0]}));
    let answer = roomed.send().await?;
    let shown = answer.is(200)?.json()?;
    answer.ensure(shown["operatory_id"] == place.operatories[0].as_str(), "the operatory")?;
    answer.ensure(shown["practitioner_id"] == to.practitioner.as_str(), "the practitioner it had")?;
    answer.ensure(shown["service_id"] == place.services[2].as_str(), "the service it had")?;
    // What is left out stays, the operatory with it: so it holds the new time, too.
    let next = place.slot().await?;
    act(json!({"start": next.start.to_string(), "practitioner_id": next.practitioner})).send().await?.is(200)?;
    let rival = place.practitioners.iter().find(|id| **id != next.practitioner).cloned();
    let rival = place.book_call(&next).with("practitioner_id", json!(rival));
    let rival = rival.with("operatory_id", place.operatories[0].as_str()).key(&world.key());
    rival.send().await?.refused(409, "slot_taken").about("the operatory it took along")?;
    Ok(())
}

async fn reopened(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for actions in [&["cancel"][..], &["no-show"]] {
        let booked = place.book().await?;
        place.acts(&booked.id, actions).await?;
        ensure(offered(&place, &booked.slot).await?, format!("a free slot after {actions:?}"), "it is held")?;
        let patient = place.patients.iter().find(|id| **id != booked.slot.patient).cloned();
        let rival = place.booked(booked.slot.clone(), booked.call.with("patient_id", json!(patient))).await?;
        let reopen = place.act(&booked.id, "reopen");
        reopen.key(&world.key()).send().await?.refused(409, "slot_taken").about(format!("{actions:?}"))?;
        place.acts(&rival.id, &["cancel"]).await?;
        reopen.key(&world.key()).send().await?.is(200).about(format!("{actions:?}"))?;
        ensure(!offered(&place, &booked.slot).await?, "the slot held again", "it is offered")?;
    }
    Ok(())
}

async fn if_match(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::on_an_appointment() {
        let prepared = operation.prepare(&place).await?;
        let id = prepared.id.clone().unwrap_or_default();
        let guarded = |etag: &str| prepared.call.key(&world.key()).header("If-Match", etag);
        let current = place.client.get(format!("/v1/appointments/{id}")).send().await?;
        let etag = current.header("etag").unwrap_or_default().to_owned();
        let mut tally = place.tally().await?;
        for stale in ["\"0\"", "\"99\"", "\"abc\""] {
            let answer = guarded(stale).send().await?;
            answer.refused(412, "version_mismatch").about(format!("{operation:?}, {stale}"))?;
            tally.grew(&Growth::KEY, &answer).await?;
        }
        // If-Match compares strongly: a weak validator never matches (RFC 9110, 13.1.1).
        let weak = guarded(&format!("W/{etag}")).send().await?;
        weak.ensure(matches!(weak.status, 400 | 412), "400 or 412").about(format!("{operation:?}, weak"))?;
        guarded(&etag).send().await?.is(200).about(format!("{operation:?}, current"))?;
    }
    let booked: Booked = place.book().await?;
    let any = place.act(&booked.id, "confirm").key(&world.key()).header("If-Match", "*");
    any.send().await?.is(200).about("*")?;
    // The first answer under a key is its answer, whatever If-Match would say by now.
    let guarded = place.act(&booked.id, "check-in").key(&world.key()).header("If-Match", "\"2\"");
    let first = guarded.send().await?;
    first.is(200)?;
    guarded.send().await?.replays(&first)?;
    Ok(())
}

async fn history(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    place.acts(&booked.id, &["confirm", "check-in", "cancel", "reopen"]).await?;
    let answer = place.client.get(format!("/v1/appointments/{}/history", booked.id)).send().await?;
    let items = answer.is(200)?.items()?;
    let mut versions: Vec<i64> = items.iter().filter_map(|item| item["version"].as_i64()).collect();
    versions.sort_unstable();
    answer.ensure(versions == [1, 2, 3, 4, 5], "versions 1 to 5")?;
    for item in &items {
        answer.ensure(item["subject"].is_string(), "who: the subject")?;
        answer.ensure(item["status"].is_string(), "what: the status")?;
        answer.ensure(text(item, "at").parse::<jiff::Timestamp>().is_ok(), "when: at")?;
    }
    Ok(())
}
