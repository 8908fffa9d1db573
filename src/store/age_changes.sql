-- Deletes old changes and moves the beginning of their feeds past them, so that a reader who stopped before it is told.
-- $1 older than this $2 at the most
with old as materialized (
  select tenant_id, clinic_id, position from changes where appended_at < $1 order by appended_at, position limit $2
),
feeds as materialized (
  -- The order in which those who append take them.
  select f.tenant_id, f.clinic_id from change_feeds f
  where (f.tenant_id, f.clinic_id) in (select tenant_id, clinic_id from old)
  order by f.tenant_id, f.clinic_id
  for update
),
gone as (
  delete from changes c using old, feeds
  where feeds.tenant_id = old.tenant_id and feeds.clinic_id = old.clinic_id
    and c.tenant_id = old.tenant_id and c.clinic_id = old.clinic_id and c.position = old.position
  returning c.tenant_id, c.clinic_id, c.position
),
moved as (
  update change_feeds f set first_position = greatest(f.first_position, last.position + 1)
  from (select tenant_id, clinic_id, max(position) as position from gone group by tenant_id, clinic_id) as last
  where f.tenant_id = last.tenant_id and f.clinic_id = last.clinic_id
)
select count(*) as "gone!" from gone
