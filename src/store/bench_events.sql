-- Visits like one that is there, each with so many versions and as many events in the outbox: every first one before every
-- second one. Ids begin with the time, as those of the service do.
-- $1 the visit they are like $2 how many $3 versions of each
with made as materialized (
  select overlay(overlay(gen_random_uuid()::text placing '7' from 15) placing now.hex from 1)::uuid as id
  from generate_series(1, $2::int) as n
  cross join lateral (select lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') as digits where n > 0) as at
  cross join lateral (select substr(digits, 1, 8) || '-' || substr(digits, 9, 4) as hex) as now
),
visits as (
  insert into appointments
  select (jsonb_populate_record(a, jsonb_build_object('id', made.id, 'version', $3::int, 'status', 'cancelled', 'holds_slot', false,
                                                    'external_system', null, 'external_id', null))).*
  from made cross join appointments a where a.id = $1
),
versions as (
  insert into appointment_history
  select (jsonb_populate_record(h, jsonb_build_object('appointment_id', made.id, 'version', v))).*
  from made cross join generate_series(1, $3) as v cross join appointment_history h
  where h.appointment_id = $1 and h.version = 1
)
insert into outbox (event_id, tenant_id, clinic_id, subject_kind, subject_id, sequence, type, payload, occurred_at)
select overlay(overlay(gen_random_uuid()::text placing '7' from 15) placing substr(made.id::text, 1, 13) from 1)::uuid,
       a.tenant_id, a.clinic_id, 'appointment', made.id, v, 'appointment.noted',
       jsonb_build_object('start', lower(a.during), 'end', upper(a.during), 'status', 'cancelled', 'schedule_version', v,
                          'practitioner_id', a.practitioner_id, 'operatory_id', null, 'service_id', a.service_id),
       clock_timestamp()
from made cross join generate_series(1, $3) as v cross join appointments a
where a.id = $1
order by v, made.id
