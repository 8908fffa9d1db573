-- Gives an attempt back that was never made, through no fault of its receiver: as if it had not been taken up, and due a little
-- later, so that another process may have it. Under the attempt's token.
-- $1 tenant $2 endpoint $3 event $4 token $5 after how long
with back as (
  update webhook_deliveries d
  set state = 'PENDING', token = null, lease_until = null, next_attempt_at = clock_timestamp() + $5::interval,
      attempts = d.attempts - 1, reason = 'secret_unreadable',
      first_attempt_at = case when d.attempts - 1 > d.attempts_before then d.first_attempt_at end
  where d.tenant_id = $1::uuid and d.endpoint_id = $2::uuid and d.event_id = $3::uuid and d.token = $4::uuid
  returning d.tenant_id, d.endpoint_id, d.event_id, d.attempts + 1 as attempt
),
unmade as (
  delete from webhook_attempts a using back b
  where a.tenant_id = b.tenant_id and a.endpoint_id = b.endpoint_id and a.event_id = b.event_id and a.attempt = b.attempt
)
select count(*) as "back!" from back
