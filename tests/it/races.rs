//! Twenty callers, two processes, one thing: one of them gets it, or one after another; nobody gets a 5xx, Postgres finds
//! no deadlock, and nobody waits long. CONFORMANCE.md's cases 9, 11 and 15.

use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::{Trial, Visit, reschedule, slot};
use crate::client::{Call, Desk, Heard};
use crate::figures::{Figures, SHORT, Size};
use crate::process::Process;

/// Racers; half of them at each process.
const RACERS: usize = 20;

/// No answer may take longer, in a hundred (issue 2, "It must show").
const P99: Duration = Duration::from_millis(300);

/// A trial with two processes.
struct Races {
    trial: Trial,
    size: Size,
    processes: Vec<Process>,
    desks: Vec<Desk>,
    figures: Figures,
}

impl Races {
    async fn new(size: Size) -> Self {
        // Where times are held to a limit, nobody else may use the machine.
        let trial = if size.strict { Trial::alone().await } else { Trial::new().await };
        let processes = vec![trial.process().await, trial.process().await];
        let desks = processes.iter().map(|process| trial.desk_at(&process.base)).collect();
        Self { trial, size, processes, desks, figures: Figures::default() }
    }

    /// Sends them all at the same moment, in turn to the one process and the other.
    async fn race(&mut self, calls: Vec<Call>) -> Vec<Heard> {
        let start = std::sync::Arc::new(Barrier::new(calls.len()));
        let mut racing = JoinSet::new();
        for (n, call) in calls.into_iter().enumerate() {
            let (desk, start) = (self.desks[n % 2].clone(), std::sync::Arc::clone(&start));
            racing.spawn(async move {
                start.wait().await;
                (n, desk.say(&call).await)
            });
        }
        let mut heard = racing.join_all().await;
        heard.sort_by_key(|(n, _)| *n);
        let heard: Vec<_> = heard.into_iter().map(|(_, heard)| heard).collect();
        assert!(heard.iter().all(|heard| heard.status < 500), "{heard:#?}");
        self.figures.add(&heard);
        heard
    }

    /// The same, where there is one winner and a code for the others.
    async fn one_wins(&mut self, calls: Vec<Call>, code: &str) {
        let heard = self.race(calls).await;
        let (won, lost): (Vec<_>, Vec<_>) = heard.iter().partition(|heard| heard.status < 300);
        assert_eq!(won.len(), 1, "{heard:#?}");
        assert!(lost.iter().all(|heard| heard.code() == code), "{lost:#?}");
    }

    /// Books so many visits, of as many patients, each in a slot of its own.
    async fn booked(&self, visits: impl Iterator<Item = Visit>) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for visit in visits {
            ids.push(self.desks[0].say(&self.trial.book(visit)).await.expect(201, "").id());
        }
        ids
    }

    async fn end(self, what: &str) {
        println!("{what}: {}", self.figures);
        assert!(!self.size.strict || self.figures.percentile(99) < P99, "{}", self.figures);
        for process in self.processes {
            process.stop().await;
        }
        self.trial.end().await;
    }
}

/// Racer `n` of a round books a slot of the round's own.
const fn racer(round: usize, n: usize) -> Visit {
    Visit { patient: n, practitioner: round % 8, operatory: None, service: 0, slot: round * 4, overbook: false }
}

/// Where a round's movers come from: another practitioner's day, each with a slot of their own.
const fn mover(round: usize, n: usize) -> Visit {
    Visit {
        patient: n,
        practitioner: round % 8,
        operatory: None,
        service: 0,
        slot: 4000 + round * 40 + n,
        overbook: false,
    }
}

pub(crate) async fn one_slot_by_booking(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let calls = (0..RACERS).map(|n| races.trial.book(racer(round, n))).collect();
        races.one_wins(calls, "slot_taken").await;
    }
    races.end("one slot by booking").await;
}

pub(crate) async fn one_slot_by_moving(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let ids = races.booked((0..RACERS).map(|n| mover(round, n))).await;
        let calls = ids.into_iter().map(|id| reschedule(id, round * 4)).collect();
        races.one_wins(calls, "slot_taken").await;
    }
    races.end("one slot by moving").await;
}

pub(crate) async fn one_slot_by_both(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let ids = races.booked((0..RACERS / 2).map(|n| mover(round, n))).await;
        let books = (RACERS / 2..RACERS).map(|n| races.trial.book(racer(round, n)));
        // One of each in turn, and in the next round the other way round: both kinds run in both processes.
        let moves = ids.into_iter().map(|id| reschedule(id, round * 4));
        let mut calls: Vec<_> = moves.zip(books).flat_map(|(one, other)| [one, other]).collect();
        calls.rotate_left(round % 2);
        races.one_wins(calls, "slot_taken").await;
    }
    races.end("one slot by both").await;
}

/// Practitioners 0 and 1, operatories 0 and 1, all at one time: two visits fit, and two there are.
pub(crate) async fn two_by_two(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let pair = |n: usize| (n / 2 % 2, Some(n / 4 % 2));
        let from = (0..RACERS / 2).map(|n| Visit { practitioner: 2, operatory: None, ..mover(round, n) });
        let ids = races.booked(from).await;
        let moves = ids.into_iter().enumerate().map(|(n, id)| {
            let (practitioner, operatory) = pair(n);
            let body = json!({
                "start": slot(round * 4), "practitioner_id": races.trial.demo.practitioner_ids[practitioner],
                "operatory_id": operatory.map(|operatory| races.trial.demo.operatory_ids[operatory]),
            });
            Call::post(format!("/v1/appointments/{id}/reschedule"), body)
        });
        let books = (0..RACERS / 2).map(|n| {
            let (practitioner, operatory) = pair(n);
            let visit = Visit { practitioner, operatory, slot: round * 4, ..racer(round, RACERS / 2 + n) };
            races.trial.book(visit)
        });
        let calls = moves.chain(books).collect();
        let heard = races.race(calls).await;
        let won: Vec<_> = heard.iter().filter(|heard| heard.status < 300).map(Heard::json).collect();
        assert_eq!(won.len(), 2, "{heard:#?}");
        assert_ne!(won[0]["practitioner_id"], won[1]["practitioner_id"]);
        assert_ne!(won[0]["operatory_id"], won[1]["operatory_id"]);
    }
    races.end("two practitioners, two operatories").await;
}

/// Each to another slot: one after another. With the version they saw: one, and the others are told.
pub(crate) async fn one_appointment_moved_by_all(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let id = races.booked([mover(round, 0)].into_iter()).await[0];
        // Three days a round, of which it needs half of one.
        let to = |n: usize| 8000 + round * 120 + n;
        let calls = (0..RACERS).map(|n| reschedule(id, to(n))).collect();
        let mut versions: Vec<_> =
            races.race(calls).await.into_iter().map(|it| it.expect(200, "").json()["version"].as_u64()).collect();
        versions.sort_unstable();
        let expected: Vec<_> = (2..).take(RACERS).map(Some).collect();
        assert_eq!(versions, expected, "each move made a version of its own");
        let calls = (0..RACERS).map(|n| reschedule(id, to(40 + n)).if_match(21)).collect();
        races.one_wins(calls, "version_mismatch").await;
    }
    races.end("one appointment moved by all").await;
}

/// Ten ordinary bookings and ten that overbook: the overbooking ones all get in, and one row of the slot is an ordinary one.
pub(crate) async fn ordinary_against_overbooked(size: Size) {
    let mut races = Races::new(size).await;
    races.trial.change("update clinics set allow_overbooking = true").await;
    for round in 0..size.rounds {
        let calls =
            (0..RACERS).map(|n| races.trial.book(Visit { overbook: n / 2 % 2 == 0, ..racer(round, n) })).collect();
        let heard = races.race(calls).await;
        let mut alone = 0;
        for (n, heard) in heard.iter().enumerate() {
            if heard.status == 201 {
                alone += usize::from(heard.json()["overbooked"] == false);
            } else {
                assert_eq!((n / 2 % 2, heard.gist()), (1, (409, "slot_taken".to_owned())), "{heard:?}");
            }
        }
        let ordinary = heard.iter().skip(2).step_by(4).chain(heard.iter().skip(3).step_by(4));
        let ordinary = ordinary.filter(|heard| heard.status == 201).count();
        assert!(alone == 1 && ordinary <= 1, "{alone} hold the slot alone, {ordinary} did not overbook: {heard:#?}");
    }
    races.end("ordinary against overbooked").await;
}

/// K with B and K with B′: whoever comes first is what K means, for all.
pub(crate) async fn one_key_for_two_things(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let key = format!("both-{round}");
        let things = [racer(round, 0), Visit { slot: round * 4 + 1, ..racer(round, 1) }];
        // Each of the two at both processes.
        let calls = (0..RACERS).map(|n| races.trial.book(things[n / 2 % 2]).key(&key)).collect();
        let heard = races.race(calls).await;
        let executed = heard.iter().filter(|heard| heard.status == 201 && !heard.replayed()).count();
        assert_eq!(executed, 1, "{heard:#?}");
        let won = heard.iter().position(|heard| heard.status == 201).expect("one") / 2 % 2;
        for (n, heard) in heard.iter().enumerate() {
            // While the loser was at work, the winner's own duplicates were another request: they may be told so.
            let fine = if heard.status == 201 { n / 2 % 2 == won } else { heard.code() == "idempotency_key_reused" };
            assert!(fine, "{heard:?}");
        }
        let rows: Vec<_> = heard.iter().filter(|heard| heard.status == 201).map(Heard::id).collect();
        assert!(rows.iter().all(|id| *id == rows[0]));
        // And from now on there is no doubt.
        races.desks[0].say(&races.trial.book(things[won]).key(&key)).await.expect(201, "");
        races.desks[1].say(&races.trial.book(things[1 - won]).key(&key)).await.expect(409, "idempotency_key_reused");
    }
    races.end("one key for two things").await;
}

/// Fifty times the same, over two processes: one appointment, and every answer the same bytes (the desks see to that).
pub(crate) async fn one_key_for_one_thing(size: Size) {
    let mut races = Races::new(size).await;
    for round in 0..size.rounds {
        let call = races.trial.book(racer(round, 0));
        let heard = races.race(vec![call; 50]).await;
        assert!(heard.iter().all(|heard| heard.status == 201), "{heard:#?}");
        assert_eq!(heard.iter().filter(|heard| !heard.replayed()).count(), 1);
    }
    races.end("one key for one thing").await;
}

#[tokio::test]
async fn a_slot_booked_by_twenty_is_booked_once() {
    one_slot_by_booking(SHORT).await;
}

#[tokio::test]
async fn a_slot_moved_into_by_twenty_is_entered_once() {
    one_slot_by_moving(SHORT).await;
}

#[tokio::test]
async fn a_slot_booked_and_moved_into_is_taken_once() {
    one_slot_by_both(SHORT).await;
}

#[tokio::test]
async fn two_practitioners_and_two_operatories_take_two() {
    two_by_two(SHORT).await;
}

#[tokio::test]
async fn an_appointment_moved_by_twenty_moves_one_after_another() {
    one_appointment_moved_by_all(SHORT).await;
}

#[tokio::test]
async fn an_ordinary_booking_does_not_slip_in_among_overbooked_ones() {
    ordinary_against_overbooked(SHORT).await;
}

#[tokio::test]
async fn case_11_a_key_sent_with_two_things_is_one_of_them() {
    one_key_for_two_things(SHORT).await;
}

#[tokio::test]
async fn case_9_a_key_sent_fifty_times_is_one_answer() {
    one_key_for_one_thing(SHORT).await;
}
