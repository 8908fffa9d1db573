//! Role `janitor`: forgets keys, counts, events and what was done with them when their time has passed, and seals the audit.
//! And the flusher, which every process has: it writes down the replays counted in memory.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use scoped_futures::ScopedFutureExt;

use crate::app::App;
use crate::domain::problem::Problem;
use crate::pulse::Behind;
use crate::store::{aging, janitor, watch};
use crate::worker::{Did, Worker};

/// Rows a step touches at the most: a few milliseconds' worth, so that commands never wait for it.
const BATCH: i64 = 1000;

/// Events of each partition that a step touches at the most.
const EVENTS: i64 = 200;

/// The audit is sealed this much further behind than a command takes, so that few rows come late.
const SEALED_BEHIND: Duration = Duration::from_secs(25);

/// Counts of replays are kept for a year and a month, so that a month can be held against the same one a year ago.
const COUNTS_KEPT: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Purges and seals.
pub struct Janitor(pub Arc<App>);

impl Worker for Janitor {
    fn name(&self) -> &'static str {
        "janitor"
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn step(&self) -> Result<Did, Problem> {
        let now = self.0.clock.now();
        let purged = self.0.insist(|connection| janitor::purge(connection, now, BATCH).scope_boxed()).await;
        let before = now.saturating_sub(SEALED_BEHIND + self.0.config.command_timeout).unwrap_or(now);
        let sealed = self.0.insist(|connection| janitor::seal(connection, before, now, BATCH).scope_boxed()).await;
        let since = now.saturating_sub(COUNTS_KEPT).unwrap_or(now);
        let forgotten =
            self.0.insist(|connection| janitor::forget_replays(connection, since, BATCH).scope_boxed()).await;
        let aged = self.age(now).await;
        // Each is done though another fails.
        let (purged, sealed, forgotten, aged) = (purged?, sealed?, forgotten?, aged?);
        metrics::counter!("oncebook_keys_purged_total").increment(purged);
        let full = aged == Did::Work || [purged, forgotten].contains(&BATCH.unsigned_abs()) || sealed == BATCH;
        Ok(if full { Did::Work } else { Did::Nothing })
    }

    /// By the keys: there are more of them than of anything else that goes.
    async fn behind(&self) -> Result<Option<Behind>, Problem> {
        let now = self.0.clock.now();
        let waiting = self.0.insist(|connection| watch::expired_keys(connection, now).scope_boxed()).await?;
        Ok(Some(Behind::since(waiting.oldest, waiting.items, now)))
    }
}

impl Janitor {
    /// Lets go of old events, of what consumers did with them, and of changes.
    async fn age(&self, now: Timestamp) -> Result<Did, Problem> {
        let config = &self.0.config;
        let before = |kept: Duration| now.saturating_sub(kept).unwrap_or(Timestamp::MIN);
        // Not before the event itself may go: what must stay would only be passed over, again and again.
        let decided = before(config.inbox_retention.max(config.log_retention));
        let shown = before(config.changes_retention);
        let kept = config.log_retention;
        let events = self.0.insist(|connection| aging::log(connection, now, kept, EVENTS).scope_boxed()).await;
        let decisions = self.0.insist(|connection| aging::inbox(connection, decided, BATCH).scope_boxed()).await;
        let changes = self.0.insist(|connection| aging::changes(connection, shown, BATCH).scope_boxed()).await;
        let (events, decisions, changes) = (events?, decisions?, changes?);
        metrics::counter!("oncebook_events_aged_total").increment(events);
        // A partition may have had a batch of its own.
        let full = events >= EVENTS.unsigned_abs() || [decisions, changes].contains(&BATCH.unsigned_abs());
        Ok(if full { Did::Work } else { Did::Nothing })
    }
}

/// Writes down the replays of this process, forgets callers who have been quiet, and sums up measurements.
pub struct Flusher(pub Arc<App>);

impl Worker for Flusher {
    fn name(&self) -> &'static str {
        "flusher"
    }

    fn rest(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn step(&self) -> Result<Did, Problem> {
        self.0.limits.forget_the_quiet();
        // Without it, what nobody scrapes would be kept one by one.
        self.0.metrics.iter().for_each(PrometheusHandle::run_upkeep);
        let counts = self.0.commands.replays.take();
        if counts.is_empty() {
            return Ok(Did::Nothing);
        }
        let now = self.0.clock.now();
        let minute = Timestamp::from_second(now.as_second() / 60 * 60).unwrap_or(now);
        let added = self.0.insist(|connection| janitor::add_replays(connection, minute, &counts).scope_boxed()).await;
        if let Err(problem) = added {
            // None is lost; where the connection broke at the very end of the statement, some are counted twice. A figure
            // that shows how often callers try again had better be high than blind to an outage, when they try the most.
            self.0.commands.replays.put_back(counts);
            return Err(problem);
        }
        Ok(Did::Nothing)
    }
}
