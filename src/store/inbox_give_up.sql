-- Ends a try that failed: to be tried again later, or quarantined, with a task for STAFF. Only while the try's token holds.
-- $1 consumer $2 event $3 token $4 reason $5 tried again in, or null to quarantine $6 id of the task $7 now
-- $8 whether it counts as a try. An outage is not the event's fault, and holds it; after a day a person had better know.
with decided as (
  update inbox
  set state = again.state, reason_code = $4, token = null, lease_until = null,
      next_attempt_at = case when again.state = 'RETRYABLE' then clock_timestamp() + $5::interval end,
      attempts = attempts - case when again.state = 'RETRYABLE' and not $8::boolean then 1 else 0 end,
      decided_at = case when again.state = 'QUARANTINED' then $7::timestamptz end
  from (select $5::interval is null as never) as told,
       lateral (select case when told.never or (not $8 and (select received_at from inbox where logical_consumer_id = $1 and event_id = $2) < $7::timestamptz - interval '1 day')
                            then 'QUARANTINED' else 'RETRYABLE' end as state) as again
  where logical_consumer_id = $1 and event_id = $2 and token = $3
  returning tenant_id, clinic_id, subject_kind, subject_id, event_id, inbox.state
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, logical_consumer_id, event_id, subject_kind, subject_id, reason_code, created_at)
  select tenant_id, $6, clinic_id, 'quarantined_event', $1, event_id, subject_kind, subject_id, $4, $7 from decided where state = 'QUARANTINED'
)
select state from decided
