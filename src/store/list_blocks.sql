-- A page of a clinic's blocks by start, then id, without those that were removed; of those that end after an instant, where
-- one is given. In strides, as in list.sql.
-- The blocks under way at that instant began before it, nobody knows how long. They are not looked for in the order of starts,
-- which would be all the clinic's past: a practitioner and an operatory has one at the most (the exclusion constraints; no
-- block is overbooked), so each is asked. The others start then or later, where the clinic's order is entered.
-- $1 tenant $2 clinic $3 after start|null (from the first) $4 after id $5 ends after|null $6 starts before|null
-- $7 practitioner|null $8 operatory|null $9 most
with under_way as materialized (
  select b.*
  from practitioner_clinics m
  cross join lateral (
    select id, lower(during) as start, upper(during) as until, clinic_id, kind, practitioner_id, operatory_id from appointments a
    where a.practitioner_id = m.practitioner_id and a.busy @> $5::timestamptz and a.tenant_id = m.tenant_id
      and a.holds_slot and not a.overbooked and a.practitioner_id is not null
    offset 0 -- asked of each, not joined
  ) as b
  where $5 is not null and m.tenant_id = $1::uuid and m.clinic_id = $2::uuid
  union
  select b.*
  from operatories o
  cross join lateral (
    select id, lower(during), upper(during), clinic_id, kind, practitioner_id, operatory_id from appointments a
    where a.operatory_id = o.id and a.busy @> $5 and a.tenant_id = o.tenant_id
      and a.holds_slot and not a.overbooked and a.operatory_id is not null
    offset 0
  ) as b
  where $5 is not null and o.tenant_id = $1 and o.clinic_id = $2
),
page as materialized (
  select id, start, matches, nth = 2000 as last
  from (
    select *, row_number() over (order by start, id) as nth,
      ($7::uuid is null or practitioner_id is not distinct from $7) and ($8::uuid is null or operatory_id is not distinct from $8) as matches
    from (
      select id, start, practitioner_id, operatory_id
      from under_way
      where kind = 'block' and clinic_id = $2 and start < $5 and until > $5
        and (start, id) > (coalesce($3::timestamptz, '-infinity'), coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'))
        and start < coalesce($6::timestamptz, 'infinity')
      union all
      (select id, lower(during), practitioner_id, operatory_id
       from appointments
       where tenant_id = $1 and clinic_id = $2 and kind = 'block' and holds_slot
         -- After the page before, or from the instant on: one place to enter at. No row has the id nil.
         and (lower(during), id) > (coalesce(greatest($3, $5), '-infinity'),
              case when $3 >= coalesce($5, '-infinity') then coalesce($4, '00000000-0000-0000-0000-000000000000')
                   else '00000000-0000-0000-0000-000000000000' end)
         and lower(during) < coalesce($6, 'infinity')
       order by lower(during), id
       limit 2000)
    ) as either
  ) as looked
  where matches or nth = 2000
  order by start, id
  limit $9::bigint
)
select page.matches as "matches!", page.last as "last!",
  a.id, a.clinic_id, a.kind, a.patient_id, a.practitioner_id, a.operatory_id, a.service_id,
  lower(a.during) as "start!", upper(a.during) as "end!", upper(a.busy) as "busy_until!", a.time_zone, a.local_start,
  a.status, a.confirmed_at, a.overbooked, a.version, a.schedule_version, a.intent, a.note, a.block_reason,
  a.external_system, a.external_id, a.cancel_reason, a.cancelled_by, a.created_at, a.updated_at
from page
cross join lateral (select * from appointments a where a.tenant_id = $1 and a.id = page.id offset 0) as a -- by its key, not joined
order by page.start, page.id
