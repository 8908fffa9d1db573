//! `openapi/openapi.json` against the code: it is what the code prints, it holds together, and the service answers every
//! operation as it says, as far as answers can be provoked.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::Config;
use oncebook::domain::problem::Code;
use oncebook::http::{self, openapi};
use serde_json::Value;
use tower::ServiceExt;

mod live;
mod schema;

/// Codes of capabilities that are still to come.
const LATER: [Code; 2] = [Code::RequestIdReused, Code::ReplayOutOfScope];

/// For people, or the document itself.
const UNDOCUMENTED: [&str; 7] =
    ["/", "/docs", "/docs/", "/docs/{*file}", "/openapi.json", "/asyncapi.json", "/event.schema.json"];

/// An operation with its method and path.
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    says: &'a Value,
}

fn document() -> Value {
    serde_json::from_str(&openapi::text()).expect("JSON")
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().into_iter().flatten();
            methods.map(move |(method, says)| Operation { method, path, says })
        })
        .collect()
}

/// Follows a `$ref`.
fn resolved<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(to) => document.pointer(to.trim_start_matches('#')).unwrap_or_else(|| panic!("{to} leads nowhere")),
        None => node,
    }
}

/// The codes an operation is said to answer with, by status.
fn codes(document: &Value, operation: &Operation<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let responses = operation.says["responses"].as_object().expect("responses");
    let of = |(status, response): (&String, &Value)| {
        let content = &resolved(document, response)["content"]["application/problem+json"];
        let codes = content["schema"]["allOf"][1]["properties"]["code"]["enum"].as_array()?;
        let codes = codes.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Some((status.clone(), codes))
    };
    responses.iter().filter_map(of).collect()
}

#[test]
fn the_committed_document_is_the_one_the_code_prints() {
    let committed = include_str!("../../openapi/openapi.json");
    let first = committed.lines().zip(openapi::text().lines()).position(|(committed, printed)| committed != printed);
    assert!(
        committed == openapi::text(),
        "openapi/openapi.json differs from what the code prints, first in line {:?}: make prepare",
        first.map(|line| line + 1)
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_and_says_who_may_ask() {
    let document = document();
    let mut names = BTreeSet::new();
    for operation in operations(&document) {
        let name = operation.says["operationId"].as_str().expect("an operationId");
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert!(operation.says["security"].is_array(), "{name}: security");
        assert_eq!(operation.says["security"] == serde_json::json!([]), operation.says["x-roles"].is_null(), "{name}");
        for text in ["summary", "description"] {
            assert!(operation.says[text].as_str().is_some_and(|text| !text.is_empty()), "{name}: {text}");
        }
    }
    assert!(names.len() >= 40, "{names:?}");
}

/// Whoever reads `/docs` sees a member or a parameter alone: it must say by itself what it is.
#[test]
fn every_member_and_parameter_says_what_it_is() {
    fn walk<'a>(node: &'a Value, of: &str, found: &mut Vec<(String, &'a Value)>) {
        let members = node["properties"].as_object().into_iter().flatten();
        found.extend(members.map(|(name, says)| (format!("{of}.{name}"), says)));
        let parts = node.as_object().into_iter().flat_map(|object| object.values());
        parts.chain(node.as_array().into_iter().flatten()).for_each(|part| walk(part, of, found));
    }
    let document = document();
    let mut found = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        walk(schema, name, &mut found);
    }
    for operation in operations(&document) {
        let parameters = operation.says["parameters"].as_array().into_iter().flatten();
        found.extend(parameters.map(|parameter| {
            let parameter = resolved(&document, parameter);
            (format!("{} {}: {}", operation.method, operation.path, parameter["name"]), parameter)
        }));
    }
    assert!(found.len() > 250, "{}", found.len());
    // What may be null has its words beside the reference.
    let words = |says: &Value| {
        let beside = says["oneOf"].as_array().into_iter().flatten().chain([says]);
        let said = beside.filter_map(|says| says["description"].as_str());
        said.map(|text| text.split_whitespace().count()).max().unwrap_or(0)
    };
    let silent: Vec<_> = found.iter().filter(|(_, says)| words(says) < 3).map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(document: &Value, node: &Value) -> usize {
        resolved(document, node);
        let members = node.as_object().into_iter().flat_map(|object| object.values());
        let below = members.chain(node.as_array().into_iter().flatten());
        usize::from(node["$ref"].is_string()) + below.map(|child| walk(document, child)).sum::<usize>()
    }
    let document = document();
    assert!(walk(&document, &document) > 500);
}

#[test]
fn every_code_is_documented_and_every_documented_one_exists() {
    let document = document();
    let all: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    let later: BTreeSet<String> = LATER.iter().map(|code| code.as_str().to_owned()).collect();
    let mut found = BTreeSet::from(["method_not_allowed".to_owned()]);
    for operation in operations(&document) {
        for (status, codes) in codes(&document, &operation) {
            for name in &codes {
                let code = Code::ALL.iter().find(|code| code.as_str() == name).expect("a code there is");
                assert_eq!(code.status().to_string(), status, "{name}");
            }
            found.extend(codes);
        }
    }
    assert_eq!(found, all.difference(&later).cloned().collect::<BTreeSet<_>>());
    let listed = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array();
    let listed = listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_body_has_an_example_of_its_schema() {
    let document = document();
    for operation in operations(&document) {
        let name = &operation.says["operationId"];
        let request = &operation.says["requestBody"]["content"];
        let responses = operation.says["responses"].as_object().expect("responses").values();
        let answers = responses.map(|response| &resolved(&document, response)["content"]);
        for content in answers.chain([request]) {
            for (media_type, says) in content.as_object().into_iter().flatten() {
                let several = says["examples"].as_object().into_iter().flatten();
                let several = several.map(|(_, example)| &resolved(&document, example)["value"]);
                let examples: Vec<&Value> = several.chain(says.get("example")).collect();
                assert!(!examples.is_empty(), "{name}: an example of {media_type}");
                for example in examples {
                    schema::check(&document, &says["schema"], example)
                        .unwrap_or_else(|fault| panic!("{name}: {fault}"));
                }
            }
        }
    }
}

/// A service whose database is not there.
fn without_a_database() -> Router {
    let nowhere = "postgres://nobody@127.0.0.1:1/nothing";
    let app = App::new(Config::from_environment(), nowhere, Clock::system(), Ids::seeded(1), None).expect("a URL");
    http::router(&app)
}

/// A path's answer, and its text.
async fn get(router: &Router, path: &str) -> (HeaderMap, String) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = router.clone().oneshot(request).await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    let headers = response.headers().clone();
    let bytes = to_bytes(response.into_body(), 1 << 24).await.expect("a body");
    (headers, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn the_documents_are_served_from_here_alone() {
    let router = without_a_database();
    let (headers, served) = get(&router, "/openapi.json").await;
    assert_eq!(served, openapi::text());
    assert_eq!(headers["cache-control"], "no-store");
    assert!(headers.contains_key("x-request-id"));
    let (headers, page) = get(&router, "/docs/").await;
    let policy = headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{policy}");
    let parts = page.split(['"', '\'']).filter(|text| matches!(text.rsplit('.').next(), Some("js" | "css")));
    let parts: Vec<&str> = parts.collect();
    assert!(parts.len() >= 4, "{page}");
    for part in parts {
        assert!(!part.contains("//"), "{part} comes from elsewhere");
        get(&router, &format!("/docs/{}", part.trim_start_matches("./"))).await;
    }
}

#[tokio::test]
async fn every_route_is_in_the_document() {
    // A router shows its paths nowhere else.
    let shown = format!("{:?}", without_a_database());
    let routed = shown.split('"').filter(|text| text.starts_with('/') && !text.contains("__private"));
    let routed: BTreeSet<&str> = routed.collect();
    assert!(routed.contains("/v1/appointments/{id}/reschedule"), "{shown}");
    let document = document();
    let documented: BTreeSet<&str> = operations(&document).iter().map(|operation| operation.path).collect();
    assert_eq!(routed, documented.union(&BTreeSet::from(UNDOCUMENTED)).copied().collect::<BTreeSet<_>>());
}
