//! `webhook_deliveries` and `webhook_attempts`: queued by a consumer, taken up under a token, ended under the same one.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as SqlTime, ToSqlx};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use super::log::interval;
use super::watch::Waiting;
use crate::domain::event::{Event, Logged};
use crate::domain::webhook::{AttemptView, DeliveryState, DeliveryView};

/// Queues events for every endpoint that wants them.
///
/// # Errors
/// As [`StoreError`].
pub async fn fan_out(connection: &mut PgConnection, events: &[&Logged], now: Timestamp) -> Result<(), StoreError> {
    let of = |part: fn(&Event) -> Uuid| events.iter().map(|it| part(&it.event)).collect::<Vec<_>>();
    let texts = |part: fn(&Event) -> &str| events.iter().map(|it| part(&it.event).to_owned()).collect::<Vec<_>>();
    let payloads: Vec<serde_json::Value> = events.iter().map(|it| it.event.data.clone()).collect();
    let traceparents: Vec<Option<String>> = events.iter().map(|it| it.event.traceparent.clone()).collect();
    sqlx::query_file!(
        "src/store/webhook_fan_out.sql",
        &of(|event| event.id),
        &of(|event| event.tenant_id),
        &of(|event| event.clinic_id),
        &texts(|event| &event.subject_kind),
        &of(|event| event.subject_id),
        &events.iter().map(|it| it.event.sequence).collect::<Vec<_>>(),
        &texts(|event| &event.kind),
        &payloads,
        &traceparents as &[Option<String>],
        &events.iter().map(|it| it.event.occurred_at.to_sqlx()).collect::<Vec<_>>(),
        now.to_sqlx(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// How much is taken up.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The lease on each attempt.
    pub lease: Duration,
    /// Deliveries at the most.
    pub most: i64,
    /// Of one endpoint at the most, those at work already counted in.
    pub of_one: i64,
    /// An endpoint with so many failures in a row gets one attempt at a time.
    pub doubtful_from: i32,
}

/// An attempt to be made.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Where.
    pub endpoint: Uuid,
    /// What.
    pub event: Event,
    /// Which attempt this is, from 1 on.
    pub number: i32,
    /// The same, counted from the beginning of this round.
    pub of_round: i32,
    /// When the first of this round was made.
    pub first_at: Timestamp,
    /// The endpoint's version: what the attempt meets says nothing of any other.
    pub version: i32,
    /// The endpoint's URL.
    pub url: String,
    /// Its secret, sealed.
    pub secret: Vec<u8>,
    /// The one before, sealed, while it signs too.
    pub previous_secret: Option<Vec<u8>>,
}

/// Takes up what is due, under this token. From then on the deliveries are `SENT`.
///
/// # Errors
/// As [`StoreError`].
pub async fn claim(
    connection: &mut PgConnection,
    token: Uuid,
    reach: Reach,
    now: Timestamp,
) -> Result<Vec<Attempt>, StoreError> {
    let rows = sqlx::query_file!(
        "src/store/webhook_claim.sql",
        token,
        interval(reach.lease),
        reach.most,
        reach.of_one,
        reach.doubtful_from,
        now.to_sqlx()
    )
    .fetch_all(connection)
    .await?;
    let attempts = rows.into_iter().map(|row| Attempt {
        endpoint: row.endpoint_id,
        number: row.attempt,
        of_round: row.of_round,
        first_at: row.first_attempt_at.to_jiff(),
        version: row.version,
        url: row.url,
        secret: row.secret,
        previous_secret: row.previous_secret,
        event: Event {
            id: row.event_id,
            tenant_id: row.tenant_id,
            clinic_id: row.clinic_id,
            subject_kind: row.subject_kind,
            subject_id: row.subject_id,
            sequence: row.sequence,
            kind: row.kind,
            data: row.data,
            traceparent: row.traceparent,
            occurred_at: row.occurred_at.to_jiff(),
        },
    });
    Ok(attempts.collect())
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct Ended<'a> {
    /// Of whose delivery.
    pub tenant: Uuid,
    /// To which endpoint.
    pub endpoint: Uuid,
    /// Of which version.
    pub version: i32,
    /// Of which event.
    pub event: Uuid,
    /// Under which token.
    pub token: Uuid,
    /// As in [`AttemptView::outcome`].
    pub outcome: &'a str,
    /// Of the answer, if there was one.
    pub status: Option<u16>,
    /// How long it took.
    pub took: Duration,
    /// `DELIVERED`, `PENDING` or `GIVEN_UP`.
    pub state: DeliveryState,
    /// Where it is tried again, after how long.
    pub pause: Option<Duration>,
    /// How long the receiver asks to be left alone.
    pub receivers_pause: Option<Duration>,
    /// Ids for the task, the audit's row and its request, should the endpoint be disabled by this.
    pub ids: [Uuid; 3],
}

/// When an endpoint is left alone, and when for good.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// Failures in a row from which on it pauses.
    pub from: i32,
    /// The longest pause.
    pub longest: Duration,
    /// Failing for so long, it is disabled.
    pub disabled_after: Duration,
}

/// What became of the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How the delivery stands.
    pub state: DeliveryState,
    /// Why the endpoint is disabled by it, if it is.
    pub disabled: Option<String>,
}

/// Ends an attempt; none where its token is gone, and then nothing was written.
///
/// # Errors
/// As [`StoreError`].
pub async fn finish(
    connection: &mut PgConnection,
    ended: &Ended<'_>,
    breaker: Breaker,
    now: Timestamp,
) -> Result<Option<Finished>, StoreError> {
    let [task, audit, request] = ended.ids;
    let row = sqlx::query_file!(
        "src/store/webhook_finish.sql",
        ended.tenant,
        ended.endpoint,
        ended.event,
        ended.token,
        ended.outcome,
        ended.status.map(u16::cast_signed),
        i32::try_from(ended.took.as_millis()).unwrap_or(i32::MAX),
        ended.state.as_str(),
        ended.pause.map(interval),
        now.to_sqlx(),
        ended.receivers_pause.map(interval),
        breaker.from,
        interval(breaker.longest),
        interval(breaker.disabled_after),
        task,
        audit,
        request,
        // The service has no credential.
        Uuid::nil(),
        ended.version,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Finished {
        state: DeliveryState::parse(&row.state).unwrap_or(ended.state),
        disabled: row.end_of_it,
    }))
}

/// Gives an attempt back that this process cannot make, to be made after so long; says whether the token still stood.
///
/// # Errors
/// As [`StoreError`].
pub async fn hand_back(
    connection: &mut PgConnection,
    attempt: &Attempt,
    token: Uuid,
    pause: Duration,
) -> Result<bool, StoreError> {
    let (tenant, endpoint, event) = (attempt.event.tenant_id, attempt.endpoint, attempt.event.id);
    let statement =
        sqlx::query_file_scalar!("src/store/webhook_hand_back.sql", tenant, endpoint, event, token, interval(pause));
    Ok(statement.fetch_one(connection).await? > 0)
}

/// Takes attempts back whose lease is up; says how many.
///
/// # Errors
/// As [`StoreError`].
pub async fn rescue(connection: &mut PgConnection, most: i64) -> Result<i64, StoreError> {
    Ok(sqlx::query_file_scalar!("src/store/webhook_rescue.sql", most).fetch_one(connection).await?)
}

/// Cancels what waits for endpoints that are not in use, or no longer for it; says how many.
///
/// # Errors
/// As [`StoreError`].
pub async fn cancel(connection: &mut PgConnection, now: Timestamp, most: i64) -> Result<u64, StoreError> {
    let done = sqlx::query_file!("src/store/webhook_cancel.sql", now.to_sqlx(), most).execute(connection).await?;
    Ok(done.rows_affected())
}

/// Forgets deliveries that ended before then, with their attempts, and deleted endpoints that none is left of; says how many
/// deliveries.
///
/// # Errors
/// As [`StoreError`].
pub async fn purge(connection: &mut PgConnection, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    // An array is made once: see janitor.rs.
    let purged = sqlx::query!(
        "delete from webhook_deliveries
         where ctid = any(array(
           select ctid from webhook_deliveries where ended_at is not null and ended_at < $1
           order by ended_at limit $2 for update skip locked))",
        before.to_sqlx(),
        most
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "delete from webhook_endpoints e
         where e.deleted_at < $1 and not exists (
           select from webhook_deliveries d where d.tenant_id = e.tenant_id and d.endpoint_id = e.id)",
        before.to_sqlx()
    )
    .execute(connection)
    .await?;
    Ok(purged.rows_affected())
}

/// How the endpoints stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Endpoints the service has disabled and nobody has switched on again.
    pub disabled: i64,
    /// Endpoints that are left alone for now.
    pub paused: i64,
}

/// Looks how the endpoints stand.
///
/// # Errors
/// As [`StoreError`].
pub async fn standing(connection: &mut PgConnection) -> Result<Standing, StoreError> {
    let standing = sqlx::query_as!(
        Standing,
        r#"select count(*) filter (where disabled_reason is not null) as "disabled!",
             count(*) filter (where active and paused_until > clock_timestamp()) as "paused!"
           from webhook_endpoints where deleted_at is null"#
    );
    Ok(standing.fetch_one(connection).await?)
}

/// What is due, and nothing but the service keeps it from being sent: its endpoint is in use, not left alone and has room, and
/// no earlier event of its subject is on the way. Up to a hundred of each endpoint.
///
/// # Errors
/// As [`StoreError`].
pub async fn due(connection: &mut PgConnection, of_one: i64, doubtful_from: i32) -> Result<Waiting, StoreError> {
    let row = sqlx::query_file!("src/store/webhook_due.sql", of_one, doubtful_from).fetch_one(connection).await?;
    Ok(Waiting { items: row.items.unsigned_abs(), oldest: row.oldest.map(SqlTime::to_jiff) })
}

/// Which of an endpoint's deliveries are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Those queued before this one.
    pub before: Option<(Timestamp, Uuid)>,
    /// Those that stand like this.
    pub state: Option<DeliveryState>,
    /// Those of these clinics.
    pub clinics: Option<&'a [Uuid]>,
}

/// An endpoint's deliveries of these clinics, or of all, the latest first.
///
/// # Errors
/// As [`StoreError`].
pub async fn list(
    connection: &mut PgConnection,
    (tenant, endpoint): (Uuid, Uuid),
    wanted: Wanted<'_>,
    rows: i64,
) -> Result<Vec<DeliveryView>, StoreError> {
    let (queued_at, event) = wanted.before.unzip();
    let rows = sqlx::query_file!(
        "src/store/webhook_deliveries.sql",
        tenant,
        endpoint,
        queued_at.map(ToSqlx::to_sqlx),
        event,
        wanted.state.map(DeliveryState::as_str),
        rows,
        wanted.clinics,
    )
    .fetch_all(connection)
    .await?;
    let views = rows.into_iter().map(|row| {
        let Json(attempts) = row.attempts;
        DeliveryView {
            event_id: row.event_id,
            clinic_id: row.clinic_id,
            kind: row.kind,
            subject: format!("{}/{}", row.subject_kind, row.subject_id),
            sequence: row.sequence,
            state: DeliveryState::parse(&row.state).unwrap_or(DeliveryState::Pending),
            reason: row.reason,
            redelivery: row.redelivery,
            next_attempt_at: row.next_attempt_at.map(SqlTime::to_jiff),
            queued_at: row.queued_at.to_jiff(),
            ended_at: row.ended_at.map(SqlTime::to_jiff),
            attempts,
        }
    });
    Ok(views.collect())
}
