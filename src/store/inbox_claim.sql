-- Takes up what is due of a consumer: tries that failed, and tries whose worker's lease is up. Each gets the token of this
-- try; a late worker finds its own gone. What is held back behind another event is no try, and left alone.
-- $1 consumer $2 token $3 lease $4 at the most of either kind
update inbox i
set state = 'PROCESSING', token = $2::uuid, lease_until = clock_timestamp() + $3::interval, next_attempt_at = null, attempts = i.attempts + 1
-- An array is made once, and leads to its rows: joined, a plan made early might go through the table for each of them.
where i.ctid = any(array(
  select ctid from inbox
  where logical_consumer_id = $1 and state = 'RETRYABLE' and attempts > 0 and next_attempt_at <= clock_timestamp()
  order by next_attempt_at limit $4 for update skip locked))
or i.ctid = any(array(
  select ctid from inbox
  where logical_consumer_id = $1 and state = 'PROCESSING' and lease_until < clock_timestamp()
  order by lease_until limit $4 for update skip locked))
returning i.event_id, i.partition, i."offset", i.attempts
