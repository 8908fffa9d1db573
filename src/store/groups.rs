//! `log_groups`, for a log outside the database that itself says who reads a partition: how far each group has come is kept
//! here all the same, and outlives what the log remembers of groups. A token is of one assignment of a partition to a
//! reader: the last to be told to read is the one whose commits count.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use crate::domain::event::Place;

/// Makes a group that begins with the oldest event there is; one that is there already stays where it is.
///
/// # Errors
/// As [`StoreError`].
pub async fn make(connection: &mut PgConnection, group: &str) -> Result<(), StoreError> {
    sqlx::query!(
        r#"insert into log_groups (name, partition, "offset")
           select $1, partition, 0 from log_partitions
           on conflict do nothing"#,
        group
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Begins an assignment of these partitions, under a token; says where to read on. Whoever read them before moves the group no
/// more.
///
/// # Errors
/// As [`StoreError`].
pub async fn assign(
    connection: &mut PgConnection,
    group: &str,
    token: Uuid,
    partitions: &[i16],
) -> Result<Vec<Place>, StoreError> {
    let rows = sqlx::query!(
        r#"update log_groups set token = $2, lease_until = clock_timestamp(), read_at = clock_timestamp()
           where name = $1 and partition = any($3)
           returning partition, "offset""#,
        group,
        token,
        partitions
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| Place { partition: row.partition, offset: row.offset }).collect())
}

/// Moves a group on to these places, each under the token of its assignment; says in which partitions that still held. The
/// token stays: the assignment goes on.
///
/// # Errors
/// As [`StoreError`].
pub async fn advance(
    connection: &mut PgConnection,
    group: &str,
    next: &[(Place, Uuid)],
) -> Result<Vec<i16>, StoreError> {
    let partitions: Vec<i16> = next.iter().map(|(place, _)| place.partition).collect();
    let offsets: Vec<i64> = next.iter().map(|(place, _)| place.offset).collect();
    let tokens: Vec<Uuid> = next.iter().map(|(_, token)| *token).collect();
    let rows = sqlx::query_scalar!(
        r#"update log_groups g set "offset" = next."offset"
           from unnest($2::smallint[], $3::bigint[], $4::uuid[]) as next(partition, "offset", token)
           where g.name = $1 and g.partition = next.partition and g.token = next.token
           returning g.partition"#,
        group,
        &partitions,
        &offsets,
        &tokens
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// How far a group has come, by partition; none where there is no such group.
///
/// # Errors
/// As [`StoreError`].
pub async fn places(connection: &mut PgConnection, group: &str) -> Result<Vec<Place>, StoreError> {
    let rows = sqlx::query!(r#"select partition, "offset" from log_groups where name = $1 order by partition"#, group)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| Place { partition: row.partition, offset: row.offset }).collect())
}
