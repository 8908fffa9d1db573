-- What waits for an endpoint that is switched off, disabled or deleted is cancelled, so that nothing of it goes out should it
-- be switched on again; and so is what an endpoint is no longer for, whose clinics or types were narrowed meanwhile. An administrator can have it sent all the same.
-- $1 now $2 at the most
with recursive waiting as (
  (select endpoint_id from webhook_deliveries where state = 'PENDING' order by endpoint_id limit 1)
  union all
  select n.endpoint_id
  from waiting w cross join lateral (
    select d.endpoint_id from webhook_deliveries d where d.state = 'PENDING' and d.endpoint_id > w.endpoint_id
    order by d.endpoint_id limit 1) as n
),
quiet as materialized (
  select e.id, e.active, e.clinic_ids, e.event_types,
         case when e.deleted_at is not null then 'deleted' when e.active then 'unwanted' else coalesce(e.disabled_reason, 'inactive') end as reason
  from waiting w
  cross join lateral (select d.tenant_id from webhook_deliveries d where d.endpoint_id = w.endpoint_id and d.state = 'PENDING' limit 1) as t
  join webhook_endpoints e on e.tenant_id = t.tenant_id and e.id = w.endpoint_id
  where not e.active or e.clinic_ids is not null or e.event_types is not null
),
gone as materialized (
  select d.tenant_id, d.endpoint_id, d.event_id, quiet.reason
  from quiet join webhook_deliveries d on d.endpoint_id = quiet.id and d.state = 'PENDING'
  where not quiet.active or d.clinic_id <> all(quiet.clinic_ids) or d.type <> all(quiet.event_types)
  limit $2
  for update of d skip locked
)
update webhook_deliveries d
set state = 'CANCELLED', reason = gone.reason, next_attempt_at = null, ended_at = $1::timestamptz
from gone
where d.tenant_id = gone.tenant_id and d.endpoint_id = gone.endpoint_id and d.event_id = gone.event_id
