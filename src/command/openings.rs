//! What else there is: the openings that a refusal offers in the place of a slot that is taken.

use jiff::Timestamp;
use scoped_futures::ScopedFutureExt;
use tokio::time::Instant;
use uuid::Uuid;

use super::run::Commands;
use crate::domain::availability::{self, Opening};
use crate::domain::problem::{Code, Problem};
use crate::domain::refusal::Refusal;
use crate::store::schedule;
use crate::store::seen::Clinic;

impl Commands {
    /// What else there is, for a slot that is taken.
    pub(super) async fn openings(
        &self,
        deadline: Instant,
        (tenant, clinic_id): (Uuid, Uuid),
        clinic: &Clinic,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Result<Vec<Opening>, Problem> {
        let Refusal::SlotTaken(Some(wanted)) = refusal else { return Ok(Vec::new()) };
        let range = wanted.range(now);
        let plan = self
            .insist(deadline, |connection| {
                schedule::read(connection, tenant, clinic_id, range, None, wanted.operatory).scope_boxed()
            })
            .await?;
        let (rules, wanted) = (clinic.rules.clone(), *wanted);
        // A fortnight that is booked out takes milliseconds, which a thread that serves others does not have.
        let search = move || {
            let question = plan.question(&rules, wanted.minutes, wanted.buffer_minutes, range, now);
            availability::next_openings(&question, Some(wanted.practitioner))
        };
        self.tasks.spawn_blocking(search).await.map_err(|_| Code::Internal.into())
    }
}
