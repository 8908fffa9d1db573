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

/// A visit to be booked.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Booking {
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// The patient's id. One that the group does not have: 422 `unknown_reference`.
    patient_id: Uuid,
    /// The id of the practitioner who treats. One who does not work at the clinic: 422 `unknown_reference`; one who is
    /// inactive, in the group or at this clinic: 422 `inactive_reference`.
    practitioner_id: Uuid,
    /// The id of the operatory (treatment room) to hold with the practitioner; left out, none is held. One that the
    /// clinic does not have: 422 `unknown_reference`; an inactive one: 422 `inactive_reference`.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// The id of the service; it says how long the visit and its buffer last. One that the clinic does not have: 422
    /// `unknown_reference`; an inactive one: 422 `inactive_reference`.
    service_id: Uuid,
    /// When the visit starts, as RFC 3339. With an offset (`Z`, `+01:00`) it is an instant; without one it is the wall
    /// clock at `time_zone`: a time the clocks skip or repeat there is 422 `nonexistent_local_time` or
    /// `ambiguous_local_time`. It must not have passed, must keep the clinic's notice and horizon, be on its grid, and
    /// the visit must lie within the hours of clinic and practitioner; else 422 with the first of `in_the_past`,
    /// `too_soon`, `too_far_ahead`, `off_grid`, `outside_hours` that applies.
    #[schema(
        pattern = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?$",
        example = "2027-11-02T09:00:00"
    )]
    start: String,
    /// IANA name of a time zone, such as `Europe/Berlin`; an unknown one: 400. Needed where `start` has no offset, else
    /// 400. Kept with the visit: `local_start` is the wall clock there. Left out: the clinic's zone.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// The front desk's note, at most 4000 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4000)]
    note: Option<Text<NOTE>>,
    /// True: book it even if practitioner or operatory are taken then. Needs the role `CLINIC_ADMIN` or `FRONT_DESK`,
    /// else 403, and a clinic with `allow_overbooking`, else 422 `overbooking_not_allowed`. Left out: false.
    #[serde(default)]
    overbook: Option<bool>,
    /// The booking's id in another system. A second booking with the same pair at the clinic: 409 `duplicate_intent`,
    /// also after the first was cancelled.
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

/// Books a visit. Holds the practitioner, and the operatory if one is named, from `start` until the service's buffer
/// has passed.
///
/// Refused, in this order, where a reference is unknown or inactive or the time does not fit (422), where the clinic
/// does not overbook (422), where the patient has this visit already, with the same practitioner, service and start, or
/// the pair in `external` is in use (409 `duplicate_intent`), and where the slot is taken (409 `slot_taken`, with up to
/// three other openings).
#[utoipa::path(post, path = "/v1/appointments", tag = "Appointments", request_body = Booking, responses((status = 201, body = AppointmentView<'static>)))]
pub async fn book(State(app): State<Arc<App>>, ask: Ask<Booking>) -> Answered {
    execute(&app, ask.asked, ask.body.command()?).await
}

/// A move of a visit. A practitioner, operatory or service that is left out or null stays as it is.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The new start, as RFC 3339. With an offset (`Z`, `+01:00`) it is an instant; without one it is the wall clock at
    /// `time_zone`: a time the clocks skip or repeat there is 422 `nonexistent_local_time` or `ambiguous_local_time`.
    /// It must not have passed, must keep the clinic's notice and horizon, be on its grid, and the visit must lie
    /// within the hours of clinic and practitioner; else 422 with the first of `in_the_past`, `too_soon`,
    /// `too_far_ahead`, `off_grid`, `outside_hours` that applies.
    #[schema(
        pattern = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?$",
        example = "2027-11-02T10:00:00"
    )]
    start: String,
    /// IANA name of a time zone, such as `Europe/Berlin`; an unknown one: 400. Needed where `start` has no offset, else
    /// 400. Kept with the visit: `local_start` is the wall clock there. Left out: the clinic's zone.
    #[serde(default)]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// The id of the practitioner it moves to. One who does not work at the clinic: 422 `unknown_reference`; another
    /// one who is inactive: 422 `inactive_reference`.
    #[serde(default)]
    practitioner_id: Option<Uuid>,
    /// The id of the operatory it moves to. One that the clinic does not have: 422 `unknown_reference`; another one
    /// that is inactive: 422 `inactive_reference`.
    #[serde(default)]
    operatory_id: Option<Uuid>,
    /// The id of the service it changes to, which brings its own length and buffer. One that the clinic does not have:
    /// 422 `unknown_reference`; another one that is inactive: 422 `inactive_reference`.
    #[serde(default)]
    service_id: Option<Uuid>,
    /// True: move it even if practitioner or operatory are taken then. Needs the role `CLINIC_ADMIN` or `FRONT_DESK`,
    /// else 403, and a clinic with `allow_overbooking`, else 422 `overbooking_not_allowed`. Left out: false.
    #[serde(default)]
    overbook: Option<bool>,
}

/// Moves a booked visit: frees the old slot and holds the new one at the same instant. Clears `confirmed_at`; to where
/// it is already: 200, and no new version.
///
/// Refused where a reference or the time does not fit (422), where it is not `booked` (409 `transition_not_allowed`),
/// where the patient has the visit that it would become already (409 `duplicate_intent`), and where the new slot is
/// taken (409 `slot_taken`).
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

/// Confirms a visit. Notes in `confirmed_at` that the patient has said they will come; the status stays `booked`.
/// Confirmed already: 200, and nothing changes. Not `booked`: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/appointments/{id}/confirm", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn confirm(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Confirmed }).await
}

/// Checks a patient in. The patient is here: `booked` becomes `arrived`. Arrived already: 200, and nothing changes.
/// From any other status: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/appointments/{id}/check-in", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn check_in(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Arrived }).await
}

/// Completes a visit. It has taken place: `arrived` becomes `fulfilled`. Fulfilled already: 200, and nothing changes.
/// From any other status, `booked` included: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/appointments/{id}/complete", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn complete(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::Fulfilled }).await
}

/// Records that the patient did not come. `booked` becomes `noshow`, which frees the slot. A no-show already: 200, and
/// nothing changes. From any other status: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/appointments/{id}/no-show", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn no_show(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Transition { id, to: To::NoShow }).await
}

/// Why a visit is cancelled.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancellation {
    /// The reason, for the front desk: at most 1000 characters; may be left out.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000, example = "patient called")]
    reason: Option<Text<REASON>>,
}

/// Cancels a visit. `booked` or `arrived` becomes `cancelled`, which frees the slot. Cancelled already: 200, nothing
/// changes, and the first reason stands. `fulfilled` or `noshow`: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/appointments/{id}/cancel", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Cancellation, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Ask { asked, body }: Ask<Cancellation>,
    Ids([id]): Ids<1>,
) -> Answered {
    let reason = body.reason.map(|Text(reason)| reason).filter(|reason| !reason.is_empty());
    execute(&app, asked, Transition { id, to: To::Cancelled { reason } }).await
}

/// Takes an arrived, missed or cancelled visit back to booked. Clears `confirmed_at` and the reason of a cancellation;
/// its time is not judged again, so one of yesterday can be reopened. Booked already: 200, and nothing changes.
///
/// Refused where it is `fulfilled` (409 `transition_not_allowed`), where the patient has booked the same visit anew
/// (409 `duplicate_intent`), and where its slot was taken meanwhile (409 `slot_taken`).
#[utoipa::path(post, path = "/v1/appointments/{id}/reopen", tag = "Appointments", params(("id" = Uuid, Path)), responses((status = 200, body = AppointmentView<'static>)))]
pub async fn reopen(State(app): State<Arc<App>>, ask: Ask<Nothing>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, ask.asked, Reopen { id }).await
}

/// What of an appointment may be changed without touching the schedule.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The new note, at most 4000 characters. The empty text clears it; left out or null, it stays as it is.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4000, example = "prefers mornings")]
    note: Option<Text<NOTE>>,
}

/// Changes an appointment's note. Whatever its status; where the note is the same already: 200, and no new version.
#[utoipa::path(patch, path = "/v1/appointments/{id}", tag = "Appointments", params(("id" = Uuid, Path)), request_body = Patch, responses((status = 200, body = AppointmentView<'static>)))]
pub async fn note(State(app): State<Arc<App>>, Ask { asked, body }: Ask<Patch>, Ids([id]): Ids<1>) -> Answered {
    execute(&app, asked, Note { id, note: body.note.map(|Text(note)| note) }).await
}

/// Reads an appointment. Whatever its status, cancelled ones included.
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
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// Visits that start then or later: RFC 3339 with an offset, else 400. Left out: from the first one.
    #[param(example = "2027-11-02T00:00:00Z", format = DateTime)]
    from: Option<String>,
    /// Visits that start before then: RFC 3339 with an offset and later than `from`, else 400. Left out: to the last
    /// one.
    #[param(example = "2027-11-03T00:00:00Z", format = DateTime)]
    to: Option<String>,
    /// Visits with this practitioner only. An id that nobody has finds nothing.
    practitioner_id: Option<Uuid>,
    /// Visits of this patient only. An id that nobody has finds nothing.
    patient_id: Option<Uuid>,
    /// Visits with this status only; left out, all of them, cancelled ones included.
    status: Option<Status>,
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, example = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

/// Lists a clinic's appointments by start, then id. Follow `next` until it is null: a page may be shorter than its
/// limit and yet have one. Visits that are moved meanwhile aside, none comes twice and none is left out.
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
    /// Versions on a page at most, 1 to 200; 200 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 200)]
    limit: Option<String>,
    /// The `next` of the page before, as it came. Left out: the first page. One that we did not give out, or that is of another
    /// appointment: 400 `cursor_invalid`.
    after: Option<String>,
}

/// Reads an appointment's history. Every version of it, the oldest first: by whom, when, by which command and request. Follow
/// `next` until it is null.
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
