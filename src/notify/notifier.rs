//! Role `notifier`: takes up what is due, and sees each intent to its end.
//!
//! A try holds a lease by the database's clock and a token that every later write names. `SENT` is committed before the
//! first byte leaves; a lease that ends before that is tried again, one that ends after it is not, unless the receiver knows
//! our id. Each intent goes its own way: one that hangs or fails holds up no other for longer than its own time is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::breaker::Breaker;
use super::message;
use super::senders::{Mail, Patience, Senders, Sent, Sms};
use super::sms::Message;
use crate::app::App;
use crate::domain::directory::Channel;
use crate::domain::notification::{Due, Verdict};
use crate::domain::problem::Problem;
use crate::domain::time;
use crate::hint::Hint;
use crate::pulse::Behind;
use crate::store::notifications::{self, Claimed, Ended, Leave, Try};
use crate::store::{Answering, StoreError};
use crate::worker::{Did, Worker};

/// Tries of one intent, the first included; after them it is a task for STAFF.
const MOST_TRIES: i32 = 8;

/// The longest pause before the second try; it doubles with each, to 32 minutes before the eighth, and every pause is drawn
/// from zero to it (full jitter): eight tries take half an hour on average, and 64 minutes at the most. A mail server that
/// wants to see a message again (greylisting) wants to in minutes.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// How long what met a destination in trouble waits, at the least and at the most: as long as it has waited already. It uses
/// up no tries, so one that is the cause of the trouble is not to be sent over and over.
const TROUBLED: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(1), SignedDuration::from_mins(5));

/// What nobody here can send is looked at again this rarely: another process may have what it takes.
const NO_SENDER: SignedDuration = SignedDuration::from_mins(10);

/// Intents taken up in one step, and so connections at a time.
const TAKEN_UP: u8 = 8;

/// How long a statement is insisted on.
const INSIST: Duration = Duration::from_secs(15);

/// What waits because of these was not held up by trouble: when it is too late for it, no person need see to it, unless no
/// notifier ran for a day.
const NO_TROUBLE: [&str; 3] = ["no_sender", "quiet_hours", "reminder_moved"];

/// The reason of what was sent and not answered for.
const UNKNOWN: &str = "outcome_unknown";

/// See the top.
pub struct Notifier {
    app: Arc<App>,
    senders: Senders,
    patience: Patience,
    mail: Breaker,
    sms: Breaker,
    due: Hint,
}

impl Worker for Notifier {
    fn name(&self) -> &'static str {
        "notifier"
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn hint(&self) -> Option<&Hint> {
        Some(&self.due)
    }

    async fn step(&self) -> Result<Did, Problem> {
        let now = self.app.clock.now();
        let task_ids: Vec<Uuid> = (0..TAKEN_UP).map(|_| self.app.ids.uuid(now)).collect();
        let given_up =
            self.insist(|connection| notifications::give_up_sent(connection, &task_ids, now).scope_boxed()).await?;
        count(Channel::Email, "unknown", given_up);
        let token = self.app.ids.uuid(now);
        let (lease, most) = (self.lease(), i64::from(TAKEN_UP));
        let claim =
            self.insist(|connection| notifications::claim(connection, token, lease, most, now).scope_boxed()).await?;
        metrics::counter!("oncebook_notifications_total", "channel" => "none", "outcome" => "superseded")
            .increment(claim.superseded as u64);
        let did =
            if claim.claimed.is_empty() && claim.superseded == 0 && given_up == 0 { Did::Nothing } else { Did::Work };
        for ended in join_all(claim.claimed.iter().map(|claimed| self.see_to(claimed, token))).await {
            if let Err(error) = ended {
                // Its lease ends, and then it is taken up again, or given up.
                tracing::warn!(%error, "how a try at a notification ended is not written down");
            }
        }
        self.show();
        Ok(did)
    }

    async fn behind(&self) -> Result<Option<Behind>, Problem> {
        let now = self.app.clock.now();
        let waiting = self.insist(|connection| notifications::due(connection, now).scope_boxed()).await?;
        Ok(Some(Behind::since(waiting.oldest, waiting.items, now)))
    }
}

/// How a try ends.
enum Ending {
    /// It is told.
    Completed,
    /// The receiver will not have it.
    Rejected(String),
    /// Nobody can say.
    Unknown(&'static str),
    /// A later schedule has overtaken it.
    Superseded,
    /// It is not to be told.
    Suppressed(&'static str),
    /// It is tried again, not before then.
    Again {
        reason: String,
        at: Timestamp,
        /// Whether this was a try of the intent's own.
        counts: bool,
    },
    /// The token is gone.
    Late,
}

impl Notifier {
    /// One with what there is to send with.
    #[must_use]
    pub fn of(app: Arc<App>, senders: Senders, patience: Patience) -> Self {
        for (channel, what) in [(Channel::Email, "ONCEBOOK_SMTP_URL"), (Channel::Sms, "ONCEBOOK_SMS_URL")] {
            let has = senders.has(channel);
            metrics::gauge!("oncebook_notification_sender", "channel" => channel.as_str())
                .set(f64::from(u8::from(has)));
            if !has {
                tracing::warn!(
                    channel = channel.as_str(),
                    "{what} is not set: who prefers this channel is not told of their visits"
                );
            }
        }
        let due = app.commands.told.clone();
        Self { app, senders, patience, mail: Breaker::default(), sms: Breaker::default(), due }
    }

    /// Longer than a sending takes by our own clock, with the statements around it.
    fn lease(&self) -> Duration {
        self.patience.whole() + INSIST * 3
    }

    async fn insist<'a, T>(
        &self,
        statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>,
    ) -> Result<T, StoreError> {
        self.app.store.insist(Instant::now() + INSIST, &self.app.ids, statement).await
    }

    /// Which destinations are away, of those there are.
    fn show(&self) {
        for channel in [Channel::Email, Channel::Sms].into_iter().filter(|channel| self.senders.has(*channel)) {
            let open = f64::from(u8::from(self.breaker(channel).is_open()));
            metrics::gauge!("oncebook_notification_breaker_open", "channel" => channel.as_str()).set(open);
        }
    }

    const fn breaker(&self, channel: Channel) -> &Breaker {
        match channel {
            Channel::Sms => &self.sms,
            _ => &self.mail,
        }
    }

    /// One try, from the claim to its end.
    async fn see_to(&self, claimed: &Claimed, token: Uuid) -> Result<(), StoreError> {
        let this = Try { tenant_id: claimed.tenant_id, id: claimed.id, token };
        let channel = claimed.sent_through.unwrap_or(claimed.prefers);
        let ending = self.attempt(claimed, channel, this).await?;
        let now = self.app.clock.now();
        let maybe_sent =
            claimed.sent_through.is_some() || matches!(&ending, Ending::Again { reason, .. } if reason == UNKNOWN);
        let (state, reason, again_at, give_back) = match &ending {
            Ending::Completed => ("COMPLETED", None, None, false),
            // A no to what may have been told already is not "not told", nor is what is not to be told any more.
            Ending::Rejected(reason) if maybe_sent => ("UNKNOWN", Some(reason.as_str()), None, false),
            Ending::Suppressed(reason) if maybe_sent => ("UNKNOWN", Some(*reason), None, false),
            Ending::Rejected(reason) => ("REJECTED", Some(reason.as_str()), None, false),
            Ending::Unknown(reason) => ("UNKNOWN", Some(*reason), None, false),
            Ending::Superseded => ("SUPERSEDED", maybe_sent.then_some(UNKNOWN), None, false),
            Ending::Suppressed(reason) => ("SUPPRESSED", Some(*reason), None, true),
            Ending::Again { reason, at, counts } => ("PENDING", Some(reason.as_str()), Some(*at), !counts),
            Ending::Late => {
                tracing::warn!(intent = %claimed.id, "late: another has it");
                return Ok(());
            }
        };
        let waited_for = claimed.waited_for.as_deref();
        let troubled = waited_for.is_some_and(|why| !NO_TROUBLE.contains(&why));
        // Nobody was there to tell it, and somebody should have been.
        let missed = reason == Some("overdue") && claimed.in_service && waited_for != Some("no_sender");
        let task = match state {
            "UNKNOWN" => Some("notification_not_confirmed"),
            "REJECTED" => Some("notification_not_delivered"),
            "SUPPRESSED" if troubled || missed => Some("notification_not_delivered"),
            _ => None,
        };
        let task = task.map(|kind| (self.app.ids.uuid(now), kind));
        let ended = Ended { state, reason, again_at, give_back, maybe_sent, task };
        let stands = self.insist(|connection| notifications::end(connection, this, ended, now).scope_boxed()).await?;
        if stands {
            let outcome = if state == "PENDING" { "again" } else { state };
            count(channel, &outcome.to_lowercase(), 1);
            tracing::debug!(intent = %claimed.id, state, reason, "a try at a notification ended");
        } else {
            tracing::warn!(intent = %claimed.id, state, "late: another has it");
        }
        Ok(())
    }

    /// One try: whether it is to be sent at all, and now; then, if it is, the sending.
    async fn attempt(&self, claimed: &Claimed, channel: Channel, this: Try) -> Result<Ending, StoreError> {
        let now = self.app.clock.now();
        let zone = time::zone(&claimed.time_zone).unwrap_or(jiff::tz::TimeZone::UTC);
        let (kind, since, start) = (claimed.kind, claimed.due_at, claimed.during.start);
        let due = Due { kind, since, start, status: claimed.status, settings: &claimed.settings, zone: &zone };
        match due.verdict(now) {
            Verdict::Send => {}
            Verdict::Suppress(why) => return Ok(Ending::Suppressed(why)),
            Verdict::Wait(at, why) => return Ok(Ending::Again { reason: why.to_owned(), at, counts: false }),
        }
        if claimed.attempts > MOST_TRIES {
            // Its process died at every one of them.
            return Ok(match claimed.sent_through {
                Some(_) => Ending::Unknown("tries_used_up"),
                None => Ending::Rejected("tries_used_up".to_owned()),
            });
        }
        let address = match channel {
            Channel::None => return Ok(Ending::Suppressed("channel_none")),
            Channel::Email => claimed.email.as_deref(),
            Channel::Sms => claimed.phone.as_deref(),
        };
        let Some(address) = address.filter(|address| !address.trim().is_empty()) else {
            return Ok(Ending::Suppressed("no_address"));
        };
        if !self.senders.has(channel) {
            return Ok(self.held("no_sender", NO_SENDER, now));
        }
        if let Err(open_for) = self.breaker(channel).admit(Instant::now()) {
            let pause = SignedDuration::try_from(open_for).unwrap_or(TROUBLED.1);
            return Ok(self.held("destination_away", pause, now));
        }
        let sent = if channel == Channel::Email {
            self.send_mail(claimed, address, this).await?
        } else {
            self.send_sms(claimed, address, this).await?
        };
        Ok(match sent {
            Ok(sent) => self.ending_of(claimed, channel, sent),
            Err(ending) => ending,
        })
    }

    async fn send_mail(&self, claimed: &Claimed, to: &str, this: Try) -> Result<Result<Sent, Ending>, StoreError> {
        let now = self.app.clock.now();
        let Some(mail) = message::mail(claimed, to, &self.senders.from, now) else {
            // The breaker let it through, and is to hear how it went: there was nothing to be heard.
            self.mail.pass();
            return Ok(Err(Ending::Suppressed("bad_address")));
        };
        Ok(Ok(match &self.senders.mail {
            Some(Mail::Smtp(server)) => {
                // What keeps us from the server shows before anything is marked as sent.
                let ready = match server.connect().await {
                    Ok(ready) => ready,
                    Err(away) => return Ok(Ok(away)),
                };
                match self.leave(this, Channel::Email).await? {
                    None => self.in_time(ready.send(&mail)).await,
                    Some(ending) => return Ok(Err(ending)),
                }
            }
            Some(Mail::Folder(folder)) => match self.leave(this, Channel::Email).await? {
                None => folder.take_mail(claimed.id, &mail).await,
                Some(ending) => return Ok(Err(ending)),
            },
            None => Sent::Away("no_sender", None),
        }))
    }

    async fn send_sms(&self, claimed: &Claimed, to: &str, this: Try) -> Result<Result<Sent, Ending>, StoreError> {
        let text = message::rendered(claimed).sms;
        if let Some(ending) = self.leave(this, Channel::Sms).await? {
            return Ok(Err(ending));
        }
        Ok(Ok(match &self.senders.sms {
            Some(Sms::Gateway(gateway)) => {
                let message = Message { id: claimed.id, kind: claimed.kind, to: to.trim(), text: &text };
                self.in_time(gateway.send(message, self.app.clock.now())).await
            }
            Some(Sms::Folder(folder)) => folder.take_sms(claimed.id, to, &text).await,
            None => Sent::Away("no_sender", None),
        }))
    }

    /// A sending, given up by our own clock well before its lease is up.
    async fn in_time(&self, sending: impl Future<Output = Sent>) -> Sent {
        timeout(self.patience.whole(), sending).await.unwrap_or(Sent::Unknown { answered: false })
    }

    /// Marks it as sent; an ending where it may not leave.
    async fn leave(&self, this: Try, channel: Channel) -> Result<Option<Ending>, StoreError> {
        let lease = self.lease();
        let may = self.insist(|connection| notifications::leave(connection, this, channel, lease).scope_boxed()).await;
        let ending = match may {
            Ok(Leave::Sent) => {
                metrics::counter!("oncebook_notification_tries_total", "channel" => channel.as_str()).increment(1);
                return Ok(None);
            }
            Ok(Leave::Stale) => Ok(Some(Ending::Superseded)),
            Ok(Leave::Late) => Ok(Some(Ending::Late)),
            Err(error) => Err(error),
        };
        self.breaker(channel).pass();
        ending
    }

    /// What a sending comes to, for the intent and for the next that goes the same way.
    fn ending_of(&self, claimed: &Claimed, channel: Channel, sent: Sent) -> Ending {
        let (now, breaker, ids) = (self.app.clock.now(), self.breaker(channel), &self.app.ids);
        let waited = now.duration_since(claimed.due_at).clamp(TROUBLED.0, TROUBLED.1);
        let more = claimed.attempts < MOST_TRIES;
        match &sent {
            Sent::Away(_, after) | Sent::Busy(_, after) => breaker.is_away(Instant::now(), ids, *after),
            // It may be this message's doing, but what does not answer one is not sent the next at once.
            Sent::Unknown { .. } => breaker.is_away(Instant::now(), ids, None),
            Sent::Taken | Sent::Refused(_) | Sent::NotNow(..) => breaker.is_there(),
        }
        match sent {
            Sent::Taken => Ending::Completed,
            Sent::Away(why, after) => {
                tracing::warn!(channel = channel.as_str(), why, "a destination of notifications is away");
                let pause = after.and_then(|after| SignedDuration::try_from(after).ok());
                self.held("destination_away", pause.unwrap_or(waited), now)
            }
            Sent::NotNow(reason, after) | Sent::Busy(reason, after) if more => {
                let after = after.and_then(|after| SignedDuration::try_from(after).ok()).unwrap_or_default();
                let at = self.again_at(claimed.attempts, now, after);
                Ending::Again { reason, at, counts: true }
            }
            Sent::Refused(reason) | Sent::NotNow(reason, _) | Sent::Busy(reason, _) => Ending::Rejected(reason),
            Sent::Unknown { answered: true } if channel == Channel::Sms => self.held(UNKNOWN, waited, now),
            // Only where the receiver tells a repeated message from a new one.
            Sent::Unknown { .. } if more && channel == Channel::Sms => {
                let at = self.again_at(claimed.attempts, now, SignedDuration::ZERO);
                Ending::Again { reason: UNKNOWN.to_owned(), at, counts: true }
            }
            Sent::Unknown { .. } => Ending::Unknown(UNKNOWN),
        }
    }

    /// It waits at least so long, and half as long again at the most: what waits together need not come back together.
    fn held(&self, reason: &str, pause: SignedDuration, now: Timestamp) -> Ending {
        let at = later(now, pause, self.app.ids.below(half(pause)));
        Ending::Again { reason: reason.to_owned(), at, counts: false }
    }

    /// When a try that was number `attempt` is followed by the next: full jitter, on top of what the receiver asked for.
    fn again_at(&self, attempt: i32, now: Timestamp, after: SignedDuration) -> Timestamp {
        let doubled = FIRST_PAUSE * (1 << (attempt - 1).clamp(0, MOST_TRIES));
        later(now, after, self.app.ids.below(u64::try_from(doubled.as_millis()).unwrap_or_default()))
    }
}

fn half(pause: SignedDuration) -> u64 {
    u64::try_from(pause.as_millis() / 2).unwrap_or_default()
}

fn later(now: Timestamp, pause: SignedDuration, and_millis: u64) -> Timestamp {
    let more = SignedDuration::from_millis(i64::try_from(and_millis).unwrap_or_default());
    now.saturating_add(pause + more).unwrap_or(now)
}

fn count(channel: Channel, outcome: &str, of: u64) {
    let outcome = outcome.to_owned();
    metrics::counter!("oncebook_notifications_total", "channel" => channel.as_str(), "outcome" => outcome)
        .increment(of);
}
