//! Path ids and query parameters, read as strictly as bodies.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::body::clean;
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
        Ok(Self(read(parts.uri.query().unwrap_or_default())?))
    }
}

/// Reads a query. What is wrong with it is said of the parameter by name.
fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    let params = serde_path_to_error::deserialize(reader).map_err(|error| {
        let path = error.path().to_string();
        let said = clean(&error.into_inner().to_string());
        // Of one that is unknown, missing or there twice, serde says the name in its words only.
        let named = said.split('`').nth(1).filter(|_| path == "." || path == "?").unwrap_or(&path);
        Problem::malformed(named, said.as_str())
    })?;
    // A cursor is judged where it is read, by a code of its own.
    if !query.split('&').filter(|pair| !pair.starts_with("after=")).all(is_text) {
        return Err(Problem::malformed("query", "A parameter is no UTF-8, or holds a NUL."));
    }
    Ok(params)
}

/// Whether a query is UTF-8 without NUL once its escapes are undone. `serde_urlencoded` puts U+FFFD for what is none.
fn is_text(query: &str) -> bool {
    let mut bytes = Vec::with_capacity(query.len());
    let mut rest = query.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &others[2..] } else { others };
    }
    !bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok()
}

/// No query parameters at all.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read, not used")]
    struct Asked {
        clinic_id: Uuid,
        patient_id: Option<Uuid>,
    }

    #[test]
    fn a_fault_names_its_parameter() {
        let id = "clinic_id=0197f3c0-0000-7000-8000-000000000001";
        assert!(read::<Asked>(id).is_ok());
        for (query, named) in [
            (String::new(), "clinic_id"),
            ("clinic_id=x".to_owned(), "clinic_id"),
            (format!("{id}&patient_id="), "patient_id"),
            (format!("{id}&{id}"), "clinic_id"),
            (format!("{id}&colour=red"), "colour"),
            (format!("{id}&patient_id=%ff"), "patient_id"),
        ] {
            let problem = read::<Asked>(&query).expect_err(&query);
            assert_eq!(problem.extra["errors"][0]["pointer"], named, "{query}: {}", problem.detail);
        }
    }

    #[test]
    fn a_query_is_text() {
        for query in ["", "q=a+b&x=%C3%A4", "q=%", "q=%4", "q=%zz", "q=%25%30%30"] {
            assert!(is_text(query), "{query}");
        }
        for query in ["q=%ff", "q=%C3", "q=%00", "q=a%00b", "q=%c3%28", "q=%ED%A0%80"] {
            assert!(!is_text(query), "{query}");
        }
    }
}
