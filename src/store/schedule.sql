-- What availability is reckoned from: who works at the clinic, what keeps them, what keeps the operatory, when the clinic is closed.
-- One statement, so one snapshot. Overbooked rows are outside the exclusion indexes and have a small index of their own.
-- $1 tenant $2 clinic $3 from $4 to $5 practitioner|null (everybody) $6 operatory|null
with people as materialized (
  select p.id, m.hours
  from practitioner_clinics m
  -- Each by the key: joined, all of the group's may be gone through for each.
  cross join lateral (select id, active from practitioners where tenant_id = m.tenant_id and id = m.practitioner_id offset 0) as p
  where m.tenant_id = $1::uuid and m.clinic_id = $2::uuid and m.active and p.active and ($5::uuid is null or p.id = $5)
)
select 'person' as "kind!", id as "id?", hours as "hours?: Json<Vec<OpenHours>>", null::timestamptz as "start?", null::timestamptz as "end?"
from people
union all
select 'busy', people.id, null, lower(a.busy), upper(a.busy)
from people cross join lateral (
  select a.busy from appointments a where a.tenant_id = $1 and a.practitioner_id = people.id and a.practitioner_id is not null
    and a.busy && tstzrange($3::timestamptz, $4::timestamptz) and a.holds_slot and not a.overbooked
  union all
  select a.busy from appointments a where a.tenant_id = $1 and a.practitioner_id = people.id
    and a.busy && tstzrange($3, $4) and a.holds_slot and a.overbooked
) as a
union all
select 'operatory', $6::uuid, null, lower(a.busy), upper(a.busy)
from appointments a
where a.tenant_id = $1 and a.operatory_id = $6 and a.operatory_id is not null
  and a.busy && tstzrange($3, $4) and a.holds_slot and not a.overbooked
union all
select 'operatory', $6, null, lower(a.busy), upper(a.busy)
from appointments a
where a.tenant_id = $1 and a.operatory_id = $6 and a.busy && tstzrange($3, $4) and a.holds_slot and a.overbooked
union all
select 'closure', null, null, lower(during), upper(during)
from clinic_closures
where tenant_id = $1 and clinic_id = $2 and during && tstzrange($3, $4)
order by 1, 4, 2
