-- Ends an attempt: the delivery, the attempt, the endpoint's health, and where that is at its end the endpoint itself with a
-- task for STAFF and a line in the audit. All of it under the attempt's token; one that is late writes nothing. What an attempt met
-- says nothing of an endpoint that was changed meanwhile: its health stays, and what the old URL sent away for good goes to the new one.
-- $1 tenant $2 endpoint $3 event $4 token $5 outcome $6 status|null $7 milliseconds $8 state $9 pause until the next attempt|null
-- $10 now $11 receiver's pause|null $12 failures that open the breaker $13 breaker's longest pause $14 disabled if it failed as long
-- $15 task id $16 audit id $17 request id $18 credential $19 the endpoint's version as it was claimed
with meant as materialized (
  select case when $5 = 'gone' and e.active and e.version <> $19::int then 'PENDING' else $8::text end as state
  from (select 1) as one left join webhook_endpoints e on e.tenant_id = $1::uuid and e.id = $2::uuid
),
done as (
  update webhook_deliveries d
  set state = m.state, token = null, lease_until = null,
      next_attempt_at = case when m.state = 'PENDING' then clock_timestamp() + coalesce($9::interval, interval '0') end,
      reason = case when m.state = 'DELIVERED' then null else $5::text end,
      ended_at = case when m.state = 'PENDING' then null else $10::timestamptz end
  from meant m
  where d.tenant_id = $1::uuid and d.endpoint_id = $2::uuid and d.event_id = $3::uuid and d.token = $4::uuid
  returning d.tenant_id, d.endpoint_id, d.event_id, d.clinic_id, d.attempts, d.state
),
told as (
  update webhook_attempts a
  set outcome = $5, status = $6::smallint, duration_ms = $7::int
  from done d
  where a.tenant_id = d.tenant_id and a.endpoint_id = d.endpoint_id and a.event_id = d.event_id and a.attempt = d.attempts
),
was as materialized (
  select e.tenant_id, e.id, d.clinic_id, e.failures, e.failing_since, e.paused_until,
         case when not e.active then null
              when $5 = 'gone' then 'gone'
              when $5 <> 'delivered' and e.failing_since <= $10 - $14::interval then 'failing' end as end_of_it
  from done d join webhook_endpoints e on e.tenant_id = d.tenant_id and e.id = d.endpoint_id
  -- A success that changes nothing is written down every ten seconds: an endpoint in use is no row to queue at.
  -- In brackets, so that the index of lists does not look like a way to one endpoint.
  where (e.deleted_at is null) is true and e.version = $19
    and ($5 <> 'delivered' or e.failing_since is not null or e.last_success_at is null or e.last_success_at < $10 - interval '10 s')
  for update of e
),
health as (
  update webhook_endpoints e
  set failures = case when $5 = 'delivered' then 0 else w.failures + 1 end,
      failing_since = case when $5 = 'delivered' then null else coalesce(w.failing_since, $10) end,
      last_success_at = case when $5 = 'delivered' then $10 else e.last_success_at end,
      paused_until = case
        -- Asked to be left alone, it is, whatever else it says meanwhile.
        when $5 = 'delivered' then case when w.paused_until > clock_timestamp() then w.paused_until end
        else greatest(w.paused_until, clock_timestamp() + $11::interval,
          -- From the threshold on it doubles, from five seconds to the longest.
          case when w.failures + 1 >= $12::int then
            clock_timestamp() + least($13::interval, interval '5 s' * power(2, least(w.failures + 1 - $12, 16))) end) end,
      active = e.active and w.end_of_it is null,
      disabled_reason = coalesce(w.end_of_it, e.disabled_reason),
      disabled_at = case when w.end_of_it is not null then $10 else e.disabled_at end,
      -- The ETag: an administrator who would change it has to see this first.
      version = e.version + case when w.end_of_it is not null then 1 else 0 end
  from was w
  where e.tenant_id = w.tenant_id and e.id = w.id
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, subject_kind, subject_id, reason_code, created_at)
  select tenant_id, $15::uuid, clinic_id, 'webhook_endpoint_disabled', 'webhook_endpoint', id, end_of_it, $10
  from was where end_of_it is not null
),
audited as (
  insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, code, request_id)
  select tenant_id, $16::uuid, $10, 'system:webhooks', $18::uuid, clinic_id, 'disable_webhook_endpoint', id, 200, end_of_it, $17::uuid
  from was where end_of_it is not null
)
select d.state as "state!", w.end_of_it as "end_of_it?" from done d left join was w on true
