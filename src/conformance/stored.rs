//! "What is stored" of `docs/CONFORMANCE.md`: refusals decided on business state are, requests that never were commands
//! are not.

use serde_json::{Value, json};

use super::call::Call;
use super::case::{About as _, Case, Need, Verdict};
use super::database::Growth;
use super::fixture::{Place, Settings, hours, patient_body};
use super::world::World;

/// Cases 24 and 25.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(24, "slot_taken under a key stays; a new key books the slot freed since", |w| {
            Box::pin(slot_freed(w))
        }),
        Case::new(24, "a refusal for what the clinic is replays once the clinic is otherwise", |w| {
            Box::pin(clinic_refusals(w))
        }),
        Case::new(24, "a refusal for what the directory holds replays once it holds more", |w| {
            Box::pin(directory_refusals(w))
        }),
        Case::new(24, "a refusal for what the appointment is replays once it is otherwise", |w| {
            Box::pin(appointment_refusals(w))
        }),
        Case::new(25, "a request that is no command does not use up its key", |w| Box::pin(not_consumed(w))),
        Case::new(25, "more than 64 KiB: 413, however it is framed; exactly 64 KiB is read", |w| {
            Box::pin(too_large(w))
        })
        .needs(&[Need::PlainHttp]),
        Case::new(25, "anything but JSON: 415", |w| Box::pin(media_types(w))),
    ]
}

/// A refusal on its first time, and what will have become of its cause when it is sent again.
struct Refused {
    about: &'static str,
    call: Call,
    status: u16,
    code: &'static str,
}

impl Refused {
    fn new(about: &'static str, call: &Call, status: u16, code: &'static str) -> Self {
        Self { about, call: call.clone(), status, code }
    }

    /// Refused and stored; then the cause is removed; then the same refusal again, but under a new key success.
    async fn stays(self, place: &Place<'_>, remedy: impl AsyncFnOnce() -> Verdict) -> Verdict {
        let call = self.call.key(&place.world.key());
        let mut tally = place.tally().await?;
        let first = call.send().await?;
        first.refused(self.status, self.code).about(self.about)?;
        first.replayed(false).about(self.about)?;
        tally.grew(&Growth::KEY, &first).await.about(self.about)?;
        remedy().await.about(self.about)?;
        tally.restart().await?;
        let again = call.send().await?;
        again.replays(&first).about(self.about)?;
        tally.grew(&Growth::NOTHING, &again).await.about(self.about)?;
        let anew = self.call.key(&place.world.key()).send().await?;
        anew.ensure(anew.status / 100 == 2, format!("[{}] success under a new key", self.about))?;
        Ok(())
    }
}

async fn slot_freed(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let patient = place.patients.iter().find(|id| **id != booked.slot.patient).cloned();
    let rival = booked.call.with("patient_id", json!(patient));
    Refused::new("cancelled", &rival, 409, "slot_taken")
        .stays(&place, async || place.acts(&booked.id, &["cancel"]).await)
        .await?;
    let booked = place.book().await?;
    let patient = place.patients.iter().find(|id| **id != booked.slot.patient).cloned();
    let rival = booked.call.with("patient_id", json!(patient));
    Refused::new("moved away", &rival, 409, "slot_taken")
        .stays(&place, async || {
            let to = place.slot().await?;
            // With its practitioner, or it would stand in a slot that the place counts as free.
            let to = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
            let move_away = place.act(&booked.id, "reschedule").json(&to);
            move_away.key(&world.key()).send().await?.is(200).map(|_| ())
        })
        .await?;
    let (taken, mover) = (place.book().await?, place.book().await?);
    let to = json!({"start": taken.slot.start.to_string(), "practitioner_id": taken.slot.practitioner});
    Refused::new("a move", &place.act(&mover.id, "reschedule").json(&to), 409, "slot_taken")
        .stays(&place, async || place.acts(&taken.id, &["no-show"]).await)
        .await
}

async fn clinic_refusals(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let usual = || Settings::default();
    let settings: [(&str, &str, Settings); 5] = [
        ("notice of two years", "too_soon", Settings { min_notice_minutes: 2 * 365 * 24 * 60, ..usual() }),
        ("a horizon of two days", "too_far_ahead", Settings { horizon_days: 2, ..usual() }),
        ("a grid of seven minutes", "off_grid", Settings { slot_minutes: 7, ..usual() }),
        ("closed all week", "outside_hours", Settings { hours: json!([]), ..usual() }),
        (
            "open in the morning only",
            "outside_hours",
            Settings { hours: hours(&["monday"], "06:00", "06:30"), ..usual() },
        ),
    ];
    for (about, code, settings) in settings {
        let slot = place.slot().await?;
        place.settle(&settings).await?;
        Refused::new(about, &place.book_call(&slot), 422, code)
            .stays(&place, async || place.settle(&usual()).await)
            .await?;
    }
    let slot = place.slot().await?;
    Refused::new("no overbooking", &place.book_call(&slot).with("overbook", true), 422, "overbooking_not_allowed")
        .stays(&place, async || place.settle(&Settings { allow_overbooking: true, ..usual() }).await)
        .await
}

async fn directory_refusals(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let to_come = world.id();
    let call = |member: &'static str, slot: &super::fixture::Slot| place.book_call(slot).with(member, to_come.as_str());
    let operatory = json!({"clinic_id": place.clinic, "name": "New", "active": true});
    let practitioner = json!({"name": "New", "active": true});
    let slot = place.slot().await?;
    Refused::new("patient unknown", &call("patient_id", &slot), 422, "unknown_reference")
        .stays(&place, async || place.put(&format!("/v1/patients/{to_come}"), &patient_body()).await.map(|_| ()))
        .await?;
    let slot = place.slot().await?;
    Refused::new("operatory unknown", &call("operatory_id", &slot), 422, "unknown_reference")
        .stays(&place, async || place.put(&format!("/v1/operatories/{to_come}"), &operatory).await.map(|_| ()))
        .await?;
    let slot = place.slot().await?;
    Refused::new("service unknown", &call("service_id", &slot), 422, "unknown_reference")
        .stays(&place, async || place.put(&format!("/v1/services/{to_come}"), &place.service(30, 0)).await.map(|_| ()))
        .await?;
    let slot = place.slot().await?;
    let membership = format!("/v1/practitioners/{to_come}/clinics/{}", place.clinic);
    Refused::new("practitioner unknown", &call("practitioner_id", &slot), 422, "unknown_reference")
        .stays(&place, async || {
            place.put(&format!("/v1/practitioners/{to_come}"), &practitioner).await?;
            place.put(&membership, &json!({"active": true})).await.map(|_| ())
        })
        .await?;
    place.put(&membership, &json!({"active": false})).await?;
    let slot = place.slot().await?;
    Refused::new("practitioner inactive here", &call("practitioner_id", &slot), 422, "inactive_reference")
        .stays(&place, async || place.put(&membership, &json!({"active": true})).await.map(|_| ()))
        .await
}

async fn appointment_refusals(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    Refused::new("not arrived", &place.act(&booked.id, "complete"), 409, "transition_not_allowed")
        .stays(&place, async || place.acts(&booked.id, &["check-in"]).await)
        .await?;
    let booked = place.book().await?;
    let guarded = place.act(&booked.id, "check-in").header("If-Match", "\"2\"");
    Refused::new("a version to come", &guarded, 412, "version_mismatch")
        .stays(&place, async || place.acts(&booked.id, &["confirm"]).await)
        .await?;
    let booked = place.book().await?;
    Refused::new("booked already", &booked.call, 409, "duplicate_intent")
        .stays(&place, async || place.acts(&booked.id, &["cancel"]).await)
        .await
}

async fn not_consumed(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let body = call.body_json();
    let huge = format!("{body}{}", " ".repeat(64 * 1024));
    let elsewhere = world.id();
    let wrong: Vec<(&str, Call, u16)> = vec![
        ("half a body", call.clone().text(body.to_string().trim_end_matches('}')), 400),
        ("an unknown member", call.with("colour", "red"), 400),
        ("no patient", call.leaving_out("patient_id"), 400),
        ("no body", call.clone().text(""), 400),
        ("an unknown query parameter", call.at("/v1/appointments?dry_run=true"), 400),
        ("text/plain", call.clone().typed("text/plain", body.to_string()), 415),
        ("no media type", call.clone().without("content-type"), 415),
        ("too large", call.clone().text(huge), 413),
        ("a clinic that is none", call.with("clinic_id", elsewhere.as_str()), 403),
        ("a credential that is none", call.clone().without("authorization"), 401),
    ];
    let mut tally = place.tally().await?;
    for (about, call, status) in &wrong {
        let answer = call.send().await?;
        answer.is(*status).about(about)?;
        tally.grew(&Growth::REFUSED, &answer).await.about(about)?;
    }
    let answer = call.send().await?;
    answer.is(201)?.replayed(false)?;
    for (about, call, status) in wrong {
        call.send().await?.is(status).about(format!("{about}, the key used"))?;
    }
    call.send().await?.replays(&answer)?;
    // The same for a row in the path, which is looked for before the key is.
    let booked = place.book().await?;
    let key = world.key();
    place.act(&world.id(), "confirm").key(&key).send().await?.refused(404, "not_found")?;
    place.act(&booked.id, "confirm").key(&key).send().await?.is(200)?.replayed(false)?;
    Ok(())
}

async fn too_large(world: &World) -> Verdict {
    const LIMIT: usize = 64 * 1024;
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let body = call.body_json().to_string();
    let padded = |size: usize| format!("{body}{}", " ".repeat(size - body.len()));
    for size in [LIMIT + 1, 2 * LIMIT, 1_000_000] {
        let large = call.clone().text(padded(size));
        large.send_raw().await?.refused(413, "body_too_large").about(format!("{size} bytes"))?;
        let chunked = large.header("Transfer-Encoding", "chunked").send_raw().await?;
        chunked.refused(413, "body_too_large").about(format!("{size} bytes in chunks"))?;
    }
    let promised = call.clone().header("Content-Length", "100000000000").send_raw().await?;
    promised.refused(413, "body_too_large").about("a length of 100 GB and no body")?;
    let note = "n".repeat(LIMIT);
    call.with("note", note).send_raw().await?.refused(413, "body_too_large").about("a long note")?;
    call.clone().text(padded(LIMIT)).send_raw().await?.is(201).about("exactly 64 KiB")?;
    let replay = call.clone().text(padded(LIMIT)).header("Transfer-Encoding", "chunked").send_raw().await?;
    replay.is(201)?.replayed(true).about("exactly 64 KiB in chunks")?;
    Ok(())
}

async fn media_types(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let body = call.body_json().to_string();
    for media_type in [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/xml",
        "application/octet-stream",
        "json",
        "*/*",
        "",
    ] {
        let answer = call.clone().typed(media_type, body.clone()).send().await?;
        answer.refused(415, "unsupported_media_type").about(format!("{media_type:?}"))?;
    }
    call.clone().without("content-type").send().await?.refused(415, "unsupported_media_type").about("none")?;
    let first = call.send().await?;
    first.is(201)?;
    for media_type in ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"] {
        let answer = call.clone().typed(media_type, body.clone()).send().await?;
        answer.replays(&first).about(media_type)?;
    }
    let path = format!("/v1/patients/{}", world.id());
    let put = world.admin().put(path).typed("text/plain", Value::to_string(&patient_body()));
    put.send().await?.refused(415, "unsupported_media_type")?;
    Ok(())
}
