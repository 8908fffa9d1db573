-- An endpoint's deliveries, the latest first, each with its attempts. Those that were not delivered are few among many, and have an
-- index of their own. Each index is of an expression, which is repeated here to be used.
-- $1 tenant $2 endpoint $3 queued before|null $4 event before $5 state|null $6 rows $7 clinics in reach|null
select d.event_id as "event_id!", d.clinic_id as "clinic_id!", d.type as "kind!", d.subject_kind as "subject_kind!",
       d.subject_id as "subject_id!", d.sequence as "sequence!", d.redelivery as "redelivery!", d.reason as "reason?",
       d.next_attempt_at as "next_attempt_at?", d.queued_at as "queued_at!", d.ended_at as "ended_at?", shown.state as "state!",
       tried.attempts as "attempts!: Json<Vec<AttemptView>>"
from (
  (select d.* from webhook_deliveries d
   where coalesce($5::text, 'DELIVERED') = 'DELIVERED' and array[d.tenant_id, d.endpoint_id] = array[$1::uuid, $2::uuid]
     and ($3::timestamptz is null or (d.queued_at, d.event_id) < ($3, $4::uuid))
     -- Whatever the endpoint is for by now: the delivery tells of its own clinic.
     and ($7::uuid[] is null or d.clinic_id = any($7))
     and ($5 is null or d.state = $5)
   order by d.queued_at desc, d.event_id desc limit $6)
  union all
  (select d.* from webhook_deliveries d
   where $5 <> 'DELIVERED' and d.state <> 'DELIVERED' and array[d.endpoint_id, d.tenant_id] = array[$2, $1]
     and ($3 is null or (d.queued_at, d.event_id) < ($3, $4))
     and ($7 is null or d.clinic_id = any($7))
     and $5 = case when d.state = 'PENDING' and not d.redelivery and exists (
           select from webhook_deliveries o
           where o.subject_id = d.subject_id and o.endpoint_id = d.endpoint_id and o.sequence < d.sequence
             and o.state in ('PENDING', 'SENT') and not o.redelivery) then 'HELD' else d.state end
   order by d.queued_at desc, d.event_id desc limit $6)
) as d
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
order by d.queued_at desc, d.event_id desc
limit $6
