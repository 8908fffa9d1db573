-- Gives up what was sent by mail and whose lease has ended: whether it was taken nobody can say, and a mail server takes the
-- same message twice. So it is never sent again, and is a task for STAFF.
-- $1 ids of tasks, as many as are given up at the most $2 now
with late as materialized (
  select tenant_id, id from notification_intents
  where state in ('LEASED', 'SENT') and lease_until < clock_timestamp() and state = 'SENT' and channel = 'email'
  order by lease_until limit cardinality($1::uuid[]) for update skip locked
),
given_up as (
  update notification_intents n
  set state = 'UNKNOWN', reason_code = 'lease_ended', token = null, lease_until = null, decided_at = $2::timestamptz
  from late where n.tenant_id = late.tenant_id and n.id = late.id
  returning n.tenant_id, n.id, n.clinic_id
),
numbered as (
  select *, row_number() over (order by tenant_id, id) as n from given_up
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, subject_kind, subject_id, reason_code, created_at)
  select g.tenant_id, t.id, g.clinic_id, 'notification_not_confirmed', 'notification', g.id, 'lease_ended', $2
  from numbered g join unnest($1) with ordinality as t(id, n) on t.n = g.n
)
select count(*) as "given_up!" from given_up
