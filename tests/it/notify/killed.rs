//! The notifier's process is killed between every two of its steps, and at any moment: a text message has its effect once,
//! since the gateway knows our id; a mail goes out at most once, and what nobody can answer for is a task for STAFF.

use super::Post;
use crate::app::{Visit, eventually};
use crate::gateway::Instead;
use crate::mailbox::Stage;
use crate::process::Process;
use crate::wire::{Act, Statement, Wire};

/// What the process has done when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// Nothing.
    Nothing,
    /// Taken it up, and not heard that it has.
    Claimed,
    /// All but marked it as sent.
    Ready,
    /// Marked it as sent, and not heard that it has.
    Marked,
    /// Begun to send it.
    Sending,
    /// Sent it, and not heard what became of it.
    Sent,
    /// Heard that it was taken.
    Heard,
    /// Written that down, and not heard that it has.
    Ended,
}

const POINTS: [Point; 8] = [
    Point::Nothing,
    Point::Claimed,
    Point::Ready,
    Point::Marked,
    Point::Sending,
    Point::Sent,
    Point::Heard,
    Point::Ended,
];

impl Post {
    async fn process(&self, url: &str) -> Process {
        let (smtp, sms) = (self.mailbox.url(), self.gateway.url());
        let knobs = [
            ("ONCEBOOK_ROLES", "api,notifier"),
            ("ONCEBOOK_SMTP_URL", smtp.as_str()),
            ("ONCEBOOK_MAIL_FROM", "desk@clinic.example"),
            ("ONCEBOOK_SMS_URL", sms.as_str()),
            ("ONCEBOOK_SMS_TOKEN", "gateway-token"),
        ];
        self.trial.process_with(url, &knobs).await
    }

    /// Starts a process that finds one thing to do, and kills it there.
    async fn killed_at(&self, point: Point, mail: bool) {
        let wire = Wire::to(self.trial.ground().cluster.port()).await;
        let caught = match point {
            Point::Nothing => wire.next(Statement::Claim, Act::HoldBefore),
            Point::Claimed => wire.next(Statement::Claim, Act::HoldAnswer),
            Point::Ready => wire.next(Statement::Leave, Act::HoldBefore),
            Point::Marked => wire.next(Statement::Leave, Act::HoldAnswer),
            Point::Ended => wire.next(Statement::End, Act::HoldAnswer),
            // Where it gets so far before it is killed.
            Point::Heard | Point::Sending | Point::Sent => wire.next(Statement::End, Act::HoldBefore),
        };
        let stage = if point == Point::Sending { Stage::Data } else { Stage::Message };
        let held = (mail && matches!(point, Point::Sending | Point::Sent)).then(|| self.mailbox.hold(stage));
        let asked = self.gateway.asked().len();
        let silent = !mail && matches!(point, Point::Sending | Point::Sent);
        if silent {
            self.gateway.next(Instead::TakesAndIsSilent);
        }
        let process = self.process(&wire.url(&self.trial.url())).await;
        match &held {
            Some(held) => held.reached().await,
            None if silent => eventually("it is sent", async || self.gateway.asked().len() > asked).await,
            None => caught.reached().await,
        }
        process.kill().await;
        caught.cut();
        if let Some(held) = held {
            held.go_on();
        }
    }

    /// As if so much time had passed that every lease has ended; then another process sees to what is left.
    async fn another_takes_over(&self) {
        let past = "update notification_intents set lease_until = clock_timestamp() - interval '1 second'
          where state in ('LEASED', 'SENT');
          update notification_intents set next_attempt_at = null where state = 'PENDING' and kind = 'confirmation'";
        self.trial.change(past).await;
        let process = self.process(&self.trial.url()).await;
        let open = "select count(*) from notification_intents
          where kind = 'confirmation' and state in ('PENDING', 'LEASED', 'SENT')";
        eventually("each has its end", async || self.count(open).await == 0).await;
        process.stop().await;
    }

    /// None was mailed twice, none texted twice, and what nobody can answer for is a task.
    async fn holds(&self) {
        let mut mailed: Vec<_> =
            self.mailbox.taken().iter().map(|it| it.message().message_id().map(str::to_owned)).collect();
        let all = mailed.len();
        mailed.sort_unstable();
        mailed.dedup();
        assert_eq!(mailed.len(), all, "a mail went out twice");
        let unlike = "select count(*) from notification_intents n where kind = 'confirmation' and (state = 'UNKNOWN') <> exists (
          select from staff_tasks t where t.subject_id = n.id and t.kind = 'notification_not_confirmed')";
        assert_eq!(self.count(unlike).await, 0);
    }
}

#[tokio::test]
async fn killed_between_every_two_steps() {
    let post = Post::on_time("email").await;
    for (n, point) in POINTS.into_iter().enumerate() {
        for (mail, channel) in [(true, "email"), (false, "sms")] {
            post.trial.change(&format!("update patients set preferred_channel = '{channel}'")).await;
            let id = post.book(Visit { slot: n * 4 + usize::from(mail) * 2, ..Visit::default() }).await;
            let (mailed, texted) = (post.mailbox.taken().len(), post.gateway.taken().len());
            post.killed_at(point, mail).await;
            post.another_takes_over().await;
            let state = format!(
                "select format('%s %s', state, coalesce(reason_code, '-')) from notification_intents where appointment_id = '{id}' and kind = 'confirmation'"
            );
            let state: String = sqlx::query_scalar(sqlx::AssertSqlSafe(state))
                .fetch_one(&mut post.trial.connect().await)
                .await
                .expect("a state");
            let (mailed, texted) = (post.mailbox.taken().len() - mailed, post.gateway.taken().len() - texted);
            let in_doubt = mail && matches!(point, Point::Marked | Point::Sending | Point::Sent | Point::Heard);
            let wanted = if in_doubt { "UNKNOWN lease_ended" } else { "COMPLETED -" };
            assert_eq!(state, wanted, "{point:?} {channel}");
            match point {
                _ if !mail => assert_eq!((mailed, texted), (0, 1), "{point:?}"),
                // It went out before, or never does.
                Point::Marked | Point::Sending => assert_eq!((mailed, texted), (0, 0), "{point:?}"),
                _ => assert_eq!((mailed, texted), (1, 0), "{point:?}"),
            }
            post.holds().await;
        }
    }
    assert_eq!(post.tasks().await, ["notification_not_confirmed lease_ended"; 4]);
    post.end().await;
}

/// More than a process gets through before it is killed.
const VISITS: i32 = 120;

#[tokio::test]
async fn killed_at_any_moment() {
    let post = Post::on_time("email").await;
    post.trial.change("update patients set preferred_channel = 'sms' where id::text < '8'").await;
    for n in 0..VISITS.unsigned_abs() as usize {
        post.book(Visit { slot: n, patient: n % 50, ..Visit::default() }).await;
    }
    let sent = || post.mailbox.taken().len() + post.gateway.asked().len();
    for round in 0..6 {
        let before = sent();
        let process = post.process(&post.trial.url()).await;
        eventually("it is in the middle of it", async || sent() > before + round).await;
        process.kill().await;
        // What was under way is left under way.
        post.leases_end().await;
    }
    post.another_takes_over().await;
    post.holds().await;
    let texted =
        post.count("select count(*) from notification_intents where channel = 'sms' and state = 'COMPLETED'").await;
    assert_eq!(i64::try_from(post.gateway.taken().len()), Ok(texted), "each once");
    let mailed =
        post.count("select count(*) from notification_intents where channel = 'email' and state = 'COMPLETED'").await;
    let unknown =
        post.count("select count(*) from notification_intents where channel = 'email' and state = 'UNKNOWN'").await;
    let taken = i64::try_from(post.mailbox.taken().len()).expect("few");
    assert!((mailed..=mailed + unknown).contains(&taken), "{mailed} {unknown} {taken}");
    assert_eq!(mailed + unknown + texted, i64::from(VISITS));
    println!("mailed {mailed}, not confirmed {unknown}, texted {texted}, posted {}", post.gateway.asked().len());
    post.end().await;
}
