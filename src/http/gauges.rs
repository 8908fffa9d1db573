//! What `/metrics` asks for when it is scraped: figures of this process, and those of its database, which every process on
//! it shows the same.

use jiff::Timestamp;

use crate::app::App;
use crate::pulse::age;
use crate::store::watch::Standing;

/// Those of this process.
pub(super) fn of_process(app: &App) {
    let (open, idle) = app.store.usage();
    let (at_work, waiting) = app.commands.registry.load();
    set("oncebook_database_connections", open);
    set("oncebook_database_connections_idle", idle);
    set("oncebook_in_flight_commands", at_work);
    set("oncebook_in_flight_waiters", waiting);
    set("oncebook_lanes", app.commands.lanes.len());
    for look in app.pulses.look() {
        let worker = look.name;
        metrics::gauge!("oncebook_worker_ok", "worker" => worker).set(f64::from(u8::from(look.ok)));
        if let Some(ago) = look.last_ok {
            metrics::gauge!("oncebook_worker_success_age_seconds", "worker" => worker).set(ago.as_secs_f64());
        }
        if let Some(behind) = look.behind {
            metrics::gauge!("oncebook_worker_behind_items", "worker" => worker).set(number(behind.items));
            metrics::gauge!("oncebook_worker_behind_seconds", "worker" => worker).set(behind.seconds);
        }
    }
}

/// Those of its database; where it did not answer, the last that are known stay, and `oncebook_database_up` says so.
pub(super) fn of_database(standing: Option<&Standing>, now: Timestamp) {
    set("oncebook_database_up", usize::from(standing.is_some()));
    let Some(standing) = standing else { return };
    let since = |oldest: Option<Timestamp>| oldest.map_or(0.0, |oldest| age(oldest, now));
    metrics::gauge!("oncebook_outbox_events").set(number(standing.outbox.items));
    metrics::gauge!("oncebook_outbox_oldest_seconds").set(since(standing.outbox.oldest));
    metrics::gauge!("oncebook_staff_tasks_open").set(number(standing.staff_tasks));
    for inbox in &standing.inboxes {
        let states = [
            ("RETRYABLE", inbox.retryable),
            ("HELD", inbox.held),
            ("PROCESSING", inbox.processing),
            ("QUARANTINED", inbox.quarantined),
        ];
        for (state, events) in states {
            let consumer = inbox.consumer.clone();
            metrics::gauge!("oncebook_inbox_events", "consumer" => consumer, "state" => state).set(number(events));
        }
        let due = since(inbox.due.oldest);
        metrics::gauge!("oncebook_inbox_oldest_due_seconds", "consumer" => inbox.consumer.clone()).set(due);
    }
}

fn set(name: &'static str, count: usize) {
    metrics::gauge!(name).set(number(u64::try_from(count).unwrap_or(u64::MAX)));
}

/// A count as a gauge takes it: none here is near four thousand million.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
