-- A change of a row: move, confirm, check in, complete, no-show, cancel, reopen, note, remove a block. An update cannot say
-- "on conflict do nothing": two moves into one slot would each wait for the other until the deadlock detector's second is up.
-- So whoever enters a slot first takes advisory locks, in ascending order, for every resource it leaves AND enters.
-- The order is the proof: try-locks of the key, locks of the resources sorted, the row, its slots, the key, foreign keys.
-- $1 tenant $2 id $3 version seen $4 practitioner $5 operatory $6 service $7 start $8 end $9 busy until $10 time zone $11 local start
-- $12 status $13 holds its slot $14 overbooked $15 confirmed at $16 schedule version $17 intent $18 note $19 cancel reason $20 now
-- $21 resource locks (none where no slot is entered) $22 check the slot again under them?
-- $23 key hash|null $24 fingerprint|null $25 fingerprint version $26 operation $27 status $28 headers $29 body $30 expires at
-- $31 lock of (scope, key, fingerprint)|null $32 lock of (scope, key)|null
-- $33 request id $34 caller's request id $35 subject $36 credential $37 audit id
-- $38 notice ids $39 kinds $40 due at $41 event id $42 event type $43 payload $44 traceparent $45 subject kind $46 cancelled by
with gate as materialized (
  -- Who else is at work on this key, in any process? Try-locks only: nobody waits, nobody deadlocks, gone with the transaction.
  -- 'same': this very request is running. 'other': the key is running with another fingerprint. The order is the meaning:
  -- a loser of the first never tries the second.
  select case when not pg_try_advisory_xact_lock($31::bigint) then 'same'
              when not pg_try_advisory_xact_lock($32::bigint) then 'other'
              else 'owner' end as who
),
locked as materialized (
  -- A select in a WITH that nothing reads is never run: "written" reads this one, so it runs, and before the row is touched.
  select count(pg_advisory_xact_lock(k)) as n
  from (select distinct k from gate cross join unnest($21::bigint[]) as t(k) where gate.who = 'owner' order by k) as ordered
),
written as (
  update appointments a
  set practitioner_id = $4::uuid, operatory_id = $5::uuid, service_id = $6::uuid, during = tstzrange($7::timestamptz, $8::timestamptz),
      busy = tstzrange($7, $9::timestamptz), time_zone = $10::text, local_start = $11::timestamp, status = $12::text, holds_slot = $13::boolean,
      overbooked = $14::boolean, confirmed_at = $15::timestamptz, version = a.version + 1, schedule_version = $16::int, intent = $17::bytea,
      note = $18::text, cancel_reason = $19::text, cancelled_by = $46::text, updated_at = $20::timestamptz
  from gate cross join locked
  -- The guard stands on the updated row itself: only that is checked again on the newest version after a wait.
  where a.tenant_id = $1::uuid and a.id = $2::uuid and a.version = $3::int and gate.who = 'owner' and locked.n >= 0
    -- The slot must be as the look saw it: taken for an overbooking, free of everyone for the rest.
    and case when $22::boolean and locked.n >= 0 then slot_held_by_now($1, $4, $5, tstzrange($7, $9), $2) = $14 else true end
  returning a.tenant_id, a.clinic_id, a.id, a.version, a.schedule_version, a.status, a.during, a.practitioner_id, a.operatory_id, a.service_id, a.overbooked
),
claimed as (
  -- Plain insert: if the key exists by now this raises idempotency_keys_pk and undoes the change above.
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
