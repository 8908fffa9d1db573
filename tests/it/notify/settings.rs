//! What a clinic sets for its notifications: who may, what is refused and where, and what follows.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use oncebook::domain::notification::Kind;
use oncebook::store::notifications;
use oncebook::worker::Worker;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Post;
use crate::app::{Visit, slot};
use crate::client::Call;
use crate::gateway::Instead;
use crate::mailbox::{Act, Stage};

impl Post {
    fn path(&self) -> String {
        format!("/v1/clinics/{}/notifications", self.trial.demo.clinic_id)
    }

    /// Sets what the clinic wants, as an administrator.
    async fn set(&self, settings: Value) -> Value {
        let admin = self.trial.desk_of(&self.trial.demo.api_keys.admin);
        admin.say(&Call::put(self.path(), settings)).await.expect(200, "").json()
    }

    async fn due(&self) -> Vec<Timestamp> {
        let due = "select due_at from notification_intents where kind = 'reminder' order by due_at";
        let due: Vec<jiff_sqlx::Timestamp> =
            sqlx::query_scalar(due).fetch_all(&mut self.trial.connect().await).await.expect("times");
        due.into_iter().map(jiff_sqlx::Timestamp::to_jiff).collect()
    }
}

#[tokio::test]
async fn settings_are_put_and_read_as_the_directory_is() {
    let post = Post::new("email").await;
    let keys = &post.trial.demo.api_keys;
    let (admin, desk) = (post.trial.desk_of(&keys.admin), post.trial.desk());
    let unset = json!({
        "reminder_hours": 24, "quiet_hours": null, "version": 0,
        "templates": { "confirmation": null, "change": null, "cancellation": null, "reminder": null },
    });
    let read = desk.say(&Call::get(post.path())).await.expect(200, "");
    assert_eq!((read.json(), read.header("etag")), (unset.clone(), Some("\"0\"")));
    desk.say(&Call::put(post.path(), json!({}))).await.expect(403, "forbidden");
    post.trial.desk_of(&keys.other_clinic).say(&Call::get(post.path())).await.expect(404, "not_found");
    post.trial.desk_of(&keys.other_tenant).say(&Call::get(post.path())).await.expect(404, "not_found");
    assert_eq!(admin.say(&Call::put(post.path(), json!({}))).await.expect(200, "").json(), unset, "it is so already");
    let template = json!({ "subject": "{{ clinic }}", "text": "{{ start }}", "html": null, "sms": null });
    let settings = json!({
        "reminder_hours": 48, "quiet_hours": { "from": "20:00", "to": "08:00" }, "templates": { "reminder": template },
    });
    let put = Call::put(post.path(), settings);
    admin.say(&put.clone().if_match(1)).await.expect(412, "version_mismatch");
    let set = admin.say(&put.clone().if_match(0)).await.expect(200, "");
    assert_eq!(set.header("etag"), Some("\"1\""));
    assert_eq!((&set.json()["version"], &set.json()["templates"]["reminder"]), (&json!(1), &template));
    admin.say(&put.if_match(0)).await.expect(412, "version_mismatch");
    assert_eq!(desk.say(&Call::get(post.path())).await.expect(200, "").json(), set.json());
    // A client that knows only the clinic resets none of it.
    let clinic = format!("/v1/clinics/{}", post.trial.demo.clinic_id);
    let old = json!({ "name": "Spree Dental Mitte", "time_zone": "Europe/Berlin", "slot_minutes": 15 });
    admin.say(&Call::put(clinic, old)).await.expect(200, "");
    assert_eq!(desk.say(&Call::get(post.path())).await.expect(200, "").json(), set.json());
    assert_eq!(
        post.count("select count(*) from audit where operation = 'put_clinic_notifications' and status = 200").await,
        1
    );
    post.end().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_where_it_stands() {
    let post = Post::new("email").await;
    let admin = post.trial.desk_of(&post.trial.demo.api_keys.admin);
    let with = |part: &str, source: &str| {
        let mut template = json!({ "subject": "S", "text": "T" });
        template[part] = source.into();
        json!({ "templates": { "change": template } })
    };
    for (settings, pointer) in [
        (with("text", "{{ birth_date }}"), "/templates/change/text"),
        (with("html", "{% if patient %}"), "/templates/change/html"),
        (with("subject", "{{ 'x' * 100000000 }}"), "/templates/change/subject"),
        (with("sms", &"x".repeat(501)), "/templates/change/sms"),
        (json!({ "templates": { "change": { "subject": "S" } } }), "/templates/change"),
        (json!({ "templates": { "change": { "subject": "S", "text": "T", "body": "" } } }), "/templates/change/body"),
        (json!({ "templates": { "changed": null } }), "/templates/changed"),
        (json!({ "reminder_hours": 721 }), "/reminder_hours"),
        (json!({ "quiet_hours": { "from": "08:00", "to": "08:00" } }), "/quiet_hours"),
        (json!({ "quiet_hours": { "from": "24:00", "to": "08:00" } }), "/quiet_hours"),
        (json!({ "quiet_hours": { "from": "8:00", "to": "08:00" } }), "/quiet_hours/from"),
    ] {
        let heard = admin.say(&Call::put(post.path(), settings.clone())).await.expect(400, "malformed_request");
        assert_eq!(heard.json()["errors"][0]["pointer"], pointer, "{settings} {heard:?}");
    }
    assert_eq!(post.count("select count(*) from clinic_notifications").await, 0);
    post.end().await;
}

#[tokio::test]
async fn reminders_follow_the_clinics_hours() {
    let post = Post::new("email").await;
    let hours = |n: usize, hours| slot(n) - SignedDuration::from_hours(hours);
    post.book(Visit::default()).await;
    assert_eq!(post.due().await, [hours(0, 24)]);
    post.set(json!({ "reminder_hours": 2 })).await;
    assert_eq!(post.due().await, [hours(0, 2)], "those that wait move");
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    assert_eq!(post.due().await, [hours(0, 2), hours(4, 2)], "and a command writes by the new ones");
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 2, "the confirmations");
    // A command that looked before the change wrote by the old hours: its reminder waits all the same.
    post.trial
        .change("update notification_intents set due_at = due_at - interval '22 hours' where kind = 'reminder'")
        .await;
    post.clock.set(hours(0, 24));
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 2);
    assert_eq!(post.intents().await[2..], ["reminder 1 PENDING reminder_moved 0", "reminder 1 PENDING - 0"]);
    post.clock.set(hours(0, 2));
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 3);
    // Switched off, and on again.
    post.set(json!({ "reminder_hours": 0 })).await;
    assert_eq!(post.due().await[1], slot(4));
    post.set(json!({ "reminder_hours": 1 })).await;
    assert_eq!(post.due().await[1], hours(4, 1));
    post.set(json!({ "reminder_hours": 0 })).await;
    post.clock.set(slot(4));
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 3);
    assert_eq!(post.count("select count(*) from notification_intents where state = 'SUPPRESSED'").await, 1);
    post.end().await;
}

#[tokio::test]
async fn in_quiet_hours_it_waits_until_they_end() {
    let post = Post::new("email").await;
    let now = post.clock.now().in_tz("Europe/Berlin").expect("a zone");
    // From an hour ago to the next full hour but one, by the clinic's clock.
    let hour = |by: i8| format!("{:02}:00", (now.hour() + 24 + by) % 24);
    post.set(json!({ "quiet_hours": { "from": hour(-1), "to": hour(2) } })).await;
    post.book(Visit { slot: 8, ..Visit::default() }).await;
    post.settle().await;
    assert_eq!(post.intents().await[0], "confirmation 1 PENDING quiet_hours 0");
    let end = now.datetime().with().minute(0).second(0).subsec_nanosecond(0).build().expect("an hour");
    let end = (end + jiff::Span::new().hours(2)).in_tz("Europe/Berlin").expect("a time").timestamp();
    post.clock.set(end - SignedDuration::from_micros(1));
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 0);
    post.clock.set(end);
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 1);
    assert_eq!(post.intents().await[0], "confirmation 1 COMPLETED - 1");
    post.end().await;
}

#[tokio::test]
async fn a_reminder_that_new_hours_make_due_is_sent_now() {
    let post = Post::new("email").await;
    let hours = |n: usize, hours| slot(n) - SignedDuration::from_hours(hours);
    post.book(Visit::default()).await;
    post.settle().await;
    post.clock.set(hours(0, 30));
    post.set(json!({ "reminder_hours": 72 })).await;
    assert_eq!(post.due().await, [hours(0, 30)], "not 42 hours ago, when nobody wanted it");
    // What is due already and waits for another try is not begun anew by every change of the settings.
    post.mailbox.next(1, Stage::Rcpt, Act::Say("451 try later"));
    post.settle().await;
    post.later(SignedDuration::from_micros(1));
    post.set(json!({ "reminder_hours": 71 })).await;
    assert_eq!(post.intents().await[1], "reminder 1 PENDING smtp_451 1");
    assert_eq!(post.due().await, [hours(0, 30)]);
    post.later(SignedDuration::from_mins(1));
    post.settle().await;
    assert_eq!(post.intents().await, ["confirmation 1 COMPLETED - 1", "reminder 1 COMPLETED - 2"]);
    // What was sent, and perhaps taken, is not moved: it is asked after.
    post.trial.change("update patients set preferred_channel = 'sms'").await;
    post.set(json!({ "reminder_hours": 24 })).await;
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    post.settle().await;
    post.clock.set(hours(4, 24));
    post.gateway.next(Instead::TakesAndFails);
    post.settle().await;
    post.set(json!({ "reminder_hours": 2 })).await;
    assert_eq!(post.due().await[1], hours(4, 24));
    post.end().await;
}

#[tokio::test]
async fn what_waited_for_the_same_moment_is_told_in_its_order() {
    let post = Post::new("email").await;
    let hours = |hours| slot(20) - SignedDuration::from_hours(hours);
    post.set(json!({ "reminder_hours": 34, "quiet_hours": { "from": "20:00", "to": "08:00" } })).await;
    // The visit is at one in the afternoon: it is booked in the night of the day before, and falls due in the same night.
    post.clock.set(hours(36));
    post.book(Visit { slot: 20, ..Visit::default() }).await;
    post.settle().await;
    post.clock.set(hours(34));
    post.settle().await;
    let waiting = ["confirmation 1 PENDING quiet_hours 0", "reminder 1 PENDING quiet_hours 0"];
    assert_eq!(post.intents().await, waiting);
    post.clock.set(hours(28));
    // Two that cannot see what the other takes up.
    let (mut one, mut other) = (post.trial.connect().await, post.trial.connect().await);
    let (now, lease) = (post.clock.now(), Duration::from_mins(1));
    let mut took = Vec::new();
    for connection in [&mut one, &mut other] {
        sqlx::raw_sql("begin").execute(&mut *connection).await.expect("begun");
        let claim = notifications::claim(connection, Uuid::nil(), lease, 8, now).await.expect("a claim");
        took.push(claim.claimed.iter().map(|it| it.kind).collect::<Vec<_>>());
    }
    for connection in [&mut one, &mut other] {
        sqlx::raw_sql("rollback").execute(connection).await.expect("undone");
    }
    assert_eq!(took, [vec![Kind::Confirmation], vec![]]);
    post.notifier.step().await.expect("a step");
    assert_eq!(post.intents().await, ["confirmation 1 COMPLETED - 1", waiting[1]]);
    post.settle().await;
    let told: Vec<_> =
        post.mailbox.taken().iter().map(|it| it.message().subject().unwrap_or_default()[..8].to_owned()).collect();
    assert_eq!(told, ["Your app", "Reminder"]);
    post.end().await;
}
