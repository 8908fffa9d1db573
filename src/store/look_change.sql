-- The look of every command addressed by id. The clinic comes from the row, in the same snapshot as the key.
-- It reads the predicate of every arbiter the commit can trip: one that look does not read turns into 503 for ever.
-- $1 credential $2 id $3 key hash|null $4 now $5 kind $6 practitioner|null $7 operatory|null $8 service|null $9 start|null
-- (null: as it is) $10 does the command enter a slot?
select
  c.tenant_id as "tenant_id?", c.subject as "subject?", c.roles as "roles?", c.clinic_ids as "clinic_ids?",
  c.secret_hash as "secret_hash?", c.previous_secret_hash as "previous_secret_hash?",
  c.previous_secret_until as "previous_secret_until?", c.revoked_at as "revoked_at?",
  k.fingerprint as "fingerprint?", k.fingerprint_version as "fingerprint_version?",
  k.status as "reply_status?", k.headers as "headers?: Json<StoredHeaders>", k.body as "body?", k.expires_at as "expires_at?",
  -- Past its retention only when this process's clock and the database's both say so.
  k.expires_at <= least($4::timestamptz, statement_timestamp()) as "expired?",
  a.clinic_id as "clinic_id?", r.*
from (select 1) as one
left join credentials c on c.id = $1::uuid
-- "offset 0": what is outside comes in as values, so all of a primary key's columns are looked up. As plain joins they may be
-- compared afterwards, row by row, which looks as cheap to who plans on an empty table.
left join lateral (
  select * from appointments a where a.tenant_id = c.tenant_id and a.id = $2::uuid and a.kind = $5::text
  offset 0
) as a on true
left join lateral (
  select * from idempotency_keys k where k.tenant_id = a.tenant_id and k.clinic_id = a.clinic_id and k.key_hash = $3::bytea
  offset 0
) as k on true
left join lateral (
  select
    a.patient_id as "patient_id?", a.practitioner_id as "practitioner_id?", a.operatory_id as "operatory_id?", a.service_id as "service_id?",
    lower(a.during) as "start?", upper(a.during) as "end?", upper(a.busy) as "busy_until?",
    a.time_zone as "row_time_zone?", a.local_start as "local_start?", a.status as "status?", a.confirmed_at as "confirmed_at?",
    a.overbooked as "overbooked?", a.version as "version?", a.schedule_version as "schedule_version?", a.intent as "intent?",
    a.note as "note?", a.block_reason as "block_reason?", a.external_system as "external_system?", a.external_id as "external_id?",
    a.cancel_reason as "cancel_reason?", a.cancelled_by as "cancelled_by?", a.created_at as "created_at?", a.updated_at as "updated_at?",
    cl.time_zone as "time_zone?", cl.slot_minutes as "slot_minutes?", cl.allow_overbooking as "allow_overbooking?",
    cl.min_notice_minutes as "min_notice_minutes?", cl.horizon_days as "horizon_days?",
    cl.key_retention_days as "key_retention_days?", cl.hours as "hours?: Json<Vec<OpenHours>>",
    cn.reminder_hours as "reminder_hours?",
    slot.*
  from clinics cl
  left join clinic_notifications cn on cn.tenant_id = a.tenant_id and cn.clinic_id = a.clinic_id
  left join lateral (
    select
      p.active as "practitioner_active?", m.active as "membership_active?", m.hours as "practitioner_hours?: Json<Vec<OpenHours>>",
      o.active as "operatory_active?", s.active as "service_active?", s.minutes as "minutes?", s.buffer_minutes as "buffer_minutes?",
      exists (select from clinic_closures x where x.tenant_id = a.tenant_id and x.clinic_id = a.clinic_id
                and x.during && tstzrange(wanted.start, wanted.visit_until)) as "closed?",
      exists (select from practitioner_clinics pm where pm.tenant_id = a.tenant_id and pm.practitioner_id = wanted.practitioner
                and (select pc.allow_overbooking from clinics pc where pc.tenant_id = pm.tenant_id and pc.id = pm.clinic_id)) as "overbooking_near?",
      exists (select from appointments b where b.tenant_id = a.tenant_id and b.practitioner_id = wanted.practitioner
                and b.busy && wanted.busy and b.holds_slot and not b.overbooked and b.practitioner_id is not null and b.id <> a.id)
      or exists (select from appointments b where b.tenant_id = a.tenant_id and b.operatory_id = wanted.operatory
                and b.busy && wanted.busy and b.holds_slot and not b.overbooked and b.operatory_id is not null and b.id <> a.id)
      or exists (select from appointments b where b.tenant_id = a.tenant_id and b.practitioner_id = wanted.practitioner
                and b.busy && wanted.busy and b.holds_slot and b.overbooked and b.id <> a.id)
      or exists (select from appointments b where b.tenant_id = a.tenant_id and b.operatory_id = wanted.operatory
                and b.busy && wanted.busy and b.holds_slot and b.overbooked and b.id <> a.id) as "held?",
      -- The service belongs to the clinic, so the clinic need not be compared.
      (select b.id from appointments b where b.tenant_id = a.tenant_id and b.patient_id = a.patient_id
         and b.service_id = wanted.service and b.practitioner_id = wanted.practitioner and lower(b.during) = wanted.start
         and b.holds_slot and b.id <> a.id limit 1) as "twin?"
    from (select coalesce($6::uuid, a.practitioner_id) as practitioner, coalesce($7::uuid, a.operatory_id) as operatory,
                 coalesce($8::uuid, a.service_id) as service, coalesce($9::timestamptz, lower(a.during)) as start) as asked
    left join practitioners p on p.tenant_id = a.tenant_id and p.id = asked.practitioner
    left join practitioner_clinics m on m.tenant_id = a.tenant_id and m.practitioner_id = asked.practitioner and m.clinic_id = a.clinic_id
    left join operatories o on o.tenant_id = a.tenant_id and o.clinic_id = a.clinic_id and o.id = asked.operatory
    left join services s on s.tenant_id = a.tenant_id and s.clinic_id = a.clinic_id and s.id = asked.service
    left join lateral (
      -- A new service brings its own length; the same one keeps the row's, whatever the directory says by now.
      select asked.*,
        case when asked.service = a.service_id then asked.start + (upper(a.during) - lower(a.during))
             else asked.start + s.minutes * interval '1 minute' end as visit_until,
        tstzrange(asked.start, case when asked.service = a.service_id then asked.start + (upper(a.busy) - lower(a.busy))
             else asked.start + (s.minutes + s.buffer_minutes) * interval '1 minute' end) as busy
    ) as wanted on true
    where $10::boolean
  ) as slot on true
  where cl.tenant_id = a.tenant_id and cl.id = a.clinic_id
    and (k.key_hash is null or k.expires_at <= least($4, statement_timestamp()))
  offset 0 -- keeps the planner from pulling this up: a stored reply must not pay for the rule
) as r on true
