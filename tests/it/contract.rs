//! The contract, case by case: what `oncebook conformance` holds any service to, with everything it may ask for (every
//! credential, the database), here and in every run. Which cases there are is `oncebook::conformance`'s business alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use oncebook::conformance::{Case, DevJson, DevKeys, Outcome, Target, cases};
use oncebook::dev::seed::Demo;
use uuid::Uuid;

use crate::app::Trial;

/// Cases whose promise is one between processes; ⇉ in CONFORMANCE.md, and those that hold one process's word to another's
/// deeds: a key held up (12, 17), access lost (42), a key expired (44).
const BETWEEN_PROCESSES: [u16; 7] = [9, 11, 12, 15, 17, 42, 44];

/// Cases that take the time; on a machine busy with other cases they would take that of those.
const TIMED: [u16; 3] = [10, 14, 30];

/// What the cases do to Postgres on purpose: they cancel statements, end sessions, and hold rows until commands give up.
const DONE_TO_IT: [&str; 4] = [
    "canceling statement due to user request",
    "canceling statement due to statement timeout",
    "terminating connection due to administrator command",
    "connection to client lost",
];

/// The one case that makes a deadlock, which no trial that is looked through at its end may have had.
const DEADLOCK: u16 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn one_process_keeps_the_contract() {
    in_lanes(|case| case.number != DEADLOCK && !TIMED.contains(&case.number), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_database_keep_it_between_them() {
    in_lanes(|case| BETWEEN_PROCESSES.contains(&case.number), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_in_time() {
    let (trial, mut target) = stage(Trial::alone().await).await;
    for processes in [1, 2] {
        let peer = if processes > 1 { Some(trial.process().await) } else { None };
        target.peer_base_url = peer.as_ref().map(|peer| peer.base.clone());
        for case in cases().iter().filter(|case| TIMED.contains(&case.number)) {
            assert_kept(&[(case.to_string(), case.check(&target).await)]);
        }
        if let Some(peer) = peer {
            peer.stop().await;
        }
    }
    end(trial).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_though_postgres_fails_a_statement() {
    let (trial, target) = stage(Trial::new().await).await;
    for case in cases().iter().filter(|case| case.number == DEADLOCK) {
        assert_kept(&[(case.to_string(), case.check(&target).await)]);
    }
    // Its end would find the deadlock in the log. The next run drops its database.
    trial.abandon();
}

/// Runs the chosen cases in four lanes that take the next one each, then looks through every lane's database and log.
async fn in_lanes(chosen: fn(&Case) -> bool, processes: usize) {
    let cases: Vec<Case> = cases().into_iter().filter(chosen).collect();
    let next = AtomicUsize::new(0);
    let lane = || Box::pin(lane(&cases, &next, processes));
    let (one, two, three, four) = tokio::join!(lane(), lane(), lane(), lane());
    let (trials, came): (Vec<_>, Vec<_>) = [one, two, three, four].into_iter().unzip();
    let came = came.concat();
    assert_eq!(came.len(), cases.len());
    assert_kept(&came);
    for trial in trials {
        end(trial).await;
    }
}

/// Looks through the rows and the log of a trial, of which the cases have asked a lot.
async fn end(mut trial: Trial) {
    // They age keys, so that these mean something else.
    trial.keys_expire();
    for error in DONE_TO_IT {
        trial.tolerate(error);
    }
    trial.end().await;
}

/// Runs the next case until there is none. A lane has a database of its own, since a case counts every row of its group.
async fn lane(cases: &[Case], next: &AtomicUsize, processes: usize) -> (Trial, Vec<(String, Outcome)>) {
    let (trial, mut target) = stage(Trial::new().await).await;
    let peer = if processes > 1 { Some(trial.process().await) } else { None };
    target.peer_base_url = peer.as_ref().map(|peer| peer.base.clone());
    let mut came = Vec::new();
    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
        came.push((case.to_string(), case.check(&target).await));
    }
    if let Some(peer) = peer {
        peer.stop().await;
    }
    (trial, came)
}

/// A service with the demo group, and what a case must know of it.
async fn stage(mut trial: Trial) -> (Trial, Target) {
    trial.serve(trial.setup()).await;
    let base_url = trial.services()[0].base.clone();
    let dev = described(&trial.demo, &base_url);
    let api_key = dev.api_keys.admin.clone();
    let target = Target { base_url, peer_base_url: None, dev: Some(dev), api_key, database_url: Some(trial.url()) };
    (trial, target)
}

/// As `dev.json` would say it.
fn described(demo: &Demo, base_url: &str) -> DevJson {
    let texts = |ids: &[Uuid]| ids.iter().map(Uuid::to_string).collect();
    let keys = demo.api_keys.clone();
    DevJson {
        base_url: base_url.to_owned(),
        api_keys: DevKeys {
            admin: keys.admin,
            front_desk: keys.front_desk,
            other_clinic: keys.other_clinic,
            integration: keys.integration,
            operator: keys.operator,
            ledger_approver: keys.ledger_approver,
            worker: keys.worker,
            other_tenant: keys.other_tenant,
        },
        clinic_id: demo.clinic_id.to_string(),
        other_clinic_id: demo.other_clinic_id.to_string(),
        practitioner_ids: texts(&demo.practitioner_ids),
        operatory_ids: texts(&demo.operatory_ids),
        service_ids: texts(&demo.service_ids),
        patient_ids: texts(&demo.patient_ids),
    }
}

fn assert_kept(came: &[(String, Outcome)]) {
    let broken: Vec<String> = came
        .iter()
        .filter_map(|(case, outcome)| match outcome {
            Outcome::Failed(failure) => Some(format!("{case}\n{failure}")),
            _ => None,
        })
        .collect();
    assert!(broken.is_empty(), "{} of {} cases:\n\n{}", broken.len(), came.len(), broken.join("\n\n"));
}
