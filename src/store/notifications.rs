//! `notification_intents`: the queue of what patients are to be told.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use super::directory::notifications::quiet_hours;
use super::log::interval;
use super::look::status;
use super::watch::{self, Waiting};
use crate::domain::appointment::Status;
use crate::domain::directory::Channel;
use crate::domain::notification::{Kind, REMINDER_HOURS, Settings};
use crate::domain::template::Templates;
use crate::domain::time::Span;

/// Marks what is still to be told of earlier schedules of these appointments (tenant, appointment, schedule version).
///
/// # Errors
/// As [`StoreError`].
pub async fn supersede(
    connection: &mut PgConnection,
    now_at: &[(Uuid, Uuid, i32)],
    now: Timestamp,
) -> Result<(), StoreError> {
    let tenants: Vec<Uuid> = now_at.iter().map(|(tenant, ..)| *tenant).collect();
    let appointments: Vec<Uuid> = now_at.iter().map(|(_, appointment, _)| *appointment).collect();
    let versions: Vec<i32> = now_at.iter().map(|(.., version)| *version).collect();
    sqlx::query!(
        "update notification_intents n
         set state = 'SUPERSEDED', decided_at = $4
         from (
           -- In one order for all, so that no two wait for each other.
           select i.tenant_id, i.id
           from unnest($1::uuid[], $2::uuid[], $3::int[]) as at(tenant_id, appointment_id, schedule_version)
           join notification_intents i on i.tenant_id = at.tenant_id and i.appointment_id = at.appointment_id
             and i.schedule_version < at.schedule_version
           -- That is, PENDING. Said so, the index of all that is due might be gone through for it.
           where i.token is null and i.decided_at is null
           order by i.tenant_id, i.id
           for update of i
         ) as overtaken
         where n.tenant_id = overtaken.tenant_id and n.id = overtaken.id",
        &tenants,
        &appointments,
        &versions,
        now.to_sqlx()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// An intent somebody is at, and all that is told of it.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Whose.
    pub tenant_id: Uuid,
    /// Its id: what a receiver knows it by.
    pub id: Uuid,
    /// The visit it is about.
    pub appointment_id: Uuid,
    /// The version of the visit's schedule.
    pub schedule_version: i32,
    /// What it tells.
    pub kind: Kind,
    /// When it fell due.
    pub due_at: Timestamp,
    /// Whether a notifier had ever run by then.
    pub in_service: bool,
    /// Tries, this one included.
    pub attempts: i32,
    /// What it may have been sent through already: then the outcome of that is not known.
    pub sent_through: Option<Channel>,
    /// Why it had to wait, if it had to.
    pub waited_for: Option<String>,
    /// Where the visit is in its life.
    pub status: Status,
    /// The visit.
    pub during: Span,
    /// The patient's name.
    pub patient: String,
    /// The patient's e-mail address.
    pub email: Option<String>,
    /// The patient's number.
    pub phone: Option<String>,
    /// The language to address the patient in.
    pub language: Option<String>,
    /// How the patient wants to be told.
    pub prefers: Channel,
    /// The practitioner's name.
    pub practitioner: String,
    /// The service's name.
    pub service: String,
    /// The clinic's name.
    pub clinic: String,
    /// The clinic's zone.
    pub time_zone: String,
    /// What the clinic has set.
    pub settings: Settings,
}

/// What a claim came to.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Under the token, to be sent.
    pub claimed: Vec<Claimed>,
    /// Overtaken by a later schedule: that is that.
    pub superseded: usize,
}

/// Takes up what is due, under this token, up to `most` of each sort; what a later schedule has overtaken is marked.
///
/// # Errors
/// As [`StoreError`].
pub async fn claim(
    connection: &mut PgConnection,
    token: Uuid,
    lease: Duration,
    most: i64,
    now: Timestamp,
) -> Result<Claim, StoreError> {
    let rows = sqlx::query_file!("src/store/notifications_claim.sql", now.to_sqlx(), token, interval(lease), most)
        .fetch_all(connection)
        .await?;
    let mut claim = Claim::default();
    for row in rows {
        if row.state == "SUPERSEDED" {
            claim.superseded += 1;
            continue;
        }
        let unknown = || StoreError::Broken(sqlx::Error::Decode(format!("no kind {:?}", row.kind).into()));
        claim.claimed.push(Claimed {
            tenant_id: row.tenant_id,
            id: row.id,
            appointment_id: row.appointment_id,
            schedule_version: row.schedule_version,
            kind: Kind::parse(&row.kind).ok_or_else(unknown)?,
            due_at: row.due_at.to_jiff(),
            in_service: row.in_service,
            attempts: row.attempts,
            sent_through: row.channel.as_deref().and_then(Channel::parse),
            waited_for: row.reason_code,
            status: status(&row.status)?,
            during: Span { start: row.start.to_jiff(), end: row.end.to_jiff() },
            patient: row.patient,
            email: row.email,
            phone: row.phone,
            language: row.language,
            prefers: Channel::parse(&row.prefers).unwrap_or_default(),
            practitioner: row.practitioner,
            service: row.service,
            clinic: row.clinic,
            time_zone: row.time_zone,
            settings: Settings {
                clinic_id: row.clinic_id,
                reminder_hours: row.reminder_hours.unwrap_or(REMINDER_HOURS),
                quiet_hours: quiet_hours(row.quiet_from, row.quiet_to),
                templates: row.templates.map_or_else(Templates::default, |Json(templates)| templates),
                version: row.version.unwrap_or_default(),
            },
        });
    }
    Ok(claim)
}

/// Which try of which intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Whose.
    pub tenant_id: Uuid,
    /// Which intent.
    pub id: Uuid,
    /// The try's token.
    pub token: Uuid,
}

/// Whether an intent may leave the building.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is marked as sent, and may.
    Sent,
    /// A later schedule has overtaken it meanwhile.
    Stale,
    /// The token is gone: it is another's.
    Late,
}

/// Marks an intent as sent, just before it is, unless it was overtaken. May be asked again.
///
/// # Errors
/// As [`StoreError`].
pub async fn leave(
    connection: &mut PgConnection,
    this: Try,
    channel: Channel,
    lease: Duration,
) -> Result<Leave, StoreError> {
    let said = sqlx::query_file_scalar!(
        "src/store/notifications_leave.sql",
        this.tenant_id,
        this.id,
        this.token,
        channel.as_str(),
        interval(lease)
    )
    .fetch_one(connection)
    .await?;
    Ok(match said.as_str() {
        "sent" => Leave::Sent,
        "stale" => Leave::Stale,
        _ => Leave::Late,
    })
}

/// How a try ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The intent's state from now on.
    pub state: &'static str,
    /// Why.
    pub reason: Option<&'a str>,
    /// When it is tried again, if it is.
    pub again_at: Option<Timestamp>,
    /// Whether this try is given back: it was none of the intent's doing.
    pub give_back: bool,
    /// Whether the receiver may have taken it.
    pub maybe_sent: bool,
    /// A task for STAFF, if one follows: its id and its kind.
    pub task: Option<(Uuid, &'static str)>,
}

/// Ends a try. False where its token is gone: then it is another's to end.
///
/// # Errors
/// As [`StoreError`].
pub async fn end(
    connection: &mut PgConnection,
    this: Try,
    ended: Ended<'_>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query_file_scalar!(
        "src/store/notifications_end.sql",
        this.tenant_id,
        this.id,
        this.token,
        ended.state,
        ended.reason,
        ended.again_at.map(ToSqlx::to_sqlx),
        i32::from(ended.give_back),
        ended.maybe_sent,
        ended.task.map(|(id, _)| id),
        ended.task.map(|(_, kind)| kind),
        now.to_sqlx()
    )
    .fetch_one(connection)
    .await?;
    Ok(done == 1)
}

/// Gives up what was sent by mail and whose lease ended: nobody can say whether it was taken. Each is a task for STAFF, with
/// one of these ids; no more are given up than there are ids.
///
/// # Errors
/// As [`StoreError`].
pub async fn give_up_sent(connection: &mut PgConnection, task_ids: &[Uuid], now: Timestamp) -> Result<u64, StoreError> {
    let given_up = sqlx::query_file_scalar!("src/store/notifications_give_up.sql", task_ids, now.to_sqlx())
        .fetch_one(connection)
        .await?;
    Ok(given_up.unsigned_abs())
}

/// What could be taken up now, and waits for a notifier. It waits from when it might have been: not while it waits for another
/// try, or for quiet hours to end.
///
/// # Errors
/// As [`StoreError`].
pub async fn due(connection: &mut PgConnection, now: Timestamp) -> Result<Waiting, StoreError> {
    let row = sqlx::query!(
        r#"select count(*) as "items!", min(since) as oldest from (
             select coalesce(next_attempt_at, due_at) as since from notification_intents
             where state = 'PENDING' and coalesce(next_attempt_at, due_at) <= $1
             order by coalesce(next_attempt_at, due_at) limit $2) as due"#,
        now.to_sqlx(),
        watch::MOST
    )
    .fetch_one(connection)
    .await?;
    Ok(Waiting { items: row.items.unsigned_abs(), oldest: row.oldest.map(SqlTime::to_jiff) })
}
