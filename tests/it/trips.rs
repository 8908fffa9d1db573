//! What a command costs on the wire: two round trips, a replay one, and never an explicit transaction.

use serde_json::json;
use uuid::Uuid;

use crate::app::{Setup, Trial, Visit, reschedule, slot, step};
use crate::client::{Call, Desk};
use crate::faults::at_once;
use crate::wire::{Statement, Trip, Wire};

/// What it takes to answer a command that executes, and one that is sent again.
const EXECUTED: [Statement; 2] = [Statement::Look, Statement::Commit];
const REPLAYED: [Statement; 1] = [Statement::Look];

fn statements(trips: &[Trip]) -> Vec<Statement> {
    for trip in trips {
        assert!(!trip.simple, "a simple query: {}", trip.sql);
        let first = trip.sql.trim_start().to_lowercase();
        let explicit = ["begin", "start transaction", "commit", "rollback", "savepoint"];
        assert!(!explicit.iter().any(|word| first.starts_with(word)), "{}", trip.sql);
    }
    trips.iter().map(|trip| trip.statement).collect()
}

/// A caller whose every command is counted, unless it warms up.
struct Counting<'a> {
    desk: Desk,
    wire: &'a Wire,
    warm: bool,
}

impl Counting<'_> {
    /// Sends a command, and sends it again; tells the id it answered with.
    async fn both(&self, what: &str, status: u16, call: Call) -> Uuid {
        // The guard's copy of the credential lives for seconds. A read makes a new one, so that none ends in mid-count.
        self.desk.say(&Call::get(format!("/v1/appointments/{}", Uuid::nil()))).await.expect(404, "not_found");
        self.wire.trips();
        let first = self.desk.say(&call).await.expect(status, "");
        let executed = statements(&self.wire.trips());
        let again = self.desk.say(&call).await.expect(status, "");
        let replayed = statements(&self.wire.trips());
        assert!(!first.replayed() && again.replayed(), "{what}");
        if self.warm {
            assert_eq!((executed.as_slice(), replayed.as_slice()), (&EXECUTED[..], &REPLAYED[..]), "{what}");
        }
        first.id()
    }

    /// Every command of the core, in a week of its own.
    async fn all(&self, trial: &Trial, from: usize) {
        let book =
            |practitioner| trial.book(Visit { practitioner, operatory: Some(0), slot: from, ..Visit::default() });
        let id = self.both("book", 201, book(0)).await;
        self.both("reschedule", 200, reschedule(id, from + 1)).await;
        self.both("confirm", 200, step(id, "confirm")).await;
        self.both("confirm what is confirmed", 200, step(id, "confirm")).await;
        self.both("note", 200, Call::patch(format!("/v1/appointments/{id}"), json!({ "note": "mornings" }))).await;
        self.both("check in", 200, step(id, "check-in")).await;
        self.both("complete", 200, step(id, "complete")).await;
        let id = self.both("book", 201, book(1)).await;
        self.both("no-show", 200, step(id, "no-show")).await;
        self.both("reopen", 200, step(id, "reopen")).await;
        self.both("cancel", 200, step(id, "cancel")).await;
        let block = json!({
            "clinic_id": trial.demo.clinic_id, "practitioner_id": trial.demo.practitioner_ids[2],
            "start": slot(from), "end": slot(from + 2),
        });
        let id = self.both("block", 201, Call::post("/v1/blocks", block)).await;
        self.remove(id).await;
    }

    /// The removal of a block has no key: again, it finds nothing to do and writes nothing.
    async fn remove(&self, id: Uuid) {
        let call = Call::delete(format!("/v1/blocks/{id}"));
        self.wire.trips();
        self.desk.say(&call).await.expect(204, "");
        let executed = statements(&self.wire.trips());
        self.desk.say(&call).await.expect(204, "");
        let again = statements(&self.wire.trips());
        if self.warm {
            assert_eq!((executed.as_slice(), again.as_slice()), (&EXECUTED[..], &REPLAYED[..]), "remove a block");
        }
    }
}

#[tokio::test]
async fn a_command_is_two_round_trips_a_replay_one_and_no_transaction_is_explicit() {
    let mut trial = Trial::new().await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    trial.serve(Setup { url: wire.url(&setup.url), ..setup }).await;
    let mut counting = Counting { desk: trial.desk(), wire: &wire, warm: false };
    // The first time through, statements are prepared.
    counting.all(&trial, 0).await;
    counting.warm = true;
    counting.all(&trial, 400).await;

    // A refusal is stored, so it costs the same; one that names other openings has looked for them.
    let taken = trial.book(Visit { patient: 1, practitioner: 2, slot: 400, ..Visit::default() });
    trial.desk().say(&taken).await.expect(201, "");
    for (patient, executed) in [(2, None), (3, Some([Statement::Look, Statement::Other, Statement::Commit]))] {
        let call = trial.book(Visit { patient, practitioner: 2, slot: 400, ..Visit::default() });
        wire.trips();
        trial.desk().say(&call).await.expect(409, "slot_taken");
        let trips = statements(&wire.trips());
        assert!(executed.is_none_or(|executed| trips == executed), "{trips:?}");
        trial.desk().say(&call).await.expect(409, "slot_taken");
        assert_eq!(statements(&wire.trips()), REPLAYED);
    }
    trial.end().await;
}

/// A connection's first command prepares its statements: two round trips more, and some ten milliseconds of Postgres. So
/// the connections a burst has opened are not used in turn when it is over: the one that is warm is.
#[tokio::test]
async fn after_a_burst_commands_stay_on_warm_connections() {
    let mut trial = Trial::new().await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    let app = trial.serve(Setup { url: wire.url(&setup.url), ..setup }).await;
    let nothing = Call::get(format!("/v1/appointments/{}", Uuid::nil()));
    at_once(&trial.desk(), vec![nothing; 64]).await;
    assert!(app.store.usage().0 > 2, "there was a burst");
    let visit = |slot| trial.book(Visit { slot, ..Visit::default() });
    trial.desk().say(&visit(0)).await.expect(201, "");
    for n in 1..8 {
        wire.trips();
        trial.desk().say(&visit(n)).await.expect(201, "");
        assert_eq!(statements(&wire.trips()), EXECUTED);
    }
    trial.end().await;
}
