//! What keeps the queue in order beside the deliveries themselves: takes attempts back whose process is gone, cancels what
//! waits for endpoints not in use, forgets what ended long ago, and says how the endpoints stand.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use scoped_futures::ScopedFutureExt;

use crate::app::App;
use crate::domain::problem::Problem;
use crate::store::deliveries;
use crate::worker::{Did, Worker};

/// Rows a step touches at the most.
const BATCH: i64 = 1000;

/// How long deliveries are kept after they ended, for whoever looks what became of them and has them sent again.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// See the top.
pub struct Keeper(pub Arc<App>);

impl Worker for Keeper {
    fn name(&self) -> &'static str {
        "webhooks-keeper"
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self) -> Result<Did, Problem> {
        let Self(app) = self;
        let now = app.clock.now();
        let rescued = app.insist(|connection| deliveries::rescue(connection, BATCH).scope_boxed()).await?;
        if rescued > 0 {
            tracing::warn!(rescued, "attempts without an end are made again");
            metrics::counter!("oncebook_webhook_rescued_total").increment(rescued.unsigned_abs());
        }
        let cancelled = app.insist(|connection| deliveries::cancel(connection, now, BATCH).scope_boxed()).await?;
        let before = now.saturating_sub(KEPT).unwrap_or(now);
        let purged = app.insist(|connection| deliveries::purge(connection, before, BATCH).scope_boxed()).await?;
        let standing = app.insist(|connection| deliveries::standing(connection).scope_boxed()).await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of endpoints")]
        for (name, count) in [
            ("oncebook_webhook_endpoints_disabled", standing.disabled),
            ("oncebook_webhook_endpoints_paused", standing.paused),
        ] {
            metrics::gauge!(name).set(count as f64);
        }
        let full = [rescued.unsigned_abs(), cancelled, purged].contains(&BATCH.unsigned_abs());
        Ok(if full { Did::Work } else { Did::Nothing })
    }
}
