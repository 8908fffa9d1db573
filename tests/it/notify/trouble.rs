//! Receivers that say no, fall silent, hang up or are not there; notifiers that are late, or many.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use oncebook::worker::Worker;
use tokio::time::sleep;

use super::{Post, notifier, settle};
use crate::app::{Visit, eventually, reschedule, step};
use crate::gateway::Instead;
use crate::mailbox::{Act, Stage};

impl Post {
    async fn book_some(&self, visits: usize) {
        for n in 0..visits {
            self.book(Visit { slot: n * 2, patient: n, ..Visit::default() }).await;
        }
    }

    /// Only of what was booked; reminders are days ahead.
    pub(super) async fn confirmations(&self) -> Vec<String> {
        self.intents().await.into_iter().filter(|it| it.starts_with("confirmation")).collect()
    }

    /// As if every lease had ended.
    pub(super) async fn leases_end(&self) {
        let past = "update notification_intents set lease_until = clock_timestamp() - interval '1 second'
          where state in ('LEASED', 'SENT')";
        self.trial.change(past).await;
    }

    /// Another notifier, whose breakers know of nothing yet.
    pub(super) async fn settle_anew(&self) {
        settle(&notifier(&self.app, Some(&self.mailbox), Some(&self.gateway))).await;
    }

    fn messages_taken(&self) -> BTreeSet<String> {
        let ids = self.mailbox.taken();
        ids.iter().map(|it| it.message().message_id().expect("an id").to_owned()).collect()
    }
}

#[tokio::test]
async fn a_temporary_no_is_tried_eight_times_and_holds_up_nobody() {
    let post = Post::new("email").await;
    post.mailbox.always_for("ada.arslan@example.org", Stage::Rcpt, Act::Say("451 try later"));
    post.book_some(4).await;
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 3, "all others at once");
    for tries in 2..=8 {
        post.settle().await;
        let waits = format!("confirmation 1 PENDING smtp_451 {}", tries - 1);
        assert_eq!(post.confirmations().await.pop(), Some(waits), "a pause is drawn before each");
        post.later(SignedDuration::from_hours(1));
        post.settle().await;
    }
    assert_eq!(post.confirmations().await.pop().as_deref(), Some("confirmation 1 REJECTED smtp_451 8"));
    post.later(SignedDuration::from_hours(2));
    post.settle().await;
    assert_eq!(post.tasks().await, ["notification_not_delivered smtp_451"]);
    assert_eq!(post.mailbox.taken().len(), 3);
    post.end().await;
}

#[tokio::test]
async fn a_permanent_no_is_final() {
    let post = Post::new("email").await;
    for (n, (stage, no)) in [(Stage::Rcpt, "550 no such user"), (Stage::Data, "554 no"), (Stage::Message, "554 spam")]
        .into_iter()
        .enumerate()
    {
        post.mailbox.next(1, stage, Act::Say(no));
        post.book(Visit { slot: n * 2, patient: n, ..Visit::default() }).await;
        post.settle().await;
    }
    post.trial.change("update patients set preferred_channel = 'sms'").await;
    post.gateway.next(Instead::Says(422, None));
    post.book(Visit { slot: 20, ..Visit::default() }).await;
    post.settle().await;
    post.later(SignedDuration::from_hours(2));
    post.settle().await;
    let state = |reason: &str| format!("confirmation 1 REJECTED {reason} 1");
    assert_eq!(post.confirmations().await, ["http_422", "smtp_550", "smtp_554", "smtp_554"].map(state));
    assert_eq!(post.tasks().await.len(), 4);
    assert!(post.mailbox.taken().is_empty() && post.gateway.taken().is_empty());
    post.end().await;
}

#[tokio::test]
async fn before_the_data_it_is_tried_again_and_after_it_nobody_can_say() {
    let post = Post::new("email").await;
    // Silent or gone before the data began: nothing was sent.
    for (n, stage) in [Stage::Mail, Stage::Rcpt, Stage::Data].into_iter().enumerate() {
        post.mailbox.next(1, stage, Act::HangUp);
        post.book(Visit { slot: n * 2, ..Visit::default() }).await;
        post.settle().await;
        assert_eq!(post.confirmations().await.pop().as_deref(), Some("confirmation 1 PENDING connection_lost 1"));
        post.later(SignedDuration::from_mins(1));
        post.settle().await;
        assert_eq!(post.mailbox.taken().len(), n + 1);
    }
    let held = post.mailbox.hold(Stage::Rcpt);
    post.book(Visit { slot: 8, ..Visit::default() }).await;
    post.settle().await;
    held.go_on();
    assert_eq!(post.confirmations().await.pop().as_deref(), Some("confirmation 1 PENDING connection_lost 1"));
    post.later(SignedDuration::from_mins(1));
    post.settle().await;
    assert_eq!((post.mailbox.taken().len(), post.tasks().await.len()), (4, 0));
    // After it, it may have been taken: it was, as it happens.
    post.mailbox.next(1, Stage::Message, Act::HangUp);
    post.book(Visit { slot: 10, ..Visit::default() }).await;
    post.settle().await;
    let held = post.mailbox.hold(Stage::Message);
    // The breaker lets the next through once it has seen that the server is there.
    sleep(Duration::from_secs(1)).await;
    post.book(Visit { slot: 12, ..Visit::default() }).await;
    post.later(SignedDuration::from_mins(1));
    post.settle().await;
    held.go_on();
    for _ in 0..3 {
        post.later(SignedDuration::from_hours(2));
        post.settle().await;
    }
    assert_eq!(post.confirmations().await[4..], ["confirmation 1 UNKNOWN outcome_unknown 1"; 2]);
    assert_eq!(post.tasks().await, ["notification_not_confirmed outcome_unknown"; 2]);
    assert_eq!((post.mailbox.taken().len(), post.messages_taken().len()), (6, 6), "none twice");
    post.end().await;
}

#[tokio::test]
async fn a_destination_that_is_away_uses_up_no_tries_and_then_gets_everything() {
    for channel in ["email", "sms"] {
        let mut post = Post::new(channel).await;
        post.mailbox.go_away().await;
        post.gateway.go_away().await;
        post.book_some(20).await;
        for _ in 0..12 {
            post.settle().await;
            post.later(SignedDuration::from_mins(5));
        }
        assert_eq!(post.confirmations().await, ["confirmation 1 PENDING destination_away 0"; 20], "{channel}");
        post.mailbox.come_back().await;
        post.gateway.come_back().await;
        eventually("all of it is told", async || {
            post.later(SignedDuration::from_mins(1));
            post.settle().await;
            post.mailbox.taken().len() + post.gateway.taken().len() == 20
        })
        .await;
        assert_eq!(post.confirmations().await, ["confirmation 1 COMPLETED - 1"; 20], "{channel}");
        assert_eq!((post.tasks().await.len(), post.gateway.asked().len() % 20), (0, 0));
        post.end().await;
    }
}

#[tokio::test]
async fn while_it_is_away_it_is_looked_at_rarely() {
    let post = Post::new("email").await;
    post.book_some(20).await;
    post.mailbox.next(usize::MAX, Stage::Greeting, Act::Say("421 closing"));
    for _ in 0..50 {
        post.notifier.step().await.expect("a step");
        post.later(SignedDuration::from_secs(10));
    }
    let connections = post.mailbox.connections();
    // Eight set out together before the first came back; after that the breaker's own clock has hardly moved.
    assert!((8..=12).contains(&connections), "{connections}");
    assert_eq!(post.confirmations().await, ["confirmation 1 PENDING destination_away 0"; 20]);
    post.end().await;
}

#[tokio::test]
async fn a_receiver_that_says_when_is_heard() {
    let post = Post::new("sms").await;
    post.gateway.next(Instead::Says(429, Some(600)));
    post.book(Visit::default()).await;
    post.settle().await;
    assert_eq!(post.confirmations().await, ["confirmation 1 PENDING http_429 1"]);
    let after = "select extract(epoch from next_attempt_at - due_at)::bigint from notification_intents where kind = 'confirmation'";
    let after_it = post.count(after).await;
    assert!((600..=630).contains(&after_it), "{after_it} s");
    // Nor is anybody else's message sent to it meanwhile.
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    post.later(SignedDuration::from_secs(599));
    post.settle().await;
    assert_eq!(post.gateway.asked().len(), 1);
    assert_eq!(post.confirmations().await[0], "confirmation 1 PENDING destination_away 0");
    post.end().await;

    let post = Post::new("sms").await;
    post.gateway.next(Instead::Says(429, Some(1)));
    post.gateway.next(Instead::Says(503, Some(1)));
    post.book(Visit::default()).await;
    for asked in 1..=3 {
        post.settle().await;
        assert_eq!(post.gateway.asked().len(), asked);
        // The second pause is longer than the first: two seconds at the most.
        sleep(Duration::from_millis(2100)).await;
        post.later(SignedDuration::from_mins(1));
    }
    assert_eq!(post.confirmations().await, ["confirmation 1 COMPLETED - 2"], "a 503 is no try of the message's own");
    post.end().await;

    // What is said of one message keeps back no other, and that one for no longer than an hour.
    for no in [408, 409, 425] {
        let post = Post::new("sms").await;
        post.gateway.next(Instead::Says(no, Some(86_400)));
        post.book(Visit::default()).await;
        post.settle().await;
        let after_it = post.count(after).await;
        assert!((3600..=3630).contains(&after_it), "{after_it} s");
        post.book(Visit { slot: 4, ..Visit::default() }).await;
        post.settle().await;
        assert_eq!(post.gateway.taken().len(), 1, "{no}");
        post.end().await;
    }
}

#[tokio::test]
async fn what_is_not_known_is_asked_again_where_the_receiver_knows_our_id() {
    let post = Post::new("sms").await;
    post.gateway.next(Instead::TakesAndIsSilent);
    post.gateway.next(Instead::TakesAndFails);
    let id = post.book(Visit::default()).await;
    post.settle().await;
    assert_eq!(post.confirmations().await, ["confirmation 1 PENDING outcome_unknown 1"]);
    // Whatever the patient prefers by now: it stays with the receiver that may have taken it.
    post.trial.change("update patients set preferred_channel = 'email'").await;
    for _ in 0..2 {
        post.later(SignedDuration::from_mins(8));
        post.settle_anew().await;
    }
    let asked = post.gateway.asked();
    assert_eq!((asked.len(), post.gateway.taken().len(), post.mailbox.taken().len()), (3, 1, 0));
    assert!(asked.iter().all(|it| it.key == asked[0].key));
    assert_eq!(post.confirmations().await, ["confirmation 1 COMPLETED - 2"]);
    // Never answered for: not confirmed, a task.
    post.trial.change("update patients set preferred_channel = 'sms'").await;
    post.gateway.next(Instead::TakesAndIsSilent);
    post.say(reschedule(id, 9)).await;
    post.trial.change("update notification_intents set attempts = 7 where kind = 'change'").await;
    post.settle_anew().await;
    assert_eq!(post.intents().await[2], "change 2 UNKNOWN outcome_unknown 8");
    assert_eq!(post.tasks().await, ["notification_not_confirmed outcome_unknown"]);
    // Asked again, and overtaken: nobody wants to know any more.
    post.gateway.next(Instead::TakesAndFails);
    post.say(reschedule(id, 10)).await;
    post.settle_anew().await;
    post.say(step(id, "cancel")).await;
    post.later(SignedDuration::from_hours(1));
    post.settle_anew().await;
    assert_eq!(
        post.count(
            "select count(*) from notification_intents where state = 'SUPERSEDED' and reason_code = 'outcome_unknown'"
        )
        .await,
        1
    );
    post.end().await;
}

#[tokio::test]
async fn two_at_once_tell_each_thing_once() {
    let post = Post::new("email").await;
    post.book_some(40).await;
    let other = notifier(&post.app, Some(&post.mailbox), Some(&post.gateway));
    let third = notifier(&post.app, Some(&post.mailbox), Some(&post.gateway));
    tokio::join!(post.settle(), settle(&other), settle(&third));
    assert_eq!((post.mailbox.taken().len(), post.messages_taken().len()), (40, 40));
    assert_eq!(post.confirmations().await, ["confirmation 1 COMPLETED - 1"; 40]);
    post.end().await;
}

#[tokio::test]
async fn a_late_one_changes_nothing() {
    let post = Post::new("email").await;
    let other = notifier(&post.app, Some(&post.mailbox), Some(&post.gateway));
    // Late before anything left: the other takes over, and the late one does not send.
    let held = post.mailbox.hold(Stage::Greeting);
    post.book(Visit::default()).await;
    let overtaken = async {
        held.reached().await;
        post.leases_end().await;
        settle(&other).await;
        held.go_on();
    };
    tokio::join!(post.settle(), overtaken);
    assert_eq!(post.mailbox.taken().len(), 1);
    assert_eq!(post.confirmations().await, ["confirmation 1 COMPLETED - 2"]);
    // Late after it left: given up, a task, and its late success is no news.
    let held = post.mailbox.hold(Stage::Message);
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    let overtaken = async {
        held.reached().await;
        post.leases_end().await;
        settle(&other).await;
        assert_eq!(post.confirmations().await[1], "confirmation 1 UNKNOWN lease_ended 1");
        held.go_on();
    };
    tokio::join!(post.settle(), overtaken);
    assert_eq!(post.confirmations().await[1], "confirmation 1 UNKNOWN lease_ended 1");
    assert_eq!(post.tasks().await, ["notification_not_confirmed lease_ended"]);
    assert_eq!((post.mailbox.taken().len(), post.messages_taken().len()), (2, 2));
    post.end().await;
}

#[tokio::test]
async fn without_a_sender_it_waits_and_says_why() {
    let post = Post::new("sms").await;
    let mail_only = notifier(&post.app, Some(&post.mailbox), None);
    post.book(Visit::default()).await;
    settle(&mail_only).await;
    assert_eq!(post.confirmations().await, ["confirmation 1 PENDING no_sender 0"]);
    post.later(SignedDuration::from_mins(15));
    post.settle().await;
    assert_eq!(post.gateway.taken().len(), 1, "another process may have one");
    // One that never finds any is let go without a word to STAFF; one that was kept waiting by trouble is not.
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    settle(&mail_only).await;
    post.gateway.next(Instead::Says(503, None));
    post.book(Visit { slot: 8, ..Visit::default() }).await;
    post.settle().await;
    post.later(SignedDuration::from_hours(25));
    post.settle().await;
    let let_go = post.confirmations().await.into_iter().filter(|it| it.contains("SUPPRESSED overdue")).count();
    assert_eq!((let_go, post.tasks().await), (2, vec!["notification_not_delivered overdue".to_owned()]));
    post.end().await;
}

#[tokio::test]
async fn a_no_to_what_may_have_been_taken_is_not_confirmed() {
    let post = Post::new("sms").await;
    post.gateway.next(Instead::TakesAndIsSilent);
    post.gateway.next(Instead::Says(422, None));
    post.book(Visit::default()).await;
    post.settle().await;
    assert_eq!(post.confirmations().await, ["confirmation 1 PENDING outcome_unknown 1"]);
    post.later(SignedDuration::from_mins(2));
    post.settle_anew().await;
    assert_eq!(post.gateway.taken().len(), 1, "the patient has it");
    assert_eq!(post.confirmations().await, ["confirmation 1 UNKNOWN http_422 2"]);
    assert_eq!(post.tasks().await, ["notification_not_confirmed http_422"]);
    post.end().await;
}
