//! What a request that changes something brings: its body, its key, its preconditions. One extractor for each kind, so that
//! the checks keep their order: size, media type, shape, key; a handler names it before the path's ids, whose 404 comes after.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::body::parse;
use super::edge::RequestIds;
use super::guard::SignedIn;
use super::intake::Intake;
use super::problem::Refused;
use crate::app::App;
use crate::command::group::GroupCommand;
use crate::command::put::Condition;
use crate::command::reply::etag;
use crate::command::{Answer, Command, IfMatch, Request as Asked};
use crate::domain::key::{self, KeyHash};
use crate::domain::problem::{Code, Problem};
use crate::store::commit::Asker;

/// A command's request, read.
pub struct Ask<T> {
    /// Who asks, and with which key.
    pub asked: Asked,
    /// The body; an empty one reads like `{}`.
    pub body: T,
}

/// The same for the one command that needs no key.
pub struct AskWithoutKey {
    /// Who asks.
    pub asked: Asked,
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Ask<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refused> {
        let brought = Brought::by(parts)?;
        let asked = brought.asked()?;
        let body = parse(&brought.body)?;
        let key = key_of(&brought.headers)?;
        Ok(Self { asked: Asked { key: Some(key), ..asked }, body })
    }
}

impl FromRequestParts<Arc<App>> for AskWithoutKey {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refused> {
        let brought = Brought::by(parts)?;
        let asked = brought.asked()?;
        parse::<Nothing>(&brought.body)?;
        Ok(Self { asked })
    }
}

/// A change that is no command: of the directory, or of credentials. It needs no key.
pub struct Change<T> {
    /// Who asks.
    pub asker: Asker,
    /// `If-Match` and `If-None-Match`.
    pub condition: Condition,
    /// The body; an empty one reads like `{}`.
    pub body: T,
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Change<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refused> {
        let brought = Brought::by(parts)?;
        let body = parse(&brought.body)?;
        let condition = Condition {
            if_match: entity_tags(&brought.headers, &header::IF_MATCH)?,
            if_none_match: entity_tags(&brought.headers, &header::IF_NONE_MATCH)?,
        };
        let asker = Asker {
            caller: brought.signed_in.caller,
            request_id: brought.ids.ours,
            caller_request_id: brought.ids.callers,
            traceparent: None,
        };
        Ok(Self { asker, condition, body })
    }
}

/// A body without members.
#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What they all bring, before anything of it is read but the body's size and media type.
struct Brought {
    headers: HeaderMap,
    body: Vec<u8>,
    signed_in: SignedIn,
    ids: RequestIds,
}

impl Brought {
    fn by(parts: &mut Parts) -> Result<Self, Refused> {
        let body = bytes(parts)?;
        no_query(&parts.uri)?;
        let signed_in = parts.extensions.remove().ok_or(Code::Internal)?;
        let ids = parts.extensions.remove().ok_or(Code::Internal)?;
        Ok(Self { headers: std::mem::take(&mut parts.headers), body, signed_in, ids })
    }

    /// As a command takes it, its key aside.
    fn asked(&self) -> Result<Asked, Problem> {
        Ok(Asked {
            token: self.signed_in.token,
            key: None,
            if_match: entity_tags(&self.headers, &header::IF_MATCH)?.unwrap_or_default(),
            id: self.ids.ours,
            callers_id: self.ids.callers.clone(),
            traceparent: traceparent(&self.headers),
        })
    }
}

/// The body's bytes: not too many, and JSON by their own account.
fn bytes(parts: &mut Parts) -> Result<Vec<u8>, Refused> {
    let bytes = match parts.extensions.remove() {
        None => return Ok(Vec::new()),
        Some(Intake::Whole(bytes)) => bytes,
        Some(Intake::TooLarge) => return Err(Code::BodyTooLarge.into()),
        Some(Intake::Broken) => return Err(Problem::malformed("", "The body did not arrive whole.").into()),
    };
    let headers = &parts.headers;
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    let encoded = encodings.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let is_json = || {
        let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())?;
        let essence = value.split(';').next()?.trim();
        Some(essence.eq_ignore_ascii_case("application/json"))
    };
    if !bytes.is_empty() && (encoded || is_json() != Some(true)) {
        return Err(Code::UnsupportedMediaType.into());
    }
    Ok(bytes)
}

/// These requests have no query parameters.
fn no_query(uri: &Uri) -> Result<(), Problem> {
    match uri.query() {
        Some(query) if !query.is_empty() => Err(Problem::malformed("query", "This operation has no query parameters.")),
        _ => Ok(()),
    }
}

/// The one `Idempotency-Key` line.
///
/// # Errors
/// Missing, twice or not valid: 400, so that nothing is ever executed without the protection the caller meant.
pub fn key_of(headers: &HeaderMap) -> Result<KeyHash, Problem> {
    let mut lines = headers.get_all("idempotency-key").iter();
    match (lines.next(), lines.next()) {
        (None, _) => Err(Code::IdempotencyKeyMissing.into()),
        (Some(line), None) => {
            key::parse(line.as_bytes()).map_err(|error| Problem::new(Code::IdempotencyKeyInvalid, format!("{error}.")))
        }
        (Some(_), Some(_)) => Err(Problem::new(Code::IdempotencyKeyInvalid, "There are two Idempotency-Key lines.")),
    }
}

/// `If-Match` or `If-None-Match` (RFC 9110, section 13.1): `*`, or a list of entity tags; none where it was not sent. A tag
/// we never gave out matches no version there is, and a weak one matches only where the comparison is weak.
pub(super) fn entity_tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<IfMatch>, Problem> {
    let malformed = || Problem::malformed(name.as_str(), "It takes * or entity tags such as \"1\".");
    let mut versions = Vec::new();
    for line in headers.get_all(name) {
        let line = line.to_str().map_err(|_| malformed())?.trim();
        if line == "*" {
            return Ok(Some(IfMatch::Any));
        }
        for tag in line.split(',').map(str::trim) {
            let (weak, tag) = tag.strip_prefix("W/").map_or((false, tag), |tag| (true, tag));
            let opaque = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).ok_or_else(malformed)?;
            let ours = |version: &i32| etag(*version) == tag && (!weak || name == header::IF_NONE_MATCH);
            versions.push(opaque.parse().ok().filter(ours).unwrap_or(-1));
        }
    }
    Ok((!versions.is_empty()).then_some(IfMatch::Versions(versions)))
}

/// W3C trace context, if it is well formed (version 00).
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let [version, trace, parent, flags] = parts.as_slice() else { return None };
    (*version == "00" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2)).then(|| value.to_owned())
}

/// Executes a command and renders its answer.
pub async fn execute<C: Command>(app: &App, asked: Asked, command: C) -> Result<Response, Refused> {
    Ok(render(app.commands.execute(asked, command).await?))
}

/// The same for a command that is about the group.
pub async fn execute_of_group(app: &App, asked: Asked, command: GroupCommand) -> Result<Response, Refused> {
    Ok(render(app.commands.execute_of_group(asked, command).await?))
}

/// The stored bytes, and what goes with them.
fn render(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let stored = answer.reply.headers;
    let mut response = (status, answer.reply.body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    let with = [
        ("content-type", stored.content_type),
        ("etag", stored.etag),
        ("location", stored.location),
        ("idempotency-expires", answer.expires_at.map(|at| at.to_string())),
        ("idempotent-replayed", answer.expires_at.map(|_| answer.replayed.to_string())),
    ];
    for (name, value) in with {
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_tag_is_a_version_only_in_the_form_we_gave_it_out() {
        let tags = |name: &HeaderName, line| {
            let headers = [(name.clone(), HeaderValue::from_static(line))].into_iter().collect();
            entity_tags(&headers, name)
        };
        let line = r#""1", W/"2" ,"03","+4","""#;
        assert_eq!(tags(&header::IF_MATCH, line), Ok(Some(IfMatch::Versions(vec![1, -1, -1, -1, -1]))));
        assert_eq!(tags(&header::IF_NONE_MATCH, line), Ok(Some(IfMatch::Versions(vec![1, 2, -1, -1, -1]))));
        for line in ["1", "\"1", "\"1\",", "w/\"1\"", ""] {
            assert!(tags(&header::IF_MATCH, line).is_err(), "{line}");
        }
    }
}
