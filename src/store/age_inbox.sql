-- Forgets what consumers did with old events. Not while the event is in the log: whoever read it again would do it again.
-- Event ids begin with the time they were made at, so the oldest are found by the key.
-- $1 the first id of what is young enough $2 at the most
delete from inbox
where ctid = any(array(
  select i.ctid
  from inbox i
  where i.event_id < $1 and i.state = 'PROCESSED'
    and not exists (select from event_log e where e.partition = i.partition and e."offset" = i."offset" and e.event_id = i.event_id)
  order by i.event_id limit $2))
