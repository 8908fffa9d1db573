//! Case 52 of `docs/CONFORMANCE.md`, and what else a reader is promised: filters, cursors, bounds.

use std::collections::HashSet;

use serde_json::Value;
use tokio::task::JoinSet;

use super::call::Call;
use super::case::{About as _, Case, Stop, Verdict, ensure, failed};
use super::fixture::{Place, Settings, plus, text};
use super::world::World;

/// Case 52.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(52, "paging while rows come and go: no item twice, none lost that was there throughout", |w| {
            Box::pin(paging(w))
        }),
        Case::new(52, "the list by clinic, time, practitioner, patient and status", |w| Box::pin(filters(w))),
        Case::new(52, "malformed queries of every kind: refused with their code", |w| Box::pin(queries(w))),
        Case::new(52, "availability of at most 31 days", |w| Box::pin(too_wide(w))),
        Case::new(52, "If-None-Match: 304 for what one has, 200 for what one has not", |w| Box::pin(conditional(w))),
    ]
}

/// Everything in a list, whose path has a query already, page by page.
pub(super) async fn all_pages(list: &Call, limit: usize) -> Verdict<Vec<Value>> {
    let mut items = Vec::new();
    let mut after = String::new();
    for _ in 0..200 {
        let page = list.at(format!("{}&limit={limit}{after}", list.path())).send().await?;
        let entries = page.is(200)?.items()?;
        page.ensure(entries.len() <= limit, format!("at most {limit} items"))?;
        items.extend(entries);
        let body = page.json()?;
        match body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return page.ensure(body["next"].is_null(), "next: null at the end").map(|_| items),
        }
    }
    failed("an end of the list", "200 pages without one")
}

async fn paging(world: &World) -> Verdict {
    let place = Place::with(world, Settings { practitioners: 4, ..Settings::default() }).await?;
    let mut steady = HashSet::new();
    for _ in 0..60 {
        steady.insert(place.book().await?.id);
    }
    // A crowd comes and goes in between: same days, quarters nobody else has.
    let mut restless = Vec::new();
    for _ in 0..30 {
        let slot = place.slot().await?;
        restless.push((place.book_call(&slot.later(30)), world.key(), world.key()));
    }
    let (from, to) = (place.at(place.working_day(0), 0, 0), place.at(place.working_day(20), 0, 0));
    let list = place.client.spread().get(format!("/v1/appointments?clinic_id={}&from={from}&to={to}", place.clinic));
    let client = place.client.spread();
    let mut comings = JoinSet::new();
    comings.spawn(async move {
        for (call, key, other) in restless {
            let id = call.key(&key).send().await?.is(201)?.member("id")?;
            let cancel = client.post(format!("/v1/appointments/{id}/cancel")).json(&serde_json::json!({}));
            cancel.key(&other).send().await?.is(200)?;
        }
        Ok::<(), Stop>(())
    });
    loop {
        let items = all_pages(&list, 7).await?;
        let ids: Vec<String> = items.iter().map(|item| text(item, "id")).collect();
        let distinct: HashSet<&String> = ids.iter().collect();
        ensure(distinct.len() == ids.len(), "no item twice", format!("{} of {}", distinct.len(), ids.len()))?;
        let missing = steady.iter().filter(|id| !distinct.contains(id)).count();
        ensure(missing == 0, "none lost that was there throughout", format!("{missing} lost"))?;
        let order: Vec<(String, String)> = items.iter().map(|item| (text(item, "start"), text(item, "id"))).collect();
        ensure(order.is_sorted(), "items by (start, id)", format!("{order:?}"))?;
        match comings.try_join_next() {
            None => {}
            Some(Ok(outcome)) => return outcome,
            Some(Err(_)) => return failed("bookings and cancellations meanwhile", "the client's task ended"),
        }
    }
}

async fn filters(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mut all = Vec::new();
    for _ in 0..12 {
        all.push(place.book().await?);
    }
    place.acts(&all[0].id, &["cancel"]).await?;
    place.acts(&all[1].id, &["check-in"]).await?;
    let (from, to) = (place.at(place.working_day(0), 0, 0), place.at(place.working_day(3), 0, 0));
    let base = format!("/v1/appointments?clinic_id={}&from={from}&to={to}", place.clinic);
    let count = async |query: &str, expected: usize| -> Verdict {
        let answer = place.client.get(format!("{base}{query}")).send().await?;
        let found = answer.is(200)?.items()?.len();
        answer.ensure(found == expected, format!("{expected} appointments, not {found}")).about(query)?;
        Ok(())
    };
    count("", 12).await?;
    let of_first = all.iter().filter(|booked| booked.slot.practitioner == place.practitioners[0]).count();
    count(&format!("&practitioner_id={}", place.practitioners[0]), of_first).await?;
    let of_patient = all.iter().filter(|booked| booked.slot.patient == place.patients[0]).count();
    count(&format!("&patient_id={}", place.patients[0]), of_patient).await?;
    count("&status=cancelled", 1).await?;
    count("&status=arrived", 1).await?;
    count("&status=booked", 10).await?;
    count(&format!("&status=booked&patient_id={}", world.id()), 0).await?;
    // Each of the list is as it reads alone.
    let list = place.client.get(base.clone()).send().await?.items()?;
    let alone = place.client.get(format!("/v1/appointments/{}", all[2].id)).send().await?.json()?;
    ensure(list.contains(&alone), "the same representation in the list", alone.to_string())?;
    // Half-open: what starts at the end of the range is not of it.
    let start = all[2].slot.start;
    let until = place.client.get(format!("/v1/appointments?clinic_id={}&from={from}&to={start}", place.clinic));
    let before = until.send().await?.items()?.iter().filter(|item| text(item, "id") == all[2].id).count();
    ensure(before == 0, "a range without its end", "the visit that starts at its end")?;
    let none = Place::fresh(world).await?;
    let empty =
        none.client.get(format!("/v1/appointments?clinic_id={}&from={from}&to={to}", none.clinic)).send().await?;
    empty.is(200)?.ensure(empty.json()? == serde_json::json!({"items": [], "next": null}), "no items, next: null")?;
    Ok(())
}

async fn queries(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let clinic = format!("clinic_id={}", place.clinic);
    let range = format!("from={}&to={}", slot.start, slot.later(60).start);
    let service = format!("service_id={}", place.services[0]);
    let lists = [
        ("/v1/appointments", format!("{clinic}&{range}")),
        ("/v1/blocks", format!("{clinic}&{range}")),
        ("/v1/availability", format!("{clinic}&{range}&{service}")),
    ];
    for (path, valid) in &lists {
        place.client.get(format!("{path}?{valid}")).send().await?.is(200).about(path)?;
        let wrong = [
            format!("{valid}&colour=red"),
            format!("{valid}&{clinic}"),
            format!("{valid}&practitioner_id=x"),
            valid.replacen(&clinic, "clinic_id=x", 1),
            valid.replacen(&clinic, "clinic_id=", 1),
            valid.replacen(&format!("{clinic}&"), "", 1),
            format!("{clinic}&from=yesterday&to=2030-01-01T00:00:00Z&{service}"),
            format!("{valid}&%ff=1"),
            format!("{valid}&practitioner_id=%00"),
        ];
        for query in wrong {
            let answer = place.client.get(format!("{path}?{query}")).send().await?;
            answer.refused(400, "malformed_request").about(query)?;
        }
    }
    let list = format!("/v1/appointments?{clinic}&{range}");
    for query in [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=x",
        "limit=1e1",
        "limit=",
        "status=gone",
        "status=booked&status=booked",
        "limit=99999999999999999999",
    ] {
        let answer = place.client.get(format!("{list}&{query}")).send().await?;
        answer.refused(400, "malformed_request").about(query)?;
    }
    for cursor in ["x", "", "AAAA", "eyJhIjoxfQ", "%00", "..%2F..", &"A".repeat(2000)] {
        let answer = place.client.get(format!("{list}&after={cursor}")).send().await?;
        answer.refused(400, "cursor_invalid").about(format!("after={cursor}"))?;
    }
    place.client.get(format!("{list}&limit=200")).send().await?.is(200).about("limit=200")?;
    let id = world.id();
    for path in [
        format!("/v1/appointments/{id}?colour=red"),
        format!("/v1/appointments/{id}/history?colour=red"),
        format!("/v1/clinics/{}?colour=red", place.clinic),
        format!("/v1/blocks/{id}?colour=red"),
        format!("/v1/commands?{clinic}&colour=red"),
    ] {
        place.client.get(path.clone()).key("k").send().await?.refused(400, "malformed_request").about(path)?;
    }
    let broken = place.client.get(format!("/v1/commands?{clinic}")).key("\"broken").send().await?;
    broken.refused(400, "idempotency_key_invalid").about("GET /v1/commands with a broken key")?;
    Ok(())
}

async fn too_wide(world: &World) -> Verdict {
    const DAY: i64 = 24 * 60;
    let place = Place::fresh(world).await?;
    let from = place.at(place.working_day(0), 0, 0);
    let asked = |to| {
        let (clinic, service) = (&place.clinic, &place.services[2]);
        place.client.get(format!("/v1/availability?clinic_id={clinic}&service_id={service}&from={from}&to={to}"))
    };
    asked(plus(from, 31 * DAY)).send().await?.is(200).about("31 days")?;
    for to in [plus(from, 31 * DAY + 120), plus(from, 400 * DAY)] {
        asked(to).send().await?.refused(400, "range_too_wide").about(format!("until {to}"))?;
    }
    let distant = place.client.get(format!(
        "/v1/availability?clinic_id={}&service_id={}&from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z",
        place.clinic, place.services[0]
    ));
    distant.send().await?.refused(400, "range_too_wide").about("all of time")?;
    let backwards = asked(plus(from, -60)).send().await?;
    backwards.ensure(matches!(backwards.status, 200 | 400), "200 with nothing, or 400").about("backwards")?;
    let last = asked(plus(from, 60)).at(format!(
        "/v1/availability?clinic_id={}&service_id={}&from=9999-12-30T00:00:00Z&to=9999-12-31T00:00:00Z",
        place.clinic, place.services[0]
    ));
    let slots = last.send().await?;
    slots
        .ensure(slots.status == 200 && slots.json()?["slots"] == serde_json::json!([]), "no slots in the year 9999")?;
    Ok(())
}

async fn conditional(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let path = format!("/v1/appointments/{}", booked.id);
    let asked = |etag: &str| place.client.get(path.clone()).header("If-None-Match", etag);
    for same in ["\"1\"", "W/\"1\"", "\"0\", \"1\"", "*"] {
        let answer = asked(same).send().await?;
        answer.is(304).about(same)?.ensure(answer.body.is_empty(), "no body").about(same)?;
        answer.ensure(answer.header("etag") == Some("\"1\""), "the ETag on a 304 (RFC 9110, 15.4.5)")?;
    }
    asked("\"0\"").send().await?.is(200)?;
    place.acts(&booked.id, &["confirm"]).await?;
    let changed = asked("\"1\"").send().await?;
    changed.is(200)?.ensure(changed.header("etag") == Some("\"2\""), "the new version")?;
    Ok(())
}
