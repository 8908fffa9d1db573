//! The demo group's rows. What exists stays as it is, so that a developer's changes survive a restart; the demo's keys
//! alone are put right, since a key nobody knows is of no use.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff_sqlx::ToSqlx;
use sqlx::{Error, PgConnection};
use uuid::Uuid;

/// A clinic group and all that booking needs of it.
#[derive(Clone, Debug)]
pub struct Group {
    /// The tenant.
    pub id: Uuid,
    /// What people call it.
    pub name: String,
    /// Its clinics.
    pub clinics: Vec<Clinic>,
    /// Id and name of each; all work at all clinics, during the clinics' hours.
    pub practitioners: Vec<(Uuid, String)>,
    /// Its patients.
    pub patients: Vec<Patient>,
}

/// A clinic, open 08:00 to 18:00 Monday to Saturday, on a grid of 15 minutes, without overbooking.
#[derive(Clone, Debug)]
pub struct Clinic {
    /// Its id.
    pub id: Uuid,
    /// What people call it.
    pub name: String,
    /// IANA name.
    pub time_zone: String,
    /// Id and name of each.
    pub operatories: Vec<(Uuid, String)>,
    /// Id, name and minutes of each; none has a buffer.
    pub services: Vec<(Uuid, String, i32)>,
}

/// A patient who can be written to.
#[derive(Clone, Debug)]
pub struct Patient {
    /// Its id.
    pub id: Uuid,
    /// Given name and family name.
    pub name: String,
    /// In the past.
    pub birth_date: Date,
    /// At example.org.
    pub email: String,
    /// Of the block kept for fiction.
    pub phone: String,
    /// BCP 47.
    pub language: String,
    /// `email`, `sms` or `none`.
    pub preferred_channel: String,
}

/// An API key of one role.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The first part of the token.
    pub id: Uuid,
    /// The group it opens.
    pub tenant_id: Uuid,
    /// What it is called in lists.
    pub name: String,
    /// The person or system behind it.
    pub subject: String,
    /// As API.md names it.
    pub role: String,
    /// The only clinic it may touch; all where `None`.
    pub clinic_id: Option<Uuid>,
    /// SHA-256 of the token's last part.
    pub secret_hash: Vec<u8>,
}

/// A stretch of a practitioner's time that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Whose.
    pub practitioner_id: Uuid,
    /// From.
    pub start: Timestamp,
    /// Until, exclusive.
    pub end: Timestamp,
}

/// Adds what is missing of a group. Safe to run again, and by several processes.
///
/// # Errors
/// When Postgres refuses.
pub async fn add_group(connection: &mut PgConnection, group: &Group, now: Timestamp) -> Result<(), Error> {
    add_clinics(connection, group, now).await?;
    add_practitioners(connection, group, now).await?;
    add_rooms_and_services(connection, group, now).await?;
    add_patients(connection, group, now).await
}

async fn add_clinics(connection: &mut PgConnection, group: &Group, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "insert into tenants (id, name, created_at) values ($1, $2, $3) on conflict do nothing",
        group.id,
        group.name,
        now.to_sqlx() as _
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        r#"
        insert into clinics (tenant_id, id, name, time_zone, slot_minutes, allow_overbooking, min_notice_minutes,
                             horizon_days, key_retention_days, hours, created_at, updated_at)
        select $1, c.id, c.name, c.time_zone, 15, false, 0, 730, 7,
               (select jsonb_agg(jsonb_build_object('weekday', d.weekday, 'opens', '08:00', 'closes', '18:00') order by d.n)
                from unnest(array['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday'])
                     with ordinality as d (weekday, n)),
               $5, $5
        from unnest($2::uuid[], $3::text[], $4::text[]) as c (id, name, time_zone)
        on conflict do nothing
        "#,
        group.id,
        &column(&group.clinics, |clinic| clinic.id),
        &column(&group.clinics, |clinic| clinic.name.clone()),
        &column(&group.clinics, |clinic| clinic.time_zone.clone()),
        now.to_sqlx() as _
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn add_practitioners(connection: &mut PgConnection, group: &Group, now: Timestamp) -> Result<(), Error> {
    let ids = column(&group.practitioners, |(id, _)| *id);
    sqlx::query!(
        r#"
        insert into practitioners (tenant_id, id, name, active, created_at, updated_at)
        select $1, p.id, p.name, true, $4, $4 from unnest($2::uuid[], $3::text[]) as p (id, name)
        on conflict do nothing
        "#,
        group.id,
        &ids,
        &column(&group.practitioners, |(_, name)| name.clone()),
        now.to_sqlx() as _
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        r#"
        insert into practitioner_clinics (tenant_id, practitioner_id, clinic_id, active, hours, created_at, updated_at)
        select $1, p.id, c.id, true, null, $4, $4 from unnest($2::uuid[]) as p (id) cross join unnest($3::uuid[]) as c (id)
        on conflict do nothing
        "#,
        group.id,
        &ids,
        &column(&group.clinics, |clinic| clinic.id),
        now.to_sqlx() as _
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn add_rooms_and_services(connection: &mut PgConnection, group: &Group, now: Timestamp) -> Result<(), Error> {
    let rooms: Vec<_> = group.clinics.iter().flat_map(|c| c.operatories.iter().map(|room| (c.id, room))).collect();
    sqlx::query!(
        r#"
        insert into operatories (tenant_id, id, clinic_id, name, active, created_at, updated_at)
        select $1, o.id, o.clinic_id, o.name, true, $5, $5
        from unnest($2::uuid[], $3::uuid[], $4::text[]) as o (id, clinic_id, name)
        on conflict do nothing
        "#,
        group.id,
        &column(&rooms, |(_, (id, _))| *id),
        &column(&rooms, |(clinic, _)| *clinic),
        &column(&rooms, |(_, (_, name))| name.clone()),
        now.to_sqlx() as _
    )
    .execute(&mut *connection)
    .await?;
    let services: Vec<_> = group.clinics.iter().flat_map(|c| c.services.iter().map(|it| (c.id, it))).collect();
    sqlx::query!(
        r#"
        insert into services (tenant_id, id, clinic_id, name, minutes, buffer_minutes, active, created_at, updated_at)
        select $1, s.id, s.clinic_id, s.name, s.minutes, 0, true, $6, $6
        from unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[]) as s (id, clinic_id, name, minutes)
        on conflict do nothing
        "#,
        group.id,
        &column(&services, |(_, (id, _, _))| *id),
        &column(&services, |(clinic, _)| *clinic),
        &column(&services, |(_, (_, name, _))| name.clone()),
        &column(&services, |(_, (_, _, minutes))| *minutes),
        now.to_sqlx() as _
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn add_patients(connection: &mut PgConnection, group: &Group, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        r#"
        insert into patients (tenant_id, id, name, birth_date, email, phone, language, preferred_channel, created_at, updated_at)
        select $1, p.id, p.name, p.birth_date, p.email, p.phone, p.language, p.channel, $9, $9
        from unnest($2::uuid[], $3::text[], $4::date[], $5::text[], $6::text[], $7::text[], $8::text[])
             as p (id, name, birth_date, email, phone, language, channel)
        on conflict do nothing
        "#,
        group.id,
        &column(&group.patients, |patient| patient.id),
        &column(&group.patients, |patient| patient.name.clone()),
        &column(&group.patients, |patient| patient.birth_date.to_sqlx()) as _,
        &column(&group.patients, |patient| patient.email.clone()),
        &column(&group.patients, |patient| patient.phone.clone()),
        &column(&group.patients, |patient| patient.language.clone()),
        &column(&group.patients, |patient| patient.preferred_channel.clone()),
        now.to_sqlx() as _
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Which of these keys work, with the hash of their secrets.
///
/// # Errors
/// When Postgres refuses.
pub async fn working_keys(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<(Uuid, Vec<u8>)>, Error> {
    let rows = sqlx::query!("select id, secret_hash from credentials where id = any($1) and revoked_at is null", ids)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.secret_hash)).collect())
}

/// Adds keys, or gives them a new secret where they exist. The old secret ends at once.
///
/// # Errors
/// When Postgres refuses.
pub async fn put_keys(connection: &mut PgConnection, keys: &[Credential], now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        r#"
        insert into credentials (id, tenant_id, name, subject, roles, clinic_ids, secret_hash, created_by, created_at)
        select k.id, k.tenant_id, k.name, k.subject, array[k.role],
               case when k.clinic_id is not null then array[k.clinic_id] end, k.secret_hash, 'oncebook dev', $8
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::bytea[])
             as k (id, tenant_id, name, subject, role, clinic_id, secret_hash)
        on conflict (id) do update
        set secret_hash = excluded.secret_hash,
            previous_secret_hash = null,
            previous_secret_until = null,
            revoked_at = null
        "#,
        &column(keys, |key| key.id),
        &column(keys, |key| key.tenant_id),
        &column(keys, |key| key.name.clone()),
        &column(keys, |key| key.subject.clone()),
        &column(keys, |key| key.role.clone()),
        &column(keys, |key| key.clinic_id) as _,
        &column(keys, |key| key.secret_hash.clone()),
        now.to_sqlx() as _
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What holds these practitioners' time between two instants.
///
/// # Errors
/// When Postgres refuses.
pub async fn taken(
    connection: &mut PgConnection,
    tenant: Uuid,
    practitioners: &[Uuid],
    between: (Timestamp, Timestamp),
) -> Result<Vec<Taken>, Error> {
    let rows = sqlx::query!(
        r#"
        select practitioner_id as "practitioner_id!", lower(busy) as "start!", upper(busy) as "end!"
        from appointments
        where tenant_id = $1
          and practitioner_id = any($2)
          and holds_slot
          and busy && tstzrange($3, $4)
        "#,
        tenant,
        practitioners,
        between.0.to_sqlx() as _,
        between.1.to_sqlx() as _
    )
    .fetch_all(connection)
    .await?;
    let taken = rows.into_iter().map(|row| Taken {
        practitioner_id: row.practitioner_id,
        start: row.start.to_jiff(),
        end: row.end.to_jiff(),
    });
    Ok(taken.collect())
}

fn column<R, C>(rows: &[R], of: impl Fn(&R) -> C) -> Vec<C> {
    rows.iter().map(of).collect()
}
