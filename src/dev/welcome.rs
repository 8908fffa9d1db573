//! What a newcomer reads when the machine is ready: where it is, where its documents and keys are, and a line to paste
//! that books an appointment.

use std::path::Path;

use anyhow::{Context, Result};
use jiff::civil::{DateTime, Weekday};
use jiff::{Timestamp, ToSpan};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::dev::record::DevJson;
use crate::dev::seed::{Demo, ZONE};
use crate::store::demo::{self, Taken};

/// Bookings of this many days are looked through: with eight practitioners, enough for a hundred pasted lines.
const DAYS: i32 = 21;
/// Whom, and when by the wall clock.
pub(crate) type Opening = (Uuid, DateTime);

/// A visit of 30 minutes at nine that can be booked: the next open day at least two days ahead, and the next
/// practitioner who has nothing then.
pub(crate) async fn opening(connection: &mut PgConnection, demo: &Demo, now: Timestamp) -> Result<Opening> {
    let until = now + (24 * i64::from(DAYS + 2)).hours();
    let taken = demo::taken(connection, demo.tenant_id, &demo.practitioner_ids, (now, until)).await?;
    first_free(&demo.practitioner_ids, &taken, now).context("the demo clinic is booked out at nine for weeks")
}

fn first_free(practitioners: &[Uuid], taken: &[Taken], now: Timestamp) -> Option<Opening> {
    let today = now.in_tz(ZONE).ok()?.date();
    (2..=DAYS).filter_map(|days| today.checked_add(days.days()).ok()).find_map(|day| {
        if day.weekday() == Weekday::Sunday {
            return None;
        }
        let nine = day.at(9, 0, 0, 0);
        let start = nine.in_tz(ZONE).ok()?.timestamp();
        let end = start + 30.minutes();
        let busy = |who: Uuid| taken.iter().any(|it| it.practitioner_id == who && it.start < end && start < it.end);
        practitioners.iter().find(|who| !busy(**who)).map(|who| (*who, nine))
    })
}

/// The text, ending in a line break.
pub(crate) fn text(
    record: &DevJson,
    dev_json: &Path,
    messages: &Path,
    (practitioner, start): Opening,
    key: Uuid,
) -> String {
    let base = &record.base_url;
    let body = json!({
        "clinic_id": record.clinic_id,
        "patient_id": record.patient_ids.first(),
        "practitioner_id": practitioner,
        "service_id": record.service_ids.get(1),
        "start": start.to_string(),
        "time_zone": ZONE,
    });
    let token = &record.api_keys.front_desk;
    format!(
        "
Oncebook is ready.

  service      {base}
  documents    {base}/docs
  keys, ids    {}
  mail         {} (what patients are told, unless ONCEBOOK_SMTP_URL or ONCEBOOK_SMS_URL is set)
  Postgres     {}

Book an appointment, then paste the same line again: it answers with the same bytes and books nothing twice.

curl -i {base}/v1/appointments -H 'Authorization: Bearer {token}' -H 'Idempotency-Key: demo-{key}' -H 'Content-Type: application/json' -d '{body}'

Ctrl-C stops all of it.
",
        dev_json.display(),
        messages.display(),
        record.database_url,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_opening_is_two_days_ahead_never_on_a_sunday_and_never_taken() {
        let (anna, ben) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let friday: Timestamp = "2026-12-04T12:00:00Z".parse().expect("a time");
        let monday = jiff::civil::date(2026, 12, 7).at(9, 0, 0, 0);
        assert_eq!(first_free(&[anna, ben], &[], friday), Some((anna, monday)));
        let start = "2026-12-07T08:15:00Z".parse().expect("a time");
        let taken = Taken { practitioner_id: anna, start, end: start + 15.minutes() };
        assert_eq!(first_free(&[anna, ben], &[taken], friday), Some((ben, monday)));
        let after = Taken { practitioner_id: anna, start: start + 15.minutes(), end: start + 1.hour() };
        assert_eq!(first_free(&[anna, ben], &[after], friday), Some((anna, monday)));
    }
}
