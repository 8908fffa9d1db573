-- An endpoint's deliveries, the latest first, each with its attempts.
-- $1 tenant $2 endpoint $3 queued before|null $4 event before $5 state|null $6 rows $7 clinics in reach|null
select d.event_id, d.clinic_id, d.type as kind, d.subject_kind, d.subject_id, d.sequence, d.redelivery, d.reason, d.next_attempt_at,
       d.queued_at, d.ended_at, shown.state as "state!", tried.attempts as "attempts!: Json<Vec<AttemptView>>"
from webhook_deliveries d
cross join lateral (
  select case when d.state = 'PENDING' and not d.redelivery and exists (
           select from webhook_deliveries o
           where o.subject_id = d.subject_id and o.endpoint_id = d.endpoint_id and o.sequence < d.sequence
             and o.state in ('PENDING', 'SENT') and not o.redelivery) then 'HELD' else d.state end as state
) as shown
cross join lateral (
  select coalesce(jsonb_agg(jsonb_build_object('attempt', a.attempt, 'started_at', a.started_at, 'outcome', a.outcome,
           'status', a.status, 'duration_ms', a.duration_ms) order by a.attempt), '[]') as attempts
  from webhook_attempts a
  where a.tenant_id = d.tenant_id and a.endpoint_id = d.endpoint_id and a.event_id = d.event_id
) as tried
where d.tenant_id = $1::uuid and d.endpoint_id = $2::uuid
  and ($3::timestamptz is null or (d.queued_at, d.event_id) < ($3, $4::uuid))
  and ($5::text is null or shown.state = $5)
  -- Whatever the endpoint is for by now: the delivery tells of its own clinic.
  and ($7::uuid[] is null or d.clinic_id = any($7))
order by d.queued_at desc, d.event_id desc
limit $6
