-- Ends a try that failed: to be tried again later, or quarantined, with a task for STAFF. Only while the try's token holds.
-- $1 consumer $2 event $3 token $4 reason $5 tried again at, or null to quarantine $6 id of the task $7 now
with decided as (
  update inbox
  set state = case when $5::timestamptz is null then 'QUARANTINED' else 'RETRYABLE' end, next_attempt_at = $5, reason_code = $4,
      token = null, lease_until = null, decided_at = case when $5 is null then $7::timestamptz end
  where logical_consumer_id = $1 and event_id = $2 and token = $3
  returning tenant_id, clinic_id, subject_kind, subject_id, event_id, state
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, logical_consumer_id, event_id, subject_kind, subject_id, reason_code, created_at)
  select tenant_id, $6, clinic_id, 'quarantined_event', $1, event_id, subject_kind, subject_id, $4, $7 from decided where state = 'QUARANTINED'
)
select count(*) as "decided!" from decided
