//! The walk: the same random commands to the model and to the service.

use oncebook::clock::Ids;
use serde_json::{Value, json};

use super::{AWAY, BUFFER, Command, LENGTH, Model, Place, Row, below, instant, known};
use crate::app::Trial;
use crate::client::{Call, Heard};

/// Commands of a walk.
const STEPS: usize = 300;

/// A walk on its way.
struct Walk {
    trial: Trial,
    model: Model,
    ids: Ids,
    /// What was sent, for sending it again.
    sent: Vec<(Call, Heard)>,
}

impl Walk {
    /// Few people, few rooms, few hours: commands meet.
    fn place(&self, service: usize) -> Place {
        let ids = &self.ids;
        let start = match below(ids, 20) {
            0 => 5,
            1 => 15 * 38,
            2 => -15,
            3 => -24 * 60 * 14,
            4 => 800 * 24 * 60,
            _ => 15 * i64::try_from(below(ids, 8)).expect("small"),
        };
        let practitioner = Some(if below(ids, 20) == 0 { AWAY } else { below(ids, 2) });
        let operatory = Some(below(ids, 2)).filter(|_| below(ids, 2) == 0);
        Place { practitioner, operatory, start, length: LENGTH[service], buffer: BUFFER[service] }
    }

    /// A command at random.
    fn command(&self) -> Command {
        let ids = &self.ids;
        let overbook = below(ids, 4) == 0;
        let service = below(ids, 3);
        if self.model.rows.is_empty() || below(ids, 10) < 3 {
            return Command::Book { patient: below(ids, 3), service, place: self.place(service), overbook };
        }
        let row = below(ids, u64::try_from(self.model.rows.len()).expect("few"));
        match below(ids, 20) {
            0..5 => {
                let service = Some(service).filter(|_| below(ids, 3) == 0);
                let mut place = self.place(service.unwrap_or(0));
                // What is left out stays as it is; now and then all of it does.
                place.practitioner = place.practitioner.filter(|_| below(ids, 2) == 0);
                if below(ids, 6) == 0 {
                    place.start = self.model.rows[row].place.start;
                }
                Command::Move { row, place, service, overbook }
            }
            5..15 => {
                let steps = ["confirm", "check-in", "complete", "no-show", "cancel", "reopen", "reopen", "cancel"];
                Command::Step { row, what: steps[below(ids, 8)] }
            }
            15..17 => {
                let notes = [None, Some(""), Some("mornings"), Some("brings x-rays")];
                Command::Note { row, note: notes[below(ids, 4)].map(str::to_owned) }
            }
            17..19 => {
                let length = 1 + i64::try_from(below(ids, 2)).expect("small");
                let start = 15 * i64::try_from(below(ids, 8)).expect("small");
                let (practitioner, operatory) = (below(ids, 2), below(ids, 2));
                let (practitioner, operatory) = match below(ids, 3) {
                    0 => (Some(practitioner), None),
                    1 => (None, Some(operatory)),
                    _ => (Some(practitioner), Some(operatory)),
                };
                Command::Block { place: Place { practitioner, operatory, start, length, buffer: 0 } }
            }
            _ => Command::Unblock { row },
        }
    }

    /// The request for it.
    fn call(&self, command: &Command) -> Call {
        let demo = &self.trial.demo;
        let at = |row: usize, rest: &str| format!("/v1/appointments/{}{rest}", self.model.rows[row].id);
        let practitioner = |place: &Place| place.practitioner.map(|n| demo.practitioner_ids[n]);
        let operatory = |place: &Place| place.operatory.map(|n| demo.operatory_ids[n]);
        match command {
            Command::Book { patient, service, place, overbook } => {
                let body = json!({
                    "clinic_id": demo.clinic_id, "patient_id": demo.patient_ids[*patient],
                    "practitioner_id": practitioner(place), "operatory_id": operatory(place),
                    "service_id": demo.service_ids[*service], "start": instant(place.start), "overbook": overbook,
                });
                Call::post("/v1/appointments", body)
            }
            Command::Move { row, place, service, overbook } => {
                let body = json!({
                    "start": instant(place.start), "practitioner_id": practitioner(place), "overbook": overbook,
                    "operatory_id": operatory(place), "service_id": service.map(|n| demo.service_ids[n]),
                });
                Call::post(at(*row, "/reschedule"), body)
            }
            Command::Step { row, what } => Call::post(at(*row, &format!("/{what}")), json!({})),
            Command::Note { row, note } => Call::patch(at(*row, ""), json!({ "note": note })),
            Command::Block { place } => {
                let (start, end) = (instant(place.start), instant(place.start + 15 * place.length));
                let body = json!({
                    "clinic_id": demo.clinic_id, "practitioner_id": practitioner(place),
                    "operatory_id": operatory(place), "start": start, "end": end,
                });
                Call::post("/v1/blocks", body)
            }
            Command::Unblock { row } => Call::delete(format!("/v1/blocks/{}", self.model.rows[*row].id)),
        }
    }

    /// Which row a command is about, and the version it asks for: now and then one, now and then a wrong one.
    fn about(&self, command: &Command) -> (Option<usize>, Option<i64>) {
        let row = match command {
            Command::Book { .. } | Command::Block { .. } => None,
            Command::Move { row, .. }
            | Command::Step { row, .. }
            | Command::Note { row, .. }
            | Command::Unblock { row } => Some(*row),
        };
        let version = row.map(|row| self.model.rows[row].version);
        (row, version.filter(|_| below(&self.ids, 4) == 0).map(|version| version + i64::from(below(&self.ids, 2) == 0)))
    }

    async fn step(&mut self, n: usize) {
        let command = self.command();
        let (row, if_match) = self.about(&command);
        let mut call = self.call(&command);
        if let Some(version) = if_match {
            call = call.if_match(version);
        }
        let rows = self.model.rows.len();
        let expected = self.model.answer(&command, if_match);
        let heard = self.trial.desk().say(&call).await;
        let gist = heard.gist();
        assert_eq!((gist.0, gist.1.as_str()), expected, "step {n}: {command:?}, if it is {if_match:?}: {heard:?}");
        if self.model.rows.len() > rows {
            self.model.rows[rows].id = heard.id();
        }
        let row = row.unwrap_or(rows);
        if heard.status < 204 && self.model.rows[row].visit.is_some() {
            assert_eq!(known(&heard.json()), self.view(&self.model.rows[row]), "step {n}: {command:?}");
        }
        self.sent.push((call, heard));
    }

    /// Something sent before, again: the answer of then. Its key with something else: no.
    async fn again(&self) {
        let (call, then) = &self.sent[below(&self.ids, u64::try_from(self.sent.len()).expect("few"))];
        // A 404 is not stored: the row may not be the caller's.
        let Some(key) = call.key.as_deref().filter(|_| then.header("idempotent-replayed").is_some()) else { return };
        let heard = self.trial.desk().say(call).await;
        assert_eq!((heard.status, &heard.body, heard.replayed()), (then.status, &then.body, true));
        // No step of a walk goes there, so it is something else.
        let elsewhere = Place { start: 15 * 30, practitioner: Some(0), ..self.place(0) };
        let other = self.call(&Command::Block { place: elsewhere }).key(key);
        self.trial.desk().say(&other).await.expect(409, "idempotency_key_reused");
    }

    fn view(&self, row: &Row) -> Value {
        let demo = &self.trial.demo;
        json!({
            "start": instant(row.place.start), "end": instant(row.place.start + 15 * row.place.length),
            "status": row.status.text(), "version": row.version, "overbooked": row.overbooked, "note": row.note,
            "practitioner": row.place.practitioner.map(|n| demo.practitioner_ids[n]),
            "operatory": row.place.operatory.map(|n| demo.operatory_ids[n]), "confirmed": row.confirmed,
        })
    }
}

/// Walks from a seed; the same seed is the same walk.
pub(crate) async fn walk(seed: u64, overbooks: bool) {
    let mut trial = Trial::new().await;
    trial.change("update services set buffer_minutes = 15 where minutes = 15").await;
    if overbooks {
        trial.change("update clinics set allow_overbooking = true").await;
    }
    let mut connection = trial.connect().await;
    sqlx::query("update practitioners set active = false where id = $1")
        .bind(trial.demo.practitioner_ids[AWAY])
        .execute(&mut connection)
        .await
        .expect("away");
    drop(connection);
    trial.serve(trial.setup()).await;
    let model = Model { rows: Vec::new(), overbooks };
    let mut walk = Walk { trial, model, ids: Ids::seeded(seed), sent: Vec::new() };
    println!("walk {seed}, overbooking: {overbooks}");
    for n in 0..STEPS {
        walk.step(n).await;
        if below(&walk.ids, 10) == 0 {
            walk.again().await;
        }
    }
    for row in walk.model.rows.iter().filter(|row| row.visit.is_some()) {
        let heard = walk.trial.desk().say(&Call::get(format!("/v1/appointments/{}", row.id))).await.expect(200, "");
        assert_eq!(known(&heard.json()), walk.view(row));
    }
    let mut told: Vec<_> = walk.sent.iter().map(|(_, heard)| heard.gist()).collect();
    told.sort();
    told.dedup();
    println!("{told:?}");
    assert!(told.len() >= 10, "it has seen little: {told:?}");
    walk.trial.end().await;
}

#[tokio::test]
async fn a_walk_through_a_clinic_that_does_not_overbook() {
    walk(1, false).await;
}

#[tokio::test]
async fn a_walk_through_a_clinic_that_overbooks() {
    walk(2, true).await;
}
