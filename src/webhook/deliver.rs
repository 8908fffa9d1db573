//! Takes up what is due and sends it: so many at once in this process, so many to one endpoint, and each in a task of its own,
//! so that an endpoint that does not answer keeps nobody waiting but itself.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use scoped_futures::ScopedFutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::schedule;
use super::sign::signatures;
use crate::app::App;
use crate::domain::cloud_event::CloudEvent;
use crate::domain::problem::Problem;
use crate::domain::webhook::{DeliveryState, secret_belongs_to};
use crate::hint::Hint;
use crate::outbound::{Answer, Client, Failure};
use crate::pulse::Behind;
use crate::sealed::Shut;
use crate::store::deliveries::{self, Attempt, Breaker, Ended, Reach};
use crate::worker::{Did, Worker};

/// Attempts at once in a process.
const AT_ONCE: usize = 256;

/// An attempt takes 15 s, and as long again to be written down where the database is slow; then it is another's.
const LEASE: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_secs(15);

/// What this process has no key for is left to another for so long.
const ANOTHERS: Duration = Duration::from_secs(5);

/// Of one endpoint, four at once over all processes, or nearly: two that claim in the same moment may count the same ones.
const OF_ONE: i64 = 4;

/// From so many failures in a row on, one at a time: an endpoint that hangs takes up one place, not four.
const DOUBTFUL_FROM: i32 = 2;

/// Five failures in a row open the breaker; it pauses from five seconds on to five minutes, and then lets one through.
/// After five days without a success the endpoint is disabled.
const BREAKER: Breaker =
    Breaker { from: 5, longest: Duration::from_mins(5), disabled_after: Duration::from_hours(5 * 24) };

/// A receiver that says 429 or 503 may have itself left alone for so long at the most.
const LONGEST_ASKED: Duration = Duration::from_hours(1);

/// See the top.
pub struct Deliverer {
    sender: Arc<Sender>,
    free: Arc<Semaphore>,
    tasks: TaskTracker,
    /// An attempt has ended: there is room, and perhaps a later event of its subject.
    ended: Hint,
}

/// What an attempt needs.
struct Sender {
    app: Arc<App>,
    client: Client,
}

/// How an attempt came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    word: &'static str,
    answer: Option<Answer>,
}

impl Worker for Deliverer {
    fn name(&self) -> &'static str {
        // Not the consumer's: one would hide the other's failing.
        "webhook_delivery"
    }

    fn rest(&self) -> Duration {
        // One look through the endpoints that have something to send; it is what an event waits for.
        Duration::from_millis(200)
    }

    fn hint(&self) -> Option<&Hint> {
        Some(&self.ended)
    }

    async fn behind(&self) -> Result<Option<Behind>, Problem> {
        let Sender { app, .. } = &*self.sender;
        let due = app.insist(|connection| deliveries::due(connection, OF_ONE, DOUBTFUL_FROM).scope_boxed()).await?;
        Ok(Some(Behind::since(due.oldest, due.items, app.clock.now())))
    }

    async fn step(&self) -> Result<Did, Problem> {
        let free = self.free.available_permits();
        let Some(most) = i64::try_from(free).ok().filter(|most| *most > 0) else { return Ok(Did::Nothing) };
        let app = &self.sender.app;
        let now = app.clock.now();
        let token = app.ids.uuid(now);
        let reach = Reach { lease: LEASE, most, of_one: OF_ONE, doubtful_from: DOUBTFUL_FROM };
        let claimed = app.insist(|connection| deliveries::claim(connection, token, reach, now).scope_boxed()).await?;
        let did = if claimed.is_empty() { Did::Nothing } else { Did::Work };
        for attempt in claimed {
            // Nobody else takes permits, so there is one.
            let permit = Arc::clone(&self.free).try_acquire_owned().ok();
            self.begin(attempt, token, permit);
        }
        Ok(did)
    }
}

impl Deliverer {
    /// One that sends by this client. Stopping waits for `tasks`.
    #[must_use]
    pub fn new(app: Arc<App>, client: Client, tasks: TaskTracker) -> Self {
        let sender = Arc::new(Sender { app, client });
        Self { sender, free: Arc::new(Semaphore::new(AT_ONCE)), tasks, ended: Hint::default() }
    }

    fn begin(&self, attempt: Attempt, token: Uuid, permit: Option<OwnedSemaphorePermit>) {
        let (sender, ended) = (Arc::clone(&self.sender), self.ended.clone());
        self.tasks.spawn(async move {
            sender.deliver(&attempt, token).await;
            drop(permit);
            ended.give();
        });
    }
}

impl Sender {
    /// One attempt, to its end.
    async fn deliver(&self, attempt: &Attempt, token: Uuid) {
        let started = Instant::now();
        let secrets = self.secrets(attempt);
        if secrets.is_empty() {
            self.hand_back(attempt, token).await;
            return;
        }
        let outcome = self.send(attempt, &secrets).await;
        let took = started.elapsed();
        metrics::counter!("oncebook_webhook_attempts_total", "outcome" => outcome.word).increment(1);
        metrics::histogram!("oncebook_webhook_attempt_seconds").record(took.as_secs_f64());
        self.end(attempt, token, outcome, took).await;
    }

    /// What it is signed with: the endpoint's secret, and the one before while that signs too; whichever of them opens.
    fn secrets(&self, attempt: &Attempt) -> Vec<Vec<u8>> {
        let Some(keyring) = self.app.keyring.as_ref() else { return Vec::new() };
        let belongs_to = secret_belongs_to(&attempt.event.tenant_id, &attempt.endpoint);
        let sealed = [Some(&attempt.secret), attempt.previous_secret.as_ref()];
        let opened = sealed.into_iter().flatten().filter_map(|sealed| {
            let shut = |_: &Shut| {
                tracing::error!(endpoint = %attempt.endpoint, "ONCEBOOK_ENCRYPTION_KEY lacks the key of a webhook secret");
                metrics::counter!("oncebook_webhook_secrets_unreadable_total").increment(1);
            };
            keyring.open(&belongs_to, sealed).inspect_err(shut).ok()
        });
        opened.collect()
    }

    /// Leaves an attempt to a process that has the key. It is this one's fault, not the receiver's.
    async fn hand_back(&self, attempt: &Attempt, token: Uuid) {
        let deadline = Instant::now() + PATIENCE;
        let back = self
            .app
            .store
            .insist(deadline, &self.app.ids, |connection| {
                deliveries::hand_back(connection, attempt, token, ANOTHERS).scope_boxed()
            })
            .await;
        if !matches!(back, Ok(true)) {
            // Its lease ends, if nobody else has it.
            tracing::warn!(endpoint = %attempt.endpoint, event = %attempt.event.id, "it is not handed back");
        }
    }

    async fn send(&self, attempt: &Attempt, secrets: &[Vec<u8>]) -> Outcome {
        let now = self.app.clock.now();
        // It holds text, numbers and times alone, which always serialise.
        let body = serde_json::to_vec(&CloudEvent::from(attempt.event.clone())).unwrap_or_default();
        let id = attempt.event.id.to_string();
        let signature = signatures(secrets, &id, now.as_second(), &body);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/cloudevents+json"));
        let own = [
            ("webhook-id", Some(id)),
            ("webhook-timestamp", Some(now.as_second().to_string())),
            ("webhook-signature", Some(signature)),
            ("traceparent", attempt.event.traceparent.clone()),
        ];
        for (name, value) in own {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        match self.client.post(&attempt.url, headers, body, now).await {
            Ok(answer) => Outcome { word: of_status(answer.status), answer: Some(answer) },
            Err(failure) => Outcome { word: of_failure(failure), answer: None },
        }
    }

    async fn end(&self, attempt: &Attempt, token: Uuid, outcome: Outcome, took: Duration) {
        let (app, event) = (&self.app, &attempt.event);
        let now = app.clock.now();
        let delivered = outcome.word == "delivered";
        let asked = outcome.answer.and_then(|answer| answer.retry_after);
        let pause = if delivered || outcome.word == "gone" {
            None
        } else {
            schedule::pause(attempt.of_round, attempt.first_at, now, asked, &app.ids)
        };
        let state = match pause {
            Some(_) => DeliveryState::Pending,
            None if delivered => DeliveryState::Delivered,
            None => DeliveryState::GivenUp,
        };
        let overloaded = outcome.answer.is_some_and(|answer| matches!(answer.status, 429 | 503));
        let ended = &Ended {
            tenant: event.tenant_id,
            endpoint: attempt.endpoint,
            version: attempt.version,
            event: event.id,
            token,
            outcome: outcome.word,
            status: outcome.answer.map(|answer| answer.status),
            took,
            state,
            pause,
            receivers_pause: asked.filter(|_| overloaded).map(|asked| asked.min(LONGEST_ASKED)),
            ids: [app.ids.uuid(now), app.ids.uuid(now), app.ids.uuid(now)],
        };
        let deadline = Instant::now() + PATIENCE;
        let finish = app
            .store
            .insist(deadline, &app.ids, |connection| deliveries::finish(connection, ended, BREAKER, now).scope_boxed())
            .await;
        let (endpoint, attempt) = (attempt.endpoint, attempt.number);
        let state = match finish {
            Ok(Some(finished)) => {
                if let Some(reason) = finished.disabled {
                    tracing::warn!(%endpoint, reason, "a webhook endpoint is disabled");
                    metrics::counter!("oncebook_webhook_disabled_total", "reason" => reason).increment(1);
                }
                finished.state
            }
            // Perhaps by the very statement whose answer was lost.
            Ok(None) => {
                tracing::warn!(%endpoint, event = %event.id, attempt, "late: another has it");
                state
            }
            // Its lease ends, and it is sent again.
            Err(error) => {
                tracing::warn!(%endpoint, event = %event.id, attempt, %error, "its end is not written down");
                state
            }
        };
        if state != DeliveryState::Pending {
            metrics::counter!("oncebook_webhook_deliveries_total", "state" => state.as_str()).increment(1);
        }
        if delivered {
            let waited = now.duration_since(event.occurred_at);
            metrics::histogram!("oncebook_webhook_wait_seconds").record(waited.as_secs_f64());
        }
    }
}

const fn of_status(status: u16) -> &'static str {
    match status {
        200..=299 => "delivered",
        300..=399 => "redirect",
        410 => "gone",
        _ => "status",
    }
}

const fn of_failure(failure: Failure) -> &'static str {
    match failure {
        Failure::Url => "url_refused",
        Failure::Address => "address_refused",
        Failure::Dns => "dns",
        Failure::Connect => "connect",
        Failure::Tls => "tls",
        Failure::Timeout => "timeout",
        Failure::Protocol => "protocol",
    }
}
