//! Log → inbox → handler: whatever the log brings, and however often, each logical consumer does once.
//!
//! A handler only writes rows, in the inbox row's own transaction: both stand or neither. What leaves the building is queued by
//! such rows and done by workers of its own. A batch is taken in one transaction; where that fails, each event gets one of its
//! own, under a lease and a token, and the one that fails is tried again later: it holds back nobody but, where a consumer
//! wants them in order, later events of its own subject. The inbox keeps reasons and places, never an event.

use std::time::Duration;

use jiff::Timestamp;
use scoped_futures::ScopedFutureExt;
use sqlx::postgres::PgConnection;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::app::App;
use crate::clock::{Clock, Ids};
use crate::domain::event::{self, Logged, Place};
use crate::domain::problem::{Code, Problem};
use crate::hint::Hint;
use crate::log::{Away, EventLog};
use crate::pulse::{Behind, age};
use crate::store::inbox::{self, Arrival, Failed, Taken, Taking, Try};
use crate::store::{Answering, Store, StoreError, watch};
use crate::trace;
use crate::worker::{Did, Worker};

mod decision;

use decision::{Decision, reason};

/// Tries of one event, the first included; after them it is quarantined.
const MOST_TRIES: i32 = 8;

/// The longest pause before the second try; it doubles with each, and every pause is drawn from zero to it (full jitter).
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause before any try.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// What is held back behind another event is looked at again this soon, and then less and less often.
const HELD: Duration = Duration::from_millis(500);

/// A try is given up well before its lease is up, by a clock of our own.
const LEASE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries, and held events, taken up at a time. Whatever of them the lease does not last for is given back.
const TAKEN_UP: i64 = 32;

/// What a logical consumer does with events.
pub trait Handler: Send + Sync + 'static {
    /// The logical consumer: its group in the log and its rows in the inbox go by this name, whatever the program is called.
    const CONSUMER: &'static str;

    /// Whether it wants a subject's events in their order, each after the one before it.
    const IN_ORDER: bool;

    /// Writes the rows that follow from these events, which come in the order of their subjects.
    fn apply(
        &self,
        connection: &mut PgConnection,
        events: &[&Logged],
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A logical consumer at work.
pub struct Consumer<L, H> {
    /// What it reads.
    log: L,
    /// Where its inbox is.
    store: Store,
    /// Now.
    clock: Clock,
    /// Tokens and jitter.
    ids: Ids,
    /// What it does.
    handler: H,
    /// The log has more.
    logged: Hint,
    enrolled: OnceCell<()>,
}

impl<L: EventLog, H: Handler> Worker for Consumer<L, H> {
    fn name(&self) -> &'static str {
        H::CONSUMER
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn hint(&self) -> Option<&Hint> {
        Some(&self.logged)
    }

    async fn step(&self) -> Result<Did, Problem> {
        self.enrolled.get_or_try_init(|| self.enrol()).await?;
        let again = self.try_again().await?;
        let batch = self.log.read(H::CONSUMER).await?;
        if batch.events.is_empty() {
            return Ok(if again == 0 { Did::Nothing } else { Did::Work });
        }
        let span = trace::consuming(H::CONSUMER, &batch.events);
        async {
            self.take(&batch.events).await?;
            if !self.log.commit(H::CONSUMER, &batch).await? {
                // Whoever has the group now reads the same events again, and finds them known.
                tracing::warn!(consumer = H::CONSUMER, "late: another reads on");
            }
            Ok(Did::Work)
        }
        .instrument(span)
        .await
    }

    /// What the group has yet to read, and what is to be tried again by now.
    async fn behind(&self) -> Result<Option<Behind>, Problem> {
        let mut unread = 0;
        for (partition, events) in self.log.lag(H::CONSUMER).await? {
            unread += events.unsigned_abs();
            let (group, partition) = (H::CONSUMER, partition.to_string());
            metrics::gauge!("oncebook_log_lag_events", "group" => group, "partition" => partition)
                .set(f64::from(u32::try_from(events).unwrap_or(u32::MAX)));
        }
        let oldest = if unread == 0 { None } else { self.log.oldest(H::CONSUMER).await? };
        let inboxes = self.insist(|connection| watch::inboxes(connection, Some(H::CONSUMER)).scope_boxed()).await?;
        let due = inboxes.first().map(|inbox| inbox.due).unwrap_or_default();
        let oldest = oldest.into_iter().chain(due.oldest).min();
        Ok(Some(Behind::since(oldest, unread + due.items, self.clock.now())))
    }
}

impl From<Away> for Problem {
    fn from(away: Away) -> Self {
        tracing::warn!(%away, "a consumer waits");
        Code::Unavailable.into()
    }
}

impl<L: EventLog, H: Handler> Consumer<L, H> {
    /// One with its inbox in the service's database.
    pub fn of(app: &App, log: L, handler: H, logged: Hint) -> Self {
        let (store, clock, ids) = (app.store.clone(), app.clock.clone(), app.ids.clone());
        Self { log, store, clock, ids, handler, logged, enrolled: OnceCell::new() }
    }

    /// Makes the consumer and its group, if they are new.
    async fn enrol(&self) -> Result<(), Problem> {
        let now = self.clock.now();
        self.insist(|connection| inbox::enrol(connection, H::CONSUMER, now).scope_boxed()).await?;
        Ok(self.log.join(H::CONSUMER).await?)
    }

    /// Takes events in as they come: all at once, or where one spoils that, one by one.
    async fn take(&self, events: &[Logged]) -> Result<(), Problem> {
        if events.is_empty() {
            return Ok(());
        }
        match self.take_all(events).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::debug!(consumer = H::CONSUMER, %error, "one by one");
                for logged in events {
                    self.take_one(logged).await?;
                }
                Ok(())
            }
        }
    }

    /// Receives events and applies what is new, in one transaction.
    async fn take_all(&self, events: &[Logged]) -> Result<(), StoreError> {
        let now = self.clock.now();
        let (taking, arrivals) = (Self::taking(now, None), self.arrivals(events, now));
        let (arrivals, handler) = (&arrivals, &self.handler);
        let taken = self
            .store
            .transact(Instant::now() + PATIENCE, |connection| {
                async move {
                    let taken = inbox::receive(connection, taking, arrivals).await?;
                    let mine: Vec<&Logged> = arrivals
                        .iter()
                        .map(|arrival| arrival.logged)
                        .filter(|logged| taken.contains(&(logged.event.id, Taken::Mine)))
                        .collect();
                    if !mine.is_empty() {
                        handler.apply(connection, &mine, now).await?;
                    }
                    Ok(taken)
                }
                .scope_boxed()
            })
            .await?;
        let of = |which| taken.iter().filter(|(_, it)| *it == which).count();
        Self::count(Decision::Processed, of(Taken::Mine));
        Self::count(Decision::Retryable, of(Taken::Held));
        Self::count(Decision::Quarantined, of(Taken::Quarantined));
        Self::count(Decision::Duplicate, events.len() - taken.len());
        for arrival in arrivals.iter().filter(|it| taken.contains(&(it.logged.event.id, Taken::Mine))) {
            self.time(arrival.logged);
        }
        Ok(())
    }

    /// Receives one event under a token, and tries it.
    async fn take_one(&self, logged: &Logged) -> Result<(), Problem> {
        let now = self.clock.now();
        let token = self.ids.uuid(now);
        let taking = Self::taking(now, Some((token, LEASE)));
        let arrivals = self.arrivals(std::slice::from_ref(logged), now);
        let arrivals = &arrivals;
        let found = self.insist(|connection| inbox::receive(connection, taking, arrivals).scope_boxed()).await?;
        let first = Try { event_id: logged.event.id, place: logged.place, attempt: 1 };
        let decision = match found.first().map(|(_, taken)| *taken) {
            Some(Taken::Mine) => return self.attempt(first, token, Some(logged)).await,
            Some(Taken::Held) => Decision::Retryable,
            Some(Taken::Quarantined) => Decision::Quarantined,
            None => Decision::Duplicate,
        };
        trace::trying(H::CONSUMER, first.event_id, 0, Some(logged)).in_scope(|| Self::count(decision, 1));
        Ok(())
    }

    /// Takes up tries that are due, and what is held back no more; says how many.
    async fn try_again(&self) -> Result<usize, Problem> {
        let (token, taken_up) = (self.ids.uuid(self.clock.now()), Instant::now());
        let this = (H::CONSUMER, H::IN_ORDER);
        let mut due = self
            .insist(|connection| inbox::claim(connection, H::CONSUMER, token, LEASE, TAKEN_UP).scope_boxed())
            .await?;
        due.extend(
            self.insist(|connection| inbox::release(connection, this, token, LEASE, TAKEN_UP).scope_boxed()).await?,
        );
        if due.is_empty() {
            return Ok(0);
        }
        let mut begun = 0;
        let tried = self.try_each(&due, token, taken_up, &mut begun).await;
        let rest: Vec<Uuid> = due[begun..].iter().map(|due| due.event_id).collect();
        if !rest.is_empty() {
            let rest = &rest;
            self.insist(|connection| inbox::give_back(connection, H::CONSUMER, token, rest).scope_boxed()).await?;
        }
        tried.map(|()| due.len())
    }

    /// Tries one after the other, as long as the lease surely lasts for the next; `begun` says how many.
    async fn try_each(&self, due: &[Try], token: Uuid, since: Instant, begun: &mut usize) -> Result<(), Problem> {
        let events = self.find(due.iter().map(|due| due.place).collect()).await?;
        for due in due {
            if since.elapsed() + PATIENCE > LEASE {
                break;
            }
            *begun += 1;
            let logged = events.iter().find(|logged| logged.event.id == due.event_id);
            self.attempt(*due, token, logged).await?;
        }
        Ok(())
    }

    async fn find(&self, places: Vec<Place>) -> Result<Vec<Logged>, Problem> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.log.find(&places).await?)
    }

    /// One try at one event: its effect and the end of the try stand together, or it is tried again, or given up.
    async fn attempt(&self, due: Try, token: Uuid, logged: Option<&Logged>) -> Result<(), Problem> {
        let attempt = due.attempt.to_string();
        metrics::counter!("oncebook_consumer_attempts_total", "consumer" => H::CONSUMER, "attempt" => attempt)
            .increment(1);
        let span = trace::trying(H::CONSUMER, due.event_id, due.attempt, logged);
        self.try_once(due, token, logged).instrument(span).await
    }

    async fn try_once(&self, due: Try, token: Uuid, logged: Option<&Logged>) -> Result<(), Problem> {
        let now = self.clock.now();
        let Some(logged) = logged else { return self.give_up(due, token, "gone_from_log", None, true).await };
        // Whoever began it last did not live to say what came of it, nor the ones before.
        let worn_out = (due.attempt > MOST_TRIES).then_some("ended_its_workers");
        if let Some(fault) = event::fault(&logged.event).or(worn_out) {
            return self.give_up(due, token, fault, None, true).await;
        }
        let handler = &self.handler;
        match self
            .store
            .transact(Instant::now() + PATIENCE, |connection| {
                async move {
                    let mine = inbox::finish(connection, H::CONSUMER, due.event_id, token, now).await?;
                    if mine {
                        handler.apply(connection, &[logged], now).await?;
                    }
                    Ok(mine)
                }
                .scope_boxed()
            })
            .await
        {
            Ok(true) => {
                Self::count(Decision::Processed, 1);
                self.time(logged);
            }
            Ok(false) => tracing::warn!(consumer = H::CONSUMER, event = %due.event_id, "late: another has it"),
            Err(error) => {
                tracing::warn!(consumer = H::CONSUMER, event = %due.event_id, attempt = due.attempt, %error, "failed");
                let (reason, counts) = reason(&error);
                let again_in = (!counts || due.attempt < MOST_TRIES).then(|| self.again_in(due.attempt));
                self.give_up(due, token, reason, again_in, counts).await?;
            }
        }
        Ok(())
    }

    async fn give_up(
        &self,
        due: Try,
        token: Uuid,
        reason: &str,
        again_in: Option<Duration>,
        counts: bool,
    ) -> Result<(), Problem> {
        let now = self.clock.now();
        let failed = Failed { event: due.event_id, token, reason, again_in, counts, task_id: self.ids.uuid(now) };
        let ended =
            self.insist(|connection| inbox::give_up(connection, H::CONSUMER, failed, now).scope_boxed()).await?;
        if let Some(quarantined) = ended {
            Self::count(if quarantined { Decision::Quarantined } else { Decision::Retryable }, 1);
            tracing::Span::current().record("reason", reason);
        }
        Ok(())
    }

    async fn insist<'a, T>(
        &self,
        statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, StoreError> {
        self.store.insist(Instant::now() + PATIENCE, &self.ids, statement).await
    }

    /// How long after a try that was number `attempt` the next follows.
    fn again_in(&self, attempt: i32) -> Duration {
        let doubled = FIRST_PAUSE * 2_u32.pow(u32::try_from(attempt.clamp(1, 16) - 1).unwrap_or(0));
        let longest = doubled.min(LONGEST_PAUSE);
        Duration::from_millis(self.ids.below(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)))
    }

    fn taking(now: Timestamp, own_try: Option<(Uuid, Duration)>) -> Taking<'static> {
        Taking { consumer: H::CONSUMER, in_order: H::IN_ORDER, now, held: HELD, own_try }
    }

    fn arrivals<'a>(&self, events: &'a [Logged], now: Timestamp) -> Vec<Arrival<'a>> {
        let mut arrivals: Vec<_> = events
            .iter()
            .map(|logged| Arrival { logged, fault: event::fault(&logged.event), task_id: self.ids.uuid(now) })
            .collect();
        // A log that repeats may repeat out of order.
        arrivals.sort_by_key(|arrival| (arrival.logged.event.subject_id, arrival.logged.event.sequence));
        arrivals.dedup_by_key(|arrival| arrival.logged.event.id);
        arrivals
    }

    fn count(decision: Decision, events: usize) {
        if events > 0 {
            let decided = decision.as_str();
            metrics::counter!("oncebook_consumer_decisions_total", "consumer" => H::CONSUMER, "decision" => decided)
                .increment(u64::try_from(events).unwrap_or(u64::MAX));
            trace::decided(decided, events);
        }
    }

    /// How long an event took from its command's commit to here.
    fn time(&self, logged: &Logged) {
        metrics::histogram!("oncebook_commit_to_processed_seconds", "consumer" => H::CONSUMER)
            .record(age(logged.event.occurred_at, self.clock.now()));
    }
}
