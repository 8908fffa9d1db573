-- A delivery that is to be sent again, with its key's answer and its audit row. One that had ended begins a round of its own and
-- waits for no other; one that waits keeps its place and its round, and is due.
-- $1 tenant $2 scope of the group's keys $3 key hash $4 fingerprint $5 fingerprint version $6 operation $7 status $8 headers $9 body
-- $10 now $11 expires at $12 lock of (scope, key, fingerprint) $13 lock of (scope, key) $14 audit id $15 subject $16 credential
-- $17 request id $18 caller's request id $19 endpoint $20 event $21 clinics in reach|null
with gate as materialized (
  -- As in insert.sql: try-locks only, and the order carries the meaning.
  select case when not pg_try_advisory_xact_lock($12::bigint) then 'same'
              when not pg_try_advisory_xact_lock($13::bigint) then 'other'
              else 'owner' end as who
),
written as (
  update webhook_deliveries d
  set state = 'PENDING', redelivery = d.redelivery or d.ended_at is not null, next_attempt_at = clock_timestamp(),
      first_attempt_at = case when d.ended_at is null then d.first_attempt_at end,
      attempts_before = case when d.ended_at is null then d.attempts_before else d.attempts end,
      reason = case when d.ended_at is null then d.reason end, ended_at = null
  from gate, webhook_endpoints e
  where gate.who = 'owner' and d.tenant_id = $1::uuid and d.endpoint_id = $19::uuid and d.event_id = $20::uuid and d.state <> 'SENT'
    and e.tenant_id = d.tenant_id and e.id = d.endpoint_id and e.active
    -- What was decided on: in the caller's reach, and wanted by the endpoint as it is by now.
    and ($21::uuid[] is null or (e.clinic_ids <@ $21 and d.clinic_id = any($21)))
    and (e.clinic_ids is null or d.clinic_id = any(e.clinic_ids)) and (e.event_types is null or d.type = any(e.event_types))
  returning d.tenant_id, d.endpoint_id, d.clinic_id
),
claimed as (
  -- Plain insert: if the key exists by now this raises idempotency_keys_pk and undoes the row above.
  insert into idempotency_keys (tenant_id, clinic_id, key_hash, fingerprint, fingerprint_version, operation, status, headers, body, created_at, expires_at)
  select tenant_id, $2::uuid, $3::bytea, $4::bytea, $5::smallint, $6::text, $7::smallint, $8::jsonb, $9::bytea, $10::timestamptz, $11::timestamptz
  from written
),
audited as (
  insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, request_id, caller_request_id)
  select tenant_id, $14::uuid, $10, $15::text, $16::uuid, clinic_id, $6, endpoint_id, $7, $17::uuid, $18::text from written
)
select gate.who as "who!", case when written.endpoint_id is not null then 1 end as "written?" from gate left join written on true
