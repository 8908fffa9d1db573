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
    /// When what is held back is looked at again.
    pub held_until: Timestamp,
    /// For tries of their own: the token, and its lease.
    pub own_try: Option<(Uuid, Duration)>,
}

/// Takes events in. What is known already is left out of the answer.
///
/// # Errors
/// As [`StoreError`].
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
        taking.held_until.to_sqlx(),
        taking.own_try.map(|(token, _)| token),
        taking.own_try.map(|(_, lease)| interval(lease)),
    )
    .fetch_all(connection)
    .await?;
    let taken = |state: &str| match state {
        "QUARANTINED" => Taken::Quarantined,
        "RETRYABLE" => Taken::Held,
        _ => Taken::Mine,
    };
    Ok(rows.into_iter().map(|row| (row.event_id, taken(&row.state))).collect())
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

/// Ends a try that succeeded. False where its token is gone: then nothing of it may stand.
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
    let done = sqlx::query!(
        "update inbox
         set state = 'PROCESSED', token = null, lease_until = null, reason_code = null, decided_at = $4
         where logical_consumer_id = $1 and event_id = $2 and token = $3",
        consumer,
        event,
        token,
        now.to_sqlx()
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
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
    /// When it is tried again; never: it is quarantined.
    pub again_at: Option<Timestamp>,
    /// An id for the task that makes.
    pub task_id: Uuid,
}

/// Ends a try that failed. False where its token is gone: then it is another's to end.
///
/// # Errors
/// As [`StoreError`].
pub async fn give_up(
    connection: &mut PgConnection,
    consumer: &str,
    failed: Failed<'_>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let decided = sqlx::query_file_scalar!(
        "src/store/inbox_give_up.sql",
        consumer,
        failed.event,
        failed.token,
        failed.reason,
        failed.again_at.map(ToSqlx::to_sqlx),
        failed.task_id,
        now.to_sqlx()
    )
    .fetch_one(connection)
    .await?;
    Ok(decided == 1)
}

/// Events that are held back behind others, and are to be looked at again.
///
/// # Errors
/// As [`StoreError`].
pub async fn held(connection: &mut PgConnection, consumer: &str, most: i64) -> Result<Vec<Place>, StoreError> {
    let rows = sqlx::query!(
        r#"select partition, "offset" from inbox
           where logical_consumer_id = $1 and state = 'RETRYABLE' and attempts = 0 and next_attempt_at <= clock_timestamp()
           order by next_attempt_at limit $2"#,
        consumer,
        most
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| Place { partition: row.partition, offset: row.offset }).collect())
}

/// Forgets events that are held back, so that they can be received anew in the same transaction.
///
/// # Errors
/// As [`StoreError`].
pub async fn let_go(connection: &mut PgConnection, consumer: &str, events: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
    let gone = sqlx::query_scalar!(
        "delete from inbox
         where logical_consumer_id = $1 and event_id = any($2) and state = 'RETRYABLE' and attempts = 0
         returning event_id",
        consumer,
        events
    )
    .fetch_all(connection)
    .await?;
    Ok(gone)
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
