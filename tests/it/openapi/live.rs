//! A service with the demo group, asked everything the document describes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::{Config, Secret};
use oncebook::dev::seed::Demo;
use oncebook::http;
use serde_json::Value;
use tower::ServiceExt;

use super::{Operation, codes, document, operations, resolved, schema};
use crate::app::ENCRYPTION_KEY;
use crate::ground::Ground;

/// Headers whose presence the document must foretell (`Vary` is CORS's too).
const WATCHED: [&str; 10] = [
    "allow",
    "cache-control",
    "content-security-policy",
    "etag",
    "idempotency-expires",
    "idempotent-replayed",
    "location",
    "retry-after",
    "www-authenticate",
    "x-request-id",
];

/// What came back.
struct Answer {
    status: u16,
    headers: BTreeSet<String>,
    media_type: String,
    body: Value,
}

/// A request in the making: an operation's own example, to be spoilt.
#[derive(Clone)]
struct Call {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Call {
    /// As the document shows it, with a credential and a fresh key.
    fn of(document: &Value, operation: &Operation<'_>, token: &str, key: usize) -> Self {
        let mut call = Self {
            method: operation.method.to_uppercase(),
            path: operation.path.to_owned(),
            query: vec![],
            headers: vec![],
            body: None,
        };
        if operation.says["security"] != serde_json::json!([]) {
            call = call.header("authorization", &format!("Bearer {token}"));
        }
        for parameter in operation.says["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(document, parameter);
            let (name, required) = (parameter["name"].as_str().expect("a name"), parameter["required"] == true);
            let example = parameter["example"].as_str().unwrap_or_default();
            match parameter["in"].as_str() {
                Some("path") => call.path = call.path.replace(&format!("{{{name}}}"), example),
                Some("query") if required => call.query.push((name.to_owned(), example.to_owned())),
                Some("header") if required => call = call.header(name, &format!("key-{key}")),
                _ => {}
            }
        }
        let body = &operation.says["requestBody"]["content"]["application/json"]["example"];
        if body.is_null() { call } else { call.json(&body.to_string()) }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    fn json(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self.header("content-type", "application/json")
    }

    fn path(mut self, from: &str, to: &str) -> Self {
        self.path = self.path.replace(from, to);
        self
    }

    fn method(mut self, method: &str) -> Self {
        self.method = method.to_uppercase();
        self
    }

    async fn send(&self, router: &Router) -> Answer {
        let query = serde_urlencoded::to_string(&self.query).expect("a query");
        let uri = if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut request = Request::builder().method(self.method.as_str()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(self.body.clone().map_or_else(Body::empty, Body::from)).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        let headers = response.headers().keys().map(|name| name.as_str().to_owned());
        let headers = headers.filter(|name| WATCHED.contains(&name.as_str())).collect();
        let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().to_owned();
        let bytes = to_bytes(response.into_body(), 1 << 24).await.expect("a body");
        Answer { status, headers, media_type, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }
}

/// A service with the demo group, on a day well before those of the examples.
struct World {
    /// Its Postgres stops with it.
    _ground: Arc<Ground>,
    demo: Demo,
    router: Router,
    document: Value,
    keys: AtomicUsize,
}

impl World {
    async fn new() -> Self {
        let ground = Ground::shared().await;
        let url = ground.cluster.url(&ground.copy().await);
        let config = Config {
            rate_per_address: 0,
            rate_per_credential: 0,
            encryption_key: Some(Secret(ENCRYPTION_KEY.to_owned())),
            ..Config::from_environment()
        };
        let clock = Clock::frozen("2027-03-01T09:00:00Z".parse().expect("a time"));
        let app: Arc<App> = App::new(config, &url, clock, Ids::random(), None).expect("a URL");
        let demo = ground.demo.clone();
        Self { _ground: ground, demo, router: http::router(&app), document: document(), keys: AtomicUsize::new(0) }
    }

    fn operation(&self, id: &str) -> Operation<'_> {
        let mut all = operations(&self.document).into_iter();
        all.find(|operation| operation.says["operationId"] == id).unwrap_or_else(|| panic!("an operation {id}"))
    }

    fn call(&self, operation: &Operation<'_>) -> Call {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        Call::of(&self.document, operation, &self.demo.api_keys.admin, key)
    }

    /// Sends, and holds the answer against the document.
    async fn ask(&self, operation: &Operation<'_>, call: &Call) -> Answer {
        let answer = call.send(&self.router).await;
        self.foretold(operation, call, &answer).unwrap_or_else(|fault| {
            panic!("{} {} {}: {fault}\n{}", call.method, call.path, answer.status, answer.body)
        });
        answer
    }

    fn foretold(&self, operation: &Operation<'_>, call: &Call, answer: &Answer) -> Result<(), String> {
        let response = resolved(&self.document, &operation.says["responses"][answer.status.to_string()]);
        if response.is_null() {
            return Err("the status is not in the document".to_owned());
        }
        let said = response["headers"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase());
        let said: BTreeSet<String> = said.filter(|name| WATCHED.contains(&name.as_str())).collect();
        // A refusal has more headers where it is stored, or where another code of its status has them.
        let exact = answer.status < 400;
        if exact && answer.headers != said || !answer.headers.is_subset(&said) {
            return Err(format!("headers {:?}, but in the document {said:?}", answer.headers));
        }
        if answer.media_type.is_empty() || call.method == "HEAD" {
            return Ok(());
        }
        let content = &response["content"][&answer.media_type];
        if content.is_null() {
            return Err(format!("{} is not in the document", answer.media_type));
        }
        if answer.media_type.ends_with("json") {
            schema::check(&self.document, &content["schema"], &answer.body)?;
        }
        Ok(())
    }

    /// Sends an operation's example; its id stands for the examples' one.
    async fn example(&self, id: &str, named: Option<(&str, &str)>, status: u16) -> Value {
        let operation = self.operation(id);
        let mut call = self.call(&operation);
        if let Some((example, real)) = named {
            call = call.path(example, real);
        }
        let answer = self.ask(&operation, &call).await;
        assert_eq!(answer.status, status, "{id}: {}", answer.body);
        answer.body
    }
}

const APPOINTMENT: &str = "019e0000-0000-7000-8000-000000000001";
const BLOCK: &str = "019e0000-0000-7000-8000-000000000002";
const ENDPOINT: &str = "019e0000-0000-7000-8000-000000000003";
const CREDENTIAL: &str = "0ee965a4-128c-8fcb-8f71-fb30ba0d8594";

fn id(body: &Value) -> String {
    body["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn the_service_answers_as_the_document_says() {
    let world = World::new().await;
    the_examples_can_be_sent(&world).await;
    what_can_be_provoked_is_what_is_documented(&world).await;
    methods_that_are_not_documented_are_not_there(&world).await;
}

async fn the_examples_can_be_sent(world: &World) {
    for id in ["put_clinic", "put_clinic_hours", "put_clinic_closures", "put_practitioner", "put_practitioner_clinic"] {
        world.example(id, None, 200).await;
    }
    for id in ["put_operatory", "put_service", "put_patient"] {
        world.example(id, None, 200).await;
    }
    let visit = id(&world.example("book", None, 201).await);
    let named = Some((APPOINTMENT, visit.as_str()));
    for id in ["note", "get_appointment", "reschedule", "confirm", "check_in", "complete", "appointment_history"] {
        world.example(id, named, 200).await;
    }
    let other = id(&world.example("book", None, 201).await);
    for id in ["no_show", "reopen", "cancel"] {
        world.example(id, Some((APPOINTMENT, &other)), 200).await;
    }
    let block = id(&world.example("block", None, 201).await);
    world.example("get_block", Some((BLOCK, &block)), 200).await;
    world.example("unblock", Some((BLOCK, &block)), 204).await;
    let credential = id(&world.example("create_credential", None, 201).await);
    let named = Some((CREDENTIAL, credential.as_str()));
    for (id, status) in [("get_credential", 200), ("rotate_credential", 200), ("revoke_credential", 200)] {
        world.example(id, named, status).await;
    }
    world.example("delete_credential", named, 204).await;
    let endpoint = id(&world.example("create_webhook_endpoint", None, 201).await);
    let named = Some((ENDPOINT, endpoint.as_str()));
    for id in ["get_webhook_endpoint", "put_webhook_endpoint", "rotate_webhook_secret", "webhook_secret"] {
        world.example(id, named, 200).await;
    }
    world.example("list_webhook_deliveries", named, 200).await;
    world.example("delete_webhook_endpoint", named, 204).await;
    // Whatever is left is read, and named in the demo.
    let sent = [APPOINTMENT, BLOCK, CREDENTIAL, ENDPOINT];
    for operation in operations(&world.document).iter().filter(|operation| operation.method == "get") {
        let call = world.call(operation);
        if !sent.iter().any(|id| call.path.contains(id)) {
            assert_eq!(world.ask(operation, &call).await.status, 200, "{}", call.path);
        }
    }
}

/// Spoils every operation's example in every way there is a code for: where the code is documented it comes, and nowhere
/// else.
async fn what_can_be_provoked_is_what_is_documented(world: &World) {
    let visit = id(&world.example("book", None, 201).await);
    let block = id(&world.example("block", None, 201).await);
    let endpoint = id(&world.example("create_webhook_endpoint", None, 201).await);
    let mut operations = operations(&world.document);
    // What is gone could not be asked anything more.
    operations.sort_by_key(|operation| operation.method == "delete");
    for operation in &operations {
        let name = operation.says["operationId"].as_str().expect("an operationId");
        let documented: BTreeSet<String> = codes(&world.document, operation).into_values().flatten().collect();
        let mut spoilt = spoilt(world, operation, &[&visit, &block, &endpoint]);
        // What is not refused is done, and a block that is gone has no version.
        spoilt.sort_by_key(|(code, _)| !documented.contains(*code));
        for (code, call) in spoilt {
            let answer = world.ask(operation, &call).await;
            let (told, came) = (documented.contains(code), answer.body["code"] == code);
            assert_eq!(told, came, "{name}: {code} documented, provoked; {} {}", answer.status, answer.body);
        }
    }
}

/// The calls that provoke a code, where an operation has it.
fn spoilt(world: &World, operation: &Operation<'_>, made: &[&str; 3]) -> Vec<(&'static str, Call)> {
    let changes = operation.method != "get";
    let call = || {
        let call = world.call(operation).path(APPOINTMENT, made[0]).path(BLOCK, made[1]).path(ENDPOINT, made[2]);
        // A body to be spoilt, where the operation needs none.
        if changes && call.body.is_none() { call.json("{}") } else { call }
    };
    let stranger = format!("Bearer {}", world.demo.api_keys.worker);
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(70_000));
    let nothing = "019e0000-0000-7000-8000-0000000000ff";
    let segments = call().path;
    let named = segments.split('/').filter(|segment| uuid::Uuid::try_parse(segment).is_ok());
    let lost = named.fold(call(), |call, id| call.path(id, nothing)).path("slot_taken", "slot_free");
    let mut spoilt = vec![
        ("malformed_request", call().query("no_such", "1")),
        ("unauthenticated", call().without("authorization")),
        ("forbidden", call().header("authorization", &stranger)),
        ("unsupported_media_type", call().header("content-type", "text/plain")),
        ("body_too_large", call().json(&large)),
        ("idempotency_key_missing", call().without("idempotency-key")),
        ("idempotency_key_invalid", call().header("idempotency-key", "\"broken")),
        ("cursor_invalid", call().query("after", "!")),
        ("version_mismatch", call().header("if-match", "\"999\"")),
        ("not_found", lost),
    ];
    // A put makes what is not there; the status of a visit is judged before its version.
    let puts = operation.method == "put";
    let judged_before = operation.says["operationId"] == "complete";
    spoilt.retain(|(code, _)| !(puts && *code == "not_found" || judged_before && *code == "version_mismatch"));
    spoilt
}

async fn methods_that_are_not_documented_are_not_there(world: &World) {
    let problem = &world.document["components"]["responses"]["method_not_allowed"];
    let said = problem["headers"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase()).collect();
    for operation in &operations(&world.document) {
        let item = &world.document["paths"][operation.path];
        for method in ["get", "put", "post", "patch", "delete"].into_iter().filter(|method| item[method].is_null()) {
            let answer = world.call(operation).method(method).send(&world.router).await;
            assert_eq!((answer.status, &answer.headers), (405, &said), "{method} {}", operation.path);
            let schema = &problem["content"]["application/problem+json"]["schema"];
            schema::check(&world.document, schema, &answer.body).expect("a problem");
        }
    }
}
