//! The directory over REST: one file per resource. All are put, read and listed in the same way, which is here: how a
//! put, a row and a page are answered.

use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use scoped_futures::ScopedFutureExt;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::page::{Cursor, Page, Wanted};
use super::problem::Answered;
use super::reading::with_etag;
use crate::app::App;
use crate::command::put::Condition;
use crate::command::reply::etag;
use crate::domain::access::Caller;
use crate::domain::problem::{Code, Problem};
use crate::store::commit::Asker;
use crate::store::directory::{self, Entry, Listing, Named};

pub mod clinics;
pub mod hours;
pub mod notifications;
pub mod operatories;
pub mod patients;
pub mod practitioners;
pub mod services;

/// Routes of those who may read the directory.
pub fn reads() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(clinics::list))
        .routes(routes!(clinics::get))
        .routes(routes!(hours::get_hours))
        .routes(routes!(hours::get_closures))
        .routes(routes!(notifications::get))
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
        .routes(routes!(notifications::put))
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

/// Puts an entry and answers with it: 201 where it is new, 200 where it was there.
async fn put_entry<T: Entry + Serialize>(
    app: &App,
    asker: &Asker,
    condition: &Condition,
    entry: T,
    location: String,
) -> Answered {
    let put = app.commands.put(asker, entry, condition).await?;
    let shown = ([(header::ETAG, etag(put.row.version()))], Json(&put.row));
    if put.created {
        return Ok((StatusCode::CREATED, [(header::LOCATION, location)], shown).into_response());
    }
    Ok(shown.into_response())
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
    let rows = app.insist(|connection| T::list(connection, listing).scope_boxed()).await?;
    Ok(page(rows, &wanted, |row| Cursor::by_name(row.place())))
}

/// A page of rows, each as it is.
fn page<T: Serialize>(rows: Vec<T>, wanted: &Wanted, place: impl FnOnce(&T) -> Cursor) -> Response {
    Json(Page::of(rows, wanted, place, |row| row)).into_response()
}

/// Lets a request name these clinics in its body or query: one that does not exist and one out of reach are the same 403.
///
/// # Errors
/// That 403, and those of [`App::insist`].
pub async fn may_name(app: &App, caller: &Caller, clinics: &[Uuid]) -> Result<(), Problem> {
    if clinics.is_empty() {
        return Ok(());
    }
    let reached =
        app.insist(|connection| directory::clinics::reached(connection, caller, clinics).scope_boxed()).await?;
    if reached { Ok(()) } else { Err(Code::Forbidden.into()) }
}
