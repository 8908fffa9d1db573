-- Moves events out of the outbox into the log: one statement, so whatever leaves the one stands in the other.
-- Who holds a partition's row is its only sequencer; a rival skips it. What is moved is found by its presence, never by
-- "position > last seen": a lower position can commit later, and is then found by the next step.
-- Within a partition the order is the positions'. A later version of a subject has the higher one, since its row was locked
-- before its position was drawn, and whoever sees it sees every earlier one.
-- $1 events of a partition at the most $2 trace contexts that are told of at the most
with mine as materialized (
  -- Read by the lock, not by the snapshot: offsets another sequencer gave out meanwhile are counted in.
  select partition, next_offset from log_partitions order by partition for update skip locked
),
next as materialized (
  select waiting.partition, waiting.position
  from mine cross join lateral (
    select o.partition, o.position from outbox o where o.partition = mine.partition order by o.position limit $1
  ) as waiting
),
moved as (
  -- What another sequencer moved since the snapshot is gone by now, and deletes nothing.
  delete from outbox o using next where o.partition = next.partition and o.position = next.position
  returning o.*
),
logged as (
  insert into event_log (partition, "offset", event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload,
                         traceparent, occurred_at, logged_at)
  select mine.partition, mine.next_offset + row_number() over (partition by mine.partition order by moved.position) - 1,
         event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, traceparent, occurred_at, clock_timestamp()
  from moved join mine on mine.partition = moved.partition
  returning partition, occurred_at, traceparent
),
counted as (
  select partition, count(*) as events, min(occurred_at) as oldest from logged group by partition
),
advanced as (
  update log_partitions p set next_offset = p.next_offset + counted.events from counted where p.partition = counted.partition
)
select coalesce(sum(events), 0)::bigint as "events!", coalesce(max(events), 0)::bigint as "most!", min(oldest) as oldest,
       array(select traceparent from logged where traceparent is not null limit $2) as "traceparents!"
from counted
