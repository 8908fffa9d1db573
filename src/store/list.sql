-- A page of a clinic's visits, by start, then id. One stride: it looks through no more than 2000 rows (3 ms), so that a status
-- nobody has does not keep a connection busy with a clinic's whole past. The last row of a full stride comes back whether it
-- matches or not, and says so: from there the next stride goes on.
-- Two orders to look through, of which one is empty: the clinic's, or a patient's, who has few rows. Both are ordered by an
-- index, so a page of 50 reads 51 rows.
-- $1 tenant $2 clinic $3 after start|null (from the first) $4 after id $5 starts before|null $6 patient|null
-- $7 practitioner|null $8 status|null $9 most
with page as materialized (
  select id, start, matches, nth = 2000 as last
  from (
    select *, row_number() over (order by start, id) as nth,
      ($7::uuid is null or practitioner_id is not distinct from $7) and ($8::text is null or status = $8) as matches
    from (
      (select id, lower(during) as start, practitioner_id, status
       from appointments
       where $6::uuid is null and tenant_id = $1::uuid and clinic_id = $2::uuid and kind = 'visit'
         and (lower(during), id) > (coalesce($3::timestamptz, '-infinity'), coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'))
         and lower(during) < coalesce($5::timestamptz, 'infinity')
       order by lower(during), id
       limit 2000)
      union all
      -- "is true" keeps the clinic out of the planner's hands: with it, the clinic's order looks as good.
      (select id, lower(during), practitioner_id, status
       from appointments
       where tenant_id = $1 and patient_id = $6 and (clinic_id = $2 and kind = 'visit') is true
         and (lower(during), id) > (coalesce($3, '-infinity'), coalesce($4, '00000000-0000-0000-0000-000000000000'))
         and lower(during) < coalesce($5, 'infinity')
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
