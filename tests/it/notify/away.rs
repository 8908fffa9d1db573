//! Destinations in trouble of their own: what meets them waits, uses up no tries, and is told when they are back.

use jiff::SignedDuration;
use oncebook::worker::Worker;

use super::Post;
use crate::app::Visit;
use crate::gateway::Instead;
use crate::mailbox::{Act, Stage};

#[tokio::test]
async fn what_a_server_says_to_everybody_is_no_fault_of_the_message() {
    let post = Post::new("email").await;
    for (n, (stage, no)) in [
        (Stage::Mail, "550 not from you"),
        (Stage::Mail, "452 full"),
        (Stage::Rcpt, "421 closing"),
        (Stage::Data, "452 full"),
        (Stage::Message, "421 closing"),
    ]
    .into_iter()
    .enumerate()
    {
        post.mailbox.next(1, stage, Act::Say(no));
        post.book(Visit { slot: n * 2, patient: n, ..Visit::default() }).await;
        post.settle_anew().await;
        assert_eq!(
            post.confirmations().await.pop().as_deref(),
            Some("confirmation 1 PENDING destination_away 0"),
            "{no}"
        );
        post.later(SignedDuration::from_mins(8));
        post.settle_anew().await;
        assert_eq!(post.mailbox.taken().len(), n + 1, "{no}");
    }
    // Of a recipient it is their mailbox that is full.
    post.mailbox.next(1, Stage::Rcpt, Act::Say("452 over quota"));
    post.book(Visit { slot: 20, ..Visit::default() }).await;
    post.settle_anew().await;
    assert_eq!(post.confirmations().await.pop().as_deref(), Some("confirmation 1 PENDING smtp_452 1"));
    assert!(post.tasks().await.is_empty());
    post.end().await;
}

#[tokio::test]
async fn a_gateway_in_trouble_uses_up_no_tries() {
    let post = Post::new("sms").await;
    post.book(Visit::default()).await;
    for no in [500, 502, 504, 500, 502, 504, 500, 502, 504] {
        post.gateway.next(Instead::Says(no, None));
        post.settle_anew().await;
        assert_eq!(post.confirmations().await, ["confirmation 1 PENDING outcome_unknown 0"], "{no}");
        post.later(SignedDuration::from_mins(8));
    }
    // Nor is the next message sent into the same trouble at once.
    post.gateway.next(Instead::Says(502, None));
    post.settle().await;
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    post.settle().await;
    let waiting = ["confirmation 1 PENDING destination_away 0", "confirmation 1 PENDING outcome_unknown 0"];
    assert_eq!(post.confirmations().await, waiting);
    // Still so the next day: one may have been told, the other was not.
    post.later(SignedDuration::from_hours(25));
    post.settle_anew().await;
    let given_up = ["confirmation 1 SUPPRESSED overdue 0", "confirmation 1 UNKNOWN overdue 1"];
    assert_eq!(post.confirmations().await, given_up);
    assert_eq!(post.tasks().await, ["notification_not_confirmed overdue", "notification_not_delivered overdue"]);
    post.end().await;
}

#[tokio::test]
async fn a_gateway_that_is_elsewhere_or_lets_nobody_in_is_away() {
    let post = Post::new("sms").await;
    for (n, no) in [302, 401, 403, 404].into_iter().enumerate() {
        post.gateway.next(Instead::Says(no, None));
        post.book(Visit { slot: n * 4, ..Visit::default() }).await;
        post.settle_anew().await;
        assert_eq!(
            post.confirmations().await.pop().as_deref(),
            Some("confirmation 1 PENDING destination_away 0"),
            "{no}"
        );
        post.later(SignedDuration::from_mins(8));
        post.settle_anew().await;
        assert_eq!(post.gateway.taken().len(), n + 1, "{no}");
    }
    assert!(post.tasks().await.is_empty());
    post.end().await;
}

#[tokio::test]
async fn what_could_be_taken_up_is_how_far_behind_it_is() {
    let mut post = Post::new("email").await;
    let behind = async |post: &Post| {
        let behind = post.notifier.behind().await.expect("an answer").expect("a queue");
        (behind.items, behind.seconds)
    };
    assert_eq!(behind(&post).await, (0, 0.0));
    post.book(Visit::default()).await;
    post.later(SignedDuration::from_secs(90));
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    // Their reminders are days ahead.
    assert_eq!(behind(&post).await, (2, 90.0));
    // What waits for another try, as for the end of quiet hours, does so until then.
    post.mailbox.go_away().await;
    post.settle().await;
    assert_eq!(behind(&post).await, (0, 0.0));
    let again = "update notification_intents set next_attempt_at = due_at + interval '10 minutes' where state = 'PENDING' and next_attempt_at is not null";
    post.trial.change(again).await;
    post.later(SignedDuration::from_secs(530));
    assert_eq!(behind(&post).await, (1, 20.0), "of the first, from then on");
    post.end().await;
}

#[tokio::test]
async fn what_no_notifier_was_there_for_is_a_task_once_one_has_run() {
    let post = Post::new("email").await;
    post.book(Visit::default()).await;
    post.later(SignedDuration::from_hours(25));
    post.settle().await;
    assert_eq!(post.confirmations().await, ["confirmation 1 SUPPRESSED overdue 0"]);
    assert!(post.tasks().await.is_empty(), "the first one ever");
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    post.later(SignedDuration::from_hours(25));
    post.settle_anew().await;
    assert_eq!(post.confirmations().await, ["confirmation 1 SUPPRESSED overdue 0"; 2]);
    assert_eq!(post.tasks().await, ["notification_not_delivered overdue"]);
    post.end().await;
}
