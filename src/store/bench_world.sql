-- A group with one clinic that never closes and many practitioners.
-- $1 tenant $2 clinic $3 patient $4 service $5 credential $6 secret hash $7 now $8 how many practitioners $9 prefix of their ids
with tenant as (insert into tenants (id, name, created_at) values ($1::uuid, 'Bench', $7::timestamptz)),
clinic as (
  insert into clinics (tenant_id, id, name, time_zone, slot_minutes, allow_overbooking, min_notice_minutes, horizon_days, key_retention_days, hours, created_at, updated_at)
  select $1, $2::uuid, 'Bench', 'UTC', 30, false, 0, 3650, 7,
    jsonb_agg(jsonb_build_object('weekday', day, 'opens', '00:00', 'closes', '24:00')), $7, $7
  from unnest(array['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday']) as days(day)
),
patient as (insert into patients (tenant_id, id, name, preferred_channel, created_at, updated_at) values ($1, $3::uuid, 'Bench', 'none', $7, $7)),
service as (
  insert into services (tenant_id, id, clinic_id, name, minutes, buffer_minutes, active, created_at, updated_at)
  values ($1, $4::uuid, $2, 'Bench', 30, 0, true, $7, $7)
),
people as (
  insert into practitioners (tenant_id, id, name, active, created_at, updated_at)
  select $1, ($9::text || lpad(to_hex(n), 12, '0'))::uuid, 'Bench ' || n, true, $7, $7 from generate_series(0, $8::int - 1) as n
  returning id
),
members as (
  insert into practitioner_clinics (tenant_id, practitioner_id, clinic_id, active, created_at, updated_at)
  select $1, id, $2, true, $7, $7 from people
)
insert into credentials (id, tenant_id, name, subject, roles, secret_hash, created_by, created_at)
values ($5::uuid, $1, 'Bench', 'system:bench', array['FRONT_DESK'], $6::bytea, 'bench', $7)
