//! Commands held up by a row locked from outside: what callers are told while an owner is at work (cases 10, 12), and what
//! remains when the database fails it (cases 16, 17, 21, 26). All of them need the database. Those of many who wait are in
//! `waiting.rs`.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::answer::Answer;
use super::call::{Call, all_at_once};
use super::case::{About as _, Case, Need, Verdict, ensure, failed, skip};
use super::concurrency::once;
use super::database::{Disturbance, Growth, Hold, Row};
use super::fixture::{Place, Settings, text};
use super::operations::{Operation, Prepared};
use super::world::World;

/// "At once", as `docs/CONFORMANCE.md` puts it.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Cases 7, 10, 12, 16, 17, 21 and 26.
pub(super) fn cases() -> Vec<Case> {
    const DATABASE: &[Need] = &[Need::Database];
    vec![
        Case::new(7, "a key in flight has a code of its own, and Retry-After", |w| Box::pin(not_let_go(w)))
            .needs(DATABASE),
        Case::new(10, "the owner held up: another command under its key is refused at once, in any process", |w| {
            Box::pin(another_command(w))
        })
        .needs(DATABASE),
        Case::new(12, "the owner let go within the wait: a duplicate gets the owner's bytes, in any process", |w| {
            Box::pin(let_go(w))
        })
        .needs(DATABASE),
        Case::new(12, "the owner not let go: in flight at the bound; it commits later; a retry replays", |w| {
            Box::pin(not_let_go(w))
        })
        .needs(DATABASE),
        Case::new(16, "a cancelled statement, a lost connection, a deadlock: the caller sees one success", |w| {
            Box::pin(disturbed(w))
        })
        .needs(DATABASE),
        Case::new(17, "the owner fails with 503 while duplicates wait: nothing stored, one next try executes", |w| {
            Box::pin(owner_fails(w))
        })
        .needs(DATABASE),
        Case::new(21, "the client hangs up while the command runs: it finishes, the retry replays", |w| {
            Box::pin(hung_up(w))
        })
        .needs(&[Need::Database, Need::PlainHttp]),
        Case::new(26, "a 503 under a key is not stored: the key executes again, for every command", |w| {
            Box::pin(unavailable(w))
        })
        .needs(DATABASE),
    ]
}

/// A command that hangs on a row of ours.
pub(super) struct Stuck {
    pub(super) hold: Hold,
    owner: JoinSet<Verdict<Answer>>,
    pid: i32,
}

impl Stuck {
    /// Locks what the command needs, sends it, and waits until it hangs.
    pub(super) async fn on(place: &Place<'_>, prepared: &Prepared, call: &Call) -> Verdict<Self> {
        let mut hold = held(place, prepared).await?;
        let mut owner = JoinSet::new();
        let call = call.clone();
        owner.spawn(async move { call.send().await });
        let pid = hold.awaited().await.about(format!("{:?}", prepared.operation))?;
        Ok(Self { hold, owner, pid })
    }

    /// Lets the owner go on; its answer.
    pub(super) async fn release(mut self) -> Verdict<Answer> {
        self.hold.release().await?;
        joined(&mut self.owner).await
    }
}

/// Locks what the command needs.
async fn held(place: &Place<'_>, prepared: &Prepared) -> Verdict<Hold> {
    let body = prepared.call.body_json();
    let (row, id) = match (prepared.operation, &prepared.id) {
        (Operation::Block, _) => (Row::Membership, text(&body, "practitioner_id")),
        (_, Some(id)) => (Row::Appointment, id.clone()),
        (_, None) => (Row::Patient, text(&body, "patient_id")),
    };
    place.world.database()?.hold(row, &id).await
}

async fn joined(tasks: &mut JoinSet<Verdict<Answer>>) -> Verdict<Answer> {
    match tasks.join_next().await {
        Some(Ok(answer)) => answer,
        _ => failed("an answer", "the client's task ended without one"),
    }
}

/// Sends them at once, without waiting for answers.
pub(super) fn sent(calls: Vec<Call>) -> JoinSet<Verdict<Vec<Answer>>> {
    let mut tasks = JoinSet::new();
    tasks.spawn(all_at_once(calls));
    tasks
}

pub(super) async fn answers(mut sent: JoinSet<Verdict<Vec<Answer>>>) -> Verdict<Vec<Answer>> {
    match sent.join_next().await {
        Some(Ok(answers)) => answers,
        _ => failed("answers", "the client's task ended without them"),
    }
}

async fn another_command(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in [Operation::Book, Operation::Confirm, Operation::Reschedule, Operation::Cancel, Operation::Block] {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        // Connections are open and statements prepared before time is taken.
        prepared.other.key("bad key").spread().send().await?;
        let stuck = Stuck::on(&place, &prepared, &prepared.call.key(&key)).await?;
        for call in [prepared.other.key(&key), prepared.other.key(&key).at_peer()] {
            let mut quickest = Duration::MAX;
            for _ in 0..3 {
                let answer = call.send().await?;
                answer.refused(409, "idempotency_key_reused").about(format!("{operation:?}"))?;
                answer.ensure(answer.header("retry-after").is_none(), "no Retry-After")?;
                quickest = quickest.min(answer.took);
            }
            ensure(quickest <= AT_ONCE, format!("{operation:?}: refused within {AT_ONCE:?}"), format!("{quickest:?}"))?;
        }
        stuck.release().await?.is(prepared.status)?.replayed(false)?;
    }
    Ok(())
}

async fn let_go(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let call = prepared.call.key(&world.key());
        let mut tally = place.tally().await?;
        let stuck = Stuck::on(&place, &prepared, &call).await?;
        let duplicates = sent(vec![call.clone(), call.at_peer(), call.clone(), call.at_peer()]);
        sleep(Duration::from_millis(300)).await;
        let owner = stuck.release().await?;
        owner.is(prepared.status).and_then(|owner| owner.replayed(false)).about(format!("{operation:?}"))?;
        for duplicate in answers(duplicates).await? {
            duplicate.replays(&owner).about(format!("{operation:?}"))?;
        }
        tally.grew(&prepared.growth, &owner).await.about(format!("{operation:?}"))?;
    }
    Ok(())
}

async fn not_let_go(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in [Operation::Book, Operation::NoShow] {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let call = prepared.call.key(&key);
        let stuck = Stuck::on(&place, &prepared, &call).await?;
        let asked = place.client.get(format!("/v1/commands?clinic_id={}", place.clinic)).key(&key);
        for asked in [asked.clone(), asked.spread(), asked.spread()] {
            let state = asked.send().await?;
            state.is(200)?.ensure(state.json()?["state"] == "running", "state running")?;
        }
        for duplicate in all_at_once(vec![call.clone(), call.at_peer()]).await? {
            duplicate.refused(409, "idempotency_in_flight").about(format!("{operation:?}"))?;
            duplicate.ensure(duplicate.header("retry-after").is_some(), "Retry-After")?;
            let bound = Duration::from_millis(1800)..Duration::from_millis(3500);
            duplicate.ensure(bound.contains(&duplicate.took), "an answer after the wait of 2 s")?;
        }
        let owner = stuck.release().await?;
        owner.is(prepared.status)?.replayed(false)?;
        call.spread().send().await?.replays(&owner)?;
        call.at_peer().send().await?.replays(&owner)?;
    }
    Ok(())
}

/// So many practitioners and patients that no two commands of a case share one: commands of one practitioner take turns,
/// and a booking looks at its patient's row, which a case may hold.
pub(super) async fn roomy(world: &World) -> Verdict<Place<'_>> {
    Place::with(world, Settings { practitioners: 40, patients: 40, ..Settings::default() }).await
}

async fn disturbed(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in [Operation::Book, Operation::CheckIn, Operation::Reschedule, Operation::Block] {
        for how in [Some(Disturbance::Cancel), Some(Disturbance::Terminate), None] {
            let about = format!("{operation:?}, {}", how.map_or("lock timeout".to_owned(), |how| format!("{how:?}")));
            let prepared = operation.prepare(&place).await?;
            let call = prepared.call.key(&world.key());
            let mut tally = place.tally().await?;
            let stuck = Stuck::on(&place, &prepared, &call).await?;
            match how {
                Some(how) => world.database()?.disturb(stuck.pid, how).await?,
                None => sleep(Duration::from_millis(1800)).await,
            }
            let answer = stuck.release().await?;
            answer.is(prepared.status).and_then(|answer| answer.replayed(false)).about(&about)?;
            tally.grew(&prepared.growth, &answer).await.about(&about)?;
            call.send().await?.replays(&answer).about(&about)?;
        }
        if !deadlocked(&place, operation).await.about(format!("{operation:?}, deadlock"))? {
            return skip("commands hold no advisory lock, so no deadlock can be made from outside");
        }
    }
    Ok(())
}

/// Makes the command the one Postgres ends for a deadlock; it must succeed all the same. False where it holds no lock.
async fn deadlocked(place: &Place<'_>, operation: Operation) -> Verdict<bool> {
    for _ in 0..5 {
        let prepared = operation.prepare(place).await?;
        let mut stuck = Stuck::on(place, &prepared, &prepared.call.key(&place.world.key())).await?;
        let made = stuck.hold.deadlock_with(stuck.pid).await?;
        let answer = joined(&mut stuck.owner).await?;
        // The lock may be the key's own, and the check, on a busy machine, slower in letting it go than the command in
        // trying again: then another was at work on the key indeed.
        if answer.code() != "idempotency_key_reused" {
            answer.is(prepared.status)?;
            return Ok(made);
        }
    }
    failed("the command to succeed after a deadlock", "five times idempotency_key_reused")
}

async fn owner_fails(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let prepared = Operation::Book.prepare(&place).await?;
    let key = world.key();
    let call = prepared.call.key(&key);
    let mut tally = place.tally().await?;
    let mut stuck = Stuck::on(&place, &prepared, &call).await?;
    // These still wait when the owner's five seconds are over. None at the other process: between two tries of the owner it
    // might take the owner's place, and the owner be told so.
    sleep(Duration::from_millis(3600)).await;
    let waiting = sent(vec![call.clone(); 3]);
    let owner = joined(&mut stuck.owner).await?;
    owner.refused(503, "unavailable")?;
    owner.ensure(owner.took < Duration::from_secs(7), "503 after the command's 5 s")?;
    // A 503 says that the outcome is unknown: let go at once, the row could still be the owner's.
    stuck.hold.abandoned().await?;
    tally.grew(&Growth::REFUSED, &owner).await?;
    ensure(world.database()?.key(&place.clinic, &key).await?.is_none(), "no row of the key", "one")?;
    stuck.hold.release().await?;
    let next = all_at_once(vec![call.spread(); 6]).await?;
    let mut all = answers(waiting).await?;
    all.retain(|answer| !matches!(answer.code().as_str(), "idempotency_in_flight" | "unavailable"));
    all.extend(next);
    once(&all, 201)?;
    tally.grew(&Growth::BOOKING, &all[0]).await
}

async fn hung_up(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in [Operation::Book, Operation::Cancel] {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let call = prepared.call.key(&key);
        let mut hold = held(&place, &prepared).await?;
        call.send_and_hang_up(async { hold.awaited().await.map(|_| ()) }).await?;
        hold.release().await?;
        let mut finished = false;
        for _ in 0..300 {
            finished = world.database()?.key(&place.clinic, &key).await?.is_some();
            if finished {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        ensure(finished, format!("{operation:?} to finish though its caller hung up"), "nothing stored after 3 s")?;
        call.send().await?.is(prepared.status)?.replayed(true)?;
    }
    Ok(())
}

async fn unavailable(world: &World) -> Verdict {
    let place = roomy(world).await?;
    // One at a time would take five seconds each.
    let mut stuck = Vec::new();
    let mut tally = place.tally().await?;
    let mut prepared = Vec::new();
    for operation in Operation::ALL {
        prepared.push((operation.prepare(&place).await?, world.key()));
    }
    tally.restart().await?;
    for (prepared, key) in &prepared {
        stuck.push(Stuck::on(&place, prepared, &prepared.call.key(key)).await?);
    }
    let mut last = None;
    for (stuck, (prepared, _)) in stuck.iter_mut().zip(&prepared) {
        let answer = joined(&mut stuck.owner).await?;
        answer.refused(503, "unavailable").about(format!("{:?}", prepared.operation))?;
        last = Some(answer);
    }
    for stuck in &mut stuck {
        stuck.hold.abandoned().await?;
    }
    if let Some(answer) = last {
        tally.grew(&Growth { audit: (0, 10), ..Growth::NOTHING }, &answer).await?;
    }
    for stuck in stuck {
        stuck.hold.release().await?;
    }
    for (prepared, key) in &prepared {
        let again = prepared.call.key(key).send().await?;
        again.is(prepared.status)?.replayed(false).about(format!("{:?}", prepared.operation))?;
        tally.grew(&prepared.growth, &again).await.about(format!("{:?}", prepared.operation))?;
    }
    Ok(())
}
