//! Problems explained to a person: `/problems` and `/problems/CODE`, where the `type` of every problem document leads.

use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use super::params::{NoParams, Params};
use super::problem::Refused;
use crate::domain::problem::Code;

/// All a page needs, in light and dark. Nothing is fetched from anywhere.
const STYLE: &str = "\
    :root{color-scheme:light dark}\
    body{font:1rem/1.6 system-ui,sans-serif;margin:0;padding:2rem 1.25rem;background:light-dark(#fff,#16181d);color:light-dark(#1d2129,#e6e8ec)}\
    main{max-width:42rem;margin:auto}\
    h1{font-size:1.6rem;line-height:1.25;margin:.25rem 0 1.5rem}\
    h2{font-size:1rem;margin:0}\
    p{margin:.25rem 0 1.5rem}\
    a{color:light-dark(#0b57d0,#8ab4f8)}\
    code{font:.9em ui-monospace,monospace;background:light-dark(#eef0f3,#262a32);border-radius:.25rem;padding:.1em .3em}\
    table{border-collapse:collapse;width:100%}\
    th,td{text-align:left;vertical-align:top;padding:.4rem 1rem .4rem 0;border-bottom:1px solid light-dark(#dfe2e7,#333842)}";

/// Pages run nothing and load nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A kind of problem.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Explained {
    /// The `type` of problem documents with this code.
    #[serde(rename = "type")]
    #[schema(example = "/problems/slot_taken")]
    kind: String,
    /// The `code` that a program branches on.
    #[schema(example = "slot_taken")]
    code: &'static str,
    /// The HTTP status it comes with.
    #[schema(example = 409)]
    status: u16,
    /// What the problem is, in one line.
    #[schema(example = "The slot is taken")]
    title: &'static str,
    /// What to do next, for a person.
    advice: &'static str,
}

impl From<Code> for Explained {
    fn from(code: Code) -> Self {
        Self {
            kind: format!("/problems/{}", code.as_str()),
            code: code.as_str(),
            status: code.status(),
            title: code.title(),
            advice: code.advice(),
        }
    }
}

/// Every kind of problem.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Problems {
    /// Every problem there is, by status.
    items: Vec<Explained>,
}

/// Lists every problem there is: a page, or JSON when asked for it.
#[utoipa::path(get, path = "/problems", operation_id = "list_problems", tag = "Operations", responses((status = 200, content((Problems = "application/json"), (String = "text/html")))))]
pub async fn index(Params(NoParams {}): Params<NoParams>, headers: HeaderMap) -> Response {
    let mut codes = Code::ALL.to_vec();
    codes.sort_by_key(|code| code.status());
    if wants_json(&headers) {
        return vary(Json(Problems { items: codes.into_iter().map(Explained::from).collect() }));
    }
    let row = |code: &Code| {
        let (name, status, title) = (escape(code.as_str()), code.status(), escape(code.title()));
        format!("<tr><td>{status}<td><a href=\"/problems/{name}\"><code>{name}</code></a><td>{title}")
    };
    let rows: String = codes.iter().map(row).collect();
    let body = format!("<h1>Problems</h1><table><tr><th>Status<th>Code<th>What it says{rows}</table>");
    vary(page("Problems", &body))
}

/// Explains a problem: a page, or JSON when asked for it.
#[utoipa::path(get, path = "/problems/{code}", operation_id = "explain_problem", tag = "Operations", params(("code" = String, Path, example = "slot_taken")), responses((status = 200, content((Explained = "application/json"), (String = "text/html")))))]
pub async fn explain(
    name: Result<Path<String>, PathRejection>,
    Params(NoParams {}): Params<NoParams>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let Path(name) = name.map_err(|_| Code::NotFound)?;
    let code = Code::ALL.iter().copied().find(|code| code.as_str() == name).ok_or(Code::NotFound)?;
    if wants_json(&headers) {
        return Ok(vary(Json(Explained::from(code))));
    }
    let body = format!(
        "<p><code>{status}</code> <code>{name}</code><h1>{title}</h1><h2>What to do next</h2><p>{advice}</p>\
         <p><a href=\"/problems\">All problems</a>",
        status = code.status(),
        name = escape(code.as_str()),
        title = escape(code.title()),
        advice = prose(code.advice()),
    );
    Ok(vary(page(code.title(), &body)))
}

/// Whether JSON is asked for by name, and a page is not.
fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds: Vec<&str> = accepted
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .map(str::trim)
        .collect();
    let named = |name: &str| kinds.iter().any(|kind| kind.eq_ignore_ascii_case(name));
    (named("application/json") || named("application/problem+json")) && !named("text/html")
}

/// The answer depends on what was asked for.
fn vary(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    response
}

fn page(title: &str, body: &str) -> impl IntoResponse {
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{} · Oncebook</title><style>{STYLE}</style><main>{body}</main></html>",
        escape(title)
    );
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(html))
}

/// A text of ours, its `code` in backticks.
fn prose(text: &str) -> String {
    let parts = text.split('`').map(escape).enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { format!("<code>{part}</code>") } else { part }).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_only_for_who_asks_for_it_by_name() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, json) in [
            ("application/json", true),
            ("application/problem+json, application/json;q=0.5", true),
            ("*/*", false),
            (browser, false),
            ("text/html, application/json", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_json(&headers), json, "{accept}");
        }
        assert!(!wants_json(&HeaderMap::new()));
    }

    #[test]
    fn text_is_escaped_and_every_advice_closes_its_backticks() {
        assert_eq!(prose("a `b<c>` & \"d\""), "a <code>b&lt;c&gt;</code> &amp; &quot;d&quot;");
        for code in Code::ALL {
            assert_eq!(code.advice().matches('`').count() % 2, 0, "{}", code.as_str());
        }
    }
}
