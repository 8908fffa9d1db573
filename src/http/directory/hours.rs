//! When a clinic is open: `/v1/clinics/{id}/hours` and `/v1/clinics/{id}/closures`. Both are set as a whole, and their
//! `ETag` is the clinic's.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{put_entry, show};
use crate::app::App;
use crate::domain::directory::{Closure, Closures, Week};
use crate::domain::hours::{self, OpenHours};
use crate::domain::problem::Problem;
use crate::domain::time::Span;
use crate::http::ask::Change;
use crate::http::fields::{Instant, REASON, Text};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::clinics;

/// Closures of a clinic at the most, past ones included: what fits the largest body, more or less.
const MOST_CLOSURES: usize = 500;

/// Sets a clinic's weekly hours as a whole. They are wall-clock times in the clinic's zone; entries may overlap, and
/// the empty list means closed. More than 50 entries, or one that opens at "24:00": 400. Visits booked already stay.
#[utoipa::path(put, path = "/v1/clinics/{id}/hours", operation_id = "put_clinic_hours", tag = "Directory", params(("id" = Uuid, Path)), request_body = Vec<OpenHours>, responses((status = 200, body = Vec<OpenHours>)))]
pub async fn put_hours(State(app): State<Arc<App>>, change: Change<Vec<OpenHours>>, Ids([id]): Ids<1>) -> Answered {
    hours::validate(&change.body).map_err(|detail| Problem::malformed("", detail))?;
    let week = Week { clinic_id: id, hours: change.body, version: 0 };
    put_entry(&app, &change.asker, &change.condition, week, format!("/v1/clinics/{id}/hours")).await
}

/// Reads a clinic's weekly hours.
#[utoipa::path(get, path = "/v1/clinics/{id}/hours", operation_id = "get_clinic_hours", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Vec<OpenHours>), (status = 304)))]
pub async fn get_hours(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| clinics::week(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|week| caller.reaches(week.clinic_id)), &headers)
}

/// A stretch in which a clinic is to be closed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosureFields {
    /// The first instant of the closure: RFC 3339 with an offset, else 400.
    #[schema(value_type = String, format = DateTime, example = "2027-12-24T00:00:00+01:00")]
    from: Instant,
    /// The first instant after the closure: RFC 3339 with an offset and later than `from`, else 400.
    #[schema(value_type = String, format = DateTime, example = "2027-12-27T00:00:00+01:00")]
    to: Instant,
    /// The reason, for people: at most 1000 characters; may be left out.
    #[schema(value_type = Option<String>, max_length = 1000, example = "Christmas")]
    reason: Option<Text<REASON>>,
}

/// The closures asked for, by their start.
fn closures(fields: Vec<ClosureFields>) -> Result<Vec<Closure>, Problem> {
    if fields.len() > MOST_CLOSURES {
        return Err(Problem::malformed("", format!("At most {MOST_CLOSURES} closures are wanted.")));
    }
    let mut seen = HashSet::new();
    let mut closures = Vec::with_capacity(fields.len());
    for (index, ClosureFields { from: Instant(from), to: Instant(to), reason }) in fields.into_iter().enumerate() {
        if Span::new(from, to).is_none() {
            return Err(Problem::malformed(&format!("/{index}/to"), "An end after the start is wanted."));
        }
        if !seen.insert((from, to)) {
            return Err(Problem::malformed(&format!("/{index}"), "This stretch is in the list already."));
        }
        closures.push(Closure { from, to, reason: reason.map(|Text(reason)| reason) });
    }
    closures.sort_by_key(|closure| (closure.from, closure.to));
    Ok(closures)
}

/// Sets a clinic's closures as a whole. They are the stretches in which it is closed, whatever its weekly hours say: at
/// most 500, no two the same, else 400. Visits booked there already stay.
#[utoipa::path(put, path = "/v1/clinics/{id}/closures", operation_id = "put_clinic_closures", tag = "Directory", params(("id" = Uuid, Path)), request_body = Vec<ClosureFields>, responses((status = 200, body = Vec<Closure>)))]
pub async fn put_closures(
    State(app): State<Arc<App>>,
    change: Change<Vec<ClosureFields>>,
    Ids([id]): Ids<1>,
) -> Answered {
    let closures = Closures { clinic_id: id, all: closures(change.body)?, version: 0 };
    put_entry(&app, &change.asker, &change.condition, closures, format!("/v1/clinics/{id}/closures")).await
}

/// Reads a clinic's closures, by their start. Past ones are among them.
#[utoipa::path(get, path = "/v1/clinics/{id}/closures", operation_id = "get_clinic_closures", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Vec<Closure>), (status = 304)))]
pub async fn get_closures(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| clinics::closures(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|closures| caller.reaches(closures.clinic_id)), &headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Closure>, String> {
        let fields = serde_json::from_str(json).map_err(|error| error.to_string())?;
        closures(fields).map_err(|problem| problem.extra["errors"][0]["pointer"].to_string())
    }

    #[test]
    fn closures_are_stretches_and_no_two_are_the_same() {
        let christmas = r#"{"from":"2026-12-24T00:00:00+01:00","to":"2026-12-27T00:00:00+01:00","reason":"Christmas"}"#;
        let same = r#"{"from":"2026-12-23T23:00:00Z","to":"2026-12-26T23:00:00Z"}"#;
        let earlier = r#"{"from":"2026-10-03T00:00:00Z","to":"2026-10-04T00:00:00Z","reason":null}"#;
        let backwards = r#"{"from":"2026-10-04T00:00:00Z","to":"2026-10-04T00:00:00Z"}"#;
        let froms = |closures: Vec<Closure>| closures.iter().map(|it| it.from.to_string()).collect::<Vec<_>>();
        let both = read(&format!("[{christmas},{earlier}]")).map(froms);
        assert_eq!(both, Ok(vec!["2026-10-03T00:00:00Z".to_owned(), "2026-12-23T23:00:00Z".to_owned()]));
        assert_eq!(read(&format!("[{christmas},{earlier},{same}]")), Err("\"/2\"".to_owned()));
        assert_eq!(read(&format!("[{backwards}]")), Err("\"/0/to\"".to_owned()));
        assert_eq!(read(&format!("[{}]", vec![earlier; 501].join(","))), Err("\"\"".to_owned()));
        assert!(read(r#"[{"from":"2026-12-24T00:00:00","to":"2026-12-27T00:00:00Z"}]"#).is_err(), "no offset");
    }
}
