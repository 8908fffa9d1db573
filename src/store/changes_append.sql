-- Appends events to the feeds of their clinics, in the order given. The lock of a feed's row is held until the commit, so
-- places become visible in their order: whoever has read up to one misses nothing before it.
-- $1 event ids $2 tenants $3 clinics $4 subject kinds $5 subjects $6 sequences $7 types $8 payloads $9 traceparents $10 times $11 now
with came as (
  select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::int[], $7::text[], $8::jsonb[], $9::text[], $10::timestamptz[])
    with ordinality as c(event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, traceparent, occurred_at, n)
),
feeds as (
  insert into change_feeds as f (tenant_id, clinic_id, next_position)
  -- In one order for all, so that no two wait for each other.
  select tenant_id, clinic_id, count(*) from came group by tenant_id, clinic_id order by tenant_id, clinic_id
  on conflict (tenant_id, clinic_id) do update set next_position = f.next_position + excluded.next_position
  returning tenant_id, clinic_id, next_position
)
insert into changes (tenant_id, clinic_id, position, event_id, subject_kind, subject_id, sequence, type, payload, traceparent, occurred_at, appended_at)
select c.tenant_id, c.clinic_id, feeds.next_position - row_number() over (partition by c.tenant_id, c.clinic_id order by c.n desc),
       c.event_id, c.subject_kind, c.subject_id, c.sequence, c.type, c.payload, c.traceparent, c.occurred_at, $11::timestamptz
from came c join feeds on feeds.tenant_id = c.tenant_id and feeds.clinic_id = c.clinic_id
