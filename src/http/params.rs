//! Path ids and query parameters, read as strictly as bodies.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::problem::Refused;
use crate::app::App;
use crate::domain::problem::{Code, Problem};

/// The ids in a path, in their order. What is no UUID is the id of nothing: 404.
pub struct Ids<const N: usize>(pub [Uuid; N]);

impl<const N: usize> FromRequestParts<Arc<App>> for Ids<N> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<App>) -> Result<Self, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Code::NotFound)?;
        let ids: Option<Vec<Uuid>> = params.iter().map(|(_, value)| Uuid::try_parse(value).ok()).collect();
        let ids = ids.and_then(|ids| ids.try_into().ok()).ok_or(Code::NotFound)?;
        Ok(Self(ids))
    }
}

/// Query parameters; unknown ones and ones given twice are refused.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        let params =
            serde_urlencoded::from_str(query).map_err(|error| Problem::malformed("query", error.to_string()))?;
        // A cursor is judged where it is read, by a code of its own.
        if query.split('&').any(|pair| pair.contains("%00") && !pair.starts_with("after=")) {
            return Err(Problem::malformed("query", "A parameter holds a NUL.").into());
        }
        Ok(Self(params))
    }
}

/// No query parameters at all.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}
