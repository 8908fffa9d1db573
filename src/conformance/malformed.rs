//! Bodies that are no request (case 25 and 30): every way in which JSON, or what it says, can be wrong.

use std::time::Duration;

use serde_json::{Value, json};

use super::call::Call;
use super::case::{About as _, Case, Verdict};
use super::database::Growth;
use super::fixture::{Place, patient_body};
use super::operations::Operation;
use super::world::World;

/// "Quickly" (API.md): no body of at most 64 KiB is worth more. `docs/CONFORMANCE.md` says 100 ms for the worst.
const QUICKLY: Duration = Duration::from_millis(100);

/// Cases 25 and 30.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(25, "malformed bodies of every kind, for every command: 400 quickly, nothing written", |w| {
            Box::pin(commands(w))
        }),
        Case::new(25, "malformed bodies of every kind, for the directory: 400 quickly, nothing written", |w| {
            Box::pin(directory(w))
        }),
        Case::new(25, "values that are none: ids, times, zones, names of things", |w| Box::pin(values(w))),
        Case::new(25, "malformed query, path and method: refused, never a 500", |w| Box::pin(around_the_body(w))),
        Case::new(30, "huge numbers, deep nesting, millions of digits: refused within 100 ms", |w| Box::pin(huge(w))),
        Case::new(30, "1, 1.0 and 1e0 in an integer field: accepted alike, or 400 every time", |w| {
            Box::pin(integers(w))
        }),
    ]
}

/// Everything that is wrong with these bytes, whatever the members mean.
fn broken(valid: &Value) -> Vec<(String, Vec<u8>)> {
    let text = valid.to_string();
    let inner = text.trim_start_matches('{').trim_end_matches('}');
    let separator = if inner.is_empty() { "" } else { "," };
    let mut bodies: Vec<(String, Vec<u8>)> = [
        ("white space", " \n ".to_owned()),
        ("null", "null".to_owned()),
        ("a number", "1".to_owned()),
        ("a text", "\"x\"".to_owned()),
        ("a list", format!("[{text}]")),
        ("half", format!("{{{inner}")),
        ("an open brace", "{".to_owned()),
        ("garbage after it", format!("{text} x")),
        ("twice", format!("{text}{text}")),
        ("a comma too many", format!("{{{inner},}}")),
        ("a comment", format!("{{/* */{inner}}}")),
        ("single quotes", text.replace('"', "'") + "'"),
        ("a name without quotes", format!("{{{inner}{separator}colour:1}}")),
        ("an unknown member", format!("{{{inner}{separator}\"colour\":\"red\"}}")),
        ("an unknown member, null", format!("{{{inner}{separator}\"colour\":null}}")),
        ("NaN", format!("{{{inner}{separator}\"colour\":NaN}}")),
        ("a NUL after it", format!("{text}\0")),
        ("a byte order mark", format!("\u{feff}{text}")),
    ]
    .into_iter()
    .map(|(about, body)| (about.to_owned(), body.into_bytes()))
    .collect();
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    bodies.push(("UTF-16".to_owned(), utf16));
    for (member, value) in valid.as_object().into_iter().flatten() {
        let twice = format!("{{\"{member}\":{value},{inner}}}");
        bodies.push((format!("{member} twice"), twice.into_bytes()));
        for (about, wrong) in [
            ("a number", "7"),
            ("a list", "[]"),
            ("an object of nothing known", "{\"a\":{\"b\":1}}"),
            ("a number beyond all", "1e999999999"),
            ("a lone surrogate", "\"\\ud800\""),
            ("a NUL", "\"a\\u0000b\""),
            ("a raw control character", "\"a\u{1}b\""),
        ] {
            let mut body = valid.clone();
            body[member] = json!("\u{1}\u{1}");
            let body = body.to_string().replace("\"\\u0001\\u0001\"", wrong);
            bodies.push((format!("{member}: {about}"), body.into_bytes()));
        }
        let mut body = valid.clone();
        body[member] = json!("marker");
        let mut bytes = body.to_string().into_bytes();
        if let Some(at) = bytes.windows(6).position(|six| six == b"marker") {
            bytes[at] = 0xFF;
        }
        bodies.push((format!("{member}: invalid UTF-8"), bytes));
    }
    bodies
}

/// The same with each of these members missing, or null where only a value will do.
fn incomplete(valid: &Value, required: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut bodies = Vec::new();
    for member in required {
        let mut body = valid.clone();
        body[*member] = Value::Null;
        bodies.push((format!("{member}: null"), body.to_string().into_bytes()));
        if let Some(members) = body.as_object_mut() {
            members.remove(*member);
        }
        bodies.push((format!("no {member}"), body.to_string().into_bytes()));
    }
    bodies
}

async fn all_refused(call: &Call, bodies: Vec<(String, Vec<u8>)>) -> Verdict {
    for (about, body) in bodies {
        let call = call.clone().text(body);
        let answer = call.send().await?;
        answer.refused(400, "malformed_request").about(&about)?;
        let mut quickest = answer;
        // Again: it may have met a busy machine, but what takes long to read takes so each time.
        for _ in 0..5 {
            if quickest.took > QUICKLY {
                quickest = call.send().await?;
            }
        }
        quickest.ensure(quickest.took <= QUICKLY, "an answer within 100 ms").about(&about)?;
    }
    Ok(())
}

async fn commands(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let commands: [(Operation, &[&str]); 5] = [
        (Operation::Book, &["clinic_id", "patient_id", "practitioner_id", "service_id", "start"]),
        (Operation::Block, &["clinic_id", "start", "end"]),
        (Operation::Reschedule, &["start"]),
        (Operation::Cancel, &[]),
        (Operation::Note, &[]),
    ];
    for (operation, required) in commands {
        let prepared = operation.prepare(&place).await?;
        let call = prepared.call.key(&world.key());
        let valid = prepared.call.body_json();
        let mut bodies = broken(&valid);
        bodies.extend(incomplete(&valid, required));
        let before = place.tally().await?;
        all_refused(&call, bodies).await.about(format!("{operation:?}"))?;
        let mut tally = before;
        let answer = call.send().await?;
        answer.is(prepared.status)?.replayed(false).about("the corrected body")?;
        let growth = Growth { audit: (0, i64::MAX), ..prepared.growth };
        tally.grew(&growth, &answer).await.about(format!("{operation:?}"))?;
    }
    let booked = place.book().await?;
    for action in ["confirm", "check-in", "reopen"] {
        let call = place.act(&booked.id, action).key(&world.key()).text("{\"colour\":\"red\"}");
        call.send().await?.refused(400, "malformed_request").about(format!("{action} with a body it does not know"))?;
    }
    Ok(())
}

async fn directory(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let clinic = json!({
        "name": "Other", "time_zone": "Europe/Berlin", "slot_minutes": 15, "allow_overbooking": false,
    });
    let of_clinic = json!({"clinic_id": place.clinic, "name": "x", "active": true});
    let things: [(String, Value, &[&str]); 5] = [
        (format!("/v1/clinics/{}", world.id()), clinic, &["name", "time_zone", "slot_minutes"]),
        (format!("/v1/practitioners/{}", world.id()), json!({"name": "x", "active": true}), &["name"]),
        (format!("/v1/operatories/{}", world.id()), of_clinic, &["clinic_id", "name"]),
        (format!("/v1/services/{}", world.id()), place.service(30, 0), &["clinic_id", "name", "minutes"]),
        (format!("/v1/patients/{}", world.id()), patient_body(), &["name"]),
    ];
    let mut tally = place.tally().await?;
    let mut last = place.book().await?.answer;
    tally.restart().await?;
    for (path, valid, required) in things {
        let mut bodies = broken(&valid);
        // Seven minutes are as good as any, so a number is no fault there.
        bodies.retain(|(about, _)| {
            !["slot_minutes: a number", "minutes: a number", "buffer_minutes: a number"].contains(&about.as_str())
        });
        bodies.extend(incomplete(&valid, required));
        all_refused(&world.admin().put(path.clone()), bodies).await.about(&path)?;
        last = world.admin().get(path.clone()).send().await?;
        last.refused(404, "not_found").about(path)?;
    }
    tally.grew(&Growth { audit: (0, i64::MAX), ..Growth::NOTHING }, &last).await?;
    let hours = format!("/v1/clinics/{}/hours", place.clinic);
    for wrong in [
        json!({}),
        json!([{"weekday": "Monday", "opens": "08:00", "closes": "18:00"}]),
        json!([{"weekday": "someday", "opens": "08:00", "closes": "18:00"}]),
        json!([{"weekday": "monday", "opens": "8:00", "closes": "18:00"}]),
        json!([{"weekday": "monday", "opens": "25:00", "closes": "18:00"}]),
        json!([{"weekday": "monday", "opens": "08:60", "closes": "18:00"}]),
        json!([{"weekday": "monday", "opens": "24:01", "closes": "18:00"}]),
        json!([{"weekday": "monday", "opens": "08:00"}]),
    ] {
        world.admin().put(hours.clone()).json(&wrong).send().await?.is(400).about(format!("hours {wrong}"))?;
    }
    let closures = format!("/v1/clinics/{}/closures", place.clinic);
    for wrong in [
        json!([{"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"}]),
        json!([{"from": "2030-01-01T00:00:00Z", "to": "2030-01-01T00:00:00Z"}]),
        json!([{"from": "2030-01-01", "to": "2030-01-02"}]),
    ] {
        world.admin().put(closures.clone()).json(&wrong).send().await?.is(400).about(format!("closures {wrong}"))?;
    }
    Ok(())
}

async fn values(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let id = slot.patient.as_str();
    let no_ids =
        [String::new(), "x".to_owned(), id[1..].to_owned(), format!("{id}0"), format!("{id} "), "-".repeat(36)];
    for member in ["clinic_id", "patient_id", "practitioner_id", "operatory_id", "service_id"] {
        for no_id in &no_ids {
            let answer = call.with(member, no_id.as_str()).send().await?;
            answer.refused(400, "malformed_request").about(format!("{member} {no_id:?}"))?;
        }
    }
    for start in [
        "",
        "tomorrow",
        "2030-02-30T09:00:00Z",
        "2030-13-01T09:00:00Z",
        "2030-01-01T25:00:00Z",
        "2030-01-01T09:60:00Z",
        "2030-01-01T09:00:61Z",
        "2030-01-01T09:00:00+25:00",
        "2030-01-01T09:00:00+01:75",
        "2030-01-01",
        "09:00:00Z",
        "1893456000",
        "10000-01-01T09:00:00Z",
        "2030-01-01T09:00:00",
        "2030-W01-1T09:00:00Z",
    ] {
        let answer = call.with("start", start).send().await?;
        answer.refused(400, "malformed_request").about(format!("start {start:?}"))?;
    }
    for zone in ["", "Mars/Olympus", "+01:00", "Europe/Berlin ", "../../etc/passwd"] {
        let local = call.with("start", "2030-01-08T09:00:00").with("time_zone", zone);
        local.send().await?.refused(400, "malformed_request").about(format!("time_zone {zone:?}"))?;
    }
    for external in [json!({}), json!({"system": "a"}), json!({"id": "a"}), json!({"system": "a", "id": "b", "c": 1})] {
        let answer = call.with("external", external.clone()).send().await?;
        answer.refused(400, "malformed_request").about(format!("external {external}"))?;
    }
    let doubled = call.body_json().to_string().replacen(
        '{',
        "{\"external\":{\"system\":\"a\",\"system\":\"a\",\"id\":\"b\"},",
        1,
    );
    call.clone().text(doubled).send().await?.refused(400, "malformed_request").about("a nested member twice")?;
    let block =
        json!({"clinic_id": place.clinic, "start": slot.start.to_string(), "end": slot.later(30).start.to_string()});
    let block = place.client.post("/v1/blocks").json(&block).key(&world.key());
    block.send().await?.refused(400, "malformed_request").about("a block of nothing")?;
    let block = block.with("practitioner_id", slot.practitioner.as_str());
    for end in [slot.start, slot.later(-15).start] {
        let answer = block.with("end", end.to_string()).send().await?;
        answer.refused(400, "malformed_request").about("a block that ends before it starts")?;
    }
    call.send().await?.is(201)?.replayed(false)?;
    Ok(())
}

async fn around_the_body(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let path = prepared.call.path().to_owned();
        for query in ["?dry_run=true", "?clinic_id=x", "?%ff=1", "?=", "?a&a"] {
            let call = prepared.call.at(format!("{path}{query}")).key(&world.key());
            call.send().await?.refused(400, "malformed_request").about(format!("{operation:?} {query}"))?;
        }
    }
    for id in ["x", "00000000-0000-0000-0000-00000000000", "%00", "%ff", "..%2f..%2fetc", "💥", "019b0000"] {
        let path = format!("/v1/appointments/{}", id.replace('💥', "%F0%9F%92%A5"));
        for call in [place.client.get(path.clone()), place.client.post(format!("{path}/confirm")).key(&world.key())] {
            let answer = call.send().await?;
            // API.md leaves open whether what cannot be an id is malformed or simply not there.
            answer.ensure(matches!(answer.status, 400 | 404), "400 or 404").about(id)?;
        }
    }
    Ok(())
}

async fn huge(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let inner = call.body_json().to_string();
    let inner = inner.trim_start_matches('{');
    let nested = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let bodies: Vec<(String, String)> = vec![
        ("1e999999999 as a note".to_owned(), format!("{{\"note\":1e999999999,{inner}")),
        ("-1e-999999999 as overbook".to_owned(), format!("{{\"overbook\":-1e-999999999,{inner}")),
        ("1e999999999 as a whole".to_owned(), "1e999999999".to_owned()),
        ("60,000 digits".to_owned(), format!("{{\"note\":{},{inner}", "9".repeat(60_000))),
        ("60,000 digits behind the point".to_owned(), format!("{{\"overbook\":0.{},{inner}", "9".repeat(60_000))),
        ("lists 10,000 deep".to_owned(), format!("{{\"note\":{},{inner}", nested("[", "]", 10_000))),
        ("lists 30,000 deep as a whole".to_owned(), nested("[", "]", 30_000)),
        (
            "objects 10,000 deep".to_owned(),
            format!("{{\"external\":{}1{},{inner}", "{\"a\":".repeat(10_000), "}".repeat(10_000)),
        ),
        ("60,000 open lists".to_owned(), "[".repeat(60_000)),
        ("20,000 unknown members".to_owned(), format!("{{{}{inner}", "\"a\":1,".repeat(9_000))),
    ];
    let bodies = bodies.into_iter().map(|(about, body)| (about, body.into_bytes())).collect();
    all_refused(&call, bodies).await?;
    let digits = call.clone().text(format!("{{\"note\":{},{inner}", "9".repeat(10_000_000))).send_raw().await?;
    digits.is(413).about("ten million digits")?;
    world.promptly("/healthz", Duration::from_secs(1)).await?;
    call.send().await?.is(201)?.replayed(false)?;
    Ok(())
}

async fn integers(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let path = format!("/v1/services/{}", world.id());
    let text = place.service(30, 0).to_string();
    let mut statuses = Vec::new();
    for number in ["30.0", "3e1", "300e-1", "3.0E+1"] {
        let body = text.replace("\"minutes\":30", &format!("\"minutes\":{number}"));
        let answer = world.admin().put(path.clone()).text(body).send().await?;
        let accepted = answer.status / 100 == 2;
        answer.ensure(accepted || answer.status == 400, "accepted, or 400").about(number)?;
        statuses.push(accepted);
        answer.ensure(statuses.iter().all(|other| *other == accepted), "all of them alike").about(number)?;
    }
    for number in ["30.5", "-1", "0", "99999999999", "1e999999999", "\"30\"", "true"] {
        let body = text.replace("\"minutes\":30", &format!("\"minutes\":{number}"));
        let answer = world.admin().put(path.clone()).text(body).send().await?;
        answer.refused(400, "malformed_request").about(number)?;
    }
    world.admin().put(path).text(text).send().await?.ensure(true, "")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broken_body_differs_from_the_valid_one() {
        let valid = json!({"note": "n", "start": "s"});
        let bodies = broken(&valid);
        assert!(bodies.len() > 30);
        for (about, body) in bodies {
            let parsed = serde_json::from_slice::<Value>(&body);
            assert!(
                about.contains("twice") || parsed.is_err() || parsed.is_ok_and(|parsed| parsed != valid),
                "{about}"
            );
        }
    }
}
