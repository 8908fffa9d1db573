//! What patients are told. The intent a command wrote is the only queue; here, the logical consumer `notifications` sees to
//! it that what a later command made untrue is never told, and the role `notifier` tells the rest: [`notifier`] takes up
//! what is due, [`message`] puts it into words, [`senders`] take it out of the building, and a [`breaker`] holds back what
//! would go to a destination that is away.

use jiff::Timestamp;
use sqlx::postgres::PgConnection;

use crate::consumer::Handler;
use crate::domain::event::Logged;
use crate::store::{StoreError, notifications};

pub mod breaker;
mod mail;
pub mod message;
pub mod notifier;
pub mod senders;
mod sms;

/// Marks the intents of an appointment that its later schedule has overtaken.
pub struct Supersede;

impl Handler for Supersede {
    const CONSUMER: &'static str = "notifications";
    // What a version overtakes does not hang on when it is heard of.
    const IN_ORDER: bool = false;

    async fn apply(&self, connection: &mut PgConnection, events: &[&Logged], now: Timestamp) -> Result<(), StoreError> {
        let now_at: Vec<_> = events
            .iter()
            .filter(|logged| logged.event.subject_kind == "appointment")
            .filter_map(|logged| {
                let version = logged.event.data["schedule_version"].as_i64()?;
                Some((logged.event.tenant_id, logged.event.subject_id, i32::try_from(version).ok()?))
            })
            .collect();
        notifications::supersede(connection, &now_at, now).await
    }
}
