//! Many who wait for one owner, held up by a row locked from outside (cases 13, 14, 18): how many may, what the others are
//! told meanwhile, and that nothing of it remains.

use std::time::Duration;

use tokio::time::sleep;

use super::case::{Case, Need, Stop, Verdict, ensure, skip};
use super::fixture::Place;
use super::held::{Stuck, answers, roomy, sent};
use super::operations::Operation;
use super::world::World;

/// As many as may wait for one key in one process (API.md, "Idempotency").
const WAITERS: usize = 32;
/// Cases 13, 14 and 18.
pub(super) fn cases() -> Vec<Case> {
    const DATABASE: &[Need] = &[Need::Database];
    vec![
        Case::new(13, "the 33rd waiter: 429 at once; a freed place can be used again", |w| Box::pin(waiters(w)))
            .needs(DATABASE),
        Case::new(14, "hundreds of duplicates of a held owner: other callers are served promptly", |w| {
            Box::pin(others_served(w))
        })
        .needs(DATABASE),
        Case::new(18, "after a storm the in-flight registry is empty", |w| Box::pin(registry_empties(w)))
            .needs(DATABASE),
    ]
}

async fn waiters(world: &World) -> Verdict {
    const MORE: usize = 8;
    let place = Place::fresh(world).await?;
    let prepared = Operation::Book.prepare(&place).await?;
    let call = prepared.call.key(&world.key());
    let stuck = Stuck::on(&place, &prepared, &call).await?;
    // All at once, so that who is turned away is told by their number, not by when they come.
    let mut turned_away = 0;
    for answer in answers(sent(vec![call.clone(); WAITERS + MORE])).await? {
        if answer.status == 429 {
            turned_away += 1;
            answer.refused(429, "idempotency_waiters_exceeded")?;
            answer.ensure(answer.header("retry-after").is_some(), "Retry-After")?;
            answer.ensure(answer.took < Duration::from_millis(1500), "an answer at once, not after the wait of 2 s")?;
        } else {
            answer.refused(409, "idempotency_in_flight")?;
        }
    }
    ensure(turned_away == MORE, format!("{MORE} of {} turned away", WAITERS + MORE), turned_away.to_string())?;
    // Their wait ended while the owner is still held up; then there is room for another.
    let next = sent(vec![call.clone()]);
    sleep(Duration::from_millis(200)).await;
    let owner = stuck.release().await?;
    owner.is(201)?.replayed(false)?;
    for answer in answers(next).await? {
        answer.replays(&owner)?;
    }
    Ok(())
}

async fn others_served(world: &World) -> Verdict {
    match storm(world).await {
        // Once more: the first may have met a busy machine. Callers who starve do so each time.
        Err(Stop::Failed(_)) => storm(world).await,
        other => other,
    }
}

async fn storm(world: &World) -> Verdict {
    const DUPLICATES: usize = 200;
    let place = roomy(world).await?;
    let prepared = Operation::Book.prepare(&place).await?;
    let call = prepared.call.key(&world.key());
    let mut stuck = Stuck::on(&place, &prepared, &call).await?;
    let processes = place.client.processes();
    let storm = sent(vec![call.spread(); DUPLICATES * processes]);
    sleep(Duration::from_millis(100)).await;
    for _ in 0..10 {
        for client in [place.client.clone(), place.client.peer()] {
            let slot = place.slot().await?;
            let other = place.book_call(&slot).under(&client).key(&world.key()).send().await?;
            other.is(201)?.ensure(other.took < Duration::from_secs(1), "another caller's booking within a second")?;
            let health = client.get("/healthz").send().await?;
            health.is(200)?.ensure(health.took < Duration::from_secs(1), "/healthz within a second")?;
        }
        let waiting = stuck.hold.waiting().await?;
        ensure(
            waiting.len() <= 1,
            "no backend to wait for the key but the owner's",
            format!("{} wait", waiting.len()),
        )?;
    }
    let owner = stuck.release().await?;
    owner.is(201)?;
    let (mut served, mut turned_away) = (0, 0);
    for answer in answers(storm).await? {
        match answer.status {
            201 => served += usize::from(answer.same_as(&owner).is_ok()),
            409 => served += usize::from(answer.code() == "idempotency_in_flight"),
            _ => turned_away += usize::from(answer.refused(429, "idempotency_waiters_exceeded").is_ok()),
        }
    }
    let told = format!("{served} served, {turned_away} turned away");
    ensure(served + turned_away == DUPLICATES * processes, "each of them answered by one of the three", told.clone())?;
    ensure(turned_away > 0, "more than 32 to be turned away", told)
}

async fn registry_empties(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let prepared = Operation::Book.prepare(&place).await?;
    let call = prepared.call.key(&world.key());
    let stuck = Stuck::on(&place, &prepared, &call).await?;
    let storm = sent(vec![call.clone(); 100]);
    sleep(Duration::from_millis(200)).await;
    stuck.release().await?.is(201)?;
    answers(storm).await?;
    let metrics = world.admin().get("/metrics").without("authorization").send().await?;
    if metrics.status == 404 {
        return skip("/metrics is not served here, but on the admin listener");
    }
    let text = metrics.is(200)?.text();
    let gauges = text.lines().filter(|line| !line.starts_with('#') && line.contains("in_flight"));
    let mut found = false;
    for gauge in gauges.filter(|line| !line.contains("_total")) {
        found = true;
        ensure(gauge.ends_with(" 0"), "an in-flight gauge of 0", gauge)?;
    }
    if found { Ok(()) } else { skip("/metrics has no gauge of the in-flight registry") }
}
