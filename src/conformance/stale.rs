//! What goes stale between a command's look and its commit (case 15): a row locked from outside keeps the commits of several
//! commands waiting, of both processes, all of which have seen it as it is. Only one of them may have been right.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::answer::Answer;
use super::call::{Call, all_at_once};
use super::case::{About as _, Case, Need, Verdict, ensure};
use super::concurrency::{one_winner, without_deadlock};
use super::database::{Hold, Row};
use super::fixture::{Place, Settings};
use super::world::World;

/// Case 15, held up.
pub(super) fn cases() -> Vec<Case> {
    const DATABASE: &[Need] = &[Need::Database];
    vec![
        Case::new(15, "two commands that exclude each other, both held up: one is done, one refused", |w| {
            Box::pin(exclusive(w))
        })
        .needs(DATABASE),
        Case::new(15, "two commands for one version, both held up: one is done, one told of the next", |w| {
            Box::pin(one_version(w))
        })
        .needs(DATABASE),
        Case::new(15, "20 moves into one slot, let go at one moment: one winner, no deadlock", |w| {
            Box::pin(without_deadlock(w, moves(w)))
        })
        .needs(DATABASE),
    ]
}

/// Sends both, lets both wait for the appointment, then lets it go.
async fn held_up(place: &Place<'_>, id: &str, one: &Call, other: &Call) -> Verdict<Vec<Answer>> {
    let calls = vec![one.key(&place.world.key()), other.key(&place.world.key()).at_peer()];
    let mut hold = place.world.database()?.hold(Row::Appointment, id).await?;
    let let_go = async {
        hold.awaited().await?;
        // The second waits for the first of them, or for its turn: nobody sees it wait for the row.
        sleep(Duration::from_millis(300)).await;
        hold.release().await
    };
    let (answers, let_go) = tokio::join!(all_at_once(calls), let_go);
    let_go?;
    answers
}

/// Passes if one was carried out and the other refused like this, and the history tells of one alone.
async fn one_done(place: &Place<'_>, id: &str, answers: &[Answer], status: u16, code: &str) -> Verdict {
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    ensure(done.len() == 1, "one of both to be carried out", format!("{} were", done.len()))?;
    for answer in refused {
        answer.refused(status, code)?;
    }
    let history = place.client.get(format!("/v1/appointments/{id}/history")).send().await?;
    let versions = history.is(200)?.items()?.len();
    history.ensure(versions == 2, "two versions: booked, and what was done")?;
    Ok(())
}

async fn exclusive(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for (one, other) in [("check-in", "no-show"), ("no-show", "cancel")] {
        for (one, other) in [(one, other), (other, one)] {
            let booked = place.book().await?;
            let answers =
                held_up(&place, &booked.id, &place.act(&booked.id, one), &place.act(&booked.id, other)).await?;
            let about = format!("{one} and {other}");
            one_done(&place, &booked.id, &answers, 409, "transition_not_allowed").await.about(about)?;
        }
    }
    Ok(())
}

async fn one_version(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for action in ["confirm", "reschedule", "note", "cancel"] {
        let booked = place.book().await?;
        let mut calls = Vec::new();
        for text in ["one", "other"] {
            let call = match action {
                "reschedule" => {
                    let to = place.slot().await?;
                    let to = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
                    place.act(&booked.id, action).json(&to)
                }
                "note" => {
                    place.client.call("PATCH", format!("/v1/appointments/{}", booked.id)).json(&json!({"note": text}))
                }
                _ => place.act(&booked.id, action),
            };
            calls.push(call.header("If-Match", "\"1\""));
        }
        let answers = held_up(&place, &booked.id, &calls[0], &calls[1]).await?;
        one_done(&place, &booked.id, &answers, 412, "version_mismatch").await.about(action)?;
    }
    Ok(())
}

async fn moves(world: &World) -> Verdict {
    const MOVERS: usize = 20;
    let place = Place::with(world, Settings { practitioners: 4, patients: MOVERS, ..Settings::default() }).await?;
    for _ in 0..3 {
        let_go_at_once(world, &place).await?;
    }
    Ok(())
}

/// One visit of each patient, all moved to one slot.
async fn let_go_at_once(world: &World, place: &Place<'_>) -> Verdict {
    let goal = place.slot().await?;
    let to = json!({"start": goal.start.to_string(), "practitioner_id": goal.practitioner});
    let mut calls = Vec::new();
    let mut hold: Option<Hold> = None;
    for _ in &place.patients {
        let booked = place.book().await?;
        calls.push(place.act(&booked.id, "reschedule").json(&to).key(&world.key()).spread());
        match &mut hold {
            Some(hold) => hold.also(Row::Appointment, &booked.id).await?,
            None => hold = Some(world.database()?.hold(Row::Appointment, &booked.id).await?),
        }
    }
    let let_go = async {
        sleep(Duration::from_millis(500)).await;
        match hold {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    };
    let (answers, let_go) = tokio::join!(all_at_once(calls), let_go);
    let_go?;
    one_winner(&answers?, 200, "slot_taken")
}
