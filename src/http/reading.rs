//! What a read brings, and how one thing that has a version is shown. One extractor, so that the checks keep their order:
//! the query, then the path's ids.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::ask::entity_tags;
use super::guard::SignedIn;
use super::params::{Ids, NoParams, Params};
use super::problem::Refused;
use crate::app::App;
use crate::command::reply::etag;
use crate::domain::access::Caller;
use crate::domain::problem::Code;

/// A read, by a caller who has signed in.
pub struct Reading<const N: usize, P = NoParams> {
    /// The service.
    pub app: Arc<App>,
    /// The ids in the path.
    pub ids: [Uuid; N],
    /// The query's parameters.
    pub params: P,
    /// Who asks.
    pub caller: Caller,
    /// The headers.
    pub headers: HeaderMap,
}

impl<const N: usize, P: DeserializeOwned + Send> FromRequest<Arc<App>> for Reading<N, P> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refused> {
        let (mut parts, _) = request.into_parts();
        let Params(params) = Params::from_request_parts(&mut parts, app).await?;
        let Ids(ids) = Ids::from_request_parts(&mut parts, app).await?;
        let SignedIn { caller, .. } = parts.extensions.remove().ok_or(Code::Internal)?;
        Ok(Self { app: Arc::clone(app), ids, params, caller, headers: parts.headers })
    }
}

/// What was found, with its `ETag`; or 304 to one who has this version (RFC 9110, section 13.1.2). An `If-None-Match` that
/// is none leaves the read as it is.
pub fn with_etag(version: i32, headers: &HeaderMap, view: &impl Serialize) -> Response {
    let has = entity_tags(headers, &header::IF_NONE_MATCH).ok().flatten();
    let etag = [(header::ETAG, etag(version))];
    if has.is_some_and(|tags| tags.names(version)) {
        (StatusCode::NOT_MODIFIED, etag).into_response()
    } else {
        (etag, Json(view)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(lines: &[&'static str]) -> u16 {
        let lines = lines.iter().map(|line| (header::IF_NONE_MATCH, HeaderValue::from_static(line)));
        with_etag(1, &lines.collect(), &"it").status().as_u16()
    }

    #[test]
    fn who_has_this_version_is_not_sent_it_again() {
        for has in [&["\"1\""][..], &["W/\"1\""], &["\"0\", \"1\""], &["\"0\"", "W/\"1\""], &["*"]] {
            assert_eq!(status(has), 304, "{has:?}");
        }
        for has in [&[][..], &["\"0\""], &["\"11\""], &["\"01\""], &["\"+1\""], &["1"], &["w/\"1\""], &["\"1"], &[""]] {
            assert_eq!(status(has), 200, "{has:?}");
        }
    }
}
