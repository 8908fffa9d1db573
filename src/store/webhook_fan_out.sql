-- Queues events for every endpoint that wants them: of its group, one of its clinics, one of its types. An event that comes
-- again is queued already.
-- $1 event ids $2 tenants $3 clinics $4 subject kinds $5 subjects $6 sequences $7 types $8 payloads $9 traceparents $10 times
-- $11 now
insert into webhook_deliveries (tenant_id, endpoint_id, event_id, clinic_id, subject_kind, subject_id, sequence, type, payload,
                                traceparent, occurred_at, next_attempt_at, queued_at)
select c.tenant_id, e.id, c.event_id, c.clinic_id, c.subject_kind, c.subject_id, c.sequence, c.type, c.payload,
       c.traceparent, c.occurred_at, $11::timestamptz, $11
from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::int[], $7::text[], $8::jsonb[], $9::text[], $10::timestamptz[])
  as c(event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, traceparent, occurred_at)
join webhook_endpoints e on e.tenant_id = c.tenant_id and e.deleted_at is null
  and e.active
  and (e.clinic_ids is null or c.clinic_id = any(e.clinic_ids))
  and (e.event_types is null or c.type = any(e.event_types))
  -- What happened before it was there is none of its business, whenever it is heard of.
  and c.occurred_at >= e.created_at
-- In one order for all, so that no two wait for each other.
order by e.id, c.event_id
on conflict do nothing
