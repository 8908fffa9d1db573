//! Commands that are about the group and no one clinic: webhook endpoints. The same three steps under the same protection:
//! one look, a pure decision, one commit; the key's row stands with what it did, or neither. Their keys have a scope of their
//! own beside the clinics', and `GET /v1/commands`, which asks by clinic, does not know them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;
use uuid::Uuid;

use super::registry::{Ended, Found};
use super::run::{Commands, PAUSE_MILLIS};
use super::{Answer, Request, claim, reply};
use crate::clock::Pauses;
use crate::domain::access::{Caller, Permission};
use crate::domain::fingerprint::{self, Fingerprint};
use crate::domain::key::KeyHash;
use crate::domain::problem::{Code, Problem};
use crate::domain::webhook::EndpointView;
use crate::store::commit::{self, Asker, Claim, Commit, Outcome, Reply};
use crate::store::group::{self, Question, SCOPE, Seen};
use crate::store::{StoreError, seen::StoredHeaders};

/// How long their successes replay; refusals a day, as everywhere.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
const REFUSAL_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Endpoints of a group: every event is queued for each of them in one transaction. Two that are made in the same moment may
/// both be the last.
const MOST_ENDPOINTS: i64 = 50;

/// How often a duplicate in another process looks whether the first is done.
const SAME_RUNNING_PAUSE: Duration = Duration::from_millis(30);

/// What one may ask for.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// A new endpoint. What it is to be, and its secret, sealed: chosen by us and no part of what makes requests the same. Or
    /// why it cannot be made here and now, for whoever has not been told already that it was.
    CreateEndpoint(Box<EndpointView>, Result<Vec<u8>, Problem>),
    /// A delivery sent again.
    Redeliver {
        /// To which endpoint.
        endpoint: Uuid,
        /// Of which event.
        event: Uuid,
    },
}

/// What was decided, as data.
struct Decided {
    reply: Reply,
    expires_at: Timestamp,
    /// Why it was refused.
    code: Option<Code>,
}

impl GroupCommand {
    const fn operation(&self) -> &'static str {
        match self {
            Self::CreateEndpoint(..) => "create_webhook_endpoint",
            Self::Redeliver { .. } => "redeliver_webhook",
        }
    }

    /// Every field that makes it this request and no other, by the rule of a version.
    fn fingerprint(&self, version: i16) -> Option<[u8; 32]> {
        let mut fingerprint = Fingerprint::new(version, self.operation())?;
        match self {
            Self::CreateEndpoint(wanted, _) => {
                fingerprint.text("url", Some(&wanted.url));
                fingerprint.text("description", Some(&wanted.description).filter(|it| !it.is_empty()).map(|it| &**it));
                fingerprint.flag("inactive", !wanted.active);
                fingerprint.flag("some clinics", wanted.clinic_ids.is_some());
                wanted.clinic_ids.iter().flatten().for_each(|id| fingerprint.id("clinic", Some(*id)));
                fingerprint.flag("some types", wanted.event_types.is_some());
                wanted.event_types.iter().flatten().for_each(|kind| fingerprint.text("type", Some(kind)));
            }
            Self::Redeliver { endpoint, event } => {
                fingerprint.id("endpoint", Some(*endpoint));
                fingerprint.id("event", Some(*event));
            }
        }
        Some(fingerprint.finish())
    }

    fn look(&self) -> Question {
        match self {
            Self::CreateEndpoint(wanted, _) => {
                Question { clinics: wanted.clinic_ids.clone().unwrap_or_default(), delivery: None }
            }
            Self::Redeliver { endpoint, event } => {
                Question { clinics: Vec::new(), delivery: Some((*endpoint, *event)) }
            }
        }
    }

    /// Lets the caller in, or says why not: 401, 403 for a role or a clinic that was named, 404 for a row.
    fn admit(&self, seen: &Seen, request: &Request, now: Timestamp) -> Result<Caller, Problem> {
        let credential = seen.credential.as_ref().filter(|it| it.accepts(&request.token, now));
        let caller = &credential.ok_or(Code::Unauthenticated)?.caller;
        if !caller.may(Permission::Administer) {
            return Err(Code::Forbidden.into());
        }
        match self {
            Self::CreateEndpoint(wanted, _) => {
                let within = match (&wanted.clinic_ids, &caller.clinic_ids) {
                    (None, reach) => reach.is_none(),
                    (Some(named), _) => named.iter().all(|clinic| caller.reaches(*clinic)),
                };
                if !within || !seen.clinics_exist {
                    return Err(Code::Forbidden.into());
                }
            }
            Self::Redeliver { .. } if seen.delivery.is_none() => return Err(Code::NotFound.into()),
            Self::Redeliver { .. } => {}
        }
        Ok(caller.clone())
    }

    /// Decides. Pure.
    fn decide(&self, seen: &Seen, caller: &Caller, now: Timestamp) -> Decided {
        let refused = |code: Code, detail: &str| {
            let reply = reply::of_problem(&Problem::new(code, detail));
            Decided { reply, expires_at: later(now, REFUSAL_KEPT), code: Some(code) }
        };
        let not_allowed = |detail| refused(Code::TransitionNotAllowed, detail);
        let done = |reply| Decided { reply, expires_at: later(now, KEPT), code: None };
        let content_type = Some("application/json".to_owned());
        match (self, &seen.delivery) {
            (Self::CreateEndpoint(..), _) if seen.endpoints >= MOST_ENDPOINTS => {
                refused(Code::TooManyEndpoints, "The group has 50 webhook endpoints.")
            }
            (Self::CreateEndpoint(wanted, _), _) => {
                let view = self::made(wanted, caller, now);
                let location = Some(format!("/v1/webhook-endpoints/{}", view.id));
                let headers = StoredHeaders { content_type, etag: Some(reply::etag(view.version)), location };
                done(Reply { status: 201, headers, body: reply::json(&view) })
            }
            (Self::Redeliver { .. }, Some(it)) if !it.active => not_allowed("The endpoint is not active."),
            (Self::Redeliver { .. }, Some(it)) if !it.wanted => {
                not_allowed("The endpoint is for other clinics or other types of event by now.")
            }
            (Self::Redeliver { .. }, Some(it)) if it.state == "SENT" => not_allowed("An attempt is at work."),
            (Self::Redeliver { .. }, _) => {
                done(Reply { status: 202, headers: StoredHeaders::default(), body: Vec::new() })
            }
        }
    }
}

/// The endpoint as it is made.
fn made(wanted: &EndpointView, caller: &Caller, now: Timestamp) -> EndpointView {
    EndpointView { created_by: caller.subject.clone(), created_at: now, updated_at: now, version: 1, ..wanted.clone() }
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// One command on its way.
struct Run<'a> {
    request: &'a Request,
    key: KeyHash,
    command: &'a GroupCommand,
    /// Of the current version.
    fingerprint: [u8; 32],
    deadline: Instant,
    wait_until: Instant,
}

impl Commands {
    /// Executes such a command in a task of its own: a caller that hangs up cannot cut it in half.
    ///
    /// # Errors
    /// A [`Problem`] that is not stored: access, a key in use, a deadline, a fault of ours.
    pub async fn execute_of_group(
        self: &Arc<Self>,
        request: Request,
        command: GroupCommand,
    ) -> Result<Answer, Problem> {
        let commands = Arc::clone(self);
        let task =
            self.tasks.spawn(async move { commands.perform_of_group(&request, &command).await }.in_current_span());
        task.await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "a command panicked");
            Err(Code::Internal.into())
        })
    }

    async fn perform_of_group(&self, request: &Request, command: &GroupCommand) -> Result<Answer, Problem> {
        let started = Instant::now();
        let run = Run {
            request,
            key: request.key.ok_or(Code::Internal)?,
            command,
            fingerprint: command.fingerprint(fingerprint::CURRENT).ok_or(Code::Internal)?,
            deadline: started + self.bounds.deadline,
            wait_until: started + self.bounds.wait.min(self.bounds.deadline),
        };
        let answer = self.run_of_group(&run).await;
        reply::count(command.operation(), &answer, started.elapsed());
        answer
    }

    async fn run_of_group(&self, run: &Run<'_>) -> Result<Answer, Problem> {
        loop {
            let (seen, caller) = self.look_of_group(run).await?;
            if let Some(answer) = stored(run, &seen)? {
                return Ok(answer);
            }
            match self.registry.enter((caller.tenant_id, SCOPE, run.key), run.fingerprint) {
                Found::Yours(ticket) => {
                    let answer = self.own_of_group(run, seen, caller).await;
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
    async fn own_of_group(&self, run: &Run<'_>, mut seen: Seen, mut caller: Caller) -> Result<Answer, Problem> {
        let mut pauses = Pauses::new(PAUSE_MILLIS);
        loop {
            let pause = match self.attempt_of_group(run, &seen, &caller).await? {
                Ok(answer) => return Ok(answer),
                Err(Outcome::OtherRunning) => return Err(Code::IdempotencyKeyReused.into()),
                Err(Outcome::SameRunning) if Instant::now() >= run.wait_until => {
                    return Err(Code::IdempotencyInFlight.into());
                }
                Err(Outcome::SameRunning) => SAME_RUNNING_PAUSE,
                Err(Outcome::Stale | Outcome::Done) => Duration::from_millis(1) + pauses.draw(&self.ids),
            };
            sleep(pause).await;
            if Instant::now() >= run.deadline {
                return Err(Code::Unavailable.into());
            }
            (seen, caller) = self.look_of_group(run).await?;
            if let Some(answer) = stored(run, &seen)? {
                return Ok(answer);
            }
        }
    }

    async fn look_of_group(&self, run: &Run<'_>) -> Result<(Seen, Caller), Problem> {
        let (question, credential) = (&run.command.look(), run.request.token.credential_id);
        let key = run.key.0.as_slice();
        let seen = self
            .insist(run.deadline, |connection| {
                group::look(connection, credential, key, self.clock.now(), question).scope_boxed()
            })
            .await?;
        let caller = run.command.admit(&seen, run.request, self.clock.now())?;
        Ok((seen, caller))
    }

    /// Decides on what was seen and commits.
    async fn attempt_of_group(
        &self,
        run: &Run<'_>,
        seen: &Seen,
        caller: &Caller,
    ) -> Result<Result<Answer, Outcome>, Problem> {
        let (now, tenant, key) = (self.clock.now(), caller.tenant_id, run.key);
        if seen.stored.as_ref().is_some_and(|stored| stored.expired) {
            self.insist(run.deadline, |connection| commit::forget(connection, tenant, SCOPE, key, now).scope_boxed())
                .await?;
        }
        if let GroupCommand::CreateEndpoint(_, Err(problem)) = run.command {
            return Err(problem.clone());
        }
        let decided = run.command.decide(seen, caller, now);
        let known_by = run.command.fingerprint(claim::KNOWN_BY).ok_or(Code::Internal)?;
        let claim = claim::of_fingerprints(run.fingerprint, known_by, (tenant, SCOPE, key), decided.expires_at);
        let written = self.commit_of_group(run, caller, &claim, &decided, now).await;
        match written {
            Ok(Outcome::Done) => {
                Ok(Ok(Answer { reply: decided.reply, replayed: false, expires_at: Some(claim.expires_at) }))
            }
            Ok(other) => Ok(Err(other)),
            Err(error @ (StoreError::Again(_) | StoreError::Gone(_))) => {
                tracing::debug!(%error, "looking again");
                Ok(Err(Outcome::Stale))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn commit_of_group(
        &self,
        run: &Run<'_>,
        caller: &Caller,
        claim: &Claim,
        decided: &Decided,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let asker = &Asker {
            caller: caller.clone(),
            request_id: run.request.id,
            caller_request_id: run.request.callers_id.clone(),
            traceparent: run.request.traceparent.clone(),
        };
        let (operation, reply) = (run.command.operation(), &decided.reply);
        let commit =
            &Commit { operation, asker, clinic: SCOPE, claim: Some(claim), reply, now, audit_id: self.ids.uuid(now) };
        self.store
            .once(run.deadline, |connection| {
                async move {
                    match run.command {
                        _ if decided.code.is_some() => {
                            commit::answer(connection, commit, claim, None, decided.code.map(Code::as_str)).await
                        }
                        GroupCommand::CreateEndpoint(wanted, sealed) => {
                            let (view, sealed) = (made(wanted, caller, now), sealed.as_deref().unwrap_or_default());
                            group::create_endpoint(connection, commit, claim, &view, sealed).await
                        }
                        GroupCommand::Redeliver { endpoint, event } => {
                            group::redeliver(connection, commit, claim, (*endpoint, *event)).await
                        }
                    }
                }
                .scope_boxed()
            })
            .await
    }
}

/// The stored reply, if this key has one that still holds.
fn stored(run: &Run<'_>, seen: &Seen) -> Result<Option<Answer>, Problem> {
    let Some(stored) = seen.stored.as_ref().filter(|stored| !stored.expired) else { return Ok(None) };
    // A version this release does not know was stored by a newer one, whose processes can answer.
    let fingerprint = run.command.fingerprint(stored.fingerprint_version).ok_or(Code::Unavailable)?;
    if stored.fingerprint != fingerprint {
        return Err(Code::IdempotencyKeyReused.into());
    }
    Ok(Some(Answer { reply: reply::of_stored(stored), replayed: true, expires_at: Some(stored.expires_at) }))
}
