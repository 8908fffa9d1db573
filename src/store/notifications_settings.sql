-- Sets what a clinic wants of its notifications, in place of the version that was seen (0: none), and moves the reminders of
-- its coming visits that nobody is at to the new hours: one whose new time has passed falls due now. One that is due by the
-- old hours and by the new stays as it is, and so does one that was perhaps sent already. One that was written with the old
-- hours while this ran is put right when it falls due: see domain/notification.rs.
-- $1 tenant $2 audit id $3 now $4 subject $5 credential $6 operation $7 request id $8 caller's request id $9 version seen
-- $10 clinic $11 reminder hours $12 quiet from $13 quiet to $14 templates
with written as (
  insert into clinic_notifications as n (tenant_id, clinic_id, reminder_hours, quiet_from, quiet_to, templates, version, created_at, updated_at)
  select $1::uuid, $10::uuid, $11::int, $12::smallint, $13::smallint, $14::jsonb, 1, $3::timestamptz, $3
  where $9::int = 0 or exists (select from clinic_notifications where tenant_id = $1 and clinic_id = $10)
  on conflict (tenant_id, clinic_id) do update
  set reminder_hours = excluded.reminder_hours, quiet_from = excluded.quiet_from, quiet_to = excluded.quiet_to,
      templates = excluded.templates, version = n.version + 1, updated_at = excluded.updated_at
  where n.version = $9
  returning tenant_id, clinic_id, reminder_hours
),
moved as (
  update notification_intents i
  set due_at = r.due_at, next_attempt_at = null, reason_code = null
  from written w
  -- "offset 0", and no word of PENDING, which these are: each is looked up by its visit, and nothing is gone through.
  cross join lateral (
    select a.tenant_id, a.id, a.schedule_version, lower(a.during) as start from appointments a
    where a.clinic_id = w.clinic_id and a.tenant_id = w.tenant_id and lower(a.during) > $3 and a.kind = 'visit'
    offset 0
  ) as coming
  cross join lateral (
    select o.tenant_id, o.id, greatest(coming.start - w.reminder_hours * interval '1 hour', $3) as due_at from notification_intents o
    where o.appointment_id = coming.id and o.schedule_version = coming.schedule_version and o.kind = 'reminder'
      and o.tenant_id = coming.tenant_id
    offset 0
  ) as r
  where i.tenant_id = r.tenant_id and i.id = r.id and i.token is null and i.decided_at is null and i.due_at <> r.due_at
    and i.channel is null and (r.due_at > $3 or i.due_at > $3 or i.reason_code = 'reminder_moved')
)
insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, request_id, caller_request_id)
select tenant_id, $2::uuid, $3, $4::text, $5::uuid, clinic_id, $6::text, clinic_id, 200, $7::uuid, $8::text from written
