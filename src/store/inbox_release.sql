-- Takes up what was held back and need not be any longer, under the token of this try: the version before it is done, or none of
-- the consumer's business any more. What is still held rests on, the longer the longer it has.
-- $1 consumer $2 token $3 lease $4 at the most $5 in order?
with due as materialized (
  select i.ctid as place,
         not $5::boolean or i.sequence = 1 or coalesce(
           (select b.state = 'PROCESSED' from inbox b
            where b.logical_consumer_id = $1 and b.subject_id = i.subject_id and b.sequence = i.sequence - 1
              and b.tenant_id = i.tenant_id and b.subject_kind = i.subject_kind limit 1),
           not exists (select from appointment_history e join consumers s on s.logical_consumer_id = $1 and e.at >= s.since
                       where e.tenant_id = i.tenant_id and e.appointment_id = i.subject_id and e.version = i.sequence - 1)) as free
  from inbox i
  where i.logical_consumer_id = $1 and i.state = 'RETRYABLE' and i.attempts = 0 and i.next_attempt_at <= clock_timestamp()
  order by i.next_attempt_at limit $4
  for update of i skip locked
),
looked_at as (
  update inbox i
  set state = case when d.free then 'PROCESSING' else i.state end, attempts = case when d.free then 1 else 0 end,
      token = case when d.free then $2::uuid end, lease_until = case when d.free then clock_timestamp() + $3::interval end,
      next_attempt_at = case when not d.free then
        clock_timestamp() + greatest(interval '500 milliseconds', least(interval '1 minute', (clock_timestamp() - i.received_at) / 2)) end
  from due d
  -- The array leads to the rows: by the join alone, a plan made early might go through the table.
  where i.ctid = d.place and i.ctid = any(array(select place from due))
  returning i.event_id, i.partition, i."offset", i.attempts
)
select event_id as "event_id!", partition as "partition!", "offset" as "offset!", attempts as "attempts!" from looked_at where attempts > 0
