-- Takes events out of the outbox that have arrived in the log outside, and ends the lease under which they were sent.
-- $1 token $2 partitions $3 positions
with mine as (
  update log_partitions set token = null, lease_until = null where token = $1::uuid returning partition
),
done as (
  delete from outbox o
  using mine join unnest($2::smallint[], $3::bigint[]) as a(partition, position) on a.partition = mine.partition
  where o.partition = a.partition and o.position = a.position
  returning o.partition, o.occurred_at
),
counted as (
  select partition, count(*) as events, min(occurred_at) as oldest from done group by partition
)
select coalesce(sum(events), 0)::bigint as "events!", coalesce(max(events), 0)::bigint as "most!", min(oldest) as oldest from counted
