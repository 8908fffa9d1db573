//! Appointments: `/v1/appointments`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use uuid::Uuid;

use super::ask::{Ask, Nothing, execute};
use super::fields::{Name, Text, instant};
use super::guard::SignedIn;
use super::params::{Ids, NoParams, Params};
use super::problem::Refused;
use crate::app::App;
use crate::command::book::Book;
use crate::command::note::Note;
use crate::command::reopen::Reopen;
use crate::command::reply;
use crate::command::reschedule::Reschedule;
use crate::command::transition::{To, Transition};
use crate::domain::appointment::{AppointmentView, External};
use crate::domain::problem::{Code, Problem};
use crate::store::appointments;

type Answered = Result<Response, Refused>;

/// Longest note, in characters.
const NOTE: usize = 4000;

/// Longest reason, in characters.
const REASON: usize = 1000;

/// Longest name of a system or id in one, in characters.
const EXTERNAL: usize = 200;

/// A visit asked for.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Booking {
    clinic_id: Uuid,
    patient_id: Uuid,
    practitioner_id: Uuid,
    #[serde(default)]
    operatory_id: Option<Uuid>,
    service_id: Uuid,
    /// RFC 3339. With an offset it is an instant; without one it is the wall clock at `time_zone`.
    #[schema(example = "2026-12-01T09:00:00")]
    start: String,
    /// IANA name.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4000)]
    note: Option<Text<NOTE>>,
    /// Into a slot that is taken, if the clinic allows it.
    #[serde(default)]
    overbook: Option<bool>,
    #[serde(default)]
    #[schema(value_type = Option<External>)]
    external: Option<ExternalFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExternalFields {
    system: Name<EXTERNAL>,
    id: Name<EXTERNAL>,
}

impl Booking {
    fn command(self) -> Result<Book, Problem> {
        Ok(Book {
            clinic_id: self.clinic_id,
            patient_id: self.patient_id,
            practitioner_id: self.practitioner_id,
            operatory_id: self.operatory_id,
            service_id: self.service_id,
            start: instant("/start", &self.start, self.time_zone.as_deref())?,
            time_zone: self.time_zone,
            note: self.note.map(|Text(note)| note),
            overbook: self.overbook.unwrap_or(false),
            external: self.external.map(|external| External { system: external.system.0, id: external.id.0 }),
        })
    }
}

/// Books a visit.
#[utoipa::path(post, path = "/v1/appointments", tag = "Appointments", request_body = Booking, responses((status = 201, body = AppointmentView<'static>)))]
pub async fn book(State(app): State<Arc<App>>, ask: Ask<Booking>) -> Answered {
    execute(&app, ask.asked, ask.body.command()?).await
}

/// A move asked for; what is left out stays as it is.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// RFC 3339. With an offset it is an instant; without one it is the wall clock at `time_zone`.
    #[schema(example = "2026-12-01T10:00:00")]
    start: String,
    /// IANA name.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// Brings its own length.
    #[serde(default)]
    service_id: Option<Uuid>,
    /// Into a slot that is taken, if the clinic allows it.
    #[serde(default)]
    overbook: Option<bool>,
}

/// Moves a booked visit: frees the old slot and holds the new one at the same instant.
#[utoipa::path(post, path = "/v1/appointments/{id}/reschedule", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Move, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn reschedule(State(app): State<Arc<App>>, Ids([id]): Ids<1>, Ask { asked, body }: Ask<Move>) -> Answered {
    let command = Reschedule {
        id,
        start: instant("/start", &body.start, body.time_zone.as_deref())?,
        time_zone: body.time_zone,
        practitioner_id: body.practitioner_id,
        operatory_id: body.operatory_id,
        service_id: body.service_id,
        overbook: body.overbook.unwrap_or(false),
    };
    execute(&app, asked, command).await
}

/// The patient has said they will come.
#[utoipa::path(post, path = "/v1/appointments/{id}/confirm", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn confirm(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: Ask<Nothing>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Confirmed }).await
}

/// The patient is here.
#[utoipa::path(post, path = "/v1/appointments/{id}/check-in", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn check_in(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: Ask<Nothing>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Arrived }).await
}

/// The visit has taken place.
#[utoipa::path(post, path = "/v1/appointments/{id}/complete", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn complete(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: Ask<Nothing>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Fulfilled }).await
}

/// The patient did not come.
#[utoipa::path(post, path = "/v1/appointments/{id}/no-show", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn no_show(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: Ask<Nothing>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::NoShow }).await
}

/// Why a visit is called off.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancellation {
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000, example = "patient called")]
    reason: Option<Text<REASON>>,
}

/// Calls a visit off.
#[utoipa::path(post, path = "/v1/appointments/{id}/cancel", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Cancellation, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Ids([id]): Ids<1>,
    Ask { asked, body }: Ask<Cancellation>,
) -> Answered {
    let reason = body.reason.map(|Text(reason)| reason);
    execute(&app, asked, Transition { id, to: To::Cancelled { reason } }).await
}

/// Takes an arrived, missed or cancelled visit back to booked.
#[utoipa::path(post, path = "/v1/appointments/{id}/reopen", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn reopen(State(app): State<Arc<App>>, Ids([id]): Ids<1>, ask: Ask<Nothing>) -> Answered {
    execute(&app, ask.asked, Reopen { id }).await
}

/// What may be changed without touching the schedule.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The empty text clears it.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4000, example = "prefers mornings")]
    note: Option<Text<NOTE>>,
}

/// Changes an appointment's note.
#[utoipa::path(patch, path = "/v1/appointments/{id}", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Patch, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn note(State(app): State<Arc<App>>, Ids([id]): Ids<1>, Ask { asked, body }: Ask<Patch>) -> Answered {
    execute(&app, asked, Note { id, note: body.note.map(|Text(note)| note) }).await
}

/// Reads an appointment.
#[utoipa::path(get, path = "/v1/appointments/{id}", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>), (status = 304)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Ids([id]): Ids<1>,
    Params(NoParams {}): Params<NoParams>,
    axum::Extension(signed_in): axum::Extension<SignedIn>,
    headers: HeaderMap,
) -> Answered {
    let tenant = signed_in.caller.tenant_id;
    let row = app
        .read(|mut lent| async move {
            let row = appointments::find(&mut lent, tenant, id).await;
            (lent, row)
        })
        .await?
        .filter(|row| signed_in.caller.reaches(row.clinic_id))
        .ok_or(Code::NotFound)?;
    Ok(with_etag(row.version, &headers, &AppointmentView::from(&row)))
}

/// A row with its `ETag`, or 304 to one who has this version (RFC 9110, section 13.1.2).
pub fn with_etag(version: i32, headers: &HeaderMap, view: &impl serde::Serialize) -> Response {
    let etag = reply::etag(version);
    let has = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let unchanged = has
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag);
    let mut response =
        if unchanged { StatusCode::NOT_MODIFIED.into_response() } else { axum::Json(view).into_response() };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
