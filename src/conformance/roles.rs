//! Who may do what (API.md): the table of roles, seat by seat. In the demo clinic, since some seats know no other.

use serde_json::json;

use super::call::{Call, Client};
use super::case::{About as _, Case, Need, Verdict};
use super::fixture::{Place, patient_body};
use super::operations::Operation;
use super::world::{Seat, World};

/// Case 43, the roles.
pub(super) fn cases() -> Vec<Case> {
    const CREDENTIALS: &[Need] = &[Need::Credentials];
    vec![
        Case::new(43, "the table of roles: what a role may read", |w| Box::pin(reads(w))).needs(CREDENTIALS),
        Case::new(43, "the table of roles: what a role may write", |w| Box::pin(writes(w))).needs(CREDENTIALS),
        Case::new(43, "reopen and overbook are for the front desk and the administrator", |w| Box::pin(reserved(w)))
            .needs(CREDENTIALS),
        Case::new(43, "a replay and GET /v1/commands need the role of the stored operation", |w| {
            Box::pin(replays_need_it(w))
        })
        .needs(CREDENTIALS),
    ]
}

const SEATS: [Seat; 6] =
    [Seat::Admin, Seat::FrontDesk, Seat::Integration, Seat::Operator, Seat::LedgerApprover, Seat::Worker];
const CLINICAL: &[Seat] = &[Seat::Admin, Seat::FrontDesk, Seat::Integration];
const READERS: &[Seat] = &[Seat::Admin, Seat::FrontDesk, Seat::Integration, Seat::Operator];
const KNOWING: &[Seat] = &[Seat::Admin, Seat::FrontDesk, Seat::Integration, Seat::Operator, Seat::LedgerApprover];
const DESK: &[Seat] = &[Seat::Admin, Seat::FrontDesk];

/// Sends it under every seat: who may gets a success, all others the same 403.
async fn only(world: &World, seats: &[Seat], about: &str, call: &Call) -> Verdict {
    let mut refusal = None;
    for seat in SEATS {
        let answer = call.under(&world.seat(seat)?).send().await?;
        if seats.contains(&seat) {
            answer.ensure(matches!(answer.status, 200..=204), format!("[{about}] {seat:?} may"))?;
            continue;
        }
        answer.refused(403, "forbidden").about(format!("{about}, {seat:?}"))?;
        answer.same_as(refusal.get_or_insert_with(|| answer.clone())).about(format!("{about}, {seat:?}"))?;
    }
    Ok(())
}

async fn reads(world: &World) -> Verdict {
    let place = Place::demo(world, world.admin().clone())?;
    let booked = place.book().await?;
    let clinic = &place.clinic;
    let range = format!("clinic_id={clinic}&from={}&to={}", booked.slot.start, booked.slot.later(60).start);
    let table: Vec<(&[Seat], String)> = vec![
        (KNOWING, format!("/v1/clinics/{clinic}")),
        (KNOWING, format!("/v1/clinics/{clinic}/hours")),
        (KNOWING, format!("/v1/clinics/{clinic}/closures")),
        (KNOWING, "/v1/clinics".to_owned()),
        (KNOWING, format!("/v1/practitioners/{}", place.practitioners[0])),
        (KNOWING, format!("/v1/practitioners/{}/clinics/{clinic}", place.practitioners[0])),
        (KNOWING, format!("/v1/operatories/{}", place.operatories[0])),
        (KNOWING, format!("/v1/services/{}", place.services[0])),
        (KNOWING, format!("/v1/availability?{range}&service_id={}", place.services[0])),
        (CLINICAL, format!("/v1/patients/{}", place.patients[0])),
        (CLINICAL, "/v1/patients?q=a".to_owned()),
        (READERS, format!("/v1/appointments/{}", booked.id)),
        (READERS, format!("/v1/appointments/{}/history", booked.id)),
        (READERS, format!("/v1/appointments?{range}")),
        (READERS, format!("/v1/blocks?{range}")),
        (&[Seat::Admin], "/v1/credentials".to_owned()),
    ];
    for (seats, path) in table {
        only(world, seats, &path, &place.client.get(path.clone())).await?;
    }
    Ok(())
}

async fn writes(world: &World) -> Verdict {
    let place = Place::demo(world, world.admin().clone())?;
    let admin: &[Seat] = &[Seat::Admin];
    let put = |path: String, body| place.client.put(path).json(&body);
    let of_clinic = json!({"clinic_id": place.clinic, "name": "Conformance", "active": false});
    let idle = json!({"name": "Conformance", "active": false});
    let table: Vec<(&[Seat], Call)> = vec![
        (admin, put(format!("/v1/practitioners/{}", world.id()), idle)),
        (admin, put(format!("/v1/operatories/{}", world.id()), of_clinic)),
        (
            admin,
            put(format!("/v1/services/{}", world.id()), {
                let mut service = place.service(30, 0);
                service["active"] = json!(false);
                service
            }),
        ),
        (CLINICAL, put(format!("/v1/patients/{}", world.id()), patient_body())),
    ];
    for (seats, call) in table {
        only(world, seats, call.path(), &call).await?;
    }
    // A fresh clinic only for those who may use all: whether the role or the clinic refuses, it is a 403 or a 404.
    for operation in Operation::ALL {
        let seats = if operation == Operation::Reopen { DESK } else { CLINICAL };
        let mut refusal = None;
        for seat in SEATS {
            let client = world.seat(seat)?;
            if seats.contains(&seat) {
                let prepared = operation.prepare(&place).await?;
                let answer = prepared.call.under(&client).key(&world.key()).send().await?;
                answer.is(prepared.status).about(format!("{operation:?}, {seat:?}"))?;
            } else {
                let prepared = Operation::prepare(operation, &place).await?;
                let answer = prepared.call.under(&client).key(&world.key()).send().await?;
                answer.refused(403, "forbidden").about(format!("{operation:?}, {seat:?}"))?;
                answer.same_as(refusal.get_or_insert_with(|| answer.clone())).about(format!("{operation:?}"))?;
            }
        }
    }
    Ok(())
}

async fn reserved(world: &World) -> Verdict {
    let place = Place::demo(world, world.admin().clone())?;
    let slot = place.slot().await?;
    let overbook = place.book_call(&slot).with("overbook", true);
    // The demo clinic takes no overbooking: whoever may ask is told so.
    for seat in DESK {
        let answer = overbook.under(&world.seat(*seat)?).key(&world.key()).send().await?;
        answer.refused(422, "overbooking_not_allowed").about(format!("{seat:?}"))?;
    }
    let integration: Client = world.seat(Seat::Integration)?;
    overbook.under(&integration).key(&world.key()).send().await?.refused(403, "forbidden")?;
    let moved = Operation::Reschedule.prepare(&place).await?;
    let moved = moved.call.with("overbook", true).under(&integration).key(&world.key());
    moved.send().await?.refused(403, "forbidden").about("an overbooking move")?;
    Ok(())
}

async fn replays_need_it(world: &World) -> Verdict {
    let place = Place::demo(world, world.admin().clone())?;
    let reopen = Operation::Reopen.prepare(&place).await?;
    let key = world.key();
    let call = reopen.call.key(&key);
    let first = call.send().await?;
    first.is(200)?;
    call.under(&world.seat(Seat::FrontDesk)?).send().await?.replays(&first)?;
    call.under(&world.seat(Seat::Integration)?)
        .send()
        .await?
        .refused(403, "forbidden")
        .about("a reopening's replay")?;
    let asked = place.client.get(format!("/v1/commands?clinic_id={}", place.clinic)).key(&key);
    asked.under(&world.seat(Seat::FrontDesk)?).send().await?.is(200)?;
    for seat in [Seat::Integration, Seat::Operator, Seat::LedgerApprover, Seat::Worker] {
        let answer = asked.under(&world.seat(seat)?).send().await?;
        answer.refused(403, "forbidden").about(format!("GET /v1/commands of a reopening, {seat:?}"))?;
    }
    let booked = place.book().await?;
    let asked = asked.key(&booked.key);
    asked.under(&world.seat(Seat::Integration)?).send().await?.is(200).about("GET /v1/commands of a booking")?;
    for seat in [Seat::Operator, Seat::LedgerApprover, Seat::Worker] {
        booked.call.under(&world.seat(seat)?).send().await?.refused(403, "forbidden").about(format!("{seat:?}"))?;
    }
    Ok(())
}
