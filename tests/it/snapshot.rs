//! Where a clinic overbooks, no constraint keeps an ordinary booking from a slot that an overbooked one holds: a look under
//! the resource's lock does, and it must see what was committed while the lock was waited for.

use oncebook::domain::fingerprint::resource_lock;
use serde_json::json;
use sqlx::{PgConnection, Row};
use tokio::task::JoinSet;

use crate::app::{Setup, Trial, Visit, eventually, reschedule, slot, step};
use crate::client::Call;
use crate::hold::{Hold, waiting};
use crate::wire::{Act, Statement, Wire};

/// Waits for the lock, then asks both ways: through the function, and by the same select in the statement itself.
const BOTH_WAYS: &str = "
    with locked as materialized (select pg_advisory_xact_lock($1))
    select slot_held_by_now(a.tenant_id, a.practitioner_id, null, a.busy, $2) as now,
      exists (select from appointments b where b.practitioner_id = a.practitioner_id and b.holds_slot
                and b.busy && a.busy and b.id <> a.id) as inline
    from locked cross join appointments a where a.id = $2";

#[tokio::test]
async fn the_function_sees_what_was_committed_while_the_lock_was_waited_for() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let id = trial.desk().say(&trial.book(Visit::default())).await.expect(201, "").id();
    let lock = resource_lock(trial.demo.tenant_id, trial.demo.practitioner_ids[0]);
    let (mut first, mut second) = (trial.connect().await, trial.connect().await);
    execute(&mut first, "begin").await;
    sqlx::query("select pg_advisory_xact_lock($1)").bind(lock).execute(&mut first).await.expect("locked");
    // An overbooked row beside the first, as a commit would leave it.
    let twin = "insert into appointments
                select (jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid(), 'overbooked', true, 'intent', null,
                  'kind', 'block', 'patient_id', null, 'service_id', null))).* from appointments a where id = $1";
    sqlx::query(twin).bind(id).execute(&mut first).await.expect("a twin");
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        let row = sqlx::query(BOTH_WAYS).bind(lock).bind(id).fetch_one(&mut second).await.expect("an answer");
        (row.get::<bool, _>("now"), row.get::<bool, _>("inline"))
    });
    let mut eyes = trial.connect().await;
    eventually("the second waits", async || {
        let waits = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                     where d.datname = current_database() and locktype = 'advisory' and not granted";
        sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut eyes).await.expect("a count") == 1
    })
    .await;
    execute(&mut first, "commit").await;
    assert_eq!(asking.join_all().await, [(true, false)], "the function is what the commit needs, a select is not");
    // The twin was never a commit's: it has neither history nor event.
    execute(&mut first, "delete from appointments where overbooked").await;
    drop((first, eyes));
    trial.end().await;
}

async fn execute(connection: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.expect(statement);
}

/// An overbooked booking is at work on a slot whose holder goes; an ordinary booking, or a move, that found the slot free
/// waits for its lock. No constraint would stop it.
#[tokio::test]
async fn who_waited_for_an_overbooked_booking_does_not_slip_in() {
    let mut trial = Trial::new().await;
    trial.change("update clinics set allow_overbooking = true").await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    trial.serve(setup.clone()).await;
    let quick = trial.desk();
    trial.serve(Setup { url: wire.url(&setup.url), ..setup }).await;
    let slow = trial.desk();
    let mut eyes = trial.connect().await;
    let elsewhere =
        quick.say(&trial.book(Visit { patient: 2, slot: 9, ..Visit::default() })).await.expect(201, "").id();
    let ordinary = [trial.book(Visit { patient: 1, ..Visit::default() }), reschedule(elsewhere, 1)];
    for (n, call) in ordinary.into_iter().enumerate() {
        // It looks while the slot is free, and its commit is held on the wire.
        let caught = wire.next(Statement::Commit, Act::HoldBefore);
        let mut asking = JoinSet::new();
        let desk = slow.clone();
        asking.spawn(async move { desk.say(&call).await });
        caught.reached().await;
        // Somebody takes the slot, and somebody overbooks it: held up, with the practitioner's lock.
        let holder =
            quick.say(&trial.book(Visit { patient: 3, slot: n, ..Visit::default() })).await.expect(201, "").id();
        let mut hold = Hold::patient(&trial, 4).await;
        let over = trial.book(Visit { patient: 4, slot: n, overbook: true, ..Visit::default() });
        let desk = quick.clone();
        let mut overbooking = JoinSet::new();
        overbooking.spawn(async move { desk.say(&over).await });
        hold.waited_for_by(1).await;
        quick.say(&step(holder, "cancel")).await.expect(200, "");
        // The commit starts now: to its own snapshot the slot is free. It waits for the lock.
        caught.go_on();
        hold.waited_for_by(2).await;
        hold.let_go().await;
        let overbooked = overbooking.join_all().await.remove(0).expect(201, "");
        assert_eq!(overbooked.json()["overbooked"], true);
        asking.join_all().await.remove(0).expect(409, "slot_taken");
        assert!(waiting(&mut eyes).await.is_empty());
        let body = json!({ "start": slot(n + 20) });
        let away = Call::post(format!("/v1/appointments/{}/reschedule", overbooked.id()), body);
        quick.say(&away).await.expect(200, "");
    }
    drop(eyes);
    trial.end().await;
}
