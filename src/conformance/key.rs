//! "The key" of `docs/CONFORMANCE.md`: which bytes are one, and that it is nothing but bytes.

use super::call::Call;
use super::case::{About as _, Case, Need, Verdict, ensure};
use super::database::Growth;
use super::fixture::Place;
use super::operations::Operation;
use super::world::World;

/// Cases 35 to 40.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(35, "1 to 255 bytes, the quotes aside", |w| Box::pin(lengths(w))),
        Case::new(35, "every byte of 0x21 to 0x7E, bare and in a string", |w| Box::pin(every_byte(w))),
        Case::new(36, "empty, blank, tab, DEL, beyond ASCII: 400, never carried out", |w| Box::pin(no_keys(w)))
            .needs(&[Need::PlainHttp]),
        Case::new(37, "two key lines, equal or not: 400", |w| Box::pin(two_lines(w))).needs(&[Need::PlainHttp]),
        Case::new(38, "a string and its bare form are one key; broken strings are none", |w| Box::pin(strings(w))),
        Case::new(39, "keys differ by case and by their last byte; the header's name does not", |w| {
            Box::pin(distinct(w))
        })
        .needs(&[Need::PlainHttp]),
        Case::new(40, "SQL, format strings and paths in a key are just bytes", |w| Box::pin(just_bytes(w))),
        Case::new(40, "the table holds the key's SHA-256, no table the key", |w| Box::pin(hashed(w)))
            .needs(&[Need::Database]),
    ]
}

/// A booking of a fresh slot under exactly this header value.
async fn booking(place: &Place<'_>, value: impl Into<Vec<u8>>) -> Verdict<Call> {
    let slot = place.slot().await?;
    Ok(place.book_call(&slot).header("Idempotency-Key", value))
}

async fn accepted(place: &Place<'_>, value: &str) -> Verdict {
    let call = booking(place, value).await?;
    let first = call.send().await?;
    first.is(201).and_then(|first| first.replayed(false)).about(format!("key {value:?}"))?;
    call.send().await?.replays(&first).about(format!("key {value:?}"))?;
    Ok(())
}

async fn refused(call: &Call, about: &str) -> Verdict {
    let answer = call.send().await?;
    answer.refused(400, "idempotency_key_invalid").about(about)?;
    Ok(())
}

async fn lengths(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let long = |length: usize| "k".repeat(length);
    for key in ["a".to_owned(), "\"b\"".to_owned(), long(254), long(255), format!("\"{}\"", "q".repeat(255))] {
        accepted(&place, &key).await?;
    }
    for key in [long(256), long(257), format!("\"{}\"", long(256)), long(4000)] {
        refused(&booking(&place, key.clone()).await?, &format!("{} bytes", key.len())).await?;
    }
    // 255 escaped quotes are 255 bytes, though twice as many on the wire.
    accepted(&place, &format!("\"{}\"", "\\\"".repeat(255))).await
}

async fn every_byte(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mark = world.id();
    for byte in 0x21..=0x7E_u8 {
        let letter = char::from(byte);
        let bare = format!("{mark}{letter}x");
        let call = booking(&place, bare.clone()).await?;
        let first = call.send().await?;
        first.is(201).about(format!("key {bare:?}"))?;
        let escaped = if matches!(letter, '"' | '\\') { format!("\\{letter}") } else { letter.to_string() };
        let quoted = call.key(&format!("\"{mark}{escaped}x\"")).send().await?;
        quoted.replays(&first).about(format!("{letter:?} in a string"))?;
    }
    // A bare key may begin with anything but a quote.
    for first in ["a;b", ";", "=", "*x", ":YWJj:", "?1", "(a)", "a,b", "1.5", "'a'", "\\"] {
        accepted(&place, &format!("{first}{}", if first.len() == 1 { "" } else { &mark })).await?;
    }
    Ok(())
}

async fn no_keys(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mut tally = place.tally().await?;
    let blank: [(&str, &[u8]); 3] = [("empty", b""), ("blanks", b"   "), ("a tab alone", b"\t")];
    for (about, value) in blank {
        let answer = booking(&place, value).await?.send_raw().await?;
        // Whether a header without a value is missing or invalid is all one to the caller.
        let code = answer.code();
        let told = matches!(code.as_str(), "idempotency_key_missing" | "idempotency_key_invalid");
        answer.ensure(answer.status == 400 && told, "400 idempotency_key_missing or _invalid").about(about)?;
    }
    let wrong: [(&str, &[u8]); 8] = [
        ("an empty string", b"\"\""),
        ("a tab within", b"a\tb"),
        ("a blank within", b"a b"),
        ("a blank in a string", b"\"a b\""),
        ("é in UTF-8", "é".as_bytes()),
        ("é in Latin-1", b"a\xE9"),
        ("invalid UTF-8", b"\xFF\xFE"),
        ("é in a string", "\"é\"".as_bytes()),
    ];
    for (about, value) in wrong {
        let answer = booking(&place, value).await?.send_raw().await?;
        answer.refused(400, "idempotency_key_invalid").about(about)?;
    }
    let unspeakable: [(&str, &[u8]); 4] =
        [("DEL", b"a\x7Fb"), ("NUL", b"a\0b"), ("a bell", b"a\x07b"), ("a bare carriage return", b"a\rb")];
    for (about, value) in unspeakable {
        // HTTP itself has no such header, so the answer may come from below the service.
        booking(&place, value).await?.send_raw().await?.is(400).about(about)?;
    }
    let answer = place.client.get("/healthz").send().await?;
    let growth = Growth { audit: (0, 20), ..Growth::NOTHING };
    tally.grew(&growth, &answer).await
}

async fn two_lines(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        for second in [key.as_str(), "other", ""] {
            let call = prepared.call.key(&key).header("Idempotency-Key", second);
            let answer = call.send_raw().await?;
            answer.refused(400, "idempotency_key_invalid").about(format!("{operation:?}, {second:?}"))?;
        }
        let lower = prepared.call.key(&key).header("idempotency-key", key.as_str()).send_raw().await?;
        lower.refused(400, "idempotency_key_invalid").about("names in two cases")?;
        prepared.call.key(&key).send().await?.is(prepared.status)?.replayed(false)?;
    }
    // One line that a proxy has made of two is a list, and a list is no key.
    refused(&booking(&place, "\"a\", \"b\"").await?, "a list of strings").await?;
    refused(&booking(&place, "a, b").await?, "a list").await
}

async fn strings(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let key = world.key();
    let call = booking(&place, format!("\"{key}\"")).await?;
    let first = call.send().await?;
    first.is(201)?.replayed(false)?;
    call.key(&key).send().await?.replays(&first).about("bare after quoted")?;
    let call = booking(&place, "bare").await?.key(&world.key());
    let first = call.send().await?;
    first.is(201)?;
    for broken in [
        "\"k",
        "\"",
        "\"a\\x\"",
        "\"a\\",
        "\"a\\\"",
        "\"a\"b",
        "\"a\"\"b\"",
        "\"a\" \"b\"",
        "\"a\";p=1",
        "\"a\";p",
        "\"a\" ;p",
        "\"a\",",
    ] {
        refused(&booking(&place, broken).await?, broken).await?;
    }
    Ok(())
}

async fn distinct(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mark = world.id();
    let long = "k".repeat(254);
    let pairs = [
        (format!("ABC{mark}"), format!("abc{mark}")),
        (format!("{long}1"), format!("{long}2")),
        (format!("{mark}."), format!("{mark}..")),
        (format!("{mark}%20"), format!("{mark}%2520")),
    ];
    for (one, other) in pairs {
        accepted(&place, &one).await?;
        accepted(&place, &other).await?;
    }
    let key = world.key();
    let slot = place.slot().await?;
    let call = place.book_call(&slot);
    let first = call.key(&key).send().await?;
    first.is(201)?;
    for name in ["idempotency-key", "IDEMPOTENCY-KEY", "iDeMpOtEnCy-KeY"] {
        call.clone().header(name, key.as_str()).send_raw().await?.replays(&first).about(name)?;
    }
    Ok(())
}

async fn just_bytes(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let mark = world.id();
    for odd in [
        "';drop/**/table/**/appointments;--",
        "'||pg_sleep(5)||'",
        "$1",
        "%s%n%x%p",
        "{}{0}{key}",
        "${jndi:ldap://127.0.0.1/x}",
        "\\x00\\u0000",
        "../../../etc/passwd",
        "<script>alert(1)</script>",
        "&amp;",
        "null",
        "true",
        "0",
        "NaN",
        "[object/Object]",
    ] {
        accepted(&place, &format!("{mark}{odd}")).await?;
    }
    let health = place.client.get("/healthz").send().await?;
    health.is(200)?;
    Ok(())
}

async fn hashed(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let database = world.database()?;
    for operation in Operation::ALL {
        let prepared = operation.prepare(&place).await?;
        let key = world.key();
        let answer = prepared.call.key(&key).send().await?;
        answer.is(prepared.status)?;
        let row = database.key(&place.clinic, &key).await?;
        let status = i32::from(prepared.status);
        answer.ensure(row.is_some_and(|row| i32::from(row.status) == status), "a row under the key's SHA-256")?;
        let holding = database.rows_holding(&key).await?;
        ensure(holding.is_empty(), format!("{operation:?}: no row that holds the key"), holding.join(", "))?;
    }
    let quoted = world.key();
    booking(&place, format!("\"{quoted}\"")).await?.send().await?.is(201)?;
    let row = database.key(&place.clinic, &quoted).await?;
    ensure(row.is_some(), "the SHA-256 of the key without its quotes", "no such row")
}
