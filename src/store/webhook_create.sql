-- A new endpoint with its key's answer and its audit row. One statement, as every commit.
-- $1 tenant $2 scope of the group's keys $3 key hash $4 fingerprint $5 fingerprint version $6 operation $7 status $8 headers $9 body
-- $10 now $11 expires at $12 lock of (scope, key, fingerprint) $13 lock of (scope, key) $14 audit id $15 subject $16 credential
-- $17 request id $18 caller's request id $19 endpoint $20 url $21 description $22 clinics|null $23 types|null $24 active $25 secret
with gate as materialized (
  -- As in insert.sql: try-locks only, and the order carries the meaning.
  select case when not pg_try_advisory_xact_lock($12::bigint) then 'same'
              when not pg_try_advisory_xact_lock($13::bigint) then 'other'
              else 'owner' end as who
),
written as (
  insert into webhook_endpoints (tenant_id, id, url, description, clinic_ids, event_types, active, secret, created_by, created_at, updated_at)
  select $1::uuid, $19::uuid, $20::text, $21::text, $22::uuid[], $23::text[], $24::boolean, $25::bytea, $15::text, $10::timestamptz, $10
  from gate where gate.who = 'owner'
  on conflict do nothing
  returning tenant_id, id
),
claimed as (
  -- Plain insert: if the key exists by now this raises idempotency_keys_pk and undoes the row above.
  insert into idempotency_keys (tenant_id, clinic_id, key_hash, fingerprint, fingerprint_version, operation, status, headers, body, created_at, expires_at)
  select tenant_id, $2::uuid, $3::bytea, $4::bytea, $5::smallint, $6::text, $7::smallint, $8::jsonb, $9::bytea, $10, $11::timestamptz
  from written
),
audited as (
  insert into audit (tenant_id, id, at, subject, credential_id, operation, target_id, status, request_id, caller_request_id)
  select tenant_id, $14::uuid, $10, $15, $16::uuid, $6, id, $7, $17::uuid, $18::text from written
)
select gate.who as "who!", case when written.id is not null then 1 end as "written?" from gate left join written on true
