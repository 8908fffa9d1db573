//! Role `relay`: moves events out of the outbox into the log. Woken by the commands of its own process, it looks for itself
//! otherwise: other processes' commands, and what a crash left behind, wait for its clock.

use std::time::Duration;

use scoped_futures::ScopedFutureExt;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::domain::problem::{Code, Problem};
use crate::hint::Hint;
use crate::log::EventLog;
use crate::pulse::Behind;
use crate::store::{Store, watch};
use crate::trace;
use crate::worker::{Did, Worker};

/// How long the outbox is asked what waits in it.
const PATIENCE: Duration = Duration::from_secs(4);

/// See the top.
pub struct Relay<L> {
    /// Where events go.
    pub log: L,
    /// Where they wait.
    pub store: Store,
    /// Tells how late they come.
    pub clock: Clock,
    /// A command has committed.
    pub outbox: Hint,
    /// The log has more.
    pub logged: Hint,
}

impl<L: EventLog> Worker for Relay<L> {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn hint(&self) -> Option<&Hint> {
        Some(&self.outbox)
    }

    async fn step(&self) -> Result<Did, Problem> {
        let began = self.clock.now();
        let moved = self.log.relay().await.map_err(|away| {
            tracing::warn!(%away, "events wait in the outbox");
            Problem::from(Code::Unavailable)
        })?;
        if moved.events > 0 {
            self.logged.give();
            metrics::counter!("oncebook_relayed_events_total").increment(moved.events);
            trace::relayed(began, self.clock.now(), moved.events, &moved.traceparents);
        }
        if let Some(oldest) = moved.oldest {
            let waited = self.clock.now().duration_since(oldest);
            metrics::histogram!("oncebook_relay_wait_seconds").record(waited.as_secs_f64());
        }
        Ok(if moved.full { Did::Work } else { Did::Nothing })
    }

    async fn behind(&self) -> Result<Option<Behind>, Problem> {
        let waiting =
            self.store.once(Instant::now() + PATIENCE, |connection| watch::outbox(connection).scope_boxed()).await?;
        Ok(Some(Behind::since(waiting.oldest, waiting.items, self.clock.now())))
    }
}
