//! The directory (API.md): PUT with the caller's own ids, which is idempotent by nature. Booking reads it, so case 51.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::case::{About as _, Case, Verdict, ensure};
use super::database::Growth;
use super::fixture::{Place, Settings, hours, patient_body, text};
use super::reads::all_pages;
use super::world::World;

/// Case 51, the directory.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(51, "the directory gives back what was put, however often; If-Match is honoured", |w| {
            Box::pin(put_and_get(w))
        }),
        Case::new(51, "a clinic's settings left out are the defaults; its hours and closures are its own", |w| {
            Box::pin(settings(w))
        }),
        Case::new(51, "rows that are booked do not move to another clinic: in_use; deactivating is allowed", |w| {
            Box::pin(in_use(w))
        }),
        Case::new(51, "lists by name, page by page: by name whatever its case, none twice and none lost", |w| {
            Box::pin(by_name(w))
        }),
        Case::new(51, "patients are found by name and by birth date", |w| Box::pin(patients(w))),
    ]
}

/// Passes if every member put is there again.
fn holds(answer: &super::answer::Answer, put: &Value) -> Verdict {
    let got = answer.is(200)?.json()?;
    for (member, value) in put.as_object().into_iter().flatten() {
        answer.ensure(got.get(member) == Some(value), format!("{member}: {value}"))?;
    }
    Ok(())
}

async fn put_and_get(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let clinic = json!({
        "name": "Zahnärzte am Ring", "time_zone": "Asia/Kathmandu", "slot_minutes": 20, "allow_overbooking": true,
        "min_notice_minutes": 45, "horizon_days": 90, "key_retention_days": 14,
    });
    let patient = json!({
        "name": "Zoë O'Hara", "birth_date": "1990-02-28", "email": "zoe@example.org", "phone": "+49 30 1234567",
        "language": "de", "preferred_channel": "sms",
    });
    let membership = format!("/v1/practitioners/{}/clinics/{}", place.practitioners[0], place.clinic);
    let things = [
        (format!("/v1/clinics/{}", world.id()), clinic),
        (format!("/v1/practitioners/{}", world.id()), json!({"name": "Dr. Who", "active": false})),
        (membership, json!({"active": true, "hours": hours(&["tuesday"], "09:00", "12:30")})),
        (format!("/v1/operatories/{}", world.id()), json!({"clinic_id": place.clinic, "name": "2b", "active": true})),
        (format!("/v1/services/{}", world.id()), place.service(45, 10)),
        (format!("/v1/patients/{}", world.id()), patient),
    ];
    for (path, body) in things {
        place.put(&path, &body).await?;
        let read = world.admin().get(path.clone()).send().await?;
        holds(&read, &body).about(&path)?;
        place.put(&path, &body).await?;
        let again = world.admin().get(path.clone()).send().await?;
        holds(&again, &body).about(&path)?;
        let etag = read.header("etag").unwrap_or_default().to_owned();
        read.ensure(!etag.is_empty(), "an ETag for If-Match").about(&path)?;
        let put = world.admin().put(path.clone()).json(&body);
        let stale = put.clone().header("If-Match", "\"999\"").send().await?;
        stale.refused(412, "version_mismatch").about(&path)?;
        let current = again.header("etag").unwrap_or_default();
        let fresh = put.header("If-Match", current).send().await?;
        fresh.ensure(matches!(fresh.status, 200 | 204), "carried out with the current ETag").about(&path)?;
    }
    Ok(())
}

async fn settings(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let path = format!("/v1/clinics/{}", world.id());
    let body = json!({"name": "Plain", "time_zone": "Europe/Berlin", "slot_minutes": 15, "allow_overbooking": false});
    place.put(&path, &body).await?;
    let read = world.admin().get(path.clone()).send().await?;
    holds(&read, &json!({"min_notice_minutes": 0, "horizon_days": 730, "key_retention_days": 7}))?;
    let list = json!([
        {"weekday": "monday", "opens": "08:00", "closes": "12:00"},
        {"weekday": "monday", "opens": "13:00", "closes": "24:00"},
        {"weekday": "friday", "opens": "22:00", "closes": "02:00"},
    ]);
    place.put(&format!("{path}/hours"), &list).await?;
    let read = world.admin().get(format!("{path}/hours")).send().await?;
    let got = read.is(200)?.json()?;
    read.ensure(got == list || got["items"] == list || got["hours"] == list, "the hours as they were put")?;
    // Settings and hours are apart, so that an old client's PUT of one resets nothing of the other.
    place.put(&path, &body).await?;
    let again = world.admin().get(format!("{path}/hours")).send().await?;
    again.ensure(again.body == read.body, "the hours untouched by a PUT of the clinic")?;
    let closures = json!([{"from": "2031-12-24T00:00:00Z", "to": "2032-01-02T00:00:00Z", "reason": "holidays"}]);
    place.put(&format!("{path}/closures"), &closures).await?;
    let read = world.admin().get(format!("{path}/closures")).send().await?;
    let got = read.is(200)?.json()?;
    read.ensure(got == closures || got["items"] == closures || got["closures"] == closures, "the closures as put")?;
    for (member, value) in [
        ("time_zone", json!("Mars/Olympus")),
        ("slot_minutes", json!(0)),
        ("slot_minutes", json!(-15)),
        ("slot_minutes", json!(100_000)),
        ("min_notice_minutes", json!(-1)),
        ("horizon_days", json!(0)),
        ("key_retention_days", json!(0)),
        ("horizon_days", json!(99_999_999_999_i64)),
    ] {
        let call = world.admin().put(path.clone()).json(&body).with(member, value.clone());
        call.send().await?.refused(400, "malformed_request").about(format!("{member}: {value}"))?;
    }
    Ok(())
}

async fn in_use(world: &World) -> Verdict {
    let (place, other) = (Place::fresh(world).await?, Place::fresh(world).await?);
    let slot = place.slot().await?;
    let room = place.operatories[0].clone();
    let booked = place.booked(slot.clone(), place.book_call(&slot).with("operatory_id", room.as_str())).await?;
    let service = format!("/v1/services/{}", place.services[1]);
    let operatory = format!("/v1/operatories/{room}");
    let elsewhere = json!({"clinic_id": other.clinic, "name": "moved", "active": true});
    let mut tally = place.tally().await?;
    for (path, body) in [(&service, other.service(30, 0)), (&operatory, elsewhere)] {
        let answer = world.admin().put(path.clone()).json(&body).send().await?;
        answer.refused(409, "in_use").about(path)?;
        tally.grew(&Growth::REFUSED, &answer).await?;
    }
    let mut idle = place.service(30, 0);
    idle["active"] = json!(false);
    place.put(&service, &idle).await?;
    place.put(&operatory, &json!({"clinic_id": place.clinic, "name": "idle", "active": false})).await?;
    let practitioner = format!("/v1/practitioners/{}", slot.practitioner);
    place.put(&practitioner, &json!({"name": "gone", "active": false})).await?;
    // What is booked stays booked, and goes its way.
    let to = json!({"start": slot.later(60).start.to_string()});
    place.act(&booked.id, "reschedule").json(&to).key(&world.key()).send().await?.is(200).about("moved")?;
    place.acts(&booked.id, &["confirm", "check-in", "complete"]).await?;
    booked.call.send().await?.replays(&booked.answer)?;
    // Another length for bookings to come changes none that is there.
    let longer = place.service(90, 30);
    place.put(&service, &longer).await?;
    let read = place.client.get(format!("/v1/appointments/{}", booked.id)).send().await?;
    let end = read.is(200)?.member("end")?;
    ensure(end == slot.later(90).start.to_string(), "a booked visit as long as it was", end)
}

async fn by_name(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mark = world.id().replace('-', "");
    let mut put = HashSet::new();
    for name in ["anna", "Anna", "ANNA", "anna", "Bo", "bo", "o'hara", "zoë", "éva"] {
        let (id, name) = (world.id(), format!("{name} {mark}"));
        place.put(&format!("/v1/operatories/{id}"), &json!({"clinic_id": place.clinic, "name": name})).await?;
        let mut service = place.service(30, 0);
        service["name"] = json!(name);
        place.put(&format!("/v1/services/{id}"), &service).await?;
        place.put(&format!("/v1/practitioners/{id}"), &json!({"name": name})).await?;
        place.put(&format!("/v1/practitioners/{id}/clinics/{}", place.clinic), &json!({})).await?;
        place.put(&format!("/v1/patients/{id}"), &json!({"name": name})).await?;
        put.insert(id);
    }
    let clinic = &place.clinic;
    let lists = ["operatories", "services", "practitioners"].map(|list| format!("/v1/{list}?clinic_id={clinic}"));
    for list in lists.into_iter().chain([format!("/v1/patients?q={mark}")]) {
        let items = all_pages(&world.admin().get(list.clone()), 2).await.about(&list)?;
        let place_of = |item: &Value| (text(item, "name").to_lowercase(), text(item, "id"));
        let order: Vec<(String, String)> = items.iter().map(place_of).collect();
        ensure(order.is_sorted(), "items by name and id", format!("{order:?}")).about(&list)?;
        let ids: HashSet<String> = items.iter().map(|item| text(item, "id")).collect();
        ensure(ids.len() == items.len(), "no item twice", format!("{order:?}")).about(&list)?;
        ensure(put.is_subset(&ids), "none lost", format!("{order:?}")).about(&list)?;
    }
    Ok(())
}

async fn patients(world: &World) -> Verdict {
    let place = Place::with(world, Settings { patients: 1, ..Settings::default() }).await?;
    let mark = world.id().replace('-', "");
    let id = world.id();
    let mut body = patient_body();
    body["name"] = json!(format!("Xq{mark} Example"));
    body["birth_date"] = json!("1871-03-04");
    place.put(&format!("/v1/patients/{id}"), &body).await?;
    let queries = [
        format!("q=Xq{mark}"),
        format!("q=xq{}", mark.to_uppercase()),
        format!("q=Xq{mark}%20Ex"),
        format!("q=Xq{mark}&birth_date=1871-03-04"),
    ];
    for query in queries {
        let answer = place.client.get(format!("/v1/patients?{query}")).send().await?;
        let found = answer.is(200)?.items()?;
        answer.ensure(found.len() == 1 && found[0]["id"] == id.as_str(), "this patient alone").about(query)?;
    }
    let by_birth = place.client.get("/v1/patients?birth_date=1871-03-04").send().await?;
    let born = by_birth.is(200)?.items()?.iter().all(|item| item["birth_date"] == "1871-03-04");
    by_birth.ensure(born, "only patients born that day")?;
    for query in [format!("q=Xq{mark}&birth_date=1871-03-05"), format!("q=%25{mark}"), format!("q=_q{mark}")] {
        let answer = place.client.get(format!("/v1/patients?{query}")).send().await?;
        answer.ensure(answer.status == 200 && answer.items()?.is_empty(), "nobody: no wildcards").about(query)?;
    }
    for query in ["birth_date=yesterday", "birth_date=1871-02-30", "q=a&q=b", "name=x"] {
        let answer = place.client.get(format!("/v1/patients?{query}")).send().await?;
        answer.refused(400, "malformed_request").about(query)?;
    }
    Ok(())
}
