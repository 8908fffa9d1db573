//! Watches every answer of a run for what holds of every answer: our headers, the shape of a problem, and that
//! `/openapi.json` foretold it. Faults are kept, not raised, so that one missing header does not fail every case.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use uuid::Uuid;

use super::answer::Answer;
use super::case::{Failure, Stop, Verdict};

/// Headers whose presence `/openapi.json` must foretell.
const DOCUMENTED: [&str; 8] = [
    "allow",
    "cache-control",
    "etag",
    "idempotency-expires",
    "idempotent-replayed",
    "location",
    "retry-after",
    "x-request-id",
];

/// Everything noticed so far, across all credentials of a run.
#[derive(Default)]
pub(super) struct Seen(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    faults: BTreeMap<&'static str, Failure>,
    request_ids: HashSet<String>,
    sightings: BTreeMap<Sighting, String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Debug)]
struct Sighting {
    method: &'static str,
    /// Without its query; ids stand as `{}`.
    path: String,
    status: u16,
    media_type: String,
    headers: BTreeSet<String>,
    /// Of a problem; empty for any other answer.
    code: String,
}

impl Seen {
    /// Looks at an answer.
    pub(super) fn note(&self, method: &'static str, path: &str, answer: &Answer) {
        // Refused by the HTTP parser: no service saw the request, so none could add its headers.
        if answer.status == 400 && answer.body.is_empty() && answer.header("x-request-id").is_none() {
            return;
        }
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = answer.header("x-request-id").is_none_or(|id| notes.request_ids.insert(id.to_owned()));
        let mut fault = answer.ensure(fresh, "an X-Request-Id no other answer has").err();
        for verdict in [of_every_answer(answer), of_every_problem(method, answer)] {
            fault = fault.or(verdict.err());
        }
        if let Some(Stop::Failed(failure)) = fault {
            notes.faults.entry(method).or_insert(failure);
        }
        let sighting = Sighting {
            method,
            path: without_ids(path),
            status: answer.status,
            media_type: answer
                .header("content-type")
                .unwrap_or_default()
                .split(';')
                .next()
                .unwrap_or_default()
                .to_owned(),
            headers: answer
                .headers
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| DOCUMENTED.contains(&name.as_str()))
                .collect(),
            code: answer.code(),
        };
        notes.sightings.entry(sighting).or_insert_with(|| answer.request.clone());
    }

    /// The first answer that broke what holds of every answer.
    pub(super) fn faults(&self) -> Verdict {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.faults.values().next().map_or(Ok(()), |failure| Err(Stop::Failed(failure.clone())))
    }

    /// Whatever `/openapi.json` did not foretell of what was seen.
    pub(super) fn undocumented(&self, document: &Value) -> Verdict {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = String::new();
        let mut request = String::new();
        for (sighting, example) in &notes.sightings {
            if let Some(lack) = sighting.missing_in(document) {
                let _ = write!(missing, "{}{lack}", if missing.is_empty() { "" } else { "\n" });
                if request.is_empty() {
                    request.clone_from(example);
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let expected = "every status, media type, problem code and header seen to be in /openapi.json".to_owned();
        Err(Stop::Failed(Failure { expected, came: missing, request }))
    }
}

impl Sighting {
    fn missing_in(&self, document: &Value) -> Option<String> {
        let (template, item) = path_item(document, &self.path)?;
        let operation = &item[self.method.to_lowercase()];
        if operation.is_null() {
            // Nobody documents what one cannot do.
            return None;
        }
        let here = format!("{} {template} → {}", self.method, self.status);
        let response = resolved(document, &operation["responses"][self.status.to_string()]);
        if response.is_null() {
            return Some(here);
        }
        if !self.media_type.is_empty() && self.status != 304 && response["content"][&self.media_type].is_null() {
            return Some(format!("{here} as {}", self.media_type));
        }
        // However the document lists a status's codes, it names them.
        if !self.code.is_empty() && !response.to_string().contains(&format!("\"{}\"", self.code)) {
            return Some(format!("{here} {}", self.code));
        }
        let declared: BTreeSet<String> =
            response["headers"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase()).collect();
        self.headers.iter().find(|name| !declared.contains(*name)).map(|name| format!("{here} with {name}"))
    }
}

/// The entry whose template matches; the one with the fewest parameters, where several do.
fn path_item<'a>(document: &'a Value, path: &str) -> Option<(&'a String, &'a Value)> {
    let matches = |template: &str| {
        let (asked, known): (Vec<_>, Vec<_>) = (path.split('/').collect(), template.split('/').collect());
        asked.len() == known.len()
            && asked.iter().zip(&known).all(|(asked, known)| asked == known || known.starts_with('{'))
    };
    let paths = document["paths"].as_object()?;
    paths.iter().filter(|(template, _)| matches(template)).min_by_key(|(template, _)| template.matches('{').count())
}

/// Follows a `$ref` within the document.
fn resolved<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    let target = node["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| document.pointer(pointer)).unwrap_or(node)
}

fn without_ids(path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    let segments: Vec<&str> =
        path.split('/').map(|segment| if Uuid::parse_str(segment).is_ok() { "{}" } else { segment }).collect();
    segments.join("/")
}

fn of_every_answer(answer: &Answer) -> Verdict {
    answer.ensure(answer.header("x-request-id").is_some_and(|id| !id.is_empty()), "X-Request-Id on every answer")?;
    answer.ensure(answer.header("cache-control") == Some("no-store"), "Cache-Control: no-store on every answer")?;
    answer.ensure(answer.status != 500, "never a 500")?;
    Ok(())
}

fn of_every_problem(method: &str, answer: &Answer) -> Verdict {
    if answer.status < 400 || method == "HEAD" {
        return Ok(());
    }
    let media_type = answer.header("content-type").unwrap_or_default();
    answer.ensure(media_type.starts_with("application/problem+json"), "errors as application/problem+json")?;
    let problem = answer.json()?;
    let code = problem["code"].as_str().unwrap_or_default();
    answer.ensure(problem["type"] == format!("/problems/{code}") && !code.is_empty(), "type: /problems/CODE")?;
    answer.ensure(problem["status"] == answer.status, "the status again in the problem")?;
    for member in ["title", "detail"] {
        answer.ensure(problem[member].as_str().is_some_and(|text| !text.is_empty()), format!("a {member}"))?;
    }
    let id = answer.header("x-request-id").unwrap_or_default();
    answer.ensure(id.is_empty() || !answer.text().contains(id), "no request id within a problem")?;
    let retries = matches!(answer.status, 429 | 503) || code == "idempotency_in_flight";
    let told = answer.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok());
    answer.ensure(retries == told, if retries { "Retry-After in seconds" } else { "no Retry-After" })?;
    if code == "malformed_request" {
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let whole = |error: &Value| error["pointer"].is_string() && error["detail"].is_string();
        answer.ensure(!errors.is_empty() && errors.iter().all(whole), "errors: [{pointer, detail}]")?;
    }
    answer.ensure(answer.status != 405 || answer.header("allow").is_some(), "Allow beside a 405 (RFC 9110, 15.5.6)")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sighting(path: &str, status: u16) -> Sighting {
        let media_type = "application/json".to_owned();
        let headers = ["etag".to_owned()].into();
        Sighting { method: "GET", path: without_ids(path), status, media_type, headers, code: String::new() }
    }

    #[test]
    fn what_was_seen_is_looked_up_by_template() {
        let response = json!({"content": {"application/json": {}}, "headers": {"ETag": {}}});
        let document = json!({
            "paths": {
                "/v1/things/{id}": {"get": {"responses": {"200": {"$ref": "#/components/responses/Thing"}}}},
                "/v1/things/open": {"get": {"responses": {}}},
            },
            "components": {"responses": {"Thing": response}},
        });
        let id = "/v1/things/019b0000-0000-7000-8000-000000000000?x=1";
        assert_eq!(sighting(id, 200).missing_in(&document), None);
        assert_eq!(sighting(id, 404).missing_in(&document).as_deref(), Some("GET /v1/things/{id} → 404"));
        assert_eq!(
            sighting("/v1/things/open", 200).missing_in(&document).as_deref(),
            Some("GET /v1/things/open → 200")
        );
        assert_eq!(sighting("/v1/other", 404).missing_in(&document), None);
        let refused = Sighting { code: "slot_taken".to_owned(), ..sighting(id, 200) };
        assert_eq!(refused.missing_in(&document).as_deref(), Some("GET /v1/things/{id} → 200 slot_taken"));
        let mut bare = document.clone();
        bare["components"]["responses"]["Thing"]["headers"] = json!({});
        assert_eq!(sighting(id, 200).missing_in(&bare).as_deref(), Some("GET /v1/things/{id} → 200 with etag"));
    }
}
