//! The one loop every command goes through: look, decide, commit, and look again when something went stale.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use scoped_futures::ScopedFutureExt;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{Instrument, info_span};
use uuid::Uuid;

use super::ground::Ground;
use super::lanes::Lanes;
use super::registry::{Ended, Found, Registry};
use super::replays::Replays;
use super::reply::Decided;
use super::{Act, Answer, Bounds, Command, Moment, Request, admit, claim, reply};
use crate::clock::{Clock, Ids, Pauses};
use crate::domain::access::Caller;
use crate::domain::appointment::Appointment;
use crate::domain::fingerprint::{self, resource_lock};
use crate::domain::problem::{Code, Problem};
use crate::hint::Hint;
use crate::store::commit::{self, Asker, Claim, Commit, Outcome, Written};
use crate::store::look::{self};
use crate::store::seen::Seen;
use crate::store::{Answering, Store, StoreError};
use crate::trace;
use sqlx::postgres::PgConnection;

/// Runs commands.
pub struct Commands {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) bounds: Bounds,
    pub(super) tasks: TaskTracker,
    /// Given when there is something in the outbox.
    pub told: Hint,
    /// Keys at work in this process.
    pub registry: Registry,
    /// Turns on practitioners and appointments.
    pub lanes: Lanes,
    /// Replays since the last flush.
    pub replays: Replays,
}

/// One command on its way.
struct Run<'a, C> {
    request: &'a Request,
    command: &'a C,
    traceparent: Option<String>,
    /// Of the current version.
    fingerprint: [u8; 32],
    deadline: Instant,
    wait_until: Instant,
}

/// How an attempt ended without an answer.
enum Again {
    /// Something went stale.
    Soon,
    /// The commit collided, or its answer was lost: the words are for the log.
    Failed(String),
    /// The same request is running in another process.
    SameRunning,
}

/// How often a duplicate in another process looks whether the first is done.
const SAME_RUNNING_PAUSE: Duration = Duration::from_millis(30);

/// The least pause after a statement that Postgres refused or lost.
const COLLISION_PAUSE: Duration = Duration::from_millis(10);

/// Bounds of the pause before looking again; it doubles from the first to the second, with full jitter.
pub(super) const PAUSE_MILLIS: (u64, u64) = (4, 128);

impl Commands {
    /// Ready to run commands. `tasks` is what stopping waits for.
    #[must_use]
    pub fn new(store: Store, clock: Clock, ids: Ids, bounds: Bounds, tasks: TaskTracker) -> Self {
        Self {
            store,
            clock,
            ids,
            bounds,
            tasks,
            told: Hint::default(),
            registry: Registry::default(),
            lanes: Lanes::default(),
            replays: Replays::default(),
        }
    }

    /// Executes a command in a task of its own: a caller that hangs up cannot cut it in half.
    ///
    /// # Errors
    /// A [`Problem`] that is not stored: access, a key in use, a deadline, a fault of ours.
    pub async fn execute<C: Command>(self: &Arc<Self>, request: Request, command: C) -> Result<Answer, Problem> {
        let commands = Arc::clone(self);
        let task = self.tasks.spawn(async move { commands.perform(&request, &command).await }.in_current_span());
        task.await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "a command panicked");
            Err(Code::Internal.into())
        })
    }

    /// The command itself, in the caller's own task. To drop it half-way is what a crash of the process is to the database:
    /// the trials do that, everyone else wants [`Commands::execute`].
    ///
    /// # Errors
    /// As [`Commands::execute`].
    pub async fn perform<C: Command>(&self, request: &Request, command: &C) -> Result<Answer, Problem> {
        let started = Instant::now();
        let span = trace::command(command.operation(), request.traceparent.as_deref());
        let run = Run {
            request,
            // What follows from the command is told of the command's own span; of the caller's where there is none.
            traceparent: trace::traceparent(&span).or_else(|| request.traceparent.clone()),
            command,
            fingerprint: claim::fingerprint(command, request, fingerprint::CURRENT).ok_or(Code::Internal)?,
            deadline: started + self.bounds.deadline,
            wait_until: started + self.bounds.wait.min(self.bounds.deadline),
        };
        let answer = self.run(&run).instrument(span.clone()).await;
        reply::count(command.operation(), &answer, started.elapsed());
        span.record("outcome", reply::outcome(&answer));
        answer
    }

    async fn run<C: Command>(&self, run: &Run<'_, C>) -> Result<Answer, Problem> {
        loop {
            let seen = self.look(run).await?;
            let caller = admit::admit(&seen, &run.request.token, run.command, self.clock.now())?;
            if let Some(answer) = self.stored(run, &seen, &caller)? {
                return Ok(answer);
            }
            let Some(key) = run.request.key else { return self.own(run, seen, caller).await };
            let clinic = seen.clinic_id.ok_or(Code::Internal)?;
            let scope = (caller.tenant_id, clinic, key);
            match self.registry.enter(scope, run.fingerprint) {
                Found::Yours(ticket) => {
                    let answer = self.own(run, seen, caller).await;
                    ticket.end(match &answer {
                        Err(problem) if problem.code.status() >= 500 => Ended::Failed(problem.clone()),
                        _ => Ended::LookAgain,
                    });
                    return answer;
                }
                Found::Same(waiting) => match timeout_at(run.wait_until, waiting.end()).await {
                    Ok(Ended::LookAgain) => {}
                    Ok(Ended::Failed(problem)) => return Err(problem),
                    Err(_) => return Err(Code::IdempotencyInFlight.into()),
                },
                Found::Other => return Err(Code::IdempotencyKeyReused.into()),
                Found::Full => return Err(Code::IdempotencyWaitersExceeded.into()),
            }
        }
    }

    /// The owner's part: decide, commit, and look again as long as it takes.
    async fn own<C: Command>(&self, run: &Run<'_, C>, seen: Seen, mut caller: Caller) -> Result<Answer, Problem> {
        let again = match self.take_turn(run, Some(seen), &mut caller).await? {
            Ok(answer) => return Ok(answer),
            Err(again) => again,
        };
        self.persist(run, again, caller).await
    }

    async fn persist<C: Command>(
        &self,
        run: &Run<'_, C>,
        mut again: Again,
        mut caller: Caller,
    ) -> Result<Answer, Problem> {
        let mut pauses = Pauses::new(PAUSE_MILLIS);
        loop {
            match &again {
                // Another process is at this very request: this one waits like any duplicate, for its answer, or to take
                // over should that process die.
                Again::SameRunning if Instant::now() >= run.wait_until => return Err(Code::IdempotencyInFlight.into()),
                Again::SameRunning => sleep(SAME_RUNNING_PAUSE).await,
                Again::Soon | Again::Failed(_) => sleep(pauses.draw(&self.ids)).await,
            }
            if Instant::now() >= run.deadline {
                if let Again::Failed(why) = again {
                    tracing::warn!(operation = run.command.operation(), why, "no commit before the deadline");
                }
                return Err(Code::Unavailable.into());
            }
            match self.take_turn(run, None, &mut caller).await? {
                Ok(answer) => return Ok(answer),
                Err(stale) => again = stale,
            }
        }
    }

    /// One turn on the command's lane. What was seen before waiting for it is looked at anew.
    async fn take_turn<C: Command>(
        &self,
        run: &Run<'_, C>,
        seen: Option<Seen>,
        caller: &mut Caller,
    ) -> Result<Result<Answer, Again>, Problem> {
        let lane = (caller.tenant_id, run.command.lane());
        let turn = timeout_at(run.deadline, self.lanes.turn(lane)).await;
        let (_turn, waited) = turn.map_err(|_| Code::Unavailable)?;
        let current = if let Some(seen) = seen.filter(|_| !waited) {
            seen
        } else {
            let seen = self.look(run).await?;
            *caller = admit::admit(&seen, &run.request.token, run.command, self.clock.now())?;
            if let Some(answer) = self.stored(run, &seen, caller)? {
                return Ok(Ok(answer));
            }
            seen
        };
        self.attempt(run, current, caller).await
    }

    /// Decides on what was seen and commits.
    async fn attempt<C: Command>(
        &self,
        run: &Run<'_, C>,
        seen: Seen,
        caller: &Caller,
    ) -> Result<Result<Answer, Again>, Problem> {
        let now = self.clock.now();
        let clinic_id = seen.clinic_id.ok_or(Code::Internal)?;
        if let (Some(stored), Some(key)) = (&seen.stored, run.request.key)
            && stored.expired
        {
            let tenant = caller.tenant_id;
            self.insist(run.deadline, |connection| {
                commit::forget(connection, tenant, clinic_id, key, now).scope_boxed()
            })
            .await?;
        }
        let target = seen.row.as_ref().map(|row| row.id);
        let Some(ground) = C::Ground::of(seen) else { return Err(Code::Internal.into()) };
        let moment = Moment { now, caller, if_match: &run.request.if_match, new_id: self.ids.uuid(now) };
        let decision = info_span!(target: trace::TARGET, "decide").in_scope(|| run.command.decide(&ground, &moment));
        let decided = match decision {
            Ok(decision) => Decided::done(decision, ground.clinic(), now),
            Err(refusal) => {
                let openings =
                    self.openings(run.deadline, (caller.tenant_id, clinic_id), ground.clinic(), &refusal, now).await?;
                Decided::refused(&refusal.problem(&openings), target, now)
            }
        };
        let claim = run.request.key.map(|key| {
            let scope = (caller.tenant_id, clinic_id, key);
            claim::claim(run.command, run.request, run.fingerprint, scope, decided.expires_at)
        });
        let outcome = match self.commit(run, caller, clinic_id, claim.as_ref(), &decided, now).await? {
            Ok(outcome) => outcome,
            Err(failed) => return Ok(Err(failed)),
        };
        Ok(match outcome {
            Outcome::Done => {
                if decided.write.is_some() {
                    self.told.give();
                }
                Ok(Answer { reply: decided.reply, replayed: false, expires_at: claim.map(|claim| claim.expires_at) })
            }
            Outcome::OtherRunning => return Err(Code::IdempotencyKeyReused.into()),
            Outcome::SameRunning => Err(Again::SameRunning),
            Outcome::Stale => Err(Again::Soon),
        })
    }

    /// Looks until the database answers.
    async fn look<C: Command>(&self, run: &Run<'_, C>) -> Result<Seen, Problem> {
        let key = run.request.key.as_ref().map(|key| key.0.as_slice());
        let question = &run.command.look();
        let credential = run.request.token.credential_id;
        self.insist(run.deadline, |connection| {
            look::look(connection, credential, key, self.clock.now(), question).scope_boxed()
        })
        .instrument(info_span!(target: trace::TARGET, "look"))
        .await
    }

    /// The stored reply, if this key has one that still holds.
    fn stored<C: Command>(&self, run: &Run<'_, C>, seen: &Seen, caller: &Caller) -> Result<Option<Answer>, Problem> {
        let Some(stored) = seen.stored.as_ref().filter(|stored| !stored.expired) else { return Ok(None) };
        // A version this release does not know was stored by a newer one, whose processes can answer.
        let fingerprint = claim::of_version(run.command, run.request, run.fingerprint, stored.fingerprint_version)
            .ok_or(Code::Unavailable)?;
        if stored.fingerprint != fingerprint {
            return Err(Code::IdempotencyKeyReused.into());
        }
        if let Some(clinic) = seen.clinic_id {
            self.replays.count(caller.tenant_id, clinic);
        }
        Ok(Some(Answer { reply: reply::of_stored(stored), replayed: true, expires_at: Some(stored.expires_at) }))
    }

    /// One try to write what was decided.
    async fn commit<C: Command>(
        &self,
        run: &Run<'_, C>,
        caller: &Caller,
        clinic: Uuid,
        claim: Option<&Claim>,
        decided: &Decided,
        now: Timestamp,
    ) -> Result<Result<Outcome, Again>, Problem> {
        let asker = Asker {
            caller: caller.clone(),
            request_id: run.request.id,
            caller_request_id: run.request.callers_id.clone(),
            traceparent: run.traceparent.clone(),
        };
        let operation = run.command.operation();
        let commit = Commit {
            operation,
            asker: &asker,
            clinic,
            claim,
            reply: &decided.reply,
            now,
            audit_id: self.ids.uuid(now),
        };
        let write = self.store.once(run.deadline, |connection| self.write(connection, &commit, decided).scope_boxed());
        let written = write.instrument(info_span!(target: trace::TARGET, "commit")).await;
        match written {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(error @ (StoreError::Again(_) | StoreError::Gone(_))) => {
                tracing::debug!(%error, "looking again");
                // Whoever this collided with gets through first, or the two meet again.
                sleep(COLLISION_PAUSE + Duration::from_millis(self.ids.below(PAUSE_MILLIS.1 / 4))).await;
                Ok(Err(Again::Failed(error.to_string())))
            }
            Err(StoreError::Late) => {
                tracing::warn!(operation, "no answer to a commit before the deadline");
                Err(Code::Unavailable.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        commit: &Commit<'_>,
        decided: &Decided,
    ) -> Result<Outcome, StoreError> {
        let written = |row: &Appointment, effect: &super::Effect| Written {
            row: row.clone(),
            event: effect.event,
            event_id: self.ids.uuid(commit.now),
            notices: effect.notices.iter().map(|notice| (self.ids.uuid(commit.now), *notice)).collect(),
            resource_locks: effect
                .resources
                .iter()
                .map(|id| resource_lock(commit.asker.caller.tenant_id, *id))
                .collect(),
            recheck: effect.recheck,
        };
        match (&decided.write, commit.claim) {
            (Some((row, Act::Insert(effect))), _) => commit::insert(connection, commit, &written(row, effect)).await,
            (Some((row, Act::Change(effect))), _) => commit::change(connection, commit, &written(row, effect)).await,
            (_, Some(claim)) => {
                commit::answer(connection, commit, claim, decided.target, decided.code.map(Code::as_str)).await
            }
            // Without a key there is nothing to remember.
            (_, None) => Ok(Outcome::Done),
        }
    }

    /// Runs a statement that may be repeated until it answers.
    pub(super) async fn insist<'a, T>(
        &self,
        deadline: Instant,
        statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, Problem> {
        Ok(self.store.insist(deadline, &self.ids, statement).await?)
    }
}
