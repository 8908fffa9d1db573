-- Takes up deliveries that are due, under one token, and says so: SENT stands before the first byte leaves.
-- A delivery waits while an earlier event of its subject is not through at the same endpoint. Nobody else can be past that
-- one: whoever sees the later row sees the earlier one too, since they were queued in their order.
-- $1 token $2 lease $3 at the most $4 of one endpoint at the most $5 failures from which on an endpoint gets one at a time $6 now
with recursive waiting as (
  -- Endpoints with something to send, by one step through the index each.
  (select endpoint_id from webhook_deliveries where state = 'PENDING' order by endpoint_id limit 1)
  union all
  select n.endpoint_id
  from waiting w cross join lateral (
    select d.endpoint_id from webhook_deliveries d where d.state = 'PENDING' and d.endpoint_id > w.endpoint_id
    order by d.endpoint_id limit 1) as n
),
ready as materialized (
  select e.tenant_id, e.id, e.version, e.clinic_ids, e.event_types, e.url, e.secret, case when e.previous_secret_until > $6::timestamptz then e.previous_secret end as previous_secret,
         case when e.failures >= $5::int then 1 else $4::bigint end
           - (select count(*) from webhook_deliveries s where s.endpoint_id = e.id and s.state = 'SENT') as free
  from waiting w
  cross join lateral (select d.tenant_id from webhook_deliveries d where d.endpoint_id = w.endpoint_id and d.state = 'PENDING' limit 1) as t
  join webhook_endpoints e on e.tenant_id = t.tenant_id and e.id = w.endpoint_id
  where e.active and (e.paused_until is null or e.paused_until <= clock_timestamp())
),
due as materialized (
  select d.tenant_id, d.endpoint_id, d.event_id, d.turn
  from ready r cross join lateral (
    select c.*, row_number() over (order by c.next_attempt_at, c.event_id) as turn
    from (
      select d.tenant_id, d.endpoint_id, d.event_id, d.next_attempt_at
      from webhook_deliveries d
      where d.endpoint_id = r.id and d.state = 'PENDING' and d.next_attempt_at <= clock_timestamp()
        -- What it is no longer for waits to be cancelled.
        and (r.clinic_ids is null or d.clinic_id = any(r.clinic_ids)) and (r.event_types is null or d.type = any(r.event_types))
        and (d.redelivery or not exists (
          select from webhook_deliveries o
          where o.subject_id = d.subject_id and o.endpoint_id = d.endpoint_id and o.sequence < d.sequence
            and o.state in ('PENDING', 'SENT') and not o.redelivery))
      order by d.next_attempt_at
      limit greatest(r.free, 0)
    ) as c
  ) as d
  -- One of each endpoint, then a second of each: none waits behind another's backlog.
  order by d.turn, d.endpoint_id
  limit $3
),
mine as materialized (
  select d.tenant_id, d.endpoint_id, d.event_id
  from due join webhook_deliveries d on d.tenant_id = due.tenant_id and d.endpoint_id = due.endpoint_id and d.event_id = due.event_id
  -- Looked at again under its lock: another may have taken it meanwhile.
  where d.state = 'PENDING'
  for update of d skip locked
),
sent as (
  update webhook_deliveries d
  set state = 'SENT', attempts = d.attempts + 1, first_attempt_at = coalesce(d.first_attempt_at, $6), next_attempt_at = null,
      token = $1::uuid, lease_until = clock_timestamp() + $2::interval
  from mine m
  where d.tenant_id = m.tenant_id and d.endpoint_id = m.endpoint_id and d.event_id = m.event_id
  returning d.*
),
noted as (
  insert into webhook_attempts (tenant_id, endpoint_id, event_id, attempt, started_at)
  select tenant_id, endpoint_id, event_id, attempts, $6 from sent
)
select s.tenant_id as "tenant_id!", s.endpoint_id as "endpoint_id!", s.event_id as "event_id!", s.clinic_id as "clinic_id!",
       s.subject_kind as "subject_kind!", s.subject_id as "subject_id!", s.sequence as "sequence!", s.type as "kind!",
       s.payload as "data!", s.traceparent, s.occurred_at as "occurred_at!", s.attempts as "attempt!", s.attempts - s.attempts_before as "of_round!",
       s.first_attempt_at as "first_attempt_at!", r.version as "version!", r.url as "url!", r.secret as "secret!", r.previous_secret as "previous_secret?"
from sent s join ready r on r.id = s.endpoint_id
