//! A clinic group to book in for `oncebook bench`, and the statements pgbench runs beside the service.

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::clock::Ids;
use crate::domain::api_key::NewKey;

/// The look of a booking.
pub const LOOK: &str = include_str!("look_new.sql");

/// Its commit.
pub const COMMIT: &str = include_str!("insert.sql");

/// Practitioners a turn may use: one a client.
const A_TURN: usize = 64;

/// Turns there may be.
const TURNS: usize = 64;

/// A group with one clinic that never closes, and a practitioner for every client of every turn.
#[derive(Clone, Debug)]
pub struct World {
    /// The group.
    pub tenant_id: Uuid,
    /// Its clinic, in UTC.
    pub clinic_id: Uuid,
    /// Who is always booked.
    pub patient_id: Uuid,
    /// Half an hour, no buffer.
    pub service_id: Uuid,
    /// The front desk's credential.
    pub credential_id: Uuid,
    /// The same as a token.
    pub api_key: String,
    /// When the world was made.
    pub now: Timestamp,
    /// The first half hour that is booked.
    pub first_start: Timestamp,
}

impl World {
    /// The first 20 digits of every practitioner's id; a number follows.
    pub const PRACTITIONER_PREFIX: &'static str = "00000000-0000-7000-8000-";

    /// The number of a turn's first practitioner.
    #[must_use]
    pub const fn first_practitioner(turn: usize) -> usize {
        turn * A_TURN
    }

    /// The practitioner of a client.
    #[must_use]
    pub fn practitioner(turn: usize, client: usize) -> String {
        format!("{}{:012x}", Self::PRACTITIONER_PREFIX, Self::first_practitioner(turn) + client)
    }

    /// The start of the index-th half hour.
    #[must_use]
    pub fn start(&self, index: u64) -> Timestamp {
        let half_hours = i64::try_from(index).unwrap_or(0);
        self.first_start.saturating_add(SignedDuration::from_mins(30 * half_hours)).unwrap_or(self.first_start)
    }

    /// Makes it.
    ///
    /// # Errors
    /// When Postgres refuses.
    pub async fn make(connection: &mut PgConnection, now: Timestamp, ids: &Ids) -> Result<Self, sqlx::Error> {
        let [tenant_id, clinic_id, patient_id, service_id, credential_id] = [(); 5].map(|()| ids.uuid(now));
        let key = NewKey::new(credential_id, &ids.secret());
        let tomorrow = (now.as_second() / 86_400 + 2) * 86_400;
        let first_start = Timestamp::from_second(tomorrow).unwrap_or(now);
        sqlx::query_file!(
            "src/store/bench_world.sql",
            tenant_id,
            clinic_id,
            patient_id,
            service_id,
            credential_id,
            &key.secret_hash[..],
            now.to_sqlx(),
            i32::try_from(A_TURN * TURNS).unwrap_or(i32::MAX),
            Self::PRACTITIONER_PREFIX
        )
        .execute(connection)
        .await?;
        Ok(Self { tenant_id, clinic_id, patient_id, service_id, credential_id, api_key: key.text, now, first_start })
    }
}

/// Leaves autovacuum nothing to do, so that its write-ahead log is not taken for that of what is measured next.
///
/// # Errors
/// When Postgres refuses.
pub async fn tidy_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("vacuum analyze").execute(connection).await?;
    Ok(())
}

/// Bytes of write-ahead log since ever.
///
/// # Errors
/// When Postgres refuses.
pub async fn wal_bytes(connection: &mut PgConnection) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar!(r#"select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as "bytes!""#)
        .fetch_one(connection)
        .await
}

/// Makes visits like one that is there, each with so many versions and an event for each in the outbox.
///
/// # Errors
/// When Postgres refuses, or there is no visit.
pub async fn events(connection: &mut PgConnection, visits: i32, versions: i32) -> Result<(), sqlx::Error> {
    let like =
        sqlx::query_scalar!("select id from appointments order by id limit 1").fetch_one(&mut *connection).await?;
    sqlx::query_file!("src/store/bench_events.sql", like, visits, versions).execute(connection).await?;
    Ok(())
}

/// Bytes of the outbox and its indexes on disk.
///
/// # Errors
/// When Postgres refuses.
pub async fn outbox_bytes(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select pg_total_relation_size('outbox') as "bytes!""#).fetch_one(connection).await
}

/// Events a consumer has done.
///
/// # Errors
/// When Postgres refuses.
pub async fn processed(connection: &mut PgConnection, consumer: &str) -> Result<u64, sqlx::Error> {
    let done = sqlx::query_scalar!(
        r#"select count(*) as "done!" from inbox where logical_consumer_id = $1 and state = 'PROCESSED'"#,
        consumer
    );
    Ok(done.fetch_one(connection).await?.unsigned_abs())
}

/// Effects that consumers have done since then.
///
/// # Errors
/// When Postgres refuses.
pub async fn processed_since(connection: &mut PgConnection, since: Timestamp) -> Result<u64, sqlx::Error> {
    let done = sqlx::query_scalar!(
        r#"select count(*) as "done!" from inbox where received_at >= $1 and state = 'PROCESSED'"#,
        since.to_sqlx()
    );
    Ok(done.fetch_one(connection).await?.unsigned_abs())
}

/// How long it took from a command's commit to the commit of a consumer's effect, by Postgres's own record.
#[derive(Clone, Debug)]
pub struct Latency {
    /// The logical consumer.
    pub consumer: String,
    /// Half took no longer, in milliseconds.
    pub p50_ms: f64,
    /// All but a hundredth.
    pub p99_ms: f64,
    /// How many there were.
    pub events: i64,
}

/// The latencies of what was committed since then, by consumer. Needs `track_commit_timestamp`.
///
/// # Errors
/// When Postgres refuses.
pub async fn commit_to_processed(connection: &mut PgConnection, since: Timestamp) -> Result<Vec<Latency>, sqlx::Error> {
    sqlx::query_as!(
        Latency,
        r#"select consumer as "consumer!",
             percentile_cont(0.5) within group (order by ms) as "p50_ms!",
             percentile_cont(0.99) within group (order by ms) as "p99_ms!",
             count(*) as "events!"
           from (
             select i.logical_consumer_id as consumer,
               (extract(epoch from pg_xact_commit_timestamp(i.xmin) - pg_xact_commit_timestamp(h.xmin)) * 1000)::float8 as ms
             from appointment_history h
             join inbox i on i.tenant_id = h.tenant_id and i.subject_id = h.appointment_id and i.sequence = h.version
             where h.at >= $1 and i.state = 'PROCESSED') as took
           group by consumer
           order by consumer"#,
        since.to_sqlx()
    )
    .fetch_all(connection)
    .await
}
