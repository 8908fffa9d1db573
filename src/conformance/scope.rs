//! "Scope and access" of `docs/CONFORMANCE.md`: whose key it is, and that nobody learns what is not theirs.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Answer;
use super::call::{Call, Client};
use super::case::{About as _, Case, Need, Verdict, ensure, failed, skip};
use super::database::Growth;
use super::fixture::{Place, patient_body};
use super::world::{Seat, World};

/// Cases 41 to 43.
pub(super) fn cases() -> Vec<Case> {
    const CREDENTIALS: &[Need] = &[Need::Credentials];
    vec![
        Case::new(41, "one key in two clinics: two executions", |w| Box::pin(two_clinics(w))),
        Case::new(41, "one key in two groups: two executions, nothing visible across", |w| Box::pin(two_groups(w)))
            .needs(CREDENTIALS),
        Case::new(42, "a credential revoked: 401 from the next request on; rotated, or another's: a replay", |w| {
            Box::pin(credentials(w))
        }),
        Case::new(42, "access to the clinic lost: 403, by path 404, for a key used and unused alike", |w| {
            Box::pin(access_lost(w))
        })
        .needs(&[Need::Database]),
        Case::new(43, "a 401 is the same whatever exists, and leaves no row", |w| Box::pin(unauthenticated(w))),
        Case::new(43, "the clinic's 403 is the same: none, another's, another group's", |w| {
            Box::pin(clinic_forbidden(w))
        })
        .needs(CREDENTIALS),
        Case::new(43, "the 404 is the same: none, another clinic's, another group's", |w| Box::pin(not_found(w)))
            .needs(CREDENTIALS),
        Case::new(43, "an unknown reference is the same: none, another clinic's, another group's", |w| {
            Box::pin(unknown_reference(w))
        })
        .needs(CREDENTIALS),
        Case::new(43, "ids chosen by another group change nothing here", |w| Box::pin(same_ids(w))).needs(CREDENTIALS),
    ]
}

async fn two_clinics(world: &World) -> Verdict {
    let (here, there) = (Place::fresh(world).await?, Place::fresh(world).await?);
    let key = world.key();
    let (one, other) = (here.slot().await?, there.slot().await?);
    let (one, other) = (here.book_call(&one).key(&key), there.book_call(&other).key(&key));
    let (first, second) = (one.send().await?, other.send().await?);
    first.is(201)?.replayed(false)?;
    second.is(201)?.replayed(false)?;
    one.send().await?.replays(&first)?;
    other.send().await?.replays(&second)?;
    Ok(())
}

/// A booking by another group's front desk, under this key.
async fn elsewhere<'a>(world: &'a World, key: &str) -> Verdict<(Place<'a>, Call, Answer)> {
    let place = Place::first_of(world, world.seat(Seat::OtherTenant)?).await?;
    if place.practitioners.is_empty() || place.services.is_empty() || place.patients.is_empty() {
        return skip("the other group has no clinic that one can book in");
    }
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(key);
    let answer = call.send().await?;
    answer.is(201)?.replayed(false).about("another group's booking")?;
    Ok((place, call, answer))
}

async fn two_groups(world: &World) -> Verdict {
    let here = Place::demo(world, world.seat(Seat::FrontDesk)?)?;
    let key = world.key();
    let slot = here.slot().await?;
    let ours = here.book_call(&slot).key(&key);
    let first = ours.send().await?;
    first.is(201)?.replayed(false)?;
    let (there, theirs, second) = elsewhere(world, &key).await?;
    ours.send().await?.replays(&first)?;
    theirs.send().await?.replays(&second)?;
    let id = first.member("id")?;
    ensure(!second.text().contains(&id), "nothing of ours in theirs", second.text())?;
    there.client.get(format!("/v1/appointments/{id}")).send().await?.refused(404, "not_found")?;
    let asked = there.client.get(format!("/v1/commands?clinic_id={}", here.clinic)).key(&key);
    asked.send().await?.refused(403, "forbidden")?;
    Ok(())
}

/// A credential made for a case.
struct Made {
    id: String,
    client: Client,
}

async fn made(world: &World, roles: &[&str], clinics: Value) -> Verdict<Made> {
    let body = json!({"name": "conformance", "subject": format!("conformance-{}", world.id()), "roles": roles, "clinic_ids": clinics});
    let call = world.admin().post("/v1/credentials").key(&world.key()).json(&body);
    let answer = call.send().await?;
    answer.ensure(matches!(answer.status, 200 | 201), "a credential to be made")?;
    Ok(Made { id: answer.member("id")?, client: world.admin().with_key(&shown_key(&answer)?) })
}

/// The API key in an answer, whatever its member is called.
fn shown_key(answer: &Answer) -> Verdict<String> {
    let body = answer.json()?;
    let mut texts = body.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_str());
    let found = texts.find(|text| text.starts_with("ob_") && text.matches('_').count() >= 2).map(str::to_owned);
    found.map_or_else(|| answer.ensure(false, "the new API key, ob_…").map(|_| String::new()), Ok)
}

async fn revoke(world: &World, id: &str) -> Verdict {
    let path = format!("/v1/credentials/{id}");
    let mut answer = world.admin().call("DELETE", path.clone()).key(&world.key()).send().await?;
    if matches!(answer.status, 404 | 405) {
        answer = world.admin().post(format!("{path}/revoke")).key(&world.key()).json(&json!({})).send().await?;
    }
    answer.ensure(answer.status / 100 == 2, "the credential revoked").map(|_| ())
}

async fn credentials(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let first = made(world, &["FRONT_DESK"], json!([place.clinic])).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).under(&first.client).key(&world.key());
    let booked = call.send().await?;
    booked.is(201)?;
    let second = made(world, &["FRONT_DESK"], json!([place.clinic])).await?;
    call.under(&second.client).send().await?.replays(&booked).about("another credential of the group")?;
    call.under(world.admin()).send().await?.replays(&booked).about("the administrator")?;

    let rotate = world.admin().post(format!("/v1/credentials/{}/rotate", first.id)).key(&world.key());
    let rotated = rotate.json(&json!({})).send().await?;
    rotated.ensure(rotated.status / 100 == 2, "the credential rotated")?;
    let renewed = world.admin().with_key(&shown_key(&rotated)?);
    call.under(&renewed).send().await?.replays(&booked).about("the new secret")?;
    call.send().await?.replays(&booked).about("the old secret, for a while")?;

    revoke(world, &first.id).await?;
    for client in [renewed.clone(), renewed.peer(), first.client.clone(), first.client.peer()] {
        call.under(&client).send().await?.refused(401, "unauthenticated").about("revoked, the key used")?;
        let unused = call.under(&client).key(&world.key());
        unused.send().await?.refused(401, "unauthenticated").about("revoked, the key unused")?;
    }
    revoke(world, &second.id).await
}

async fn access_lost(world: &World) -> Verdict {
    let (place, other) = (Place::fresh(world).await?, Place::fresh(world).await?);
    let desk = made(world, &["FRONT_DESK"], json!([place.clinic])).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).under(&desk.client).key(&world.key());
    let booked = call.send().await?;
    let id = booked.is(201)?.member("id")?;
    let confirm = place.act(&id, "confirm").under(&desk.client).key(&world.key());
    let confirmed = confirm.send().await?;
    confirmed.is(200)?;
    let database = world.database()?;
    database.set_clinics(&desk.id, Some(std::slice::from_ref(&other.clinic))).await?;
    for spread in [call.clone(), call.at_peer()] {
        let used = spread.send().await?;
        used.refused(403, "forbidden").about("from the next request on")?;
        spread.key(&world.key()).send().await?.same_as(&used).about("a key unused")?;
        spread.with("note", "other").send().await?.same_as(&used).about("another command")?;
    }
    for spread in [confirm.clone(), confirm.at_peer()] {
        let used = spread.send().await?;
        used.refused(404, "not_found").about("by path")?;
        spread.key(&world.key()).send().await?.same_as(&used).about("by path, a key unused")?;
    }
    database.set_clinics(&desk.id, Some(&[place.clinic.clone(), other.clinic])).await?;
    call.send().await?.replays(&booked).about("access given back")?;
    confirm.send().await?.replays(&confirmed).about("access given back")?;
    revoke(world, &desk.id).await
}

async fn unauthenticated(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let absent = format!("/v1/appointments/{}", world.id());
    let present = format!("/v1/appointments/{}", booked.id);
    let public = booked.answer.request.split("Bearer ").nth(1).unwrap_or_default();
    let public = public.split("_…").next().unwrap_or_default().to_owned();
    let values = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer x".to_owned()),
        Some("Basic YTpi".to_owned()),
        Some("Bearer ob__".to_owned()),
        Some("Bearer ob_unknown_secret".to_owned()),
        Some(format!("Bearer ob_{}_{}", world.id(), "A".repeat(43))),
        Some(format!("Bearer {public}_wrong")),
        Some(format!("Bearer {public}_{}", "A".repeat(43))),
        Some(format!("Bearer {public}_' or '1'='1")),
        Some(format!("Token {public}_x")),
    ];
    let mut tally = place.tally().await?;
    let mut first: Option<Answer> = None;
    for value in values {
        for call in [
            booked.call.clone(),
            booked.call.key(&world.key()),
            place.client.get(present.clone()),
            place.client.get(absent.clone()),
            place.client.get(format!("/v1/appointments?clinic_id={}", world.id())),
            place.client.post(format!("{present}/confirm")).key("broken key"),
        ] {
            let call = call.without("authorization");
            let call = match &value {
                Some(value) => call.header("Authorization", value.as_str()),
                None => call,
            };
            let answer = call.send().await?;
            answer.refused(401, "unauthenticated").about(format!("{value:?}"))?;
            answer.same_as(first.get_or_insert_with(|| answer.clone())).about(format!("{value:?}"))?;
        }
    }
    first.map_or(Ok(()), |answer| answer.ensure(true, "").map(|_| ()))?;
    tally.grew(&Growth::NOTHING, &booked.answer).await
}

/// Passes if all are byte for byte this refusal.
fn all_alike(answers: &[(String, Answer)], status: u16, code: &str) -> Verdict {
    let Some((_, first)) = answers.first() else { return failed("answers to compare", "none") };
    for (about, answer) in answers {
        answer.refused(status, code).about(about)?;
        answer.same_as(first).about(about)?;
        let slowest = Duration::from_secs(2);
        answer.ensure(answer.took < slowest, "an answer as prompt as any other").about(about)?;
    }
    Ok(())
}

async fn clinic_forbidden(world: &World) -> Verdict {
    let place = Place::demo(world, world.seat(Seat::FrontDesk)?)?;
    let theirs = Place::first_of(world, world.seat(Seat::OtherTenant)?).await?;
    let dev = world.dev()?;
    let slot = place.slot().await?;
    let used = place.book().await?.key;
    let block = json!({
        "clinic_id": place.clinic, "practitioner_id": slot.practitioner,
        "start": slot.start.to_string(), "end": slot.later(30).start.to_string(),
    });
    let range = format!("from={}&to={}", slot.start, slot.later(60).start);
    let clinics = [world.id(), dev.other_clinic_id.clone(), theirs.clinic.clone()];
    let mut answers = Vec::new();
    let mut tally = place.tally().await?;
    let mut sent = 0;
    for clinic in &clinics {
        let query = format!("clinic_id={clinic}");
        for (about, call) in [
            ("book", place.book_call(&slot).with("clinic_id", clinic.as_str()).key(&world.key())),
            ("book, a key used elsewhere", place.book_call(&slot).with("clinic_id", clinic.as_str()).key(&used)),
            (
                "block",
                place.client.post("/v1/blocks").json(&block).with("clinic_id", clinic.as_str()).key(&world.key()),
            ),
            ("appointments", place.client.get(format!("/v1/appointments?{query}&{range}"))),
            ("blocks", place.client.get(format!("/v1/blocks?{query}&{range}"))),
            (
                "availability",
                place.client.get(format!("/v1/availability?{query}&service_id={}&{range}", place.services[0])),
            ),
            ("command", place.client.get(format!("/v1/commands?{query}")).key(&used)),
        ] {
            answers.push((format!("{about}, clinic {clinic}"), call.send().await?));
            sent += 1;
        }
    }
    all_alike(&answers, 403, "forbidden")?;
    tally.grew(&Growth { audit: (0, sent), ..Growth::NOTHING }, &answers[0].1).await
}

async fn not_found(world: &World) -> Verdict {
    let ours = Place::demo(world, world.seat(Seat::FrontDesk)?)?;
    let (other_group, _, theirs) = elsewhere(world, &world.key()).await?;
    let other_clinic = Place::fresh(world).await?;
    let next_door = other_clinic.book().await?;
    let block = super::operations::Operation::Block.prepare(&other_clinic).await?;
    let block = block.call.key(&world.key()).send().await?.member("id")?;
    let visits = [world.id(), theirs.member("id")?, next_door.id.clone(), block.clone()];
    let blocks = [world.id(), block, next_door.id];
    let things =
        |mine: &[String], theirs: &[String]| [Some(world.id()), mine.first().cloned(), theirs.first().cloned()];
    let operatories = things(&other_clinic.operatories, &other_group.operatories);
    let services = things(&other_clinic.services, &other_group.services);
    let clinics = [world.id(), other_clinic.clinic.clone(), other_group.clinic.clone()];
    let mut answers = Vec::new();
    let desk = &ours.client;
    let to = ours.slot().await?;
    for id in visits {
        let path = format!("/v1/appointments/{id}");
        let mut calls = vec![desk.get(path.clone()), desk.get(format!("{path}/history"))];
        calls.push(desk.call("PATCH", path.clone()).json(&json!({"note": "x"})));
        calls.push(desk.post(format!("{path}/reschedule")).json(&json!({"start": to.start.to_string()})));
        calls.extend(
            ["confirm", "check-in", "complete", "no-show", "cancel", "reopen"].map(|action| ours.act(&id, action)),
        );
        for call in calls {
            let about = call.path().to_owned();
            answers.push((about.clone(), call.key(&world.key()).send().await?));
            // All clinics of its group are its administrator's, and none of another group's.
            if theirs.member("id")? == id {
                let by_admin = call.under(world.admin()).key(&world.key());
                answers.push((format!("{about} by the administrator"), by_admin.send().await?));
            }
            answers.push((
                format!("{about} with If-Match"),
                call.key(&world.key()).header("If-Match", "\"1\"").send().await?,
            ));
        }
    }
    for id in blocks {
        let path = format!("/v1/blocks/{id}");
        answers.push((path.clone(), desk.get(path).send().await?));
    }
    // The other clinic's own front desk knows nothing of what is booked here.
    let here = ours.book().await?;
    let desk_next_door = world.seat(Seat::OtherClinic)?.get(format!("/v1/appointments/{}", here.id));
    answers.push(("the demo clinic's visit, from next door".to_owned(), desk_next_door.send().await?));
    for (list, ids) in [("operatories", operatories), ("services", services), ("clinics", clinics.map(Some))] {
        for id in ids.into_iter().flatten() {
            let path = format!("/v1/{list}/{id}");
            answers.push((path.clone(), desk.get(path).send().await?));
        }
    }
    all_alike(&answers, 404, "not_found")
}

async fn unknown_reference(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let neighbour = Place::fresh(world).await?;
    let (theirs, _, _) = elsewhere(world, &world.key()).await?;
    // A run before this one may have given patients of ours some of their ids, to see that nothing comes of it.
    let mut stranger = None;
    for id in &theirs.patients {
        if world.admin().get(format!("/v1/patients/{id}")).send().await?.status == 404 {
            stranger = Some(id);
        }
    }
    let slot = place.slot().await?;
    for (member, next_door, far_away) in [
        ("patient_id", None, stranger),
        ("practitioner_id", neighbour.practitioners.first(), theirs.practitioners.first()),
        ("operatory_id", neighbour.operatories.first(), theirs.operatories.first()),
        ("service_id", neighbour.services.first(), theirs.services.first()),
    ] {
        let absent = world.id();
        let mut answers = Vec::new();
        for id in [Some(&absent), next_door, far_away].into_iter().flatten() {
            let answer = place.book_call(&slot).with(member, id.as_str()).key(&world.key()).send().await?;
            answer.ensure(answer.json()?["field"] == member, format!("field: {member}"))?;
            answers.push((format!("{member} {id}"), answer));
        }
        // Each was stored under its own key at its own moment.
        for (_, answer) in &mut answers {
            answer.headers.retain(|(name, _)| name != "idempotency-expires");
        }
        all_alike(&answers, 422, "unknown_reference")?;
    }
    Ok(())
}

async fn same_ids(world: &World) -> Verdict {
    let key = world.key();
    let (theirs, call, booked) = elsewhere(world, &key).await?;
    let place = Place::of_id(world, theirs.clinic.clone(), super::fixture::Settings::default()).await?;
    let slot = place.slot().await?;
    let under_their_key = place.book_call(&slot).key(&key);
    let first = under_their_key.send().await?;
    first.is(201)?.replayed(false).about("a key they have used, in our clinic of the same id")?;
    under_their_key.send().await?.replays(&first)?;
    // The same ids, in our group and at the same time.
    let body = call.body_json();
    let (practitioner, patient) = (body["practitioner_id"].clone(), body["patient_id"].clone());
    let (practitioner_id, patient_id) =
        (practitioner.as_str().unwrap_or_default(), patient.as_str().unwrap_or_default());
    place.put(&format!("/v1/practitioners/{practitioner_id}"), &json!({"name": "Namesake", "active": true})).await?;
    let membership = format!("/v1/practitioners/{practitioner_id}/clinics/{}", place.clinic);
    place.put(&membership, &json!({"active": true})).await?;
    place.put(&format!("/v1/patients/{patient_id}"), &patient_body()).await?;
    let start = body["start"].as_str().unwrap_or_default().parse();
    let Ok(start) = start else { return failed("a start", body.to_string()) };
    let settings = super::fixture::Settings { hours: super::fixture::round_the_clock(), ..Default::default() };
    place.settle(&settings).await?;
    let slot = super::fixture::Slot { practitioner: practitioner_id.to_owned(), patient: patient_id.to_owned(), start };
    let ours = place.booked(slot.clone(), place.book_call(&slot)).await?;
    ensure(ours.id != booked.member("id")?, "an appointment of our own", ours.id.clone())?;
    // And theirs is as it was.
    let read = theirs.client.get(format!("/v1/appointments/{}", booked.member("id")?)).send().await?;
    read.is(200)?.ensure(read.body == booked.body, "their appointment untouched")?;
    call.send().await?.replays(&booked)?;
    Ok(())
}
