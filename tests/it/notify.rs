//! What patients are told: each thing once, in words they understand, and nothing that is not true any more. The mail
//! server and the gateway are real ones on this machine; mails are read as a mail reader reads them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mail_parser::MimeHeaders;
use oncebook::app::App;
use oncebook::clock::Clock;
use oncebook::config::{Config, Secret};
use oncebook::notify::notifier::Notifier;
use oncebook::notify::senders::{Patience, Senders};
use oncebook::worker::{Did, Worker};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::app::{Setup, Trial, Visit, reschedule, slot, step};
use crate::client::Call;
use crate::gateway::Gateway;
use crate::mailbox::{Mailbox, Stage, Taken};

mod away;
mod killed;
mod plans;
mod secured;
mod settings;
mod trouble;

/// Short, so that silence is noticed within a test; the times between tries are the clock's, which stands still.
const PATIENCE: Patience = Patience {
    connect: Duration::from_millis(1500),
    command: Duration::from_millis(500),
    message: Duration::from_millis(1500),
};

/// A trial with somewhere to send to.
pub(crate) struct Post {
    pub(crate) trial: Trial,
    pub(crate) app: Arc<App>,
    pub(crate) clock: Clock,
    pub(crate) mailbox: Mailbox,
    pub(crate) gateway: Gateway,
    pub(crate) notifier: Notifier,
}

impl Post {
    /// All patients have an address of their own and prefer `channel`.
    pub(crate) async fn new(channel: &str) -> Self {
        Self::at(channel, Clock::frozen(Clock::system().now())).await
    }

    /// The same with a clock that runs, as other processes' clocks do.
    pub(crate) async fn on_time(channel: &str) -> Self {
        Self::at(channel, Clock::system()).await
    }

    async fn at(channel: &str, clock: Clock) -> Self {
        let mut trial = Trial::new().await;
        let app = trial.serve(Setup { clock: clock.clone(), ..trial.setup() }).await;
        trial.change(&format!("update patients set preferred_channel = '{channel}'")).await;
        let (mailbox, gateway) = (Mailbox::open().await, Gateway::open().await);
        let notifier = notifier(&app, Some(&mailbox), Some(&gateway));
        Self { trial, app, clock, mailbox, gateway, notifier }
    }

    /// Steps until there is nothing left to do.
    pub(crate) async fn settle(&self) {
        settle(&self.notifier).await;
    }

    pub(crate) fn later(&self, by: SignedDuration) {
        self.clock.set(self.clock.now() + by);
    }

    pub(crate) async fn book(&self, visit: Visit) -> Uuid {
        self.trial.desk().say(&self.trial.book(visit)).await.expect(201, "").id()
    }

    pub(crate) async fn say(&self, call: Call) -> Value {
        self.trial.desk().say(&call).await.expect(200, "").json()
    }

    /// Intents by kind and schedule version, with state, reason and tries.
    pub(crate) async fn intents(&self) -> Vec<String> {
        let all = "select format('%s %s %s %s %s', kind, schedule_version, state, coalesce(reason_code, '-'), attempts)
          from notification_intents order by schedule_version, kind, state, reason_code, id";
        sqlx::query_scalar(all).fetch_all(&mut self.trial.connect().await).await.expect("intents")
    }

    /// Tasks for STAFF, by kind and reason.
    pub(crate) async fn tasks(&self) -> Vec<String> {
        let all = "select format('%s %s', kind, reason_code) from staff_tasks order by 1";
        sqlx::query_scalar(all).fetch_all(&mut self.trial.connect().await).await.expect("tasks")
    }

    /// A number.
    pub(crate) async fn count(&self, of: &'static str) -> i64 {
        sqlx::query_scalar(of).fetch_one(&mut self.trial.connect().await).await.expect("a count")
    }

    pub(crate) async fn end(self) {
        // Elsewhere a killed process's leases may still run.
        let at_work = "select count(*) from notification_intents where state in ('LEASED', 'SENT')";
        assert_eq!(self.count(at_work).await, 0, "at work");
        self.trial.end().await;
    }
}

pub(crate) async fn settle(notifier: &Notifier) {
    while notifier.step().await.expect("a step") == Did::Work {}
}

pub(crate) fn notifier(app: &Arc<App>, mailbox: Option<&Mailbox>, gateway: Option<&Gateway>) -> Notifier {
    let config = Config {
        smtp_url: mailbox.map(|mailbox| Secret(mailbox.url())),
        mail_from: Some("desk@clinic.example".to_owned()),
        sms_url: gateway.map(|gateway| Secret(gateway.url())),
        sms_token: Some(Secret("gateway-token".to_owned())),
        ..Config::from_environment()
    };
    let senders = Senders::of(&config, PATIENCE).expect("senders");
    Notifier::of(Arc::clone(app), senders, PATIENCE)
}

/// When the visit in the demo's `n`-th slot starts, as a patient reads it.
fn in_words(n: usize) -> String {
    let start = slot(n).in_tz("Europe/Berlin").expect("a zone");
    format!("{} ({}, Europe/Berlin)", start.strftime("%A, %-d %B %Y, %H:%M"), start.strftime("%Z"))
}

/// What a calendar makes of a mail: method, and UID, SEQUENCE, STATUS, start and end of its only event.
fn calendar(taken: &Taken) -> (String, [String; 5]) {
    let message = taken.message();
    let part = message
        .parts
        .iter()
        .find(|part| part.content_type().is_some_and(|it| it.ctype() == "text" && it.subtype() == Some("calendar")))
        .expect("a calendar");
    let method = part.content_type().and_then(|it| it.attribute("method")).expect("a method").to_owned();
    let calendar: icalendar::Calendar = part.text_contents().expect("text").parse().expect("a calendar");
    assert_eq!(calendar.property_value("METHOD"), Some(method.as_str()));
    let attached = message.attachments().find(|part| part.attachment_name() == Some("invite.ics")).expect("attached");
    assert_eq!(attached.contents(), part.contents());
    let [icalendar::CalendarComponent::Event(event)] = calendar.components.as_slice() else { panic!("one event") };
    let of = |name| icalendar::Component::property_value(event, name).unwrap_or_default().to_owned();
    (method, ["UID", "SEQUENCE", "STATUS", "DTSTART", "DTEND"].map(of))
}

fn basic(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[tokio::test]
async fn each_is_told_once_in_words_with_its_zone_and_for_a_calendar() {
    let post = Post::new("email").await;
    let id = post.book(Visit::default()).await;
    post.settle().await;
    post.say(reschedule(id, 1)).await;
    post.settle().await;
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 2, "booked and moved");
    post.clock.set(slot(1) - SignedDuration::from_hours(24) - SignedDuration::from_micros(1));
    post.settle().await;
    assert_eq!(post.mailbox.taken().len(), 2, "not yet");
    post.clock.set(slot(1) - SignedDuration::from_hours(24));
    post.settle().await;
    post.say(step(id, "cancel")).await;
    post.settle().await;
    let taken = post.mailbox.taken();
    let ids = "select id from notification_intents where state = 'COMPLETED' order by schedule_version, kind";
    let ids: Vec<Uuid> = sqlx::query_scalar(ids).fetch_all(&mut post.trial.connect().await).await.expect("ids");
    assert_eq!((taken.len(), ids.len()), (4, 4));
    let uid = format!("{id}@oncebook");
    for (n, (subject, lead, at, method, sequence, status)) in [
        ("Your appointment on ", "is booked", 0, "REQUEST", "1", "CONFIRMED"),
        ("Your appointment has changed: ", "has changed. It is now", 1, "REQUEST", "2", "CONFIRMED"),
        ("Reminder: your appointment on ", "look forward", 1, "REQUEST", "2", "CONFIRMED"),
        ("Your appointment on ", "is cancelled", 1, "CANCEL", "3", "CANCELLED"),
    ]
    .into_iter()
    .enumerate()
    {
        let message = taken[n].message();
        assert!(message.subject().is_some_and(|it| it.starts_with(subject)), "{:?}", message.subject());
        for body in
            [message.body_text(0).expect("text"), message.body_html(0).expect("HTML").replace("&#x2f;", "/").into()]
        {
            assert!(body.contains(lead) && body.contains(&in_words(at)), "{body}");
            assert!(body.contains("Ada Arslan") && body.contains("Spree Dental Mitte"), "{body}");
        }
        let (start, end) = (slot(at), slot(at) + SignedDuration::from_mins(15));
        let event = [uid.clone(), sequence.into(), status.into(), basic(start), basic(end)];
        assert_eq!(calendar(&taken[n]), (method.to_owned(), event));
        assert_eq!(message.message_id(), Some(format!("{}@clinic.example", ids[n]).as_str()));
        assert_eq!(message.header_raw("Auto-Submitted").map(str::trim), Some("auto-generated"));
        let from = message.from().and_then(|it| it.first()).expect("a sender");
        assert_eq!((from.name(), from.address()), (Some("Spree Dental Mitte"), Some("desk@clinic.example")));
        assert_eq!(taken[n].to, "ada.arslan@example.org");
    }
    assert_eq!(
        post.intents().await,
        [
            "confirmation 1 COMPLETED - 1",
            "reminder 1 SUPERSEDED - 0",
            "change 2 COMPLETED - 1",
            "reminder 2 COMPLETED - 1",
            "cancellation 3 COMPLETED - 1",
        ]
    );
    post.end().await;
}

#[tokio::test]
async fn what_was_overtaken_before_it_was_sent_is_never_sent() {
    let post = Post::new("email").await;
    let id = post.book(Visit::default()).await;
    post.say(reschedule(id, 1)).await;
    post.say(step(id, "cancel")).await;
    post.settle().await;
    let told = |post: &Post| post.mailbox.taken().iter().map(|it| calendar(it).0).collect::<Vec<_>>();
    assert_eq!(told(&post), ["CANCEL"], "of three, the one that is true");
    // Moved after the claim, and before the first byte left.
    let id = post.book(Visit { slot: 8, ..Visit::default() }).await;
    let held = post.mailbox.hold(Stage::Greeting);
    let moved = async {
        held.reached().await;
        post.say(reschedule(id, 9)).await;
        held.go_on();
    };
    tokio::join!(post.settle(), moved);
    assert_eq!(told(&post), ["CANCEL", "REQUEST"]);
    assert_eq!(calendar(&post.mailbox.taken()[1]).1[1], "2", "the move, not the booking");
    let stale = "select count(*) from notification_intents n join appointments a on a.id = n.appointment_id
      where n.state <> 'SUPERSEDED' and n.schedule_version < a.schedule_version and n.kind <> 'reminder'";
    assert_eq!(post.count(stale).await, 0);
    post.end().await;
}

#[tokio::test]
async fn who_prefers_text_messages_gets_them_and_who_wants_nothing_gets_nothing() {
    let post = Post::new("sms").await;
    for (patient, set) in [
        (1, "preferred_channel = 'none'"),
        (2, "phone = null"),
        (3, "preferred_channel = 'email', email = ''"),
        (4, "preferred_channel = 'email', email = 'ada at example'"),
    ] {
        let patient = post.trial.demo.patient_ids[patient];
        post.trial.change(&format!("update patients set {set} where id = '{patient}'")).await;
    }
    for patient in 0..5 {
        post.book(Visit { patient, slot: patient * 4, ..Visit::default() }).await;
    }
    post.settle().await;
    let taken = post.gateway.taken();
    assert_eq!((taken.len(), post.mailbox.taken().len()), (1, 0));
    let id: Uuid = taken[0].key.parse().expect("the intent's id");
    let text = taken[0].body["text"].as_str().expect("text");
    assert!(
        text.starts_with("Spree Dental Mitte: your appointment is booked") && text.contains(&in_words(0)),
        "{text}"
    );
    assert_eq!(taken[0].token, "Bearer gateway-token");
    let body = json!({ "id": id, "kind": "confirmation", "to": "+49 30 23125 000", "text": text });
    assert_eq!(taken[0].body, body);
    let confirmations: Vec<_> = post.intents().await.into_iter().filter(|it| it.starts_with("confirmation")).collect();
    let mut states: Vec<_> = confirmations.iter().map(|it| it.trim_start_matches("confirmation 1 ")).collect();
    states.sort_unstable();
    assert_eq!(
        states,
        [
            "COMPLETED - 1",
            "SUPPRESSED bad_address 0",
            "SUPPRESSED channel_none 0",
            "SUPPRESSED no_address 0",
            "SUPPRESSED no_address 0",
        ]
    );
    assert!(post.tasks().await.is_empty());
    post.end().await;
}

#[tokio::test]
async fn what_was_due_before_a_notifier_ever_ran_is_not_told() {
    let post = Post::new("email").await;
    let id = post.book(Visit::default()).await;
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    post.later(SignedDuration::from_hours(24) + SignedDuration::from_secs(1));
    post.say(step(id, "cancel")).await;
    post.settle().await;
    let told: Vec<_> = post.mailbox.taken().iter().map(|it| calendar(it).0).collect();
    assert_eq!(told, ["CANCEL"]);
    // Nor a reminder once the visit has begun.
    post.clock.set(slot(4));
    post.settle().await;
    assert_eq!(
        post.intents().await,
        [
            "confirmation 1 SUPERSEDED - 0",
            "confirmation 1 SUPPRESSED overdue 0",
            "reminder 1 SUPERSEDED - 0",
            "reminder 1 SUPPRESSED visit_begun 0",
            "cancellation 2 COMPLETED - 1",
        ]
    );
    assert_eq!(post.mailbox.taken().len(), 1);
    assert!(post.tasks().await.is_empty());
    post.end().await;
}

#[tokio::test]
async fn without_a_server_a_folder_takes_messages() {
    let post = Post::new("email").await;
    let folder = std::env::temp_dir().join(format!("oncebook-mail-{}", post.trial.demo.tenant_id));
    let config = Config { messages_folder: Some(folder.clone()), ..Config::from_environment() };
    let dev = Notifier::of(Arc::clone(&post.app), Senders::of(&config, PATIENCE).expect("senders"), PATIENCE);
    post.book(Visit::default()).await;
    settle(&dev).await;
    post.trial.change("update patients set preferred_channel = 'sms'").await;
    post.book(Visit { slot: 4, ..Visit::default() }).await;
    settle(&dev).await;
    let mut files: Vec<_> = std::fs::read_dir(&folder).expect("a folder").flatten().map(|it| it.path()).collect();
    files.sort_unstable_by_key(|path| path.extension().map(std::ffi::OsStr::to_owned));
    let texts: Vec<_> = files.iter().map(|path| std::fs::read_to_string(path).expect("text")).collect();
    assert!(
        texts[0].contains("Subject: Your appointment on") && texts[0].contains("To: \"Ada Arslan\""),
        "{}",
        texts[0]
    );
    assert!(texts[1].starts_with("To: +49 30 23125 000") && texts[1].contains(&in_words(4)), "{}", texts[1]);
    assert_eq!(post.count("select count(*) from notification_intents where state = 'COMPLETED'").await, 2);
    std::fs::remove_dir_all(folder).expect("removed");
    post.end().await;
}

#[tokio::test]
async fn a_name_begins_no_header() {
    let post = Post::new("email").await;
    let patient = post.trial.demo.patient_ids[0];
    let name = "Ada\r\nBcc: all@example.org\r\n\r\nBEGIN:VEVENT, \"<b>Ada</b>\"; Ünal";
    let body = json!({ "name": name, "email": "ada.arslan@example.org", "preferred_channel": "email" });
    post.say(Call::put(format!("/v1/patients/{patient}"), body)).await;
    let clinic = post.trial.demo.clinic_id;
    let subject = "For {{ patient }}\r\nX-Injected: yes\r\n{{ patient }}";
    let template =
        json!({ "subject": subject, "text": "{{ patient }}\r\n.\r\nQUIT\r\n", "html": "<p>{{ patient }}</p>" });
    let admin = post.trial.desk_of(&post.trial.demo.api_keys.admin);
    let put =
        Call::put(format!("/v1/clinics/{clinic}/notifications"), json!({ "templates": { "confirmation": template } }));
    admin.say(&put).await.expect(200, "");
    post.book(Visit::default()).await;
    post.settle().await;
    let taken = post.mailbox.taken();
    let message = taken[0].message();
    let mut names: Vec<_> = message.headers().iter().map(|it| it.name().to_ascii_lowercase()).collect();
    names.sort_unstable();
    let wanted = ["auto-submitted", "content-type", "date", "from", "message-id", "mime-version", "subject", "to"];
    assert_eq!(names, wanted);
    let line = "Ada Bcc: all@example.org BEGIN:VEVENT, \"<b>Ada</b>\"; Ünal";
    assert_eq!(message.subject(), Some(format!("For {line} X-Injected: yes {line}").as_str()));
    assert_eq!(message.to().and_then(|it| it.first()).and_then(|it| it.name()), Some(line));
    assert!(message.body_text(0).is_some_and(|it| it.contains(".\r\nQUIT")), "a dot on a line of its own is text");
    assert!(message.body_html(0).is_some_and(|it| !it.contains("<b>")));
    assert_eq!(calendar(&taken[0]).1[1], "1");
    assert_eq!(taken.len(), 1);
    post.end().await;
}
