//! `inbox`: what each logical consumer has done with each event.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::log::interval;
use crate::domain::event::{Logged, Place};

/// An event that came, as the inbox takes it.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The event.
    pub logged: &'a Logged,
    /// What is wrong with it, as far as it shows without the database.
    pub fault: Option<&'static str>,
    /// An id for the task that makes of it.
    pub task_id: Uuid,
}

/// What became of an event that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its effect follows, in this transaction, or under the token in another.
    Mine,
    /// It waits for an earlier one of its subject.
    Held,
    /// It is not what it should be: a task for STAFF.
    Quarantined,
}

/// Who takes what, when.
#[derive(Clone, Copy, Debug)]
pub struct Taking<'a> {
    /// The logical consumer.
    pub consumer: &'a str,
    /// Whether it wants a subject's events in order.
    pub in_order: bool,
    /// Now.
    pub now: Timestamp,
    /// How long what is held back rests.
    pub held: Duration,
    /// For tries of their own: the token, and its lease.
    pub own_try: Option<(Uuid, Duration)>,
}

/// Takes events in. What is known already is left out of the answer.
///
/// # Errors
/// As [`StoreError`]; [`StoreError::Again`] where a twin took one of them in at this moment and an order is to be kept: what was
/// judged of those behind it was judged without it.
pub async fn receive(
    connection: &mut PgConnection,
    taking: Taking<'_>,
    arrivals: &[Arrival<'_>],
) -> Result<Vec<(Uuid, Taken)>, StoreError> {
    let of = |part: fn(&Logged) -> Uuid| arrivals.iter().map(|it| part(it.logged)).collect::<Vec<_>>();
    let (ids, tenants) = (of(|it| it.event.id), of(|it| it.event.tenant_id));
    let (clinics, subjects) = (of(|it| it.event.clinic_id), of(|it| it.event.subject_id));
    let partitions: Vec<i16> = arrivals.iter().map(|it| it.logged.place.partition).collect();
    let offsets: Vec<i64> = arrivals.iter().map(|it| it.logged.place.offset).collect();
    let kinds: Vec<String> = arrivals.iter().map(|it| it.logged.event.subject_kind.clone()).collect();
    let sequences: Vec<i32> = arrivals.iter().map(|it| it.logged.event.sequence).collect();
    let faults: Vec<Option<String>> = arrivals.iter().map(|it| it.fault.map(str::to_owned)).collect();
    let tasks: Vec<Uuid> = arrivals.iter().map(|it| it.task_id).collect();
    let rows = sqlx::query_file!(
        "src/store/inbox_receive.sql",
        taking.consumer,
        taking.in_order,
        &ids,
        &tenants,
        &clinics,
        &partitions,
        &offsets,
        &kinds,
        &subjects,
        &sequences,
        &faults as &[Option<String>],
        &tasks,
        taking.now.to_sqlx(),
        interval(taking.held),
        taking.own_try.map(|(token, _)| token),
        taking.own_try.map(|(_, lease)| interval(lease)),
    )
    .fetch_all(connection)
    .await?;
    if taking.in_order && rows.len() < arrivals.len() {
        return Err(StoreError::Again("a twin took an event in".to_owned()));
    }
    let taken = |state: &str| match state {
        "QUARANTINED" => Taken::Quarantined,
        "RETRYABLE" => Taken::Held,
        _ => Taken::Mine,
    };
    let new = rows.into_iter().filter(|row| row.state != "KNOWN");
    Ok(new.map(|row| (row.event_id, taken(&row.state))).collect())
}

/// A try at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Which event.
    pub event_id: Uuid,
    /// Where it lies.
    pub place: Place,
    /// Which try this is, from 1 on.
    pub attempt: i32,
}

/// Takes up what is due, under this token.
///
/// # Errors
/// As [`StoreError`].
pub async fn claim(
    connection: &mut PgConnection,
    consumer: &str,
    token: Uuid,
    lease: Duration,
    most: i64,
) -> Result<Vec<Try>, StoreError> {
    let rows = sqlx::query_file!("src/store/inbox_claim.sql", consumer, token, interval(lease), most)
        .fetch_all(connection)
        .await?;
    let tries = rows.into_iter().map(|row| Try {
        event_id: row.event_id,
        place: Place { partition: row.partition, offset: row.offset },
        attempt: row.attempts,
    });
    Ok(tries.collect())
}

/// Takes up what was held back and need not be any longer, under this token: each is a first try.
///
/// # Errors
/// As [`StoreError`].
pub async fn release(
    connection: &mut PgConnection,
    (consumer, in_order): (&str, bool),
    token: Uuid,
    lease: Duration,
    most: i64,
) -> Result<Vec<Try>, StoreError> {
    let rows = sqlx::query_file!("src/store/inbox_release.sql", consumer, token, interval(lease), most, in_order)
        .fetch_all(connection)
        .await?;
    let tries = rows.into_iter().map(|row| Try {
        event_id: row.event_id,
        place: Place { partition: row.partition, offset: row.offset },
        attempt: row.attempts,
    });
    Ok(tries.collect())
}

/// Gives back what was taken up under this token and not begun: it is due at once, and none of it counts as a try.
///
/// # Errors
/// As [`StoreError`].
pub async fn give_back(
    connection: &mut PgConnection,
    consumer: &str,
    token: Uuid,
    events: &[Uuid],
) -> Result<(), StoreError> {
    sqlx::query!(
        "update inbox
         set state = 'RETRYABLE', attempts = attempts - 1, token = null, lease_until = null, next_attempt_at = clock_timestamp(),
             reason_code = coalesce(reason_code, 'given_back')
         where logical_consumer_id = $1 and event_id = any($3) and token = $2",
        consumer,
        token,
        events
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends a try that succeeded. False where its token is gone: then nothing of it may stand. What waits right behind it is
/// looked at again at once.
///
/// # Errors
/// As [`StoreError`].
pub async fn finish(
    connection: &mut PgConnection,
    consumer: &str,
    event: Uuid,
    token: Uuid,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query_scalar!(
        r#"with done as (
             update inbox
             set state = 'PROCESSED', token = null, lease_until = null, reason_code = null, decided_at = $4
             where logical_consumer_id = $1 and event_id = $2 and token = $3
             returning tenant_id, subject_kind, subject_id, sequence
           ),
           woken as (
             update inbox set next_attempt_at = clock_timestamp()
             where ctid = any(array(
               select next.place from done cross join lateral (
                 select i.ctid as place, i.state, i.attempts from inbox i
                 where i.subject_id = done.subject_id and i.sequence = done.sequence + 1 and i.logical_consumer_id = $1
                   and i.tenant_id = done.tenant_id and i.subject_kind = done.subject_kind limit 1) as next
               where next.state = 'RETRYABLE' and next.attempts = 0))
           )
           select count(*) as "done!" from done"#,
        consumer,
        event,
        token,
        now.to_sqlx()
    )
    .fetch_one(connection)
    .await?;
    Ok(done == 1)
}

/// How a try ended that did not succeed.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// Of which event.
    pub event: Uuid,
    /// The try's token.
    pub token: Uuid,
    /// Why.
    pub reason: &'a str,
    /// How soon it is tried again; never: it is quarantined.
    pub again_in: Option<Duration>,
    /// Whether it counts as a try; an outage does not, for a day.
    pub counts: bool,
    /// An id for the task that makes.
    pub task_id: Uuid,
}

/// Ends a try that failed; says whether the event is quarantined. None where its token is gone: then it is another's to end.
///
/// # Errors
/// As [`StoreError`].
pub async fn give_up(
    connection: &mut PgConnection,
    consumer: &str,
    failed: Failed<'_>,
    now: Timestamp,
) -> Result<Option<bool>, StoreError> {
    let state = sqlx::query_file_scalar!(
        "src/store/inbox_give_up.sql",
        consumer,
        failed.event,
        failed.token,
        failed.reason,
        failed.again_in.map(interval),
        failed.task_id,
        now.to_sqlx(),
        failed.counts
    )
    .fetch_optional(connection)
    .await?;
    Ok(state.map(|state| state == "QUARANTINED"))
}

/// Makes a logical consumer, if there is none of that name.
///
/// # Errors
/// As [`StoreError`].
pub async fn enrol(connection: &mut PgConnection, consumer: &str, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into consumers (logical_consumer_id, since) values ($1, $2) on conflict do nothing",
        consumer,
        now.to_sqlx()
    )
    .execute(connection)
    .await?;
    Ok(())
}
