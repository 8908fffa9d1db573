//! For each constraint a commit can trip, a command that trips it: overtaken between its look and its commit, it looks
//! again and answers with the constraint's own code. One that the look did not read would be 503 for ever.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::app::{Setup, Trial, Visit, reschedule, slot, step};
use crate::client::{Call, Desk, Heard};
use crate::wire::{Act, Statement, Wire};

/// Two services on one database; the first is behind a wire.
struct Pair {
    trial: Trial,
    wire: Wire,
    slow: Desk,
    quick: Desk,
}

impl Pair {
    async fn new() -> Self {
        let mut trial = Trial::new().await;
        let wire = Wire::to(trial.ground().cluster.port()).await;
        let setup = trial.setup();
        trial.serve(Setup { url: wire.url(&setup.url), ..setup.clone() }).await;
        let slow = trial.desk();
        trial.serve(setup).await;
        let quick = trial.desk();
        Self { trial, wire, slow, quick }
    }

    /// Sends a command, and does something else once its commit is about to leave.
    async fn overtaken(&self, call: &Call, by: impl AsyncFnOnce(&Self)) -> Heard {
        let caught = self.wire.next(Statement::Commit, Act::HoldBefore);
        let (desk, call) = (self.slow.clone(), call.clone());
        let mut asking = JoinSet::new();
        asking.spawn(async move { desk.say(&call).await });
        caught.reached().await;
        by(self).await;
        self.wire.trips();
        caught.go_on();
        let heard = asking.join_all().await.remove(0);
        let trips: Vec<_> = self.wire.trips().iter().map(|trip| trip.statement).collect();
        assert_eq!(trips.first(), Some(&Statement::Look), "the held commit did not stand: {trips:?}, {heard:?}");
        assert!(heard.took < Duration::from_secs(3), "{:?}", heard.took);
        heard
    }

    /// The same, by another command, which succeeds.
    async fn overtaken_by(&self, call: &Call, other: &Call) -> Heard {
        let by = async |pair: &Self| {
            let heard = pair.quick.say(other).await;
            assert!(heard.status < 300, "{heard:?}");
        };
        self.overtaken(call, by).await
    }

    async fn booked(&self, visit: Visit) -> uuid::Uuid {
        self.quick.say(&self.trial.book(visit)).await.expect(201, "").id()
    }

    /// Whether Postgres has logged a violation of that constraint since so many errors.
    fn logged_since(&self, errors: usize, constraint: &str) -> bool {
        self.trial.logged().iter().skip(errors).any(|error| error.contains(&format!("\"{constraint}\"")))
    }
}

/// A visit in the `n`-th quarter hour, by a patient nobody else is.
const fn visit(n: usize) -> Visit {
    Visit { patient: 0, practitioner: 0, operatory: Some(0), service: 0, slot: n, overbook: false }
}

#[tokio::test]
async fn a_slot_taken_in_between_is_slot_taken() {
    let pair = Pair::new().await;
    let trial = &pair.trial;
    // What is wanted, and the visit that takes its practitioner, then the one that takes its operatory.
    for (n, other) in
        [(0, Visit { patient: 1, operatory: None, ..visit(0) }), (4, Visit { patient: 1, practitioner: 1, ..visit(4) })]
    {
        let other = trial.book(other);
        let heard = pair.overtaken_by(&trial.book(visit(n)), &other).await.expect(409, "slot_taken");
        assert_eq!(heard.json()["next_openings"].as_array().map(Vec::len), Some(3));
    }
    for (n, constraint, other) in [
        (8, "appointments_practitioner_free", Visit { patient: 1, operatory: None, ..visit(8) }),
        (12, "appointments_operatory_free", Visit { patient: 1, practitioner: 1, ..visit(12) }),
    ] {
        // A move and a reopening are updates, which cannot step aside: they raise, and look again.
        let (moved, missed) = (pair.booked(visit(n + 1)).await, pair.booked(visit(n)).await);
        pair.quick.say(&step(missed, "cancel")).await.expect(200, "");
        for call in [reschedule(moved, n), step(missed, "reopen")] {
            let errors = trial.logged().len();
            let other = trial.book(other);
            let mut id = None;
            let by = async |pair: &Pair| id = Some(pair.quick.say(&other).await.expect(201, "").id());
            pair.overtaken(&call, by).await.expect(409, "slot_taken");
            assert!(pair.logged_since(errors, constraint), "{constraint}: {:?}", trial.logged());
            pair.quick.say(&step(id.expect("booked"), "cancel")).await.expect(200, "");
        }
    }
    pair.trial.end().await;
}

#[tokio::test]
async fn a_block_whose_time_is_taken_in_between_is_slot_taken() {
    let pair = Pair::new().await;
    let trial = &pair.trial;
    let block = |n: usize, practitioner: Value, operatory: Value| {
        let (start, end) = (slot(n), slot(n + 1));
        let clinic_id = trial.demo.clinic_id;
        Call::post(
            "/v1/blocks",
            json!({ "clinic_id": clinic_id, "practitioner_id": practitioner, "operatory_id": operatory,
                    "start": start, "end": end }),
        )
    };
    let (practitioner, operatory) = (json!(trial.demo.practitioner_ids[0]), json!(trial.demo.operatory_ids[0]));
    let heard = pair.overtaken_by(&block(0, practitioner, Value::Null), &trial.book(visit(0))).await;
    assert_eq!(heard.gist(), (409, "slot_taken".to_owned()));
    let heard = pair.overtaken_by(&block(1, Value::Null, operatory), &trial.book(visit(1))).await;
    assert_eq!(heard.gist(), (409, "slot_taken".to_owned()));
    pair.trial.end().await;
}

#[tokio::test]
async fn the_same_visit_booked_in_between_is_duplicate_intent() {
    let pair = Pair::new().await;
    let trial = &pair.trial;
    trial.change("update clinics set allow_overbooking = true").await;
    // Whether the slot is free or held: in a held one, overbooking, the intent's index is all that stands in the way.
    for (n, held) in [(0, false), (8, true)] {
        for at in [n, n + 1, n + 2] {
            if held {
                pair.booked(Visit { patient: 9, ..visit(at) }).await;
            }
        }
        let overbook = |n| Visit { overbook: held, ..visit(n) };
        let call = trial.book(overbook(n));
        let heard = pair.overtaken_by(&call, &trial.book(overbook(n))).await.expect(409, "duplicate_intent");
        assert!(heard.json()["appointment_id"].is_string());
        let moved = pair.booked(overbook(n + 3)).await;
        let body = json!({ "start": slot(n + 1), "overbook": held });
        let call = Call::post(format!("/v1/appointments/{moved}/reschedule"), body);
        pair.overtaken_by(&call, &trial.book(overbook(n + 1))).await.expect(409, "duplicate_intent");
        let missed = pair.booked(overbook(n + 4)).await;
        pair.quick.say(&step(missed, "no-show")).await.expect(200, "");
        let call = step(missed, "reopen");
        pair.overtaken_by(&call, &trial.book(overbook(n + 4))).await.expect(409, "duplicate_intent");
    }
    pair.trial.end().await;
}

#[tokio::test]
async fn a_name_elsewhere_given_in_between_is_duplicate_intent() {
    let pair = Pair::new().await;
    let named = |n: usize, practitioner: usize| {
        let mut body = pair.trial.body(Visit { practitioner, operatory: None, ..visit(n) });
        body["external"] = json!({ "system": "recall", "id": "4711" });
        Call::post("/v1/appointments", body)
    };
    let heard = pair.overtaken_by(&named(0, 0), &named(4, 1)).await.expect(409, "duplicate_intent");
    assert!(heard.json()["appointment_id"].is_string());
    pair.trial.end().await;
}

#[tokio::test]
async fn a_key_used_in_between_is_a_replay_or_reused() {
    let pair = Pair::new().await;
    let trial = &pair.trial;
    let call = trial.book(visit(0));
    assert!(pair.overtaken_by(&call, &call).await.expect(201, "").replayed());
    // With another body nothing else stands in the way: the key's own constraint undoes the row.
    let errors = trial.logged().len();
    let call = trial.book(visit(4)).key("one");
    let other = trial.book(Visit { practitioner: 1, operatory: None, ..visit(8) }).key("one");
    pair.overtaken_by(&call, &other).await.expect(409, "idempotency_key_reused");
    assert!(pair.logged_since(errors, "idempotency_keys_pk"));
    let missed = pair.booked(visit(12)).await;
    let errors = trial.logged().len();
    let other = trial.book(Visit { practitioner: 1, operatory: None, ..visit(12) }).key("two");
    pair.overtaken_by(&step(missed, "no-show").key("two"), &other).await.expect(409, "idempotency_key_reused");
    assert!(pair.logged_since(errors, "idempotency_keys_pk"));
    // A refusal writes the key alone.
    let refused = trial.book(Visit { patient: 1, ..visit(0) });
    let by = async |pair: &Pair| drop(pair.quick.say(&refused).await.expect(409, "slot_taken"));
    assert!(pair.overtaken(&refused, by).await.expect(409, "slot_taken").replayed());
    pair.trial.end().await;
}

#[tokio::test]
async fn a_directory_changed_in_between_is_unknown_reference() {
    let pair = Pair::new().await;
    let trial = &pair.trial;
    let moved = pair.booked(Visit { practitioner: 1, operatory: Some(1), ..visit(0) }).await;
    // What goes is put back, as the demo has it, for the next command.
    for (field, constraint, gone, back) in [
        (
            "practitioner_id",
            "appointments_practitioner_fk",
            "create table gone as select * from practitioner_clinics where practitioner_id = 'THIS';
             delete from practitioner_clinics where practitioner_id = 'THIS'",
            "insert into practitioner_clinics select * from gone; drop table gone",
        ),
        (
            "operatory_id",
            "appointments_operatory_fk",
            "create table gone as select * from operatories where id = 'THIS'; delete from operatories where id = 'THIS'",
            "insert into operatories select * from gone; drop table gone",
        ),
        (
            "service_id",
            "appointments_service_fk",
            "create table gone as select * from services where id = 'THIS'; delete from services where id = 'THIS'",
            "insert into services select * from gone; drop table gone",
        ),
        (
            "patient_id",
            "appointments_patient_fk",
            "create table gone as select * from patients where id = 'THIS'; delete from patients where id = 'THIS'",
            "insert into patients select * from gone; drop table gone",
        ),
    ] {
        let wanted = trial.body(Visit { practitioner: 7, operatory: Some(7), service: 2, patient: 7, ..visit(8) });
        let this = wanted[field].as_str().expect("an id");
        let mut calls = vec![Call::post("/v1/appointments", wanted.clone())];
        if field != "patient_id" {
            let body = json!({ "start": slot(8), field: this });
            calls.push(Call::post(format!("/v1/appointments/{moved}/reschedule"), body));
        }
        for call in calls {
            let errors = trial.logged().len();
            let by = async |pair: &Pair| pair.trial.change(&gone.replace("THIS", this)).await;
            let heard = pair.overtaken(&call, by).await.expect(422, "unknown_reference");
            assert_eq!(heard.json()["field"], field);
            assert!(pair.logged_since(errors, constraint), "{constraint}: {:?}", trial.logged());
            trial.change(back).await;
        }
    }
    pair.trial.end().await;
}

#[tokio::test]
async fn a_row_changed_in_between_is_decided_on_anew() {
    let pair = Pair::new().await;
    let id = pair.booked(visit(0)).await;
    let note = |text: &str| Call::patch(format!("/v1/appointments/{id}"), json!({ "note": text }));
    let heard = pair.overtaken_by(&note("mine"), &step(id, "confirm")).await.expect(200, "");
    assert_eq!((heard.json()["version"].clone(), heard.json()["confirmed_at"].is_string()), (json!(3), true));
    pair.overtaken_by(&note("again").if_match(3), &step(id, "check-in")).await.expect(412, "version_mismatch");
    pair.overtaken_by(&step(id, "complete"), &step(id, "cancel")).await.expect(409, "transition_not_allowed");
    pair.trial.end().await;
}
