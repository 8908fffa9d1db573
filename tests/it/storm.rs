//! Everything at once: many clients, every command, two services, of which one is killed outright every few seconds, and
//! Postgres's backends ended in mid-statement. What was acknowledged is there once, what was refused is not, and nothing is
//! left at work. CONFORMANCE.md's case 18.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebook::clock::Ids;
use serde_json::json;
use sqlx::Row;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use crate::app::{Trial, Visit, eventually, reschedule, slot, step};
use crate::clean::hash;
use crate::client::{Call, Desk, Heard};
use crate::events::{LEFT, a_day_passes, count};
use crate::figures::{Figures, SHORT, Size};
use crate::process::Process;

/// Clients; half of them at each service.
const CLIENTS: u64 = 24;

/// Few slots, so that they collide: these many quarter hours of eight practitioners.
const SLOTS: u64 = 60;

/// Between two backends ended, and between two kills of the process.
const PAUSE: Duration = Duration::from_millis(5);
const LIFE: Duration = Duration::from_secs(3);

/// Resident memory of the process at the most, in KiB (issue 2, "It must show").
const MEMORY: u64 = 100 * 1024;

/// What all clients have between them.
struct Storm {
    demo: Trial,
    /// Appointments and blocks somebody made.
    visits: Mutex<Vec<Uuid>>,
    blocks: Mutex<Vec<Uuid>>,
    over: AtomicBool,
    ended: AtomicUsize,
    killed: AtomicUsize,
}

/// What a client remembers of one command.
struct Done {
    key: Option<String>,
    heard: Heard,
}

impl Storm {
    /// A command at random.
    fn call(&self, ids: &Ids) -> Call {
        let visit = pick(ids, &self.visits);
        let at = below(ids, SLOTS);
        if let Some(id) = pick(ids, &self.blocks).filter(|_| below(ids, 20) == 0) {
            return Call::delete(format!("/v1/blocks/{id}"));
        }
        match (below(ids, 20), visit) {
            (0..4, Some(id)) => reschedule(id, at),
            (4..12, Some(id)) => {
                let steps = ["confirm", "check-in", "complete", "no-show", "cancel", "cancel", "cancel", "reopen"];
                step(id, steps[below(ids, 8)])
            }
            (12, Some(id)) => {
                Call::patch(format!("/v1/appointments/{id}"), json!({ "note": below(ids, 9).to_string() }))
            }
            (13, _) => {
                let practitioner = self.demo.demo.practitioner_ids[below(ids, 8)];
                let (start, end) = (slot(at), slot(at) + jiff::SignedDuration::from_mins(15));
                let clinic_id = self.demo.demo.clinic_id;
                let body =
                    json!({ "clinic_id": clinic_id, "practitioner_id": practitioner, "start": start, "end": end });
                Call::post("/v1/blocks", body)
            }
            _ => self.demo.book(Visit {
                patient: below(ids, 50),
                practitioner: below(ids, 8),
                operatory: Some(below(ids, 8)).filter(|_| below(ids, 2) == 0),
                service: below(ids, 3),
                slot: at,
                overbook: false,
            }),
        }
    }

    /// One client: a command, again until it is answered, then another.
    async fn client(self: Arc<Self>, desk: Desk, ids: Ids) -> Vec<Done> {
        let mut done = Vec::new();
        while !self.over.load(Ordering::SeqCst) {
            let call = self.call(&ids);
            let heard = desk.insist(&call).await;
            assert!(heard.status < 500, "{call:?} {heard:?}");
            if heard.status == 201 {
                let made = if heard.header("location").is_some_and(|it| it.contains("blocks")) {
                    &self.blocks
                } else {
                    &self.visits
                };
                made.lock().unwrap_or_else(PoisonError::into_inner).push(heard.id());
            }
            done.push(Done { key: call.key, heard });
        }
        done
    }

    /// Ends backends of the service that are in the middle of a statement.
    async fn lightning(self: Arc<Self>) {
        let mut connection = self.demo.connect().await;
        while !self.over.load(Ordering::SeqCst) {
            let struck: Vec<bool> = sqlx::query_scalar(
                "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and application_name = 'oncebook' and state = 'active'
                 order by random() limit 1",
            )
            .fetch_all(&mut connection)
            .await
            .expect("a signal");
            self.ended.fetch_add(struck.len(), Ordering::SeqCst);
            sleep(PAUSE).await;
        }
    }

    /// Kills the process and starts another in its place, until the storm is over; hands over the last.
    async fn reaper(self: Arc<Self>, mut process: Process) -> Process {
        let address = process.base.strip_prefix("http://").expect("a URL").to_owned();
        let url = self.demo.url();
        let mut born = Instant::now();
        while !self.over.load(Ordering::SeqCst) {
            if born.elapsed() > LIFE {
                process.kill().await;
                process = self.demo.process_with(&url, &[("ONCEBOOK_LISTEN", &address)]).await;
                self.killed.fetch_add(1, Ordering::SeqCst);
                born = Instant::now();
            }
            sleep(PAUSE).await;
        }
        process
    }
}

/// One of them, if there are any.
fn pick(ids: &Ids, from: &Mutex<Vec<Uuid>>) -> Option<Uuid> {
    let from = from.lock().unwrap_or_else(PoisonError::into_inner);
    from.get(below(ids, u64::try_from(from.len()).expect("few"))).copied()
}

/// A number below `bound`, for an index.
fn below(ids: &Ids, bound: u64) -> usize {
    usize::try_from(ids.below(bound)).expect("small")
}

/// What was acknowledged is there once; what was refused, or found so already, changed nothing.
async fn counted(trial: &Trial, done: &[Done]) {
    let mut connection = trial.connect().await;
    let rows =
        sqlx::query("select key_hash, count(*) from appointment_history where key_hash is not null group by key_hash")
            .fetch_all(&mut connection)
            .await
            .expect("the history");
    let made: BTreeMap<Vec<u8>, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut acknowledged = 0;
    for Done { key, heard } in done {
        let Some(key) = key else { continue };
        let versions = made.get(&hash(key)).copied().unwrap_or_default();
        match heard.status {
            201 => assert_eq!(versions, 1, "{key} {heard:?}"),
            200 => assert!(versions <= 1, "{key} {heard:?}"),
            _ => assert_eq!(versions, 0, "{key} {heard:?}"),
        }
        acknowledged += versions;
    }
    // Nothing was done under a key whose client does not know of it.
    assert_eq!(acknowledged, made.values().sum::<i64>());
}

/// Once it is over, every event has its effect in time, and no event has it twice.
async fn every_effect(trial: &Trial) {
    let mut connection = trial.connect().await;
    eventually("every event is processed by both", async || {
        // What was tried at a bad moment need not wait for the next.
        a_day_passes(trial).await;
        count(&mut connection, LEFT).await == 0
    })
    .await;
    let doubled = "select count(*) from (select from changes group by event_id having count(*) > 1) as doubled";
    assert_eq!(count(&mut connection, doubled).await, 0);
    let missing = "select (select count(*) from appointment_history) - (select count(*) from changes)";
    assert_eq!(count(&mut connection, missing).await, 0);
}

pub(crate) async fn storm(size: Size, seed: u64) {
    let mut trial = if size.strict { Trial::alone().await } else { Trial::new().await };
    trial.tolerate("terminating connection due to administrator command");
    // What the backend of a process that was killed says, when it was waiting for a lock.
    trial.tolerate("connection to client lost");
    trial.serve(trial.setup()).await;
    let process = trial.process().await;
    let desks = [trial.desk(), trial.desk_at(&process.base)];
    let storm = Arc::new(Storm {
        demo: trial,
        visits: Mutex::default(),
        blocks: Mutex::default(),
        over: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        killed: AtomicUsize::new(0),
    });
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let desk = desks[usize::from(n % 2 == 1)].clone();
        clients.spawn(Arc::clone(&storm).client(desk, Ids::seeded(seed.wrapping_add(n * 1_000_003))));
    }
    let (mut lightning, mut reaper) = (JoinSet::new(), JoinSet::new());
    lightning.spawn(Arc::clone(&storm).lightning());
    reaper.spawn(Arc::clone(&storm).reaper(process));
    let until = Instant::now() + Duration::from_secs(size.seconds);
    sleep_until(until).await;
    storm.over.store(true, Ordering::SeqCst);
    let done = clients.join_all().await.into_iter().flatten().collect::<Vec<_>>();
    lightning.join_all().await;
    let process = reaper.join_all().await.remove(0);
    let mut figures = Figures::default();
    figures.add(done.iter().map(|done| &done.heard));
    let (ended, killed) = (storm.ended.load(Ordering::SeqCst), storm.killed.load(Ordering::SeqCst));
    let memory = process.memory();
    println!("storm {seed}: {figures}; {ended} backends ended in mid-statement, {killed} kills, {memory} KiB resident");
    assert!(ended > 5 && killed > 0 && figures.len() > 200, "it was no storm");
    assert!(memory < MEMORY, "{memory} KiB");
    counted(&storm.demo, &done).await;
    every_effect(&storm.demo).await;
    process.stop().await;
    Arc::into_inner(storm).expect("all have ended").demo.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_leaves_what_was_acknowledged_and_nothing_else() {
    storm(SHORT, 1).await;
}
