//! The directory over REST: one file per resource. All are put, read and listed in the same way, which is here: what a
//! request brings, and how a put, a row and a page are answered.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use scoped_futures::ScopedFutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::appointments::with_etag;
use super::ask::{bytes, entity_tags, no_query};
use super::body::parse;
use super::edge::RequestIds;
use super::guard::SignedIn;
use super::page::{Cursor, Page, Wanted};
use super::problem::Refused;
use crate::app::App;
use crate::command::put::Condition;
use crate::command::reply::etag;
use crate::domain::access::Caller;
use crate::domain::problem::{Code, Problem};
use crate::store::commit::Asker;
use crate::store::directory::{self, Entry, Listing, Named};

pub mod clinics;
pub mod hours;
pub mod operatories;
pub mod patients;
pub mod practitioners;
pub mod services;

type Answered = Result<Response, Refused>;

/// Longest name, in characters.
const NAME: usize = 200;

/// Routes of those who may read the directory.
pub fn reads() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(clinics::list))
        .routes(routes!(clinics::get))
        .routes(routes!(hours::get_hours))
        .routes(routes!(hours::get_closures))
        .routes(routes!(practitioners::list))
        .routes(routes!(practitioners::get))
        .routes(routes!(practitioners::list_clinics))
        .routes(routes!(practitioners::get_clinic))
        .routes(routes!(operatories::list))
        .routes(routes!(operatories::get))
        .routes(routes!(services::list))
        .routes(routes!(services::get))
}

/// Routes of those who may change it.
pub fn writes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(clinics::put))
        .routes(routes!(hours::put_hours))
        .routes(routes!(hours::put_closures))
        .routes(routes!(practitioners::put))
        .routes(routes!(practitioners::put_clinic))
        .routes(routes!(operatories::put))
        .routes(routes!(services::put))
}

/// Routes of those who may read and write patients: the reads.
pub fn patient_reads() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(patients::list)).routes(routes!(patients::get))
}

/// The same: the writes.
pub fn patient_writes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(patients::put))
}

/// A request that changes the directory, read in the order the checks have: size, media type, shape.
pub struct Change<T> {
    /// Who asks.
    pub asker: Asker,
    /// `If-Match` and `If-None-Match`.
    pub condition: Condition,
    /// The body; an empty one reads like `{}`.
    pub body: T,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Change<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Refused> {
        let queried = no_query(&request);
        let (parts, _) = request.into_parts();
        let bytes = bytes(&parts)?;
        queried?;
        let body = parse(&bytes)?;
        let condition = Condition {
            if_match: entity_tags(&parts.headers, &header::IF_MATCH)?,
            if_none_match: entity_tags(&parts.headers, &header::IF_NONE_MATCH)?,
        };
        let signed_in = parts.extensions.get::<SignedIn>().ok_or(Code::Internal)?;
        let ids = parts.extensions.get::<RequestIds>().ok_or(Code::Internal)?;
        let asker = Asker {
            caller: signed_in.caller.clone(),
            request_id: ids.ours,
            caller_request_id: ids.callers.clone(),
            traceparent: None,
        };
        Ok(Self { asker, condition, body })
    }
}

/// Puts an entry and answers with it: 201 where it is new, 200 where it was there.
async fn put<T: Entry + Serialize>(
    app: &App,
    asker: &Asker,
    condition: &Condition,
    entry: T,
    location: String,
) -> Answered {
    let put = app.commands.put(asker, entry, condition).await?;
    let mut response = axum::Json(&put.row).into_response();
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag(put.row.version())) {
        headers.insert(header::ETAG, etag);
    }
    if put.created {
        if let Ok(location) = HeaderValue::from_str(&location) {
            headers.insert(header::LOCATION, location);
        }
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// A row that was found, if it is for the caller to see.
fn show<T: Entry + Serialize>(found: Option<T>, headers: &HeaderMap) -> Answered {
    let row = found.ok_or(Code::NotFound)?;
    Ok(with_etag(row.version(), headers, &row))
}

/// Which rows of a list a caller may have: those of the clinic asked for, or of all within reach.
fn listing<'a>(caller: &'a Caller, clinic: Option<&'a Uuid>, wanted: &'a Wanted) -> Listing<'a> {
    Listing {
        tenant: caller.tenant_id,
        clinics: clinic.map(std::slice::from_ref).or(caller.clinic_ids.as_deref()),
        after: wanted.after.as_ref().map(|cursor| (cursor.key.as_str(), cursor.id)),
        rows: wanted.rows(),
    }
}

/// Lists by name what is within reach, or what is of one clinic.
async fn list_by_name<T: Named + Serialize>(
    app: &App,
    caller: &Caller,
    clinic: Option<Uuid>,
    wanted: Wanted,
) -> Answered {
    may_name(app, caller, clinic.as_slice()).await?;
    let listing = listing(caller, clinic.as_ref(), &wanted);
    let rows = app.read(|connection| T::list(connection, listing).scope_boxed()).await?;
    Ok(page(rows, &wanted, |row| Cursor::by_name(row.place())))
}

/// A page of rows, each as it is.
fn page<T: Serialize>(rows: Vec<T>, wanted: &Wanted, place: impl FnOnce(&T) -> Cursor) -> Response {
    axum::Json(Page::of(rows, wanted, place, |row| row)).into_response()
}

/// Lets a request name these clinics in its body or query: one that does not exist and one out of reach are the same 403.
///
/// # Errors
/// That 403, and those of [`App::read`].
pub async fn may_name(app: &App, caller: &Caller, clinics: &[Uuid]) -> Result<(), Problem> {
    if clinics.is_empty() {
        return Ok(());
    }
    let reached = app.read(|connection| directory::clinics::reached(connection, caller, clinics).scope_boxed()).await?;
    if reached { Ok(()) } else { Err(Code::Forbidden.into()) }
}
