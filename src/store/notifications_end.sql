-- Ends a try: done, or to be tried again, or given up, with a task for STAFF where a person has to see to it. Only while the
-- try's token holds.
-- $1 tenant $2 id $3 token $4 state $5 reason $6 tried again at $7 tries given back $8 may it have been taken?
-- $9 id of the task|null $10 its kind $11 now
with decided as (
  update notification_intents
  set state = $4::text, reason_code = $5::text, next_attempt_at = $6::timestamptz, token = null, lease_until = null,
      attempts = attempts - $7::int,
      -- What surely did not leave is free to go another way.
      channel = case when $4 = 'PENDING' and not $8::boolean then null else channel end,
      decided_at = case when $4 <> 'PENDING' then $11::timestamptz end
  where tenant_id = $1::uuid and id = $2::uuid and token = $3::uuid
  returning tenant_id, id, clinic_id
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, subject_kind, subject_id, reason_code, created_at)
  select tenant_id, $9::uuid, clinic_id, $10::text, 'notification', id, $5, $11 from decided where $9 is not null
)
select count(*) as "done!" from decided
