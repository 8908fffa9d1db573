-- What is not done of each consumer's inbox, by state, and the oldest that is due. However long the inbox, and however
-- much of it waits: four walks along the beginnings of its partial indexes. The order each asks for is that of one index
-- alone, so that no plan, early or late, goes through the primary key instead.
-- $1 a consumer; null for all $2 rows of a walk at the most, and so of a figure
select c.logical_consumer_id as "consumer!", waiting.retryable as "retryable!", behind.held as "held!",
       leased.processing as "processing!", open.quarantined as "quarantined!", waiting.due + leased.late as "due!",
       least(waiting.oldest, leased.oldest) as oldest
from consumers c
cross join lateral (
  select count(*) as retryable, count(*) filter (where r.next_attempt_at <= clock_timestamp()) as due,
         min(r.next_attempt_at) filter (where r.next_attempt_at <= clock_timestamp()) as oldest
  from (
    select i.next_attempt_at from inbox i
    where i.logical_consumer_id = c.logical_consumer_id and i.state = 'RETRYABLE' and i.attempts > 0
    order by i.next_attempt_at limit $2
  ) as r
) as waiting
cross join lateral (
  select count(*) as held
  from (
    select from inbox i
    where i.logical_consumer_id = c.logical_consumer_id and i.state = 'RETRYABLE' and i.attempts = 0
    order by i.next_attempt_at limit $2
  ) as h
) as behind
cross join lateral (
  select count(*) as processing, count(*) filter (where p.lease_until < clock_timestamp()) as late,
         min(p.lease_until) filter (where p.lease_until < clock_timestamp()) as oldest
  from (
    select i.lease_until from inbox i
    where i.logical_consumer_id = c.logical_consumer_id and i.state = 'PROCESSING'
    order by i.lease_until limit $2
  ) as p
) as leased
cross join lateral (
  select count(*) as quarantined
  from (
    select from inbox i
    where i.logical_consumer_id = c.logical_consumer_id and i.state = 'QUARANTINED'
    order by i.received_at limit $2
  ) as q
) as open
where $1::text is null or c.logical_consumer_id = $1
