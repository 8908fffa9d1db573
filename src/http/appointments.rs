//! Appointments: `/v1/appointments`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use uuid::Uuid;

use super::ask::{Ask, Nothing, execute};
use super::fields::{Name, REASON, Text, bounds, instant};
use super::listing;
use super::page::{Cursor, Page, Wanted};
use super::params::Ids;
use super::problem::Answered;
use super::reading::{Reading, with_etag};
use crate::app::App;
use crate::command::book::Book;
use crate::command::note::Note;
use crate::command::reopen::Reopen;
use crate::command::reschedule::Reschedule;
use crate::command::transition::{To, Transition};
use crate::domain::access::Caller;
use crate::domain::appointment::{Appointment, AppointmentView, External, HistoryEntry, Kind, Status};
use crate::domain::problem::{Code, Problem};
use crate::store::appointments::{self, Filter};

/// Longest note, in characters.
const NOTE: usize = 4000;

/// Longest name of a system or id in one, in characters.
const EXTERNAL: usize = 200;

/// A visit asked for.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Booking {
    /// Where.
    clinic_id: Uuid,
    /// Who comes.
    patient_id: Uuid,
    /// Who treats.
    practitioner_id: Uuid,
    /// In which room, if one is to be kept.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// For what; it brings its length.
    service_id: Uuid,
    /// RFC 3339. With an offset it is an instant; without one it is the wall clock at `time_zone`.
    #[schema(
        pattern = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?$",
        example = "2027-11-02T09:00:00"
    )]
    start: String,
    /// IANA name; needed where `start` has no offset.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// For the front desk.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4000)]
    note: Option<Text<NOTE>>,
    /// Into a slot that is taken, if the clinic allows it and the caller is `CLINIC_ADMIN` or `FRONT_DESK`.
    #[serde(default)]
    overbook: Option<bool>,
    /// Its name in another system; a clinic has one appointment of a name at the most.
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
    #[schema(
        pattern = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?$",
        example = "2027-11-02T10:00:00"
    )]
    start: String,
    /// IANA name; needed where `start` has no offset.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// To whom.
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    /// Into which room.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// Brings its own length.
    #[serde(default)]
    service_id: Option<Uuid>,
    /// Into a slot that is taken, if the clinic allows it and the caller is `CLINIC_ADMIN` or `FRONT_DESK`.
    #[serde(default)]
    overbook: Option<bool>,
}

/// Moves a booked visit: frees the old slot and holds the new one at the same instant.
#[utoipa::path(post, path = "/v1/appointments/{id}/reschedule", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Move, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn reschedule(State(app): State<Arc<App>>, Ask { asked, body }: Ask<Move>, Ids([id]): Ids<1>) -> Answered {
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
pub async fn confirm(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Confirmed }).await
}

/// The patient is here.
#[utoipa::path(post, path = "/v1/appointments/{id}/check-in", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn check_in(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Arrived }).await
}

/// The visit has taken place.
#[utoipa::path(post, path = "/v1/appointments/{id}/complete", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn complete(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Fulfilled }).await
}

/// The patient did not come.
#[utoipa::path(post, path = "/v1/appointments/{id}/no-show", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn no_show(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::NoShow }).await
}

/// Why a visit is called off.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancellation {
    /// For the front desk.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000, example = "patient called")]
    reason: Option<Text<REASON>>,
}

/// Calls a visit off.
#[utoipa::path(post, path = "/v1/appointments/{id}/cancel", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Cancellation, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Ask { asked, body }: Ask<Cancellation>,
    Ids([id]): Ids<1>,
) -> Answered {
    let reason = body.reason.map(|Text(reason)| reason).filter(|reason| !reason.is_empty());
    execute(&app, asked, Transition { id, to: To::Cancelled { reason } }).await
}

/// Takes an arrived, missed or cancelled visit back to booked.
#[utoipa::path(post, path = "/v1/appointments/{id}/reopen", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn reopen(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
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
pub async fn note(State(app): State<Arc<App>>, Ask { asked, body }: Ask<Patch>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, asked, Note { id, note: body.note.map(|Text(note)| note) }).await
}

/// Reads an appointment.
#[utoipa::path(get, path = "/v1/appointments/{id}", operation_id = "get_appointment", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let row = find(&app, &caller, Kind::Visit, id).await?;
    Ok(with_etag(row.version, &headers, &AppointmentView::from(&row)))
}

/// The visit or block of that id, if it is within the caller's reach.
pub async fn find(app: &App, caller: &Caller, kind: Kind, id: Uuid) -> Result<Appointment, Problem> {
    let row = app.insist(|connection| appointments::find(connection, caller.tenant_id, kind, id).scope_boxed()).await?;
    row.filter(|row| caller.reaches(row.clinic_id)).ok_or(Code::NotFound.into())
}

/// Which appointments to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// The clinic.
    clinic_id: Uuid,
    /// Those that start then or later.
    #[param(example = "2027-11-02T00:00:00Z", format = DateTime)]
    from: Option<String>,
    /// Those that start before then.
    #[param(example = "2027-11-03T00:00:00Z", format = DateTime)]
    to: Option<String>,
    /// Those of one practitioner.
    practitioner_id: Option<Uuid>,
    /// Those of one patient.
    patient_id: Option<Uuid>,
    /// Those of one status.
    status: Option<Status>,
    /// How many at the most, 1 to 200; 50 unless said.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, example = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came.
    after: Option<String>,
}

/// Lists a clinic's appointments by start, then id. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/appointments", operation_id = "list_appointments", tag = "Appointments", params(ListParams), responses((status = 200, body = Page<AppointmentView<'static>>)))]
pub async fn list(Reading { app, params: asked, caller, .. }: Reading<0, ListParams>) -> Answered {
    let (from, to) = bounds(asked.from.as_deref(), asked.to.as_deref())?;
    let wanted = Wanted::read(asked.limit.as_deref(), asked.after.as_deref())?;
    let filter = Filter::Visits {
        patient: asked.patient_id,
        practitioner: asked.practitioner_id,
        status: asked.status,
        starts_before: to,
    };
    let found = listing::find(&app, &caller, asked.clinic_id, &filter, from, &wanted).await?;
    Ok(Json(found.page::<AppointmentView<'_>>(&wanted)).into_response())
}

/// Which page of a history.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryParams {
    /// How many versions at the most, 1 to 200; 200 unless said.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 200)]
    limit: Option<String>,
    /// The `next` of the page before, as it came.
    after: Option<String>,
}

/// Reads what an appointment has been, oldest version first: by whom, when, by which command and request. Follow `next` until
/// it is null.
#[utoipa::path(get, path = "/v1/appointments/{id}/history", operation_id = "appointment_history", tag = "Appointments", params(("id" = Uuid, Path), HistoryParams), responses((status = 200, body = Page<HistoryEntry>)))]
pub async fn history(Reading { app, params, ids: [id], caller, .. }: Reading<1, HistoryParams>) -> Answered {
    // A whole history, but for a few, is one page.
    let limit = params.limit.as_deref().unwrap_or("200");
    let wanted = Wanted::read(Some(limit), params.after.as_deref())?;
    let after = wanted.after.as_ref().map_or(Ok(0), |cursor| cursor.version(id))?;
    let (tenant, most) = (caller.tenant_id, wanted.rows());
    let found =
        app.insist(|connection| appointments::history(connection, tenant, id, after, most).scope_boxed()).await?;
    let (_, versions) = found.filter(|(clinic, _)| caller.reaches(*clinic)).ok_or(Code::NotFound)?;
    let place = |entry: &HistoryEntry| Cursor::at_version(id, entry.version);
    Ok(Json(Page::of(versions, &wanted, place, |entry| entry)).into_response())
}
