//! Faults between the service and Postgres: what is handled inside stays inside, what is not leaves nothing under the key,
//! and what is unknown is found out by the key. CONFORMANCE.md's cases 16, 17, 22 and 26.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::app::{Setup, Trial, Visit, reschedule, slot, step};
use crate::clean::{done_by, stored};
use crate::client::{Call, Desk, Heard};
use crate::hold::{Hold, waiting};
use crate::wire::{Act, Statement, Wire};

/// A trial whose service is behind a wire, and patient for so long.
async fn behind_a_wire(command_timeout: Duration) -> (Trial, Wire) {
    let mut trial = Trial::new().await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    let wait = command_timeout;
    trial.serve(Setup { url: wire.url(&setup.url), command_timeout, idempotency_wait: wait, ..setup }).await;
    (trial, wire)
}

const PATIENT: Duration = Duration::from_secs(5);
const HASTY: Duration = Duration::from_millis(800);

/// Sends them all at once.
pub(crate) async fn at_once(desk: &Desk, calls: impl IntoIterator<Item = Call>) -> Vec<Heard> {
    let mut asking = JoinSet::new();
    for call in calls {
        let desk = desk.clone();
        asking.spawn(async move { desk.say(&call).await });
    }
    asking.join_all().await
}

/// One of each command, to be sent after the appointment it needs was made.
async fn one_of_each(trial: &Trial, from: usize) -> Vec<(Call, u16)> {
    let visit = Visit { practitioner: 1, operatory: Some(1), slot: from, ..Visit::default() };
    let desk = trial.desk();
    let (moved, cancelled) = (Visit { slot: from + 1, ..visit }, Visit { slot: from + 2, ..visit });
    let moved = desk.say(&trial.book(moved)).await.expect(201, "").id();
    let cancelled = desk.say(&trial.book(cancelled)).await.expect(201, "").id();
    let block = json!({
        "clinic_id": trial.demo.clinic_id, "operatory_id": trial.demo.operatory_ids[2],
        "start": slot(from), "end": slot(from + 1),
    });
    vec![
        (trial.book(visit), 201),
        (trial.book(Visit { patient: 1, ..visit }), 409),
        (reschedule(moved, from + 3), 200),
        (Call::patch(format!("/v1/appointments/{moved}"), json!({ "note": "mornings" })), 200),
        (step(cancelled, "cancel"), 200),
        (Call::post("/v1/blocks", block), 201),
    ]
}

#[tokio::test]
async fn case_16_a_commit_that_must_be_tried_again_is_one_answer() {
    let (trial, wire) = behind_a_wire(PATIENT).await;
    for (n, state) in ["40001", "40P01", "55P03", "57014"].into_iter().enumerate() {
        for (call, status) in one_of_each(&trial, n * 40).await {
            let caught = wire.next_few(3, Statement::Commit, Act::Fail(state));
            let heard = trial.desk().say(&call).await;
            assert_eq!((heard.status, heard.replayed(), caught.times()), (status, false, 3), "{state} {call:?}");
        }
    }
    trial.end().await;
}

#[tokio::test]
async fn case_17_an_owner_that_fails_stores_nothing_and_exactly_one_of_the_next_executes() {
    let (trial, wire) = behind_a_wire(HASTY).await;
    let mut connection = trial.connect().await;
    let call = trial.book(Visit::default());
    let key = call.key.clone().expect("a key");
    let caught = wire.next(Statement::Commit, Act::HoldBefore);
    let owner = (trial.desk(), call.clone());
    let mut asking = JoinSet::new();
    asking.spawn(async move { owner.0.say(&owner.1).await });
    caught.reached().await;
    // A duplicate waits no longer than a command may take: these must still wait when the owner's time is up.
    sleep(HASTY / 4).await;
    for _ in 1..10 {
        let (desk, call) = (trial.desk(), call.clone());
        asking.spawn(async move { desk.say(&call).await });
    }
    for heard in asking.join_all().await {
        let heard = heard.expect(503, "unavailable");
        assert!(heard.header("retry-after").is_some());
    }
    assert_eq!((caught.times(), stored(&mut connection, &key).await), (1, None));
    caught.cut();
    let heard = at_once(&trial.desk(), vec![call; 10]).await;
    assert_eq!(heard.iter().filter(|heard| heard.status == 201 && !heard.replayed()).count(), 1);
    assert_eq!(heard.iter().filter(|heard| heard.status == 201 && heard.replayed()).count(), 9);
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_26_a_500_or_503_leaves_the_key_as_it_was() {
    let (trial, wire) = behind_a_wire(HASTY).await;
    let mut connection = trial.connect().await;
    for (n, (status, code)) in [(500, "internal"), (503, "unavailable")].into_iter().enumerate() {
        for (call, then) in one_of_each(&trial, n * 40).await {
            let act = if status == 500 { Act::Fail("XX000") } else { Act::HoldBefore };
            let caught = wire.next(Statement::Commit, act);
            let heard = trial.desk().say(&call).await.expect(status, code);
            assert_eq!(heard.header("retry-after").is_some(), status == 503);
            let key = call.key.clone().expect("a key");
            assert_eq!(stored(&mut connection, &key).await, None);
            caught.cut();
            let heard = trial.desk().say(&call).await;
            assert_eq!((heard.status, heard.replayed()), (then, false), "{call:?}");
        }
    }
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_22_an_answer_that_is_lost_is_found_by_its_key() {
    let (trial, wire) = behind_a_wire(PATIENT).await;
    for (call, status) in one_of_each(&trial, 0).await {
        let caught = wire.next(Statement::Commit, Act::LoseAnswer);
        // A warm pool beside the lost connection, whose other connections are sound.
        let heard = trial.desk().say(&call).await;
        // Never a 409 against its own record: what was done is what is answered.
        assert_eq!((heard.status, heard.replayed(), caught.times()), (status, true, 1), "{call:?}");
    }
    for (call, status) in one_of_each(&trial, 40).await {
        wire.next(Statement::Look, Act::LoseAnswer);
        let heard = trial.desk().say(&call).await;
        assert_eq!((heard.status, heard.replayed()), (status, false), "{call:?}");
    }
    trial.end().await;
}

#[tokio::test]
async fn case_22_a_backend_ended_in_mid_statement_costs_the_caller_nothing() {
    let mut trial = Trial::new().await;
    trial.tolerate("terminating connection due to administrator command");
    trial.serve(trial.setup()).await;
    let mut connection = trial.connect().await;
    let booked = trial.desk().say(&trial.book(Visit::default())).await.expect(201, "").id();
    let holds = [Hold::patient(&trial, 3).await, Hold::appointment(&trial, booked).await];
    let calls = [trial.book(Visit { patient: 3, slot: 1, ..Visit::default() }), step(booked, "cancel")];
    for (mut hold, call) in holds.into_iter().zip(calls) {
        let desk = trial.desk();
        let mut asking = JoinSet::new();
        asking.spawn(async move { desk.say(&call).await });
        for _ in 0..3 {
            hold.waited_for_by(1).await;
            let pid = waiting(&mut connection).await.first().copied();
            terminate(&mut connection, pid.expect("it waits")).await;
        }
        hold.let_go().await;
        let heard = asking.join_all().await.remove(0);
        assert!(heard.status < 300 && !heard.replayed(), "{heard:?}");
    }
    drop(connection);
    trial.end().await;
}

/// Ends a backend and waits until it is gone.
async fn terminate(connection: &mut sqlx::PgConnection, pid: i32) {
    let gone: bool = sqlx::query_scalar("select pg_terminate_backend($1, 5000)")
        .bind(pid)
        .fetch_one(connection)
        .await
        .expect("a signal");
    assert!(gone);
}

#[tokio::test]
async fn case_22_idle_connections_that_broke_cost_nobody_anything() {
    let mut trial = Trial::new().await;
    trial.tolerate("terminating connection due to administrator command");
    let app = trial.serve(trial.setup()).await;
    let mut connection = trial.connect().await;
    for round in 0..3 {
        // A connection each: commands of eight practitioners do not wait for one another.
        let visits =
            |from: usize| (0..8).map(move |practitioner| Visit { practitioner, slot: from, ..Visit::default() });
        let warm: Vec<_> = visits(round * 8).map(|visit| trial.book(visit)).collect();
        let ids: Vec<_> = at_once(&trial.desk(), warm).await.into_iter().map(|it| it.expect(201, "").id()).collect();
        let (open, _) = app.store.usage();
        assert!(open > 1, "there is something to break");
        let ended: Vec<bool> = sqlx::query_scalar(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity
             where datname = current_database() and application_name = 'oncebook'",
        )
        .fetch_all(&mut connection)
        .await
        .expect("signals");
        assert!(ended.len() == open && ended.iter().all(|gone| *gone));
        let mut calls: Vec<_> = visits(round * 8 + 4).map(|visit| trial.book(visit)).collect();
        calls.extend(ids.iter().map(|id| step(*id, "confirm")));
        calls.extend(ids.iter().map(|id| Call::get(format!("/v1/appointments/{id}"))));
        for heard in at_once(&trial.desk(), calls).await {
            assert!(heard.status < 300, "{heard:?}");
        }
    }
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_22_postgres_restarted_while_outcomes_are_unknown() {
    let mut trial = Trial::private("restarted").await;
    trial.tolerate("terminating connection");
    trial.tolerate("the database system is");
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    trial.serve(Setup { url: wire.url(&setup.url), ..setup }).await;
    for round in 0..2 {
        // Some commits are in, their answers held; some have not left yet.
        let calls = one_of_each(&trial, round * 40).await;
        let executed = wire.next_few(2, Statement::Commit, Act::HoldAnswer);
        let mut asking = JoinSet::new();
        for (call, status) in calls.into_iter().filter(|(_, status)| *status < 400) {
            let desk = trial.desk();
            asking.spawn(async move { (desk.say(&call).await, status) });
        }
        executed.reached().await;
        let ground = Arc::clone(trial.ground());
        let restart = move || ground.cluster.restart_immediate().expect("it comes back");
        tokio::task::spawn_blocking(restart).await.expect("no panic");
        executed.cut();
        for (heard, status) in asking.join_all().await {
            assert_eq!(heard.status, status, "{heard:?}");
        }
        assert!(executed.times() > 0);
    }
    trial.end().await;
}

#[tokio::test]
async fn a_database_that_is_away_is_503_for_whoever_asks() {
    let mut trial = Trial::new().await;
    let setup = trial.setup();
    // A port nobody listens on: it was ours a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let there = format!(":{}/", trial.ground().cluster.port());
    trial.serve(Setup { url: setup.url.replace(&there, &format!(":{port}/")), ..setup }).await;
    let calls = [trial.book(Visit::default()), Call::get(format!("/v1/appointments/{}", trial.demo.clinic_id))];
    for heard in at_once(&trial.desk(), calls).await {
        let heard = heard.expect(503, "unavailable");
        assert!(heard.header("retry-after").is_some() && heard.took < Duration::from_secs(7), "{heard:?}");
    }
    trial.end().await;
}

#[tokio::test]
async fn a_network_that_falls_silent_is_503_and_the_retry_finds_out() {
    let (trial, wire) = behind_a_wire(HASTY).await;
    let mut connection = trial.connect().await;
    trial.desk().say(&trial.book(Visit { practitioner: 7, ..Visit::default() })).await.expect(201, "");

    wire.fall_silent();
    let call = trial.book(Visit::default());
    let heard = trial.desk().say(&call).await.expect(503, "unavailable");
    assert!(heard.header("retry-after").is_some() && heard.took < HASTY * 2, "{:?}", heard.took);
    wire.speak_again();
    assert_eq!(trial.desk().say(&call).await.status, 201);

    // The answer never arrives: the commit is in, so the retry is a replay.
    let call = trial.book(Visit { slot: 1, ..Visit::default() });
    wire.next(Statement::Commit, Act::HoldAnswer);
    trial.desk().say(&call).await.expect(503, "unavailable");
    assert!(trial.desk().say(&call).await.expect(201, "").replayed());

    // The commit itself arrives late: after the retry, or together with it. Either way it is done once.
    for (n, late) in [true, false].into_iter().enumerate() {
        let call = trial.book(Visit { slot: 2 + n, ..Visit::default() });
        let caught = wire.next(Statement::Commit, Act::HoldBefore);
        trial.desk().say(&call).await.expect(503, "unavailable");
        if !late {
            caught.go_on();
        }
        trial.desk().insist(&call).await.expect(201, "");
        caught.go_on();
        assert_eq!(done_by(&mut connection, call.key.as_deref().expect("a key")).await, 1);
    }
    drop(connection);
    trial.end().await;
}
