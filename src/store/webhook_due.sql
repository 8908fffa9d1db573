-- What is due at endpoints that could have it now: in use, not left alone, with room. What is held behind another event, or is no
-- longer wanted, does not count. Since when: since it was due and its endpoint no longer left alone.
-- $1 of one endpoint at the most $2 failures from which on an endpoint gets one at a time
select count(*) as "items!", min(due.since) as oldest
from webhook_endpoints e
cross join lateral (
  select greatest(d.next_attempt_at, e.paused_until) as since
  from webhook_deliveries d
  where d.endpoint_id = e.id and d.state = 'PENDING' and d.next_attempt_at <= clock_timestamp()
    and (e.clinic_ids is null or d.clinic_id = any(e.clinic_ids)) and (e.event_types is null or d.type = any(e.event_types))
    and (d.redelivery or not exists (
      select from webhook_deliveries o
      where o.subject_id = d.subject_id and o.endpoint_id = d.endpoint_id and o.sequence < d.sequence
        and o.state in ('PENDING', 'SENT') and not o.redelivery))
  order by d.next_attempt_at
  limit 100
) as due
where e.active and (e.paused_until is null or e.paused_until <= clock_timestamp())
  and (select count(*) from webhook_deliveries s where s.endpoint_id = e.id and s.state = 'SENT')
      < case when e.failures >= $2::int then 1 else $1::bigint end
