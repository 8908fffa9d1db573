-- Takes up what is due of a consumer: tries that failed, and tries whose worker's lease is up. Each gets the token of this
-- try; a late worker finds its own gone. What is held back behind another event is no try, and left alone.
-- $1 consumer $2 token $3 lease $4 at the most of either kind
with due as (
  select event_id from inbox
  where logical_consumer_id = $1 and state = 'RETRYABLE' and attempts > 0 and next_attempt_at <= clock_timestamp()
  order by next_attempt_at limit $4 for update skip locked
),
late as (
  select event_id from inbox
  where logical_consumer_id = $1 and state = 'PROCESSING' and lease_until < clock_timestamp()
  order by lease_until limit $4 for update skip locked
)
update inbox i
set state = 'PROCESSING', token = $2::uuid, lease_until = clock_timestamp() + $3::interval, next_attempt_at = null, attempts = i.attempts + 1
from (select event_id from due union all select event_id from late) as taken
where i.logical_consumer_id = $1 and i.event_id = taken.event_id
returning i.event_id, i.partition, i."offset", i.attempts
