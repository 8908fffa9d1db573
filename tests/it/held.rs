//! A key held up in one process, and hundreds of duplicates sent to two: a few wait, without a connection, the rest are
//! told to come back, and nobody else notices. CONFORMANCE.md's cases 10, 12, 13 and 14.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::app::{Trial, Visit, eventually};
use crate::client::{Desk, Heard};
use crate::figures::{Figures, SHORT, Size};
use crate::hold::{Hold, waiting};

/// Duplicates sent to each process, and how many of them may wait there (API.md, "Idempotency").
const DUPLICATES: usize = 200;
const WAIT: usize = 32;

/// How long the other caller is measured, quiet and beside the waiting. Shorter than a duplicate waits.
const MEASURED: Duration = Duration::from_millis(1200);

/// "At once" (case 10).
const AT_ONCE: Duration = Duration::from_millis(100);

/// Another caller books, one visit after another, at both processes.
async fn others_book(trial: &Trial, desks: &[Desk; 2], next: &Arc<AtomicUsize>) -> [Figures; 2] {
    let mut booking = JoinSet::new();
    let until = Instant::now() + MEASURED;
    for (at, desk) in desks.iter().cloned().enumerate() {
        let next = Arc::clone(next);
        let visit = |n: usize| Visit { patient: 1 + n % 40, practitioner: 1 + n % 7, slot: n / 7, ..Visit::default() };
        let calls: Vec<_> = (0..2000).map(|_| trial.book(visit(next.fetch_add(1, Ordering::SeqCst)))).collect();
        booking.spawn(async move {
            let mut heard = Vec::new();
            for call in calls {
                if Instant::now() > until {
                    break;
                }
                heard.push(desk.say(&call).await.expect(201, ""));
            }
            (at, heard)
        });
    }
    let mut figures: [Figures; 2] = Default::default();
    for (at, heard) in booking.join_all().await {
        figures[at].add(&heard);
    }
    figures
}

/// One round; tells what the other caller measured at each process, quiet and beside it.
async fn round(
    trial: &Trial,
    desks: &[Desk; 2],
    n: usize,
    next: &Arc<AtomicUsize>,
    size: Size,
) -> ([Figures; 2], [Figures; 2]) {
    let quiet = others_book(trial, desks, next).await;
    let call = trial.book(Visit { slot: n, ..Visit::default() });
    let mut hold = Hold::patient(trial, 0).await;
    let refused: [Arc<AtomicUsize>; 2] = Default::default();
    let mut asking = JoinSet::new();
    let mut ask = |at: usize, call: crate::client::Call| {
        let (desk, refused) = (desks[at].clone(), Arc::clone(&refused[at]));
        asking.spawn(async move {
            let heard = desk.say(&call).await;
            refused.fetch_add(usize::from(heard.status == 429), Ordering::SeqCst);
            heard
        });
    };
    ask(0, call.clone());
    hold.waited_for_by(1).await;
    for n in 0..DUPLICATES * 2 {
        ask(n % 2, call.clone());
    }
    // The first at the other process asks the database who is at work, and then asks again: it waits too, for the rest there.
    let expected = [DUPLICATES - WAIT, DUPLICATES - 1 - WAIT];
    eventually("all but so many are told to come back", async || {
        [0, 1].map(|at| refused[at].load(Ordering::SeqCst)) == expected
    })
    .await;
    for desk in desks {
        let other = trial.book(Visit { slot: n, practitioner: 7, ..Visit::default() });
        let other = other.key(call.key.as_deref().expect("a key"));
        let heard = desk.say(&other).await.expect(409, "idempotency_key_reused");
        assert!(heard.header("retry-after").is_none() && (!size.strict || heard.took < AT_ONCE), "{heard:?}");
    }
    let (beside, ()) = tokio::join!(others_book(trial, desks, next), one_backend_waits(trial));
    hold.let_go().await;
    let heard = asking.join_all().await;
    settled(&heard);
    assert!(desks[1].say(&call).await.expect(201, "").replayed());
    (quiet, beside)
}

/// While the others are measured, no more than the owner's backend ever waits for the key.
async fn one_backend_waits(trial: &Trial) {
    let mut eyes = trial.connect().await;
    let until = Instant::now() + MEASURED;
    while Instant::now() < until {
        assert!(waiting(&mut eyes).await.len() <= 1);
        sleep(Duration::from_millis(100)).await;
    }
    drop(eyes);
}

fn settled(heard: &[Heard]) {
    let count = |status: u16, code: &str| heard.iter().filter(|it| it.gist() == (status, code.to_owned())).count();
    let refused = count(429, "idempotency_waiters_exceeded");
    let (done, in_flight) = (count(201, ""), count(409, "idempotency_in_flight"));
    assert_eq!((refused, done + in_flight), (2 * DUPLICATES - 2 * WAIT - 1, 2 * WAIT + 2), "{heard:#?}");
    let told = heard.iter().filter(|it| it.status != 201).all(|it| it.header("retry-after").is_some());
    assert!(told && done > 0);
}

pub(crate) async fn duplicates_wait_and_nobody_notices(size: Size) {
    let mut trial = Trial::alone().await;
    // The service's own bound: the row stays held for longer.
    trial.tolerate("canceling statement due to lock timeout");
    let processes = [trial.process().await, trial.process().await];
    let desks = [0, 1].map(|at: usize| trial.desk_at(&processes[at].base));
    let next = Arc::new(AtomicUsize::new(0));
    others_book(&trial, &desks, &next).await;
    let (mut quiet, mut beside): ([Figures; 2], [Figures; 2]) = Default::default();
    for n in 0..size.rounds.div_ceil(5) {
        let (one, other) = round(&trial, &desks, n, &next, size).await;
        for (all, more) in quiet.iter_mut().chain(&mut beside).zip(one.into_iter().chain(other)) {
            all.join(more);
        }
    }
    for (quiet, beside) in quiet.iter().zip(&beside) {
        println!("another caller's booking, quiet: {quiet}; beside {DUPLICATES} duplicates: {beside}");
        assert!(!size.strict || beside.percentile(99) <= quiet.percentile(99) * 2);
    }
    for process in processes {
        process.stop().await;
    }
    trial.end().await;
}

#[tokio::test]
async fn a_key_held_up_lets_few_wait_and_nobody_else_notices() {
    duplicates_wait_and_nobody_notices(SHORT).await;
}
