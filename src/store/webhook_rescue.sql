-- Attempts whose lease is up: their process ended or hangs. Whether the request arrived is unknown, so it is sent again at
-- once; the token goes, and with it the late one's right to write.
-- $1 at the most
with late as (
  select tenant_id, endpoint_id, event_id from webhook_deliveries
  where state = 'SENT' and lease_until < clock_timestamp()
  order by lease_until limit $1
  for update skip locked
),
back as (
  update webhook_deliveries d
  set state = 'PENDING', token = null, lease_until = null, next_attempt_at = clock_timestamp(), reason = 'unknown'
  from late l
  where d.tenant_id = l.tenant_id and d.endpoint_id = l.endpoint_id and d.event_id = l.event_id
  returning d.tenant_id, d.endpoint_id, d.event_id, d.attempts
),
noted as (
  update webhook_attempts a set outcome = 'unknown' from back b
  where a.tenant_id = b.tenant_id and a.endpoint_id = b.endpoint_id and a.event_id = b.event_id and a.attempt = b.attempts
)
select count(*) as "rescued!" from back
