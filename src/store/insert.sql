-- A new row: a booking, a block. One statement, one transaction. Every row below the first is derived from the first, so a
-- booking that loses its slot writes nothing at all.
-- The order is the proof: try-locks of the key, locks of the resources sorted, the row, its slots, the key, foreign keys.
-- $1 tenant $2 clinic $3 id $4 kind $5 patient $6 practitioner $7 operatory $8 service $9 start $10 end $11 busy until
-- $12 time zone $13 local start $14 overbooked $15 intent $16 note $17 block reason $18 external system $19 external id $20 now
-- $21 resource locks (none where no clinic near allows overbooking) $22 check the slot again under them?
-- $23 key hash $24 fingerprint $25 fingerprint version $26 operation $27 status $28 headers $29 body $30 expires at
-- $31 lock of (scope, key, fingerprint) $32 lock of (scope, key)
-- $33 request id $34 caller's request id $35 subject $36 credential $37 audit id
-- $38 notice ids $39 kinds $40 due at $41 event id $42 event type $43 payload $44 traceparent $45 subject kind
with gate as materialized (
  -- Who else is at work on this key, in any process? Try-locks only: nobody waits, nobody deadlocks, gone with the transaction.
  -- 'same': this very request is running. 'other': the key is running with another fingerprint. The order is the meaning:
  -- a loser of the first never tries the second.
  select case when not pg_try_advisory_xact_lock($31::bigint) then 'same'
              when not pg_try_advisory_xact_lock($32::bigint) then 'other'
              else 'owner' end as who
),
locked as materialized (
  -- A select in a WITH that nothing reads is never run: "written" reads this one, so it runs, and before the row is there.
  select count(pg_advisory_xact_lock(k)) as n
  from (select distinct k from gate cross join unnest($21::bigint[]) as t(k) where gate.who = 'owner' order by k) as ordered
),
written as (
  insert into appointments (tenant_id, id, clinic_id, kind, patient_id, practitioner_id, operatory_id, service_id, during, busy,
                            time_zone, local_start, status, holds_slot, overbooked, version, schedule_version, intent, note, block_reason,
                            source, external_system, external_id, created_at, updated_at)
  select $1::uuid, $3::uuid, $2::uuid, $4::text, $5::uuid, $6::uuid, $7::uuid, $8::uuid,
         tstzrange($9::timestamptz, $10::timestamptz), tstzrange($9, $11::timestamptz),
         $12::text, $13::timestamp, 'booked', true, $14::boolean, 1, 1, $15::bytea, $16::text, $17::text,
         'rest', $18::text, $19::text, $20::timestamptz, $20
  from gate cross join locked
  where gate.who = 'owner'
    -- The slot must be as the look saw it: taken for an overbooking, free of everyone for the rest.
    and case when $22::boolean and locked.n >= 0 then slot_held_by_now($1, $6, $7, tstzrange($9, $11), $3) = $14 else true end
  -- No target: every unique and exclusion constraint is an arbiter. A loser waits holding nothing, then writes nothing.
  on conflict do nothing
  returning tenant_id, clinic_id, id, version, schedule_version, status, during, practitioner_id, operatory_id, service_id, overbooked
),
claimed as (
  -- Plain insert: if the key exists by now this raises idempotency_keys_pk and undoes the row above.
  insert into idempotency_keys (tenant_id, clinic_id, key_hash, fingerprint, fingerprint_version, operation, status, headers, body, created_at, expires_at)
  select tenant_id, clinic_id, $23::bytea, $24::bytea, $25::smallint, $26::text, $27::smallint, $28::jsonb, $29::bytea, $20, $30::timestamptz
  from written where $23 is not null
),
recorded as (
  insert into appointment_history (tenant_id, appointment_id, version, schedule_version, status, during, practitioner_id, operatory_id, service_id,
                                   overbooked, operation, key_hash, request_id, caller_request_id, subject, credential_id, at)
  select tenant_id, id, version, schedule_version, status, during, practitioner_id, operatory_id, service_id,
         overbooked, $26, $23, $33::uuid, $34::text, $35::text, $36::uuid, $20 from written
),
noted as (
  insert into notification_intents (tenant_id, id, clinic_id, appointment_id, schedule_version, kind, due_at)
  select w.tenant_id, n.id, w.clinic_id, w.id, w.schedule_version, n.kind, n.due_at
  from written w cross join unnest($38::uuid[], $39::text[], $40::timestamptz[]) as n(id, kind, due_at)
),
told as (
  insert into outbox (event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, traceparent, occurred_at)
  select $41::uuid, tenant_id, clinic_id, $45::text, id, version, $42::text, $43::jsonb, $44::text, $20 from written
),
audited as (
  insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, request_id, caller_request_id)
  select tenant_id, $37::uuid, $20, $35, $36, clinic_id, $26, id, $27, $33, $34 from written
)
select gate.who as "who!", written.version as "written?" from gate left join written on true
