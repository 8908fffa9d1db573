//! "At the same time" of `docs/CONFORMANCE.md`: races that need nothing but many requests at one moment. Requests take
//! turns between both processes, where there are two.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::answer::Answer;
use super::call::{Call, all_at_once};
use super::case::{About as _, Case, Verdict, ensure};
use super::database::Growth;
use super::fixture::{Place, Settings, Slot, text};
use super::operations::Operation;
use super::world::World;

/// As many as race for one thing.
const RACERS: usize = 20;
/// One owner and 32 waiters: the most that one process serves for one key.
const OF_ONE_KEY: usize = 33;

/// Cases 9, 11 and 15.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(9, "one booking many times at once: one appointment, one answer", |w| Box::pin(one_key(w))),
        Case::new(9, "any command many times at once: carried out once, one answer", |w| Box::pin(any_command(w))),
        Case::new(11, "one key, two commands at once, 50 rounds: one commits, the loser leaves nothing", |w| {
            Box::pin(two_commands(w))
        }),
        Case::new(15, "20 keys for one slot: one winner, the rest slot_taken", |w| {
            Box::pin(without_deadlock(w, one_slot(w)))
        }),
        Case::new(15, "20 moves into one slot: one winner, the rest slot_taken", |w| {
            Box::pin(without_deadlock(w, moves(w)))
        }),
        Case::new(15, "moves and bookings into 2 practitioners and 2 operatories: nobody twice", |w| {
            Box::pin(without_deadlock(w, crossed(w)))
        }),
        Case::new(15, "20 keys moving one appointment: one after another, or one by If-Match", |w| {
            Box::pin(without_deadlock(w, one_appointment(w)))
        }),
        Case::new(15, "20 keys for one visit: one winner, the rest duplicate_intent", |w| Box::pin(one_visit(w))),
        Case::new(15, "20 keys for one external id: one winner, the rest 409", |w| Box::pin(one_external_id(w))),
        Case::new(15, "blocks against bookings: one winner", |w| Box::pin(without_deadlock(w, blocks(w)))),
        Case::new(15, "20 keys cancelling and checking in one appointment: each done or refused", |w| {
            Box::pin(without_deadlock(w, transitions(w)))
        }),
        Case::new(15, "20 keys reopening into one slot: one winner", |w| Box::pin(without_deadlock(w, reopened(w)))),
    ]
}

/// Passes if the race does, and nobody in it had to be shot to let the others go on.
pub(super) async fn without_deadlock(world: &World, race: impl Future<Output = Verdict> + Send) -> Verdict {
    let Some(database) = world.database_if_any() else { return race.await };
    let before = database.deadlocks().await?;
    race.await?;
    // A session tells of its deadlocks at the end of a statement, and not twice within a second: so each is given another.
    sleep(Duration::from_millis(1100)).await;
    all_at_once(vec![world.admin().get("/v1/clinics").spread(); 2 * RACERS]).await?;
    let deadlocks = database.deadlocks().await? - before;
    ensure(deadlocks == 0, "no deadlock in Postgres", deadlocks.to_string())
}

async fn one_key(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    // Two processes take 50; one alone only as many as may wait on one key.
    let many = if place.client.processes() > 1 { 50 } else { OF_ONE_KEY };
    for _ in 0..5 {
        let slot = place.slot().await?;
        let call = place.book_call(&slot).key(&world.key()).spread();
        let mut tally = place.tally().await?;
        let answers = all_at_once(vec![call; many]).await?;
        once(&answers, 201)?;
        tally.grew(&Growth::BOOKING, &answers[0]).await?;
    }
    Ok(())
}

async fn any_command(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let call = prepared.call.key(&world.key()).spread();
        let mut tally = place.tally().await?;
        let answers = all_at_once(vec![call; 16]).await?;
        once(&answers, prepared.status).about(format!("{operation:?}"))?;
        tally.grew(&prepared.growth, &answers[0]).await.about(format!("{operation:?}"))?;
    }
    Ok(())
}

/// Passes if all are one answer, and one of them is not a replay.
pub(super) fn once(answers: &[Answer], status: u16) -> Verdict {
    for answer in answers {
        answer.is(status)?.same_as(&answers[0])?;
    }
    let first = answers.iter().filter(|answer| answer.header("idempotent-replayed") == Some("false")).count();
    ensure(first == 1, "one answer with Idempotent-Replayed: false", format!("{first} of {}", answers.len()))
}

async fn two_commands(world: &World) -> Verdict {
    const ROUNDS: usize = 50;
    let place = Place::fresh(world).await?;
    let mut booked = HashSet::new();
    for round in 0..ROUNDS {
        let (one, other) = (place.slot().await?, place.slot().await?);
        let key = world.key();
        let mut calls = vec![place.book_call(&one).key(&key).spread(), place.book_call(&other).key(&key).spread()];
        if round % 2 == 1 {
            calls.reverse();
        }
        let answers = all_at_once(calls).await?;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
        answers[0].ensure(won.len() == 1, format!("one of both to win, not {}", won.len()))?;
        lost[0].refused(409, "idempotency_key_reused")?;
        booked.insert(won[0].member("id")?);
    }
    let listed = everything(&place).await?;
    let strays = listed.iter().filter(|item| !booked.contains(&text(item, "id"))).count();
    ensure(
        listed.len() == ROUNDS && strays == 0,
        format!("{ROUNDS} appointments"),
        format!("{}, {strays} of losers", listed.len()),
    )?;
    let prepared = Operation::Reschedule.prepare(&place).await?;
    for round in 0..10 {
        let key = world.key();
        let to = |slot: &Slot| json!({"start": slot.start.to_string(), "practitioner_id": slot.practitioner});
        let (one, other) = (place.slot().await?, place.slot().await?);
        let calls = [one, other].iter().map(|slot| prepared.call.clone().json(&to(slot)).key(&key).spread()).collect();
        let answers = all_at_once(calls).await?;
        let won = answers.iter().filter(|answer| answer.status == 200).count();
        answers[0].ensure(won == 1, format!("round {round}: one move of both, not {won}"))?;
    }
    Ok(())
}

/// All visits of a fresh clinic.
async fn everything(place: &Place<'_>) -> Verdict<Vec<Value>> {
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let (from, to) = (place.at(place.working_day(0), 0, 0), place.at(place.working_day(20), 0, 0));
        let path = format!("/v1/appointments?clinic_id={}&from={from}&to={to}&limit=200{after}", place.clinic);
        let page = place.client.get(path).send().await?;
        items.extend(page.is(200)?.items()?);
        match page.json()?["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(items),
        }
    }
}

/// One winner with this status, all others with this code.
pub(super) fn one_winner(answers: &[Answer], status: u16, code: &str) -> Verdict {
    let won = answers.iter().filter(|answer| answer.status == status).count();
    answers[0].ensure(won == 1, format!("one winner, not {won}, of {}", answers.len()))?;
    for lost in answers.iter().filter(|answer| answer.status != status) {
        lost.refused(409, code)?;
    }
    Ok(())
}

async fn crowd(world: &World) -> Verdict<Place<'_>> {
    Place::with(world, Settings { patients: RACERS, practitioners: 4, ..Settings::default() }).await
}

/// A booking of this slot for each of the place's patients, under a key of its own.
fn rivals(place: &Place<'_>, slot: &Slot) -> Vec<Call> {
    let slots = place.patients.iter().map(|patient| Slot { patient: patient.clone(), ..slot.clone() });
    slots.map(|slot| place.book_call(&slot).key(&place.world.key()).spread()).collect()
}

async fn one_slot(world: &World) -> Verdict {
    let place = crowd(world).await?;
    for _ in 0..5 {
        let slot = place.slot().await?;
        let mut tally = place.tally().await?;
        let answers = all_at_once(rivals(&place, &slot)).await?;
        one_winner(&answers, 201, "slot_taken")?;
        let stored = i64::try_from(answers.len()).unwrap_or(0);
        tally.grew(&Growth { keys: stored, audit: (0, stored), ..Growth::BOOKING }, &answers[0]).await?;
    }
    // The same operatory with different practitioners, and overlapping instead of equal times.
    let slot = place.untouched_hour().await?;
    let room = place.operatories[0].as_str();
    let seats = place.practitioners.iter().cycle();
    let calls = rivals(&place, &slot).into_iter().zip(seats).enumerate();
    let calls = calls.map(|(at, (call, seat))| {
        let start = slot.later(if at % 2 == 0 { 0 } else { 15 }).start.to_string();
        call.with("practitioner_id", seat.as_str()).with("operatory_id", room).with("start", start)
    });
    one_winner(&all_at_once(calls.collect()).await?, 201, "slot_taken").about("one operatory")
}

async fn moves(world: &World) -> Verdict {
    let place = crowd(world).await?;
    for _ in 0..3 {
        let mut calls = Vec::new();
        let goal = place.slot().await?;
        for _ in 0..RACERS {
            let booked = place.book().await?;
            let to = json!({"start": goal.start.to_string(), "practitioner_id": goal.practitioner});
            calls.push(place.act(&booked.id, "reschedule").json(&to).key(&world.key()).spread());
        }
        one_winner(&all_at_once(calls).await?, 200, "slot_taken")?;
    }
    Ok(())
}

async fn crossed(world: &World) -> Verdict {
    let place = Place::with(world, Settings { patients: RACERS, ..Settings::default() }).await?;
    for round in 0..5 {
        let goal = place.untouched_hour().await?;
        let _other_ones = place.slot().await?;
        let mut calls = Vec::new();
        for (at, patient) in place.patients.iter().enumerate() {
            let (seat, room) = (&place.practitioners[at % 2], &place.operatories[at / 2 % 2]);
            let slot = Slot { practitioner: seat.clone(), patient: patient.clone(), start: goal.start };
            let call = if at % 3 == 0 {
                // Of the same patient, or two of these would be one visit.
                let from = Slot { patient: patient.clone(), ..place.slot().await? };
                let booked = place.booked(from.clone(), place.book_call(&from)).await?;
                let to = json!({"start": goal.start.to_string(), "practitioner_id": seat, "operatory_id": room});
                place.act(&booked.id, "reschedule").json(&to)
            } else {
                place.book_call(&slot).with("operatory_id", room.as_str())
            };
            calls.push(call.key(&world.key()).spread());
        }
        let answers = all_at_once(calls).await?;
        let mut held = HashSet::new();
        let mut winners = 0;
        for answer in &answers {
            if answer.status / 100 != 2 {
                answer.refused(409, "slot_taken")?;
                continue;
            }
            winners += 1;
            for resource in ["practitioner_id", "operatory_id"] {
                answer.ensure(held.insert(answer.member(resource)?), format!("each {resource} once"))?;
            }
        }
        // Practitioner 1 with room 1 shuts out everyone but practitioner 2 with room 2.
        ensure((1..=2).contains(&winners), format!("round {round}: one or two winners"), winners.to_string())?;
    }
    Ok(())
}

async fn one_appointment(world: &World) -> Verdict {
    let place = crowd(world).await?;
    let booked = place.book().await?;
    let mut calls = Vec::new();
    for _ in 0..RACERS {
        let to = place.slot().await?;
        let to = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
        calls.push(place.act(&booked.id, "reschedule").json(&to).spread());
    }
    let unguarded = calls.iter().map(|call| call.key(&world.key())).collect();
    for answer in all_at_once(unguarded).await? {
        answer.is(200)?;
    }
    let read = place.client.get(format!("/v1/appointments/{}", booked.id)).send().await?;
    read.ensure(read.json()?["version"] == RACERS + 1, format!("version {}: each move once", RACERS + 1))?;
    let etag = read.header("etag").unwrap_or_default().to_owned();
    let mut guarded = Vec::new();
    for _ in 0..RACERS {
        let to = place.slot().await?;
        let to = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
        let call = place.act(&booked.id, "reschedule").json(&to).header("If-Match", etag.as_str());
        guarded.push(call.key(&world.key()).spread());
    }
    let answers = all_at_once(guarded).await?;
    let won = answers.iter().filter(|answer| answer.status == 200).count();
    answers[0].ensure(won == 1, format!("one winner by If-Match, not {won}"))?;
    for lost in answers.iter().filter(|answer| answer.status != 200) {
        lost.refused(412, "version_mismatch")?;
    }
    Ok(())
}

async fn one_visit(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for _ in 0..5 {
        let slot = place.slot().await?;
        let calls = (0..RACERS).map(|_| place.book_call(&slot).key(&world.key()).spread());
        one_winner(&all_at_once(calls.collect()).await?, 201, "duplicate_intent")?;
    }
    Ok(())
}

async fn one_external_id(world: &World) -> Verdict {
    let place = crowd(world).await?;
    let external = json!({"system": "pms", "id": world.id()});
    let mut calls = Vec::new();
    for _ in 0..RACERS {
        let slot = place.slot().await?;
        calls.push(place.book_call(&slot).with("external", external.clone()).key(&world.key()).spread());
    }
    let answers = all_at_once(calls).await?;
    let won = answers.iter().filter(|answer| answer.status == 201).count();
    answers[0].ensure(won == 1, format!("one winner, not {won}"))?;
    for lost in answers.iter().filter(|answer| answer.status != 201) {
        lost.is(409)?.ensure(!lost.code().is_empty(), "a code")?;
    }
    Ok(())
}

async fn blocks(world: &World) -> Verdict {
    let place = crowd(world).await?;
    let slot = place.slot().await?;
    let block = json!({
        "clinic_id": place.clinic, "practitioner_id": slot.practitioner,
        "start": slot.start.to_string(), "end": slot.later(60).start.to_string(),
    });
    let mut calls = rivals(&place, &slot);
    for _ in 0..RACERS {
        calls.push(place.client.post("/v1/blocks").json(&block).key(&world.key()).spread());
    }
    one_winner(&all_at_once(calls).await?, 201, "slot_taken")
}

async fn transitions(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let actions = ["cancel", "check-in", "confirm", "no-show"].into_iter().cycle().take(RACERS);
    let calls = actions.map(|action| place.act(&booked.id, action).key(&world.key()).spread());
    for answer in all_at_once(calls.collect()).await? {
        if answer.status != 200 {
            answer.refused(409, "transition_not_allowed")?;
        }
    }
    Ok(())
}

async fn reopened(world: &World) -> Verdict {
    let place = crowd(world).await?;
    let slot = place.slot().await?;
    let mut calls = Vec::new();
    for patient in &place.patients {
        let slot = Slot { patient: patient.clone(), ..slot.clone() };
        let booked = place.booked(slot.clone(), place.book_call(&slot)).await?;
        place.acts(&booked.id, &["cancel"]).await?;
        calls.push(place.act(&booked.id, "reopen").key(&world.key()).spread());
    }
    one_winner(&all_at_once(calls).await?, 200, "slot_taken")
}
