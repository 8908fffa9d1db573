//! "Expiry and clock" of `docs/CONFORMANCE.md`: how long a key is kept, and what follows.

use jiff::{Timestamp, ToSpan as _};
use serde_json::json;

use super::answer::Answer;
use super::call::all_at_once;
use super::case::{About as _, Case, Need, Verdict, ensure};
use super::concurrency::once;
use super::database::Growth;
use super::fixture::{Place, Settings, plus};
use super::operations::Operation;
use super::world::World;

/// Cases 44 to 46.
pub(super) fn cases() -> Vec<Case> {
    const DATABASE: &[Need] = &[Need::Database];
    vec![
        Case::new(44, "just before it expires a key replays; after it, the command is new", |w| Box::pin(edges(w)))
            .needs(DATABASE),
        Case::new(44, "20 at once just after a key expired: one owner", |w| Box::pin(at_once_after(w))).needs(DATABASE),
        Case::new(45, "keys that expire while they are used: never a 5xx; an index stands behind the purge", |w| {
            Box::pin(purge(w))
        })
        .needs(DATABASE),
        Case::new(46, "Idempotency-Expires: a success 7 days past its end, a refusal 24 h", |w| Box::pin(told(w))),
        Case::new(46, "the clinic says how many days", |w| Box::pin(retention(w))),
        Case::new(46, "the row expires when the header says", |w| Box::pin(stored(w))).needs(DATABASE),
    ]
}

async fn edges(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let database = world.database()?;
    let booked = place.book().await?;
    database.expire(&place.clinic, &booked.key, 30.0).await?;
    let again = booked.call.send().await?;
    again.ensure(again.status == 201 && again.body == booked.answer.body, "a replay 30 s before the expiry")?;
    again.replayed(true)?;
    // Still booked, so the new command is refused by the rules: it is a command, not a replay.
    // Counted before it expires: from then on the janitor may take the old row, too.
    let mut tally = place.tally().await?;
    database.expire(&place.clinic, &booked.key, -1.0).await?;
    let anew = booked.call.send().await?;
    anew.refused(409, "duplicate_intent").about("a new command while the visit is booked")?;
    anew.replayed(false)?;
    // The old row went, the new one came.
    tally.grew(&Growth { keys: 0, ..Growth::KEY }, &anew).await?;
    booked.call.send().await?.replays(&anew)?;
    place.acts(&booked.id, &["cancel"]).await?;
    for seconds in [-1.0, -86_400.0, -0.001] {
        database.expire(&place.clinic, &booked.key, seconds).await?;
        let anew = booked.call.send().await?;
        anew.is(201)?.replayed(false).about(format!("{seconds} s after the expiry"))?;
        let id = anew.member("id")?;
        ensure(id != booked.id, "an appointment of its own", id.clone())?;
        booked.call.send().await?.replays(&anew)?;
        place.acts(&id, &["cancel"]).await?;
    }
    // Another command under the expired key is no reuse of it.
    database.expire(&place.clinic, &booked.key, -1.0).await?;
    booked.call.with("note", "another").send().await?.is(201)?.replayed(false)?;
    for operation in Operation::on_an_appointment() {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        super::contract::carried_out(&prepared, &key).await?;
        database.expire(&place.clinic, &key, -1.0).await?;
        let anew = prepared.call.key(&key).send().await?;
        anew.replayed(false).about(format!("{operation:?}"))?;
        anew.ensure(anew.status < 500, "an answer by the rules").about(format!("{operation:?}"))?;
    }
    Ok(())
}

async fn at_once_after(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for _ in 0..5 {
        let booked = place.book().await?;
        place.acts(&booked.id, &["cancel"]).await?;
        let mut tally = place.tally().await?;
        world.database()?.expire(&place.clinic, &booked.key, -0.5).await?;
        let answers = all_at_once(vec![booked.call.spread(); 20]).await?;
        once(&answers, 201)?;
        tally.grew(&Growth { keys: 0, ..Growth::BOOKING }, &answers[0]).await?;
    }
    Ok(())
}

async fn purge(world: &World) -> Verdict {
    let place = Place::with(world, Settings { practitioners: 8, ..Settings::default() }).await?;
    let database = world.database()?;
    ensure(database.has_expiry_index().await?, "an index of idempotency_keys by expires_at", "none")?;
    let mut calls = Vec::new();
    for at in 0..100_i32 {
        let booked = place.book().await?;
        place.acts(&booked.id, &["cancel"]).await?;
        // From a second ago to a second ahead: some expire, and may be purged, under the requests' feet.
        database.expire(&place.clinic, &booked.key, f64::from(at - 50) / 50.0).await?;
        calls.push(booked.call.spread());
    }
    for _ in 0..3 {
        for answer in all_at_once(calls.clone()).await? {
            answer.is(201)?;
        }
    }
    Ok(())
}

/// What `Idempotency-Expires` says.
fn expires(answer: &Answer) -> Verdict<Timestamp> {
    let told = answer.header("idempotency-expires").and_then(|at| at.parse().ok());
    told.map_or_else(|| answer.ensure(false, "Idempotency-Expires, RFC 3339").map(|_| Timestamp::MIN), Ok)
}

/// Passes if it expires so many days past this end.
fn days_past(answer: &Answer, end: Timestamp, days: i64) -> Verdict {
    let due = end.checked_add((days * 24).hours()).unwrap_or(end);
    answer.ensure(expires(answer)? == due, format!("Idempotency-Expires: {due}, {days} days past the end")).map(|_| ())
}

/// Passes if it expires a day from now, give or take this machine's clock.
fn a_day_from(answer: &Answer, now: Timestamp) -> Verdict {
    let due = plus(now, 24 * 60);
    let off = expires(answer)?.duration_since(due).as_secs().abs();
    answer.ensure(off < 120, format!("Idempotency-Expires about {due}, 24 h ahead")).map(|_| ())
}

async fn told(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    days_past(&booked.answer, booked.slot.later(30).start, 7)?;
    let again = booked.call.send().await?;
    again.ensure(expires(&again)? == expires(&booked.answer)?, "the same expiry on a replay")?;
    let to = place.slot().await?;
    let body = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
    let moved = place.act(&booked.id, "reschedule").json(&body).key(&world.key()).send().await?;
    days_past(moved.is(200)?, to.later(30).start, 7).about("a move, by its new end")?;
    for action in ["confirm", "check-in", "complete"] {
        let answer = place.act(&booked.id, action).key(&world.key()).send().await?;
        days_past(answer.is(200)?, to.later(30).start, 7).about(action)?;
    }
    let unchanged = place.act(&booked.id, "complete").key(&world.key()).send().await?;
    days_past(unchanged.is(200)?, to.later(30).start, 7).about("as it was already")?;
    let block = Operation::Block.prepare(&place).await?;
    let answer = block.call.key(&world.key()).send().await?;
    let end = block.call.body_json()["end"].as_str().unwrap_or_default().parse().unwrap_or(Timestamp::MIN);
    days_past(answer.is(201)?, end, 7).about("a block")?;

    let taken = place.book().await?;
    let patient = place.patients.iter().find(|id| **id != taken.slot.patient).cloned();
    for (about, call) in [
        ("slot_taken", taken.call.with("patient_id", json!(patient))),
        ("duplicate_intent", taken.call.clone()),
        ("unknown_reference", taken.call.with("patient_id", world.id())),
        ("transition_not_allowed", place.act(&taken.id, "complete")),
        ("version_mismatch", place.act(&taken.id, "confirm").header("If-Match", "\"9\"")),
    ] {
        let answer = call.key(&world.key()).send().await?;
        answer.ensure(answer.code() == about, about)?;
        a_day_from(&answer, world.now()).about(about)?;
    }
    let malformed = taken.call.with("colour", "red").key(&world.key()).send().await?;
    malformed.is(400)?.ensure(malformed.header("idempotency-expires").is_none(), "no expiry of what is not stored")?;
    Ok(())
}

async fn retention(world: &World) -> Verdict {
    for days in [1_u32, 30, 365] {
        let place = Place::with(world, Settings { key_retention_days: days, ..Settings::default() }).await?;
        let booked = place.book().await?;
        days_past(&booked.answer, booked.slot.later(30).start, i64::from(days))?;
        // Fixed when stored: the clinic may think otherwise later.
        place.settle(&Settings { key_retention_days: 2, ..Settings::default() }).await?;
        booked.call.send().await?.replays(&booked.answer)?;
    }
    Ok(())
}

async fn stored(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let database = world.database()?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let answer = super::contract::carried_out(&prepared, &key).await?;
        let row = database.key(&place.clinic, &key).await?;
        let told = expires(&answer)?.as_microsecond();
        let kept = row.map(|row| row.expires_micros);
        // The header may leave fractions of a second out, but never promise more than is kept.
        let matches = kept.is_some_and(|kept| (0..1_000_000).contains(&(kept - told)));
        answer.ensure(matches, format!("{operation:?}: a row that expires at {told} µs, not {kept:?}"))?;
        let a_day = 24 * 3600 * 1_000_000;
        answer.ensure(row.is_some_and(|row| row.expires_micros - row.created_micros >= a_day), "at least 24 h")?;
    }
    Ok(())
}
