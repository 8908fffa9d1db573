-- Takes up what is due: what waits, and what somebody was at whose lease has ended. Of the latter only what had not left yet,
-- or was sent through what knows our ids: what else was sent is given up elsewhere. Each gets the token of this try.
-- What a later schedule of its visit has overtaken is not taken up but marked.
-- While one of a visit is on its way its next waits, and while an earlier one is due itself: nobody is to read of a change before
-- they read of the booking. So no two of a visit are taken up at once, here or by two that do not see what the other takes up.
-- The first claim of all is remembered: what was due before it, nobody was to tell.
-- $1 now $2 token $3 lease $4 at the most of either sort
with due as (
  select n.tenant_id, n.id from notification_intents n
  where n.state = 'PENDING' and coalesce(n.next_attempt_at, n.due_at) <= $1::timestamptz
    and not exists (
      select from notification_intents o
      where o.tenant_id = n.tenant_id and o.appointment_id = n.appointment_id and o.id <> n.id
        and (o.state in ('LEASED', 'SENT')
          or o.state = 'PENDING' and coalesce(o.next_attempt_at, o.due_at) <= $1
            -- Of one version, the reminder is the last.
            and (o.schedule_version, o.kind = 'reminder') < (n.schedule_version, n.kind = 'reminder'))
      offset 0)
  order by coalesce(n.next_attempt_at, n.due_at) limit $4 for update skip locked
),
late as (
  select tenant_id, id from notification_intents
  where state in ('LEASED', 'SENT') and lease_until < clock_timestamp() and (state = 'LEASED' or channel = 'sms')
  order by lease_until limit $4 for update skip locked
),
first as (
  insert into notifier_start (at) select $1 where not exists (select from notifier_start) on conflict do nothing
),
taken as (
  update notification_intents n
  set state = case when at.stale then 'SUPERSEDED' else 'LEASED' end,
      token = case when not at.stale then $2::uuid end,
      lease_until = case when not at.stale then clock_timestamp() + $3::interval end,
      decided_at = case when at.stale then $1 end,
      -- Sent, and then overtaken: nobody asks any more whether it was taken, but it is not forgotten.
      reason_code = case when at.stale and n.channel is not null then 'outcome_unknown' else n.reason_code end,
      next_attempt_at = null,
      attempts = n.attempts + case when at.stale then 0 else 1 end
  from (
    select t.tenant_id, t.id, a.schedule_version > m.schedule_version as stale
    from (select * from due union all select * from late) as t
    cross join lateral (select * from notification_intents where tenant_id = t.tenant_id and id = t.id offset 0) as m
    cross join lateral (select * from appointments where tenant_id = m.tenant_id and id = m.appointment_id offset 0) as a
  ) as at
  where n.tenant_id = at.tenant_id and n.id = at.id
  returning n.*
)
select t.tenant_id as "tenant_id!", t.id as "id!", t.clinic_id as "clinic_id!", t.appointment_id as "appointment_id!",
  t.schedule_version as "schedule_version!", t.kind as "kind!", t.due_at as "due_at!", t.state as "state!",
  t.attempts as "attempts!", t.channel, t.reason_code, t.due_at >= coalesce((select at from notifier_start), $1) as "in_service!",
  a.status as "status!", lower(a.during) as "start!", upper(a.during) as "end!",
  p.name as "patient!", p.email, p.phone, p.language, p.preferred_channel as "prefers!",
  w.name as "practitioner!", s.name as "service!", c.name as "clinic!", c.time_zone as "time_zone!",
  cn.reminder_hours as "reminder_hours?", cn.quiet_from as "quiet_from?", cn.quiet_to as "quiet_to?",
  cn.templates as "templates?: Json<Templates>", cn.version as "version?"
from taken t
-- "offset 0": what is outside comes in as values, so all of a primary key's columns are looked up (see look_change.sql).
cross join lateral (select * from appointments where tenant_id = t.tenant_id and id = t.appointment_id offset 0) as a
cross join lateral (select * from patients where tenant_id = a.tenant_id and id = a.patient_id offset 0) as p
cross join lateral (select * from practitioners where tenant_id = a.tenant_id and id = a.practitioner_id offset 0) as w
cross join lateral (
  select * from services where tenant_id = a.tenant_id and clinic_id = a.clinic_id and id = a.service_id offset 0
) as s
cross join lateral (select * from clinics where tenant_id = a.tenant_id and id = a.clinic_id offset 0) as c
left join clinic_notifications cn on cn.tenant_id = a.tenant_id and cn.clinic_id = a.clinic_id
