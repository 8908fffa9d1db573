//! Case 8 of `docs/CONFORMANCE.md`: what the service says about itself, and what every answer of the run showed.

use std::time::Duration;

use super::case::{About as _, Case, Need, Verdict, ensure, skip};
use super::fixture::Place;
use super::world::World;

/// Every problem code of capability A (API.md, "Problems").
const CODES: [&str; 34] = [
    "malformed_request",
    "idempotency_key_missing",
    "idempotency_key_invalid",
    "cursor_invalid",
    "range_too_wide",
    "unauthenticated",
    "forbidden",
    "not_found",
    "idempotency_key_reused",
    "idempotency_in_flight",
    "slot_taken",
    "duplicate_intent",
    "transition_not_allowed",
    "request_id_reused",
    "in_use",
    "version_mismatch",
    "body_too_large",
    "unsupported_media_type",
    "unknown_reference",
    "inactive_reference",
    "in_the_past",
    "too_soon",
    "too_far_ahead",
    "nonexistent_local_time",
    "ambiguous_local_time",
    "off_grid",
    "outside_hours",
    "overbooking_not_allowed",
    "replay_out_of_scope",
    "rate_limited",
    "idempotency_waiters_exceeded",
    "internal",
    "unavailable",
    "method_not_allowed",
];

/// What of capability A must be in `/openapi.json`.
const OPERATIONS: [(&str, &[&str]); 26] = [
    ("/v1/appointments", &["get", "post"]),
    ("/v1/appointments/{}", &["get", "patch"]),
    ("/v1/appointments/{}/history", &["get"]),
    ("/v1/appointments/{}/reschedule", &["post"]),
    ("/v1/appointments/{}/confirm", &["post"]),
    ("/v1/appointments/{}/check-in", &["post"]),
    ("/v1/appointments/{}/complete", &["post"]),
    ("/v1/appointments/{}/no-show", &["post"]),
    ("/v1/appointments/{}/cancel", &["post"]),
    ("/v1/appointments/{}/reopen", &["post"]),
    ("/v1/blocks", &["get", "post"]),
    ("/v1/blocks/{}", &["get", "delete"]),
    ("/v1/availability", &["get"]),
    ("/v1/commands", &["get"]),
    ("/v1/clinics", &["get"]),
    ("/v1/clinics/{}", &["get", "put"]),
    ("/v1/clinics/{}/hours", &["get", "put"]),
    ("/v1/clinics/{}/closures", &["get", "put"]),
    ("/v1/practitioners/{}", &["get", "put"]),
    ("/v1/practitioners/{}/clinics/{}", &["get", "put"]),
    ("/v1/operatories/{}", &["get", "put"]),
    ("/v1/services/{}", &["get", "put"]),
    ("/v1/patients/{}", &["get", "put"]),
    ("/v1/patients", &["get"]),
    ("/v1/credentials", &["get", "post"]),
    ("/healthz", &["get"]),
];

/// Case 8.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(8, "every answer had X-Request-Id and no-store, every error was a problem, none a 500", |w| {
            Box::pin(async { w.well_formed() })
        })
        .watching(),
        Case::new(8, "every status, media type, problem code and header seen is in the OpenAPI document", |w| {
            Box::pin(w.documented())
        })
        .watching(),
        Case::new(8, "/openapi.json is OpenAPI 3.1 and has every operation; /docs and health answer", |w| {
            Box::pin(documents(w))
        }),
        Case::new(8, "/problems/CODE explains every code to a person", |w| Box::pin(problems(w))),
        Case::new(8, "CORS exposes what API.md lists", |w| Box::pin(cors(w))),
        Case::new(8, "X-Request-Id is ours whatever the caller sends", |w| Box::pin(request_id(w))),
        Case::new(8, "the caller's request id is kept beside ours", |w| Box::pin(callers_id(w)))
            .needs(&[Need::Database]),
        Case::new(8, "no such path: 404; no such method: 405 with Allow", |w| Box::pin(nowhere(w))),
    ]
}

async fn documents(world: &World) -> Verdict {
    let answer = world.admin().get("/openapi.json").send().await?;
    let document = answer.is(200)?.json()?;
    let version = document["openapi"].as_str().unwrap_or_default();
    ensure(version.starts_with("3.1"), "OpenAPI 3.1", version)?;
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    for (path, methods) in OPERATIONS {
        let anonymous = |template: &str| {
            let segments = template.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
            segments.collect::<Vec<_>>().join("/") == path
        };
        for method in methods {
            let known = paths.iter().any(|(template, item)| anonymous(template) && !item[method].is_null());
            ensure(known, format!("{method} {path} in /openapi.json"), "nothing")?;
        }
    }
    let docs = world.admin().get("/docs").without("authorization").send().await?;
    let docs = match docs.header("location") {
        Some(onward) if docs.status / 100 == 3 => world.admin().get(onward).without("authorization").send().await?,
        _ => docs,
    };
    docs.is(200)?.ensure(docs.header("content-type").unwrap_or_default().starts_with("text/html"), "a page")?;
    for path in ["/healthz", "/readyz"] {
        world.promptly(path, Duration::from_secs(1)).await?;
    }
    Ok(())
}

async fn problems(world: &World) -> Verdict {
    for code in CODES {
        let answer = world.admin().get(format!("/problems/{code}")).without("authorization").send().await?;
        // API.md gives a 405 no code, so none is asked of the page either.
        if code == "method_not_allowed" && answer.status == 404 {
            continue;
        }
        answer.is(200).about(code)?;
        answer.ensure(answer.text().contains(code), format!("a page about {code}"))?;
    }
    let none = world.admin().get("/problems/no_such_code").without("authorization").send().await?;
    none.is(404)?;
    Ok(())
}

async fn cors(world: &World) -> Verdict {
    let call = world.admin().call("OPTIONS", "/v1/appointments").without("authorization");
    let origins = ["http://localhost:3000", "http://localhost:5173", "https://example.org"];
    for origin in origins {
        let preflight = call.clone().header("Origin", origin).header("Access-Control-Request-Method", "POST");
        let preflight =
            preflight.header("Access-Control-Request-Headers", "authorization, content-type, idempotency-key");
        let answer = preflight.send().await?;
        if answer.header("access-control-allow-origin").is_none() {
            continue;
        }
        let allowed = answer.header("access-control-allow-headers").unwrap_or_default().to_lowercase();
        answer.ensure(allowed.contains("idempotency-key") || allowed == "*", "Idempotency-Key allowed")?;
        let read = world.admin().get("/v1/appointments").header("Origin", origin).send().await?;
        let exposed = read.header("access-control-expose-headers").unwrap_or_default().to_lowercase();
        for name in ["location", "etag", "retry-after", "idempotent-replayed", "idempotency-expires", "x-request-id"] {
            read.ensure(exposed.split(',').any(|listed| listed.trim() == name), format!("{name} exposed"))?;
        }
        return Ok(());
    }
    skip(format!("this server allows none of the origins {}", origins.join(", ")))
}

async fn request_id(world: &World) -> Verdict {
    let call = world.admin().get("/v1/clinics");
    let long = "x".repeat(4000);
    for theirs in ["caller-1", "00000000-0000-0000-0000-000000000000", "not well formed; at all", long.as_str()] {
        let answer = call.clone().header("X-Request-Id", theirs).send().await?;
        answer.is(200).about(theirs)?;
        let ours = answer.header("x-request-id").is_some_and(|id| !id.is_empty() && id != theirs);
        answer.ensure(ours, "an X-Request-Id of ours")?;
    }
    Ok(())
}

async fn callers_id(world: &World) -> Verdict {
    let place = Place::fresh(world).await?;
    let slot = place.slot().await?;
    let theirs = format!("caller-{}", world.id());
    let booked = place.booked(slot.clone(), place.book_call(&slot).header("X-Request-Id", theirs.as_str())).await?;
    let malformed = place.act(&booked.id, "confirm").header("X-Request-Id", "two words").key(&world.key());
    malformed.send().await?.is(200)?;
    let kept = world.database()?.caller_request_ids(&booked.id).await?;
    ensure(kept.first() == Some(&Some(theirs.clone())), format!("the history to keep {theirs}"), format!("{kept:?}"))?;
    ensure(kept.get(1) == Some(&None), "no malformed request id kept", format!("{kept:?}"))
}

async fn nowhere(world: &World) -> Verdict {
    world.admin().get("/v1/no-such-thing").send().await?.refused(404, "not_found")?;
    world.admin().get("/v1/appointments/").send().await?.is(404)?;
    for (method, path) in [
        ("DELETE", "/v1/appointments"),
        ("PUT", "/v1/appointments"),
        ("PATCH", "/v1/blocks"),
        ("POST", "/v1/availability"),
        ("POST", "/v1/commands"),
        ("GET", "/v1/appointments/019b0000-0000-7000-8000-000000000000/cancel"),
    ] {
        let answer = world.admin().call(method, path).key(&world.key()).send().await?;
        answer.is(405).about(format!("{method} {path}"))?;
        answer.ensure(answer.header("allow").is_some(), "Allow")?;
    }
    Ok(())
}
