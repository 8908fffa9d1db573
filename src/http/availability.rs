//! Availability: `/v1/availability`. Asks with the look that a booking asks with, so that what is offered can be booked.

use axum::Json;
use axum::response::IntoResponse;
use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::fields;
use super::problem::Answered;
use super::reading::Reading;
use crate::app::App;
use crate::domain::access::Caller;
use crate::domain::availability::{Opening, openings};
use crate::domain::problem::{Code, Problem};
use crate::domain::refusal::Refusal;
use crate::domain::time::{Span, written_offset};
use crate::store::look::{self, NewRow, Question};
use crate::store::schedule::{self, Plan};
use crate::store::seen::{Clinic, Reference, Slot};

/// Widest range (API.md, "Appointments").
const WIDEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// By so much more where the clocks go back within it: 31 days of the calendar are 31 days.
const TURNED_BACK: SignedDuration = SignedDuration::from_hours(1);

/// Slots of one answer: 11 MB of them. A month of fifty practitioners stays below.
const MOST_SLOTS: usize = 100_000;

/// What is to be booked, and when.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// The clinic's id. One that does not exist or is outside the credential's clinics: 403.
    clinic_id: Uuid,
    /// The id of the service; it says how long the visit and its buffer last. One that the clinic does not have: 422
    /// `unknown_reference`; an inactive one: no slots.
    service_id: Uuid,
    /// Visits that start then or later: RFC 3339 with an offset, else 400.
    #[param(example = "2027-11-02T00:00:00Z", format = DateTime)]
    from: String,
    /// Visits that start before then: RFC 3339 with an offset and later than `from`, else 400. More than 31 days after
    /// it: 400 `range_too_wide`.
    #[param(example = "2027-11-09T00:00:00Z", format = DateTime)]
    to: String,
    /// Slots with this practitioner only; left out, with everyone who takes bookings at the clinic. One who does not
    /// work there: 422 `unknown_reference`; an inactive one: no slots.
    practitioner_id: Option<Uuid>,
    /// Slots at which this operatory (treatment room) is free too; left out, no room is looked at. One that the clinic
    /// does not have: 422 `unknown_reference`; an inactive one: no slots.
    operatory_id: Option<Uuid>,
}

/// The slots that can be booked.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Availability {
    /// The slots, by start, then by practitioner.
    slots: Vec<Opening>,
}

/// Says when a visit can be booked, and with whom. Judged as a booking would be, so what is offered can be booked,
/// until somebody else does. More than 100,000 slots: 400 `range_too_wide`.
#[utoipa::path(get, path = "/v1/availability", operation_id = "availability", tag = "Availability", params(Asked), responses((status = 200, body = Availability)))]
pub async fn get(Reading { app, params: asked, caller, .. }: Reading<0, Asked>) -> Answered {
    let range = range(&asked)?;
    if !caller.reaches(asked.clinic_id) {
        return Err(Code::Forbidden.into());
    }
    let now = app.clock.now();
    let Some((clinic, slot, plan)) = read(&app, &caller, &asked, range, now).await? else {
        return Err(Code::Forbidden.into());
    };
    let slots = if in_use(&asked, &slot)? {
        // A month of many people takes milliseconds, which a thread that serves others does not have.
        let search = move || {
            let question = plan.question(&clinic.rules, slot.minutes, slot.buffer_minutes, range, now);
            openings(&question).take(MOST_SLOTS + 1).collect::<Vec<_>>()
        };
        app.tasks.spawn_blocking(search).await.map_err(|_| Code::Internal)?
    } else {
        Vec::new()
    };
    if slots.len() > MOST_SLOTS {
        let detail = format!("There are more than {MOST_SLOTS} slots: ask for fewer days, or for one practitioner.");
        return Err(Problem::new(Code::RangeTooWide, detail).into());
    }
    Ok(Json(Availability { slots }).into_response())
}

fn range(asked: &Asked) -> Result<Span, Problem> {
    let range = fields::range(&asked.from, &asked.to)?;
    let seconds = |text: &str| written_offset(text).map_or(0, |offset| i64::from(offset.seconds()));
    let turned_back = SignedDuration::from_secs(seconds(&asked.from) - seconds(&asked.to));
    let widest = WIDEST + turned_back.clamp(SignedDuration::ZERO, TURNED_BACK);
    if range.end.duration_since(range.start) > widest {
        return Err(Problem::new(Code::RangeTooWide, "At most 31 days are wanted."));
    }
    Ok(range)
}

/// Reads what a booking's look would see at the range's start, and what keeps people in the range; nothing where the
/// clinic does not exist.
async fn read(
    app: &App,
    caller: &Caller,
    asked: &Asked,
    range: Span,
    now: Timestamp,
) -> Result<Option<(Clinic, Slot, Plan)>, Problem> {
    let question = &Question::New(NewRow {
        clinic: asked.clinic_id,
        practitioner: asked.practitioner_id,
        operatory: asked.operatory_id,
        service: Some(asked.service_id),
        start: range.start,
        ..NewRow::default()
    });
    let tenant = caller.tenant_id;
    let credential = caller.credential_id;
    app.insist(|connection| {
        async move {
            let seen = look::look(connection, credential, None, now, question).await?;
            let Some((clinic, slot)) = seen.clinic.zip(seen.slot) else { return Ok(None) };
            let (practitioner, operatory) = (asked.practitioner_id, asked.operatory_id);
            let plan = schedule::read(connection, tenant, asked.clinic_id, range, practitioner, operatory).await?;
            Ok(Some((clinic, slot, plan)))
        }
        .scope_boxed()
    })
    .await
}

/// Whether all that was named takes bookings.
///
/// # Errors
/// 422 for what the clinic does not have.
fn in_use(asked: &Asked, slot: &Slot) -> Result<bool, Problem> {
    let named = [
        ("practitioner_id", asked.practitioner_id.map(|_| slot.practitioner)),
        ("operatory_id", asked.operatory_id.map(|_| slot.operatory)),
        ("service_id", Some(slot.service)),
    ];
    match named.iter().find(|(_, reference)| *reference == Some(Reference::Unknown)) {
        Some((field, _)) => Err(Refusal::UnknownReference(field).problem(&[])),
        None => Ok(named.iter().all(|(_, reference)| *reference != Some(Reference::Inactive))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(from: &str, to: &str) -> Asked {
        let (from, to) = (from.to_owned(), to.to_owned());
        Asked { clinic_id: Uuid::nil(), service_id: Uuid::nil(), from, to, practitioner_id: None, operatory_id: None }
    }

    #[test]
    fn a_month_is_not_too_wide_when_the_clocks_go_back_in_it() {
        let october = asked("2027-10-10T00:00:00+02:00", "2027-11-10T00:00:00+01:00");
        assert!(range(&october).is_ok());
        for (from, to) in [
            ("2027-10-10T00:00:00+02:00", "2027-11-10T00:00:01+01:00"),
            ("2027-10-10T00:00:00+14:00", "2027-11-10T00:00:00-12:00"),
            ("2027-06-01T00:00:00Z", "2027-07-02T00:00:01Z"),
        ] {
            let more = range(&asked(from, to)).map_err(|problem| problem.code);
            assert_eq!(more, Err(Code::RangeTooWide), "{from} {to}");
        }
    }

    #[test]
    fn the_unknown_is_refused_and_the_inactive_offers_nothing() {
        let slot = |practitioner, operatory, service| Slot {
            patient: Reference::Unknown,
            practitioner,
            practitioner_hours: None,
            operatory,
            service,
            minutes: 30,
            buffer_minutes: 0,
            closed: false,
            overbooking_near: false,
            held: false,
            twin: None,
            external_twin: None,
        };
        let (known, gone, unknown) = (Reference::Active, Reference::Inactive, Reference::Unknown);
        let anyone = asked("", "");
        assert_eq!(in_use(&anyone, &slot(unknown, unknown, known)), Ok(true), "neither was asked for");
        assert_eq!(in_use(&anyone, &slot(unknown, unknown, gone)), Ok(false));
        let both = Asked { practitioner_id: Some(Uuid::nil()), operatory_id: Some(Uuid::nil()), ..asked("", "") };
        let field = |slot| in_use(&both, &slot).map_err(|problem| problem.extra["field"].clone());
        assert_eq!(field(slot(known, unknown, unknown)), Err("operatory_id".into()));
        assert_eq!(field(slot(gone, known, unknown)), Err("service_id".into()), "unknown goes before inactive");
        assert_eq!(field(slot(known, gone, known)), Ok(false));
    }
}
