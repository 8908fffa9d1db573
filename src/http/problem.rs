//! Problems as responses (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::domain::problem::{Code, Problem};

/// What a handler returns.
pub type Answered = Result<Response, Refused>;

/// What a handler returns when it does not return an answer.
#[derive(Debug)]
pub struct Refused(pub Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self(code.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        respond(&self.0)
    }
}

/// The response of a problem, with the headers that go with its code.
#[must_use]
pub fn respond(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, problem.to_bytes()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = problem.code.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.code == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // What the edge writes of a signed-in caller's 403 in the audit.
    response.extensions_mut().insert(problem.code);
    response
}
