//! "Fingerprint" of `docs/CONFORMANCE.md`: one meaning in many forms is one command.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::call::Call;
use super::case::{About as _, Case, Need, Verdict};
use super::contract::carried_out;
use super::database::Growth;
use super::fixture::Place;
use super::operations::Operation;
use super::world::World;

/// Cases 28, 29 and 31 to 34.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(28, "members reordered, white space, escapes, nested order: a replay, for every command", |w| {
            Box::pin(forms(w))
        }),
        Case::new(29, "one instant in many forms: a replay", |w| Box::pin(instants(w))),
        Case::new(31, "a default given or left out, null or absent: the same", |w| Box::pin(defaults(w))),
        Case::new(32, "one key on two operations: refused, never the other one's answer", |w| {
            Box::pin(other_operation(w))
        }),
        Case::new(33, "a row says which fingerprint it was stored under; one of another release never executes", |w| {
            Box::pin(versions(w))
        })
        .needs(&[Need::Database]),
        Case::new(34, "an encoded body: 415, or decoded within the size limit", |w| Box::pin(encoded(w))),
    ]
}

/// The same JSON with its members the other way round, at every depth.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let inner: Vec<String> =
                members.iter().rev().map(|(name, value)| format!("{}:{}", json!(name), reversed(value))).collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// The same JSON with every letter of its texts escaped.
fn escaped(value: &Value) -> String {
    let unicode = |text: &str| {
        text.encode_utf16().fold(String::new(), |mut escapes, unit| {
            let _ = write!(escapes, "\\u{unit:04x}");
            escapes
        })
    };
    match value {
        Value::Object(members) => {
            let inner: Vec<String> =
                members.iter().map(|(name, value)| format!("\"{}\":{}", unicode(name), escaped(value))).collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::String(text) => format!("\"{}\"", unicode(text)),
        other => other.to_string(),
    }
}

async fn replays_of(first: &super::answer::Answer, calls: Vec<(&str, Call)>) -> Verdict {
    for (about, call) in calls {
        call.send().await?.replays(first).about(about)?;
    }
    Ok(())
}

async fn forms(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let mut prepared = operation.prepare(&place).await?;
        if prepared.call.body_json() == json!({}) {
            continue;
        }
        if operation == Operation::Book {
            prepared.call = prepared.call.with("external", json!({"system": world.id(), "id": "ä/1"}));
        }
        let key = world.key();
        let first = carried_out(&prepared, &key).await?;
        let (call, body) = (prepared.call.key(&key), prepared.call.body_json());
        let pretty = serde_json::to_string_pretty(&body).unwrap_or_default();
        let mut tally = place.tally().await?;
        let forms = vec![
            ("members reversed", call.clone().text(reversed(&body))),
            ("indented", call.clone().text(pretty.clone())),
            ("tabs and line ends", call.clone().text(format!("\r\n\t{}\n", pretty.replace("  ", "\t")))),
            ("every letter escaped", call.clone().text(escaped(&body))),
        ];
        replays_of(&first, forms).await.about(format!("{operation:?}"))?;
        tally.grew(&Growth::NOTHING, &first).await?;
    }
    // An id is a number of 128 bits, whatever the case of its digits.
    let booked = place.book().await?;
    let upper = booked.call.with("patient_id", booked.slot.patient.to_uppercase()).send().await?;
    upper.replays(&booked.answer).about("a patient id in capitals")?;
    let confirm = place.act(&booked.id, "confirm").key(&world.key());
    let first = confirm.send().await?;
    let upper = confirm.at(format!("/v1/appointments/{}/confirm", booked.id.to_uppercase())).send().await?;
    upper.replays(&first).about("an appointment id in capitals")?;
    Ok(())
}

async fn instants(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let start = booked.slot.start;
    let local = start.to_zoned(place.zone.clone());
    let elsewhere = |zone: &str| start.in_tz(zone).map(|zoned| zoned.datetime().to_string()).unwrap_or_default();
    let offset = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let zulu = start.to_string();
    let forms: Vec<(&str, Value, Option<&str>)> = vec![
        ("with the clinic's offset", json!(offset), None),
        ("UTC as an offset", json!(zulu.replace('Z', "+00:00")), None),
        ("in Kathmandu", json!(elsewhere("Asia/Kathmandu") + "+05:45"), None),
        ("with thousandths", json!(zulu.replace('Z', ".000Z")), None),
        ("with billionths", json!(zulu.replace('Z', ".000000000Z")), None),
        ("local, with the clinic's zone", json!(local.datetime().to_string()), Some("Europe/Berlin")),
        ("local, with another zone's clock", json!(elsewhere("America/St_Johns")), Some("America/St_Johns")),
    ];
    for (about, value, zone) in forms {
        let mut call = booked.call.with("start", value);
        if let Some(zone) = zone {
            call = call.with("time_zone", zone);
        }
        call.send().await?.replays(&booked.answer).about(about)?;
    }
    let second = booked.call.with("start", zulu.replace('Z', ".001Z")).send().await?;
    second.refused(409, "idempotency_key_reused").about("a thousandth later")?;

    let to = place.slot().await?;
    let body = json!({"start": to.start.to_string(), "practitioner_id": to.practitioner});
    let moved = place.act(&booked.id, "reschedule").json(&body).key(&world.key());
    let first = moved.send().await?;
    first.is(200)?;
    let local = to.start.to_zoned(place.zone.clone());
    let by_offset = moved.with("start", local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string());
    by_offset.send().await?.replays(&first).about("a move, with an offset")?;
    let by_zone = moved.with("start", local.datetime().to_string()).with("time_zone", "Europe/Berlin");
    by_zone.send().await?.replays(&first).about("a move, local with its zone")?;

    let prepared = Operation::Block.prepare(&place).await?;
    let key = world.key();
    let first = carried_out(&prepared, &key).await?;
    let end = prepared.call.body_json()["end"].as_str().unwrap_or_default().replace('Z', "+00:00");
    prepared.call.with("end", end).key(&key).send().await?.replays(&first).about("a block's end, with an offset")?;
    Ok(())
}

async fn defaults(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let booked = place.book().await?;
    let mut all = booked.call.clone();
    for (member, value) in [
        ("overbook", json!(false)),
        ("note", Value::Null),
        ("external", Value::Null),
        ("operatory_id", Value::Null),
        ("time_zone", Value::Null),
    ] {
        let call = booked.call.with(member, value.clone());
        call.send().await?.replays(&booked.answer).about(format!("{member}: {value} against left out"))?;
        all = all.with(member, value);
    }
    all.send().await?.replays(&booked.answer).about("all of them")?;
    // And the other way round: first given, then left out.
    let slot = place.slot().await?;
    let bare = place.book_call(&slot);
    let given = place.booked(slot, bare.with("overbook", false).with("note", Value::Null)).await?;
    bare.key(&given.key).send().await?.replays(&given.answer).about("left out against given")?;

    let moved = Operation::Reschedule.prepare(&place).await?;
    let key = world.key();
    let first = carried_out(&moved, &key).await?;
    for (member, value) in [
        ("overbook", json!(false)),
        ("operatory_id", Value::Null),
        ("service_id", Value::Null),
        ("time_zone", Value::Null),
    ] {
        let call = moved.call.with(member, value).key(&key);
        call.send().await?.replays(&first).about(format!("a move with {member}"))?;
    }
    let booked = place.book().await?;
    let cancel = place.act(&booked.id, "cancel").key(&world.key());
    let first = cancel.send().await?;
    first.is(200)?;
    cancel.with("reason", Value::Null).send().await?.replays(&first).about("cancel with reason null")?;
    let block = Operation::Block.prepare(&place).await?;
    let bare = block.call.leaving_out("reason").key(&world.key());
    let first = bare.send().await?;
    first.is(201)?;
    bare.with("reason", Value::Null)
        .with("operatory_id", Value::Null)
        .send()
        .await?
        .replays(&first)
        .about("a block")?;
    Ok(())
}

async fn other_operation(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let first = carried_out(&prepared, &key).await?;
        let id = prepared.id.clone().unwrap_or(first.member("id")?);
        for other in Operation::ALL.into_iter().filter(|other| *other != operation) {
            let mut call = other.prepare(&place).await?.call;
            // On the very same appointment, where there is one: only the operation differs.
            if operation != Operation::Block && !other.action().is_empty() {
                call = call.at(format!("/v1/appointments/{id}/{}", other.action()));
            }
            let answer = call.key(&key).send().await?;
            answer.refused(409, "idempotency_key_reused").about(format!("{other:?} after {operation:?}"))?;
            answer.ensure(!answer.text().contains(&id), "nothing of the first").about(format!("{other:?}"))?;
        }
        prepared.call.key(&key).send().await?.replays(&first)?;
    }
    Ok(())
}

async fn versions(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let database = world.database()?;
    let booked = place.book().await?;
    let row = database.key(&place.clinic, &booked.key).await?;
    booked.answer.ensure(row.is_some_and(|row| row.fingerprint_version > 0), "a fingerprint_version of at least 1")?;
    // A release to come has written the row: this one cannot tell what it meant, and must not act on it again.
    database.set_fingerprint_version(&place.clinic, &booked.key, i16::MAX).await?;
    let mut tally = place.tally().await?;
    let again = booked.call.send().await?;
    let safe = again.same_as(&booked.answer).is_ok() || again.status >= 400;
    again.ensure(safe, "the stored answer or a refusal, never a second execution")?;
    tally.grew(&Growth::REFUSED, &again).await
}

/// gzip (RFC 1952) of stored blocks (RFC 1951, 3.2.4): no shorter, but as good as any other.
fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = body.chunks(0xFFFF).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let mut crc = u32::MAX;
    for byte in body {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    out.extend_from_slice(&(!crc).to_le_bytes());
    out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    out
}

async fn encoded(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let call = place.book_call(&slot).key(&world.key());
    let body = call.body_json().to_string();
    let encoded = call.clone().text(gzipped(body.as_bytes())).header("Content-Encoding", "gzip");
    let answer = encoded.send().await?;
    if answer.status == 415 {
        answer.refused(415, "unsupported_media_type")?;
        for coding in ["deflate", "br", "zstd", "compress", "gzip, gzip"] {
            let call = call.clone().header("Content-Encoding", coding).send().await?;
            call.refused(415, "unsupported_media_type").about(coding)?;
        }
        call.send().await?.is(201)?.replayed(false)?;
        return Ok(());
    }
    answer.is(201).about("415, or decoded")?;
    call.send().await?.replays(&answer)?;
    let padded = format!("{body}{}", " ".repeat(70_000));
    let large = call.key(&world.key()).text(gzipped(padded.as_bytes())).header("Content-Encoding", "gzip");
    large.send().await?.refused(413, "body_too_large").about("too large once decoded")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_mean_the_same() {
        let value = json!({"b": {"y": 1, "x": "ä💥"}, "a": [null, "t"]});
        for form in [reversed(&value), escaped(&value)] {
            assert_eq!(serde_json::from_str::<Value>(&form).expect("JSON"), value, "{form}");
        }
    }

    #[test]
    fn gzip_is_what_gzip_writes() {
        // printf 'hello' | gzip --no-name, but stored instead of deflated: the trailer is the same.
        let out = gzipped(b"hello");
        assert_eq!(out[10..15], [1, 5, 0, 0xFA, 0xFF]);
        assert_eq!(out[20..], [0x86, 0xA6, 0x10, 0x36, 5, 0, 0, 0]);
    }
}
