-- Marks an intent as sent, before its first byte leaves, and looks once more whether a later schedule has overtaken it. Only
-- while the try's token holds. Asked again it says the same, since whoever holds the token asks once before each sending.
-- $1 tenant $2 id $3 token $4 channel $5 lease
with mine as materialized (
  select n.tenant_id, n.id, a.schedule_version > n.schedule_version as stale
  from notification_intents n
  cross join lateral (select * from appointments where tenant_id = n.tenant_id and id = n.appointment_id offset 0) as a
  where n.tenant_id = $1::uuid and n.id = $2::uuid and n.token = $3::uuid
),
sent as (
  update notification_intents n
  set state = 'SENT', channel = $4::text, lease_until = clock_timestamp() + $5::interval
  from mine
  where n.tenant_id = $1 and n.id = $2 and n.token = $3 and not mine.stale
  returning n.id
)
select case when exists (select from sent) then 'sent' when exists (select from mine where stale) then 'stale' else 'late' end as "said!"
