-- The look of a command that makes a row (a booking, a block). One statement, so one snapshot: the credential, the key and
-- everything the rule reads are seen at the same instant. Exactly one row comes back, whatever exists.
-- It reads the predicate of every arbiter the commit can trip: one that look does not read turns into 503 for ever.
-- $1 credential $2 clinic $3 key hash $4 now $5 patient|null $6 practitioner|null $7 operatory|null $8 service|null
-- $9 start $10 end|null (a visit's comes from its service) $11 intent|null $12 external system|null $13 external id|null
select
  c.tenant_id as "tenant_id?", c.subject as "subject?", c.roles as "roles?", c.clinic_ids as "clinic_ids?",
  c.secret_hash as "secret_hash?", c.previous_secret_hash as "previous_secret_hash?",
  c.previous_secret_until as "previous_secret_until?", c.revoked_at as "revoked_at?",
  k.fingerprint as "fingerprint?", k.fingerprint_version as "fingerprint_version?",
  k.status as "reply_status?", k.headers as "headers?: Json<StoredHeaders>", k.body as "body?", k.expires_at as "expires_at?",
  -- Past its retention only when this process's clock and the database's both say so.
  k.expires_at <= least($4::timestamptz, statement_timestamp()) as "expired?",
  r.*
from (select 1) as one
left join credentials c on c.id = $1::uuid
-- "offset 0": the tenant comes in as a value, so the whole primary key is looked up. In a plain join it may be compared
-- afterwards, row by row, which looks as cheap to who plans on an empty table.
left join lateral (
  select * from idempotency_keys k where k.tenant_id = c.tenant_id and k.clinic_id = $2::uuid and k.key_hash = $3::bytea
  offset 0
) as k on true
left join lateral (
  select
    cl.time_zone as "time_zone?", cl.slot_minutes as "slot_minutes?", cl.allow_overbooking as "allow_overbooking?",
    cl.min_notice_minutes as "min_notice_minutes?", cl.horizon_days as "horizon_days?",
    cl.key_retention_days as "key_retention_days?", cl.hours as "hours?: Json<Vec<OpenHours>>",
    cn.reminder_hours as "reminder_hours?",
    p.active as "practitioner_active?", m.active as "membership_active?", m.hours as "practitioner_hours?: Json<Vec<OpenHours>>",
    o.active as "operatory_active?", s.active as "service_active?", s.minutes as "minutes?", s.buffer_minutes as "buffer_minutes?",
    pt.id is not null as "patient_known?",
    exists (select from clinic_closures x where x.tenant_id = c.tenant_id and x.clinic_id = $2
              and x.during && tstzrange($9::timestamptz, wanted.visit_until)) as "closed?",
    -- A practitioner may also work where overbooking is allowed; then this commit takes the resource locks too.
    exists (select from practitioner_clinics pm where pm.tenant_id = c.tenant_id and pm.practitioner_id = $6
              and (select pc.allow_overbooking from clinics pc where pc.tenant_id = pm.tenant_id and pc.id = pm.clinic_id)) as "overbooking_near?",
    exists (select from appointments a where a.tenant_id = c.tenant_id and a.practitioner_id = $6
              and a.busy && wanted.busy and a.holds_slot and not a.overbooked and a.practitioner_id is not null)
    or exists (select from appointments a where a.tenant_id = c.tenant_id and a.operatory_id = $7
              and a.busy && wanted.busy and a.holds_slot and not a.overbooked and a.operatory_id is not null)
    or exists (select from appointments a where a.tenant_id = c.tenant_id and a.practitioner_id = $6
              and a.busy && wanted.busy and a.holds_slot and a.overbooked)
    or exists (select from appointments a where a.tenant_id = c.tenant_id and a.operatory_id = $7
              and a.busy && wanted.busy and a.holds_slot and a.overbooked) as "held?",
    (select a.id from appointments a where a.intent = $11::bytea and a.tenant_id = c.tenant_id
       and a.holds_slot and a.intent is not null) as "twin?",
    (select a.id from appointments a where a.external_id = $13::text and a.external_system = $12::text and a.tenant_id = c.tenant_id
       and a.clinic_id = $2 and a.external_id is not null) as "external_twin?"
  from (select 1) as two
  left join clinics cl on cl.tenant_id = c.tenant_id and cl.id = $2
  left join clinic_notifications cn on cn.tenant_id = c.tenant_id and cn.clinic_id = $2
  left join practitioners p on p.tenant_id = c.tenant_id and p.id = $6::uuid
  left join practitioner_clinics m on m.tenant_id = c.tenant_id and m.practitioner_id = $6 and m.clinic_id = $2
  left join operatories o on o.tenant_id = c.tenant_id and o.clinic_id = $2 and o.id = $7::uuid
  left join services s on s.tenant_id = c.tenant_id and s.clinic_id = $2 and s.id = $8::uuid
  left join patients pt on pt.tenant_id = c.tenant_id and pt.id = $5::uuid
  left join lateral (
    select coalesce($10::timestamptz, $9::timestamptz + s.minutes * interval '1 minute') as visit_until,
           tstzrange($9::timestamptz, coalesce($10, $9::timestamptz + (s.minutes + s.buffer_minutes) * interval '1 minute')) as busy
  ) as wanted on true
  where k.key_hash is null or k.expires_at <= least($4, statement_timestamp())
  offset 0 -- keeps the planner from pulling this up: a stored reply must not pay for the rule
) as r on true
