//! "Contract" of `docs/CONFORMANCE.md`: what a key does for one caller, one request after another.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::Answer;
use super::case::{About as _, Case, Need, Verdict, ensure};
use super::database::Growth;
use super::fixture::{Place, Settings, text};
use super::operations::{Operation, Prepared};
use super::world::World;

/// Cases 1 to 7.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(1, "a command with a key is carried out, with all its rows", |w| Box::pin(first_time(w))),
        Case::new(1, "a booking is answered and read back as API.md represents it", |w| Box::pin(representation(w))),
        Case::new(1, "all rows of a command are of one transaction, its event of the right type", |w| {
            Box::pin(one_transaction(w))
        })
        .needs(&[Need::Database]),
        Case::new(2, "the same command again is a replay that writes nothing, for every command", |w| {
            Box::pin(replays(w))
        }),
        Case::new(2, "a hundred times again: the same", |w| Box::pin(a_hundred_times(w))),
        Case::new(2, "GET /v1/commands tells what became of a key", |w| Box::pin(commands(w))),
        Case::new(3, "a key with another command: idempotency_key_reused, then the first still replays", |w| {
            Box::pin(reused(w))
        }),
        Case::new(3, "another value of any field is another command", |w| Box::pin(every_field_counts(w))),
        Case::new(4, "without a key: idempotency_key_missing; on GET a key is ignored", |w| Box::pin(no_key(w))),
        Case::new(5, "the same visit under a new key is decided by the rules: duplicate_intent", |w| {
            Box::pin(new_key(w))
        }),
        Case::new(6, "the original answer, whatever happened to the appointment since", |w| Box::pin(original(w))),
        Case::new(6, "the original answer, whatever happened to the clinic since", |w| Box::pin(clinic_changed(w))),
        Case::new(7, "a key reused and a slot taken have codes of their own and no Retry-After", |w| {
            Box::pin(codes(w))
        }),
    ]
}

/// Sends a prepared command under a key for the first time.
pub(super) async fn carried_out(prepared: &Prepared, key: &str) -> Verdict<Answer> {
    let answer = prepared.call.key(key).send().await?;
    let done = answer.is(prepared.status).and_then(|answer| answer.replayed(false)).map(|_| ());
    done.about(format!("{:?}", prepared.operation))?;
    Ok(answer)
}

async fn first_time(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let mut tally = place.tally().await?;
        let answer = carried_out(&prepared, &world.key()).await?;
        tally.grew(&prepared.growth, &answer).await.about(format!("{operation:?}"))?;
        let expires = answer.header("idempotency-expires").map(str::parse::<Timestamp>);
        answer.ensure(
            matches!(expires, Some(Ok(at)) if at > world.now()),
            "Idempotency-Expires in the future, RFC 3339",
        )?;
        if prepared.status == 201 {
            let resource = if operation == Operation::Book { "appointments" } else { "blocks" };
            let path = format!("/v1/{resource}/{}", answer.member("id")?);
            let location = answer.header("location").unwrap_or_default().to_owned();
            answer.ensure(location.ends_with(&path), format!("Location: {path}"))?;
            place.client.get(path).send().await?.is(200).about("read at its Location")?;
        }
        if operation != Operation::Block {
            let etag = format!("\"{}\"", answer.json()?["version"]);
            answer.ensure(answer.header("etag") == Some(&etag), format!("ETag: {etag}, the version"))?;
        }
    }
    Ok(())
}

async fn representation(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let system = format!("pms-{}", world.id());
    let call = place
        .book_call(&slot)
        .with("operatory_id", place.operatories[0].as_str())
        .with("note", "brings x-rays; ünïcode ✓")
        .with("external", json!({"system": system, "id": "A-1"}));
    let booked = place.booked(slot.clone(), call).await?;
    let answer = &booked.answer;
    answer.ensure(answer.header("etag") == Some("\"1\""), "ETag: \"1\"")?;
    let local = slot.start.to_zoned(place.zone.clone()).datetime();
    let expected = json!({
        "clinic_id": place.clinic, "patient_id": slot.patient, "practitioner_id": slot.practitioner,
        "operatory_id": place.operatories[0], "service_id": place.services[1], "start": slot.start.to_string(),
        "end": slot.later(30).start.to_string(), "time_zone": "Europe/Berlin", "status": "booked", "confirmed_at": null,
        "overbooked": false, "version": 1, "note": "brings x-rays; ünïcode ✓", "cancel_reason": null,
        "external": {"system": system, "id": "A-1"},
    });
    let body = answer.json()?;
    for (member, value) in expected.as_object().into_iter().flatten() {
        answer.ensure(body.get(member) == Some(value), format!("{member}: {value}"))?;
    }
    let shown = text(&body, "local_start").parse::<jiff::civil::DateTime>();
    answer.ensure(shown.is_ok_and(|shown| shown == local), format!("local_start: {local}, without an offset"))?;
    for member in ["created_at", "updated_at"] {
        let at = text(&body, member);
        answer.ensure(at.ends_with('Z') && at.parse::<Timestamp>().is_ok(), format!("{member} in UTC"))?;
    }
    let path = format!("/v1/appointments/{}", booked.id);
    let read = place.client.get(path.clone()).send().await?;
    read.is(200)?.ensure(read.body == answer.body, "the bytes the booking was answered with")?;
    read.ensure(read.header("etag") == Some("\"1\""), "ETag: \"1\"")?;
    let unchanged = place.client.get(path).header("If-None-Match", "\"1\"").send().await?;
    unchanged.is(304)?.ensure(unchanged.body.is_empty(), "no body")?;
    let history = place.client.get(format!("/v1/appointments/{}/history", booked.id)).send().await?;
    let versions = history.is(200)?.items()?;
    history.ensure(versions.len() == 1 && versions[0]["version"] == 1, "one version")?;
    Ok(())
}

async fn one_transaction(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let database = world.database()?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let answer = carried_out(&prepared, &key).await?;
        let id = answer.member("id")?;
        let transactions = database.written_by(&place.clinic, &id, &key).await?;
        let one = transactions.iter().all(|xmin| *xmin == transactions[0]);
        answer.ensure(one, format!("{operation:?}: one transaction, not {transactions:?}"))?;
        let events = database.events(&id).await?;
        let last = events.last().map(String::as_str);
        answer
            .ensure(last == Some(operation.event()), format!("a last event {}, not {events:?}", operation.event()))?;
    }
    Ok(())
}

async fn replays(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let first = carried_out(&prepared, &key).await?;
        let mut tally = place.tally().await?;
        for _ in 0..3 {
            let again = prepared.call.key(&key).spread().send().await?;
            again.replays(&first).about(format!("{operation:?}"))?;
            tally.grew(&Growth::NOTHING, &again).await.about(format!("{operation:?}"))?;
        }
    }
    Ok(())
}

async fn a_hundred_times(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let mut tally = place.tally().await?;
    for _ in 0..100 {
        booked.call.spread().send().await?.replays(&booked.answer)?;
    }
    tally.grew(&Growth::NOTHING, &booked.answer).await
}

async fn commands(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let asked = place.client.get(format!("/v1/commands?clinic_id={}", place.clinic));
    let answer = asked.key(&booked.key).send().await?;
    let body = answer.is(200)?.json()?;
    answer.ensure(body["state"] == "finished" && body["status"] == 201, "state finished, status 201")?;
    answer.ensure(body["operation"].is_string(), "the operation")?;
    for member in ["finished_at", "expires_at"] {
        answer.ensure(text(&body, member).parse::<Timestamp>().is_ok(), format!("{member}, RFC 3339"))?;
    }
    let expires = booked.answer.header("idempotency-expires").unwrap_or_default().parse::<Timestamp>();
    answer
        .ensure(text(&body, "expires_at").parse::<Timestamp>().ok() == expires.ok(), "the expiry the booking told")?;
    let unknown = asked.key(&world.key()).send().await?;
    unknown.is(200)?.ensure(unknown.json()?["state"] == "unknown", "state unknown")?;
    asked.send().await?.refused(400, "idempotency_key_missing")?;
    let refused = place.book_call(&booked.slot).key(&world.key());
    let refused_key = world.key();
    refused.key(&refused_key).send().await?.refused(409, "duplicate_intent")?;
    let answer = asked.key(&refused_key).send().await?;
    let body = answer.is(200)?.json()?;
    answer.ensure(body["state"] == "finished" && body["status"] == 409, "state finished, status 409")?;
    Ok(())
}

async fn reused(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let first = carried_out(&prepared, &key).await?;
        let mut tally = place.tally().await?;
        let other = prepared.other.key(&key).spread().send().await?;
        other.refused(409, "idempotency_key_reused").about(format!("{operation:?}"))?;
        other.ensure(other.header("retry-after").is_none(), "no Retry-After")?;
        other.ensure(other.header("etag").is_none() && other.header("location").is_none(), "no header of the first")?;
        for revealing in [first.member("id")?, text(&prepared.call.body_json(), "note"), key.clone()] {
            let told = !revealing.is_empty() && other.text().contains(&revealing);
            other.ensure(!told, format!("nothing of the first request: not {revealing}"))?;
        }
        tally.grew(&Growth::REFUSED, &other).await.about(format!("{operation:?}"))?;
        prepared.call.key(&key).send().await?.replays(&first).about(format!("{operation:?}"))?;
    }
    Ok(())
}

async fn every_field_counts(world: &World) -> Verdict {
    let place = Place::with(world, Settings { allow_overbooking: true, ..Settings::default() }).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).with("operatory_id", place.operatories[0].as_str()).with("note", "n");
    let call = call.with("external", json!({"system": world.id(), "id": "1"}));
    let external = call.body_json()["external"].clone();
    let booked = place.booked(slot.clone(), call).await?;
    let other_practitioner = place.practitioners.iter().find(|id| **id != slot.practitioner).cloned();
    let other_patient = place.patients.iter().find(|id| **id != slot.patient).cloned();
    let variants: Vec<(&str, Value)> = vec![
        ("patient_id", json!(other_patient)),
        ("practitioner_id", json!(other_practitioner)),
        ("operatory_id", json!(place.operatories[1])),
        ("operatory_id", Value::Null),
        ("service_id", json!(place.services[0])),
        ("start", json!(slot.later(15).start.to_string())),
        ("note", json!("N")),
        ("note", json!("n ")),
        ("note", Value::Null),
        ("overbook", json!(true)),
        ("external", json!({"system": external["system"], "id": "2"})),
        ("external", json!({"system": world.id(), "id": external["id"]})),
        ("external", Value::Null),
    ];
    for (member, value) in variants {
        let variant = booked.call.with(member, value.clone()).send().await?;
        variant.refused(409, "idempotency_key_reused").about(format!("{member}: {value}"))?;
    }
    for operation in Operation::on_an_appointment() {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let first = carried_out(&prepared, &key).await?;
        let guarded = prepared.call.key(&key).header("If-Match", "\"1\"").send().await?;
        guarded.refused(409, "idempotency_key_reused").about(format!("{operation:?} with If-Match"))?;
        prepared.call.key(&key).send().await?.replays(&first)?;
    }
    let moved = Operation::Reschedule.prepare(&place).await?;
    let key = world.key();
    carried_out(&moved, &key).await?;
    for (member, value) in [
        ("operatory_id", json!(place.operatories[1])),
        ("service_id", json!(place.services[2])),
        ("overbook", json!(true)),
        ("start", json!(slot.later(30).start.to_string())),
    ] {
        let variant = moved.call.with(member, value).key(&key).send().await?;
        variant.refused(409, "idempotency_key_reused").about(format!("reschedule, another {member}"))?;
    }
    Ok(())
}

async fn no_key(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let mut tally = place.tally().await?;
        let answer = prepared.call.send().await?;
        answer.refused(400, "idempotency_key_missing").about(format!("{operation:?}"))?;
        tally.grew(&Growth::REFUSED, &answer).await.about(format!("{operation:?}"))?;
    }
    let booked = place.book().await?;
    let read = place.client.get(format!("/v1/appointments/{}", booked.id));
    for key in ["k", "", "\"broken", "not a key"] {
        let answer = read.key(key).send().await?;
        answer.is(200).about(format!("GET with key {key:?}"))?;
        answer.ensure(answer.header("idempotent-replayed").is_none(), "a key ignored on GET")?;
    }
    Ok(())
}

async fn new_key(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    for call in [booked.call.clone(), booked.call.with("note", "another note")] {
        let mut tally = place.tally().await?;
        let answer = call.key(&world.key()).send().await?;
        let problem = answer.refused(409, "duplicate_intent")?;
        answer.ensure(problem["appointment_id"] == booked.id.as_str(), format!("appointment_id: {}", booked.id))?;
        answer.replayed(false)?;
        tally.grew(&Growth::KEY, &answer).await?;
    }
    // Another patient wants the same slot: no longer the same visit.
    let patient = place.patients.iter().find(|id| **id != booked.slot.patient).cloned();
    booked.call.with("patient_id", json!(patient)).key(&world.key()).send().await?.refused(409, "slot_taken")?;
    // Cancelled, the visit may be booked again; then the cancelled one cannot come back.
    place.acts(&booked.id, &["cancel"]).await?;
    let again = place.booked(booked.slot.clone(), booked.call.clone()).await?;
    ensure(again.id != booked.id, "a new appointment", "the cancelled one's id")?;
    place.act(&booked.id, "reopen").key(&world.key()).send().await?.refused(409, "duplicate_intent")?;
    Ok(())
}

async fn original(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let fates: [&[&str]; 7] = [
        &["cancel"],
        &["cancel", "reopen"],
        &["confirm"],
        &["check-in"],
        &["check-in", "complete"],
        &["no-show"],
        &["check-in", "cancel"],
    ];
    for fate in fates {
        let booked = place.book().await?;
        place.acts(&booked.id, fate).await?;
        let mut tally = place.tally().await?;
        let again = booked.call.send().await?;
        again.replays(&booked.answer).about(format!("after {fate:?}"))?;
        tally.grew(&Growth::NOTHING, &again).await?;
    }
    // A command in the middle replays as it was, too: not refused as a move that is no longer drawn.
    let booked = place.book().await?;
    let confirm = place.act(&booked.id, "confirm").key(&world.key());
    let cancel = place.act(&booked.id, "cancel").json(&json!({"reason": "moved away"})).key(&world.key());
    let (confirmed, cancelled) = (confirm.send().await?, cancel.send().await?);
    confirmed.is(200)?;
    cancelled.is(200)?;
    confirm.send().await?.replays(&confirmed)?;
    place.acts(&booked.id, &["reopen"]).await?;
    cancel.send().await?.replays(&cancelled)?;
    let now = place.client.get(format!("/v1/appointments/{}", booked.id)).send().await?;
    now.ensure(now.json()?["status"] == "booked", "an appointment a replay has not touched")?;
    Ok(())
}

async fn clinic_changed(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let service =
        json!({"clinic_id": place.clinic, "name": "Gone", "minutes": 45, "buffer_minutes": 5, "active": false});
    place.put(&format!("/v1/services/{}", place.services[1]), &service).await?;
    booked.call.send().await?.replays(&booked.answer).about("its service deactivated")?;
    let practitioner = &booked.slot.practitioner;
    place.put(&format!("/v1/practitioners/{practitioner}"), &json!({"name": "Gone", "active": false})).await?;
    booked.call.send().await?.replays(&booked.answer).about("its practitioner deactivated")?;
    let settings = Settings { zone: "Asia/Kathmandu", slot_minutes: 7, hours: json!([]), ..Settings::default() };
    place.settle(&settings).await?;
    booked.call.send().await?.replays(&booked.answer).about("its clinic closed and elsewhere")?;
    Ok(())
}

async fn codes(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let reused = booked.call.with("note", "other").send().await?;
    reused.refused(409, "idempotency_key_reused")?;
    let patient = place.patients.iter().find(|id| **id != booked.slot.patient).cloned();
    let taken = booked.call.with("patient_id", json!(patient)).key(&world.key()).send().await?;
    taken.refused(409, "slot_taken")?;
    for answer in [&reused, &taken] {
        answer.ensure(answer.header("retry-after").is_none(), "no Retry-After")?;
    }
    Ok(())
}
