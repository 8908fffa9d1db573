-- The next events of a group: takes a lease on partitions that hold some and that nobody reads, and reads on in them.
-- Whoever reads holds the lease until the group's offset is moved (log_commit) or its time is up; a reader that died, or is
-- late, finds its token gone.
-- $1 group $2 token $3 lease $4 events of a partition at the most $5 partitions at the most
with mine as materialized (
  select g.partition, g."offset"
  from log_groups g join log_partitions p on p.partition = g.partition
  where g.name = $1 and g."offset" < p.next_offset and (g.token is null or g.token = $2 or g.lease_until < clock_timestamp())
  -- The one that has waited longest: no partition waits for ever behind busier ones.
  order by g.read_at nulls first, g.partition
  limit $5
  for update of g skip locked
),
leased as (
  update log_groups g set token = $2::uuid, lease_until = clock_timestamp() + $3::interval, read_at = clock_timestamp()
  from mine where g.name = $1 and g.partition = mine.partition
)
select e.partition, e."offset", e.event_id, e.tenant_id, e.clinic_id, e.subject_kind, e.subject_id, e.sequence, e.type as kind,
       e.payload as data, e.traceparent, e.occurred_at
from mine cross join lateral (
  select * from event_log l where l.partition = mine.partition and l."offset" >= mine."offset" order by l."offset" limit $4
) as e
order by e.partition, e."offset"
