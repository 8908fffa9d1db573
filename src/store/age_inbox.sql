-- Forgets what consumers did with old events, and lets them forget that there were any: a version that is no longer known holds
-- no later one back. Not while the event is in the log: whoever read it again would do it again.
-- Event ids begin with the time they were made at, so the oldest are found by the key.
-- $1 older than this $2 the first id of what is not $3 at the most
with gone as (
  delete from inbox
  where ctid = any(array(
    select i.ctid
    from inbox i
    where i.event_id < $2 and i.state = 'PROCESSED'
      and (select true from event_log e where e.partition = i.partition and e."offset" = i."offset" and e.event_id = i.event_id) is null
    order by i.event_id limit $3))
  returning event_id
),
moved as (
  update consumers set since = $1::timestamptz where since < $1 and exists (select from gone)
)
select count(*) as "gone!" from gone
