//! Whoever waits in Postgres for somebody else's row must hold nothing that the others there wait for: the locks a move
//! takes, and that a booking takes none. Each trial is a deadlock, every time, where they are left out.

use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::{Trial, Visit, reschedule, step};
use crate::client::{Call, Heard};
use crate::hold::Hold;

/// Those who want one thing.
const CROWD: usize = 8;

/// Two services, so that turns taken in one process are not what keeps commands apart.
async fn two_services() -> Trial {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    trial.serve(trial.setup()).await;
    trial
}

/// Sends them, in turn to the one service and the other.
fn send(trial: &Trial, calls: impl IntoIterator<Item = Call>) -> JoinSet<Heard> {
    let mut asking = JoinSet::new();
    for (n, call) in calls.into_iter().enumerate() {
        let desk = trial.desk_at(&trial.services()[n % 2].base);
        asking.spawn(async move { desk.say(&call).await });
    }
    asking
}

async fn book(trial: &Trial, visit: Visit) -> Uuid {
    trial.desk().say(&trial.book(visit)).await.expect(201, "").id()
}

/// A crowd waits for a row in the slot that is then undone: all go on at once, and one gets in.
async fn crowd(trial: &Trial, like: Uuid, n: usize, calls: Vec<Call>, waiting: usize) {
    let mut hold = Hold::slot(trial, like, n).await;
    let asking = send(trial, calls);
    hold.waited_for_by(waiting).await;
    hold.let_go().await;
    let heard = asking.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = heard.iter().partition(|heard| heard.status < 300);
    assert!(won.len() == 1 && lost.iter().all(|heard| heard.code() == "slot_taken"), "{heard:#?}");
}

#[tokio::test]
async fn a_crowd_at_a_slot_that_is_let_go_is_one_winner_and_no_deadlock() {
    let trial = two_services().await;
    let at = |patient: usize, slot: usize| Visit { patient, operatory: Some(0), slot, ..Visit::default() };
    let mut booked = Vec::new();
    let mut called_off = Vec::new();
    for n in 0..CROWD {
        booked.push(book(&trial, at(n, 8 + n)).await);
        called_off.push(book(&trial, at(n, 1)).await);
        trial.desk().say(&step(called_off[n], "cancel")).await.expect(200, "");
    }
    let moves = booked.iter().map(|id| reschedule(*id, 0));
    crowd(&trial, booked[0], 0, moves.collect(), CROWD).await;
    let reopenings = called_off.iter().map(|id| step(*id, "reopen")).collect();
    crowd(&trial, booked[0], 1, reopenings, CROWD).await;
    // Bookings of one practitioner take turns in their process before they come to Postgres.
    let bookings = (0..CROWD).map(|n| trial.book(at(CROWD + n, 2))).collect();
    crowd(&trial, booked[0], 2, bookings, 2).await;
    trial.end().await;
}
