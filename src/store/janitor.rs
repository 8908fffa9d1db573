//! The janitor's statements: purge, flush, seal. Each a bounded piece of work that may be done twice, by two.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;

/// Deletes keys whose retention has passed by both clocks, oldest first. Rows somebody is at are left for the next time.
///
/// # Errors
/// As [`StoreError`].
pub async fn purge(connection: &mut PgConnection, now: Timestamp, most: i64) -> Result<u64, StoreError> {
    // An array is made once. Joined, the rows that are due might be asked for again for each row they are joined to, and
    // each time be others: more than a batch.
    let purged = sqlx::query!(
        "delete from idempotency_keys
         where ctid = any(array(
           select ctid from idempotency_keys where expires_at <= least($1::timestamptz, statement_timestamp())
           order by expires_at limit $2 for update skip locked))",
        now.to_sqlx(),
        most
    )
    .execute(connection)
    .await?;
    Ok(purged.rows_affected())
}

/// Adds replays to the counts of their minute. The map is sorted, so two processes that flush at once take their rows in
/// one order.
///
/// # Errors
/// As [`StoreError`].
pub async fn add_replays(
    connection: &mut PgConnection,
    minute: Timestamp,
    counts: &BTreeMap<(Uuid, Uuid), i32>,
) -> Result<(), StoreError> {
    let tenants: Vec<Uuid> = counts.keys().map(|(tenant, _)| *tenant).collect();
    let clinics: Vec<Uuid> = counts.keys().map(|(_, clinic)| *clinic).collect();
    let replayed: Vec<i32> = counts.values().copied().collect();
    sqlx::query!(
        "insert into replay_counts (tenant_id, clinic_id, minute, replayed)
         select t, c, $1, n from unnest($2::uuid[], $3::uuid[], $4::int[]) as counted(t, c, n)
         on conflict (tenant_id, clinic_id, minute) do update set replayed = replay_counts.replayed + excluded.replayed",
        minute.to_sqlx(),
        &tenants,
        &clinics,
        &replayed
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes counts of minutes before `before`, oldest first.
///
/// # Errors
/// As [`StoreError`].
pub async fn forget_replays(connection: &mut PgConnection, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    // An array, as for the keys: joined by minute, tenant and clinic, a plan made early might also go through every clinic's
    // row of a minute for each of them.
    let forgotten = sqlx::query!(
        "delete from replay_counts
         where ctid = any(array(
           select ctid from replay_counts where minute < $1 order by minute limit $2 for update skip locked))",
        before.to_sqlx(),
        most
    )
    .execute(connection)
    .await?;
    Ok(forgotten.rows_affected())
}

/// Seals audit rows older than `before` into the next link of the chain; says how many. Two who seal at once reach for the
/// same number, and one of them looks again.
///
/// # Errors
/// As [`StoreError`].
pub async fn seal(
    connection: &mut PgConnection,
    before: Timestamp,
    now: Timestamp,
    most: i64,
) -> Result<i64, StoreError> {
    let sealed = sqlx::query_file_scalar!("src/store/seal.sql", before.to_sqlx(), now.to_sqlx(), most)
        .fetch_one(connection)
        .await?;
    Ok(sealed)
}

/// The first seal that does not fit the rows it covers or the seal before it; none when the trail is whole.
///
/// # Errors
/// As [`StoreError`].
pub async fn first_broken_seal(connection: &mut PgConnection) -> Result<Option<i64>, StoreError> {
    Ok(sqlx::query_file_scalar!("src/store/verify_seals.sql").fetch_optional(connection).await?)
}
