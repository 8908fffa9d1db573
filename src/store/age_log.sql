-- Deletes events that are old and that nobody needs any more: every consumer's group has read them, and no consumer has yet to
-- try one again. The oldest of a partition are its lowest offsets, so what is looked at is the first of each: a batch, and
-- as many as there are that must stay.
-- $1 the process's now $2 how long they are kept $3 of a partition at the most
delete from event_log
where ctid = any(array(
  select old.place
  from log_partitions p
  cross join lateral (
    select count(*) as pinned from inbox i where i.partition = p.partition and i.state <> 'PROCESSED'
  ) as open
  cross join lateral (
    select e.ctid as place, e.event_id, e."offset", e.logged_at
    from event_log e where e.partition = p.partition order by e."offset" limit $3 + open.pinned
  ) as old
  where old.logged_at < least($1::timestamptz, statement_timestamp()) - $2::interval
    and old."offset" < (
      select coalesce(min(g."offset"), p.next_offset)
      from log_groups g join consumers c on c.logical_consumer_id = g.name where g.partition = p.partition)
    -- Looked up by itself: as "not exists", a plan made early might read all of the inbox.
    and (select true from inbox i where i.event_id = old.event_id and i.state <> 'PROCESSED' limit 1) is null))
