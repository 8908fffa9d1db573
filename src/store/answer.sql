-- A reply that changes no appointment: a refusal, or "it is so already". The key's row and the audit's; a plain insert.
-- $1 tenant $2 clinic $3 key hash $4 fingerprint $5 fingerprint version $6 operation $7 status $8 headers $9 body $10 now $11 expires at
-- $12 lock of (scope, key, fingerprint) $13 lock of (scope, key) $14 audit id $15 subject $16 credential $17 target|null
-- $18 problem code|null $19 request id $20 caller's request id
with gate as materialized (
  -- As in insert.sql: try-locks only, and the order carries the meaning.
  select case when not pg_try_advisory_xact_lock($12::bigint) then 'same'
              when not pg_try_advisory_xact_lock($13::bigint) then 'other'
              else 'owner' end as who
),
claimed as (
  insert into idempotency_keys (tenant_id, clinic_id, key_hash, fingerprint, fingerprint_version, operation, status, headers, body, created_at, expires_at)
  select $1::uuid, $2::uuid, $3::bytea, $4::bytea, $5::smallint, $6::text, $7::smallint, $8::jsonb, $9::bytea, $10::timestamptz, $11::timestamptz
  from gate where gate.who = 'owner'
  returning tenant_id, clinic_id
),
audited as (
  insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, code, request_id, caller_request_id)
  select tenant_id, $14::uuid, $10, $15::text, $16::uuid, clinic_id, $6, $17::uuid, $7, $18::text, $19::uuid, $20::text from claimed
)
select gate.who as "who!", case when claimed.tenant_id is not null then 1 end as "written?" from gate left join claimed on true
