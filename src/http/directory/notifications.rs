//! What a clinic sets for its notifications: `/v1/clinics/{id}/notifications`.

use std::sync::Arc;

use axum::extract::State;
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{put_entry, show};
use crate::app::App;
use crate::domain::notification::{QuietHours, REMINDER_HOURS, Settings};
use crate::domain::problem::Problem;
use crate::domain::template::Templates;
use crate::http::ask::Change;
use crate::http::fields::Number;
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::notifications;

/// What a clinic wants of its notifications.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationFields {
    /// Hours before a visit at which its reminder falls due; 0: no reminders.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 720, default = 24, example = 24)]
    reminder_hours: Option<Number<0, 720>>,
    /// Hours of each day, on the clinic's wall clock, in which nothing is sent: what falls due in them waits until they end. Left
    /// out: there are none.
    quiet_hours: Option<QuietHours>,
    /// The clinic's own words. A template that does not render against an example: 400. Left out: the defaults.
    templates: Option<Templates>,
}

impl NotificationFields {
    fn settings(self, clinic_id: Uuid) -> Result<Settings, Problem> {
        if self.quiet_hours.is_some_and(|quiet| !quiet.is_real()) {
            let wanted = "A `to` that differs from `from`, and a `from` before 24:00, are wanted.";
            return Err(Problem::malformed("/quiet_hours", wanted));
        }
        let templates = self.templates.unwrap_or_default();
        if let Some((place, fault)) = templates.fault() {
            return Err(Problem::malformed(&format!("/templates{place}"), fault));
        }
        let reminder_hours = self.reminder_hours.map_or(REMINDER_HOURS, |Number(hours)| hours);
        Ok(Settings { clinic_id, reminder_hours, quiet_hours: self.quiet_hours, templates, version: 0 })
    }
}

/// Sets what a clinic wants of its notifications, as a whole. What is left out takes its default. Reminders of coming visits
/// that wait move to the new hours; what has been sent, or is being sent, stays. Sent again, it changes nothing.
#[utoipa::path(put, path = "/v1/clinics/{id}/notifications", operation_id = "put_clinic_notifications", tag = "Directory", params(("id" = Uuid, Path)), request_body = NotificationFields, responses((status = 200, body = Settings)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<NotificationFields>, Ids([id]): Ids<1>) -> Answered {
    let settings = change.body.settings(id)?;
    put_entry(&app, &change.asker, &change.condition, settings, format!("/v1/clinics/{id}/notifications")).await
}

/// Reads what a clinic has set for its notifications. One that has set nothing has the defaults, at version 0.
#[utoipa::path(get, path = "/v1/clinics/{id}/notifications", operation_id = "get_clinic_notifications", tag = "Directory", params(("id" = Uuid, Path)), responses((status = 200, body = Settings), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| notifications::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found.filter(|settings| caller.reaches(settings.clinic_id)), &headers)
}
