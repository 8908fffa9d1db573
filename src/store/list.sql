-- A page of a clinic's visits or blocks, by start, then id. One stride: it looks through no more than 2000 rows (3 ms), so
-- that a status nobody has does not keep a connection busy with a clinic's whole past. The last row of a full stride comes
-- back whether it matches or not, and says so: from there the next stride goes on.
-- Two orders to look through, of which one is empty: the clinic's, or a patient's, who has few rows. Both are ordered by an
-- index, so a page of 50 reads 51 rows.
-- $1 tenant $2 clinic $3 kind $4 after start|null (from the first) $5 after id $6 starts before|null $7 patient|null
-- $8 practitioner|null $9 operatory|null $10 status|null $11 only those that hold their slot? $12 ends after|null $13 most
with page as materialized (
  select id, start, matches, nth = 2000 as last
  from (
    select *, row_number() over (order by start, id) as nth,
      ($8::uuid is null or practitioner_id is not distinct from $8) and ($9::uuid is null or operatory_id is not distinct from $9)
        and ($10::text is null or status = $10) and (not $11::boolean or holds_slot) and ($12::timestamptz is null or until > $12) as matches
    from (
      (select id, lower(during) as start, upper(during) as until, practitioner_id, operatory_id, status, holds_slot
       from appointments
       where $7::uuid is null and tenant_id = $1::uuid and clinic_id = $2::uuid and kind = $3::text
         and (lower(during), id) > (coalesce($4::timestamptz, '-infinity'), coalesce($5::uuid, '00000000-0000-0000-0000-000000000000'))
         and lower(during) < coalesce($6::timestamptz, 'infinity')
       order by lower(during), id
       limit 2000)
      union all
      (select id, lower(during), upper(during), practitioner_id, operatory_id, status, holds_slot
       from appointments
       where tenant_id = $1 and patient_id = $7 and clinic_id = $2 and kind = $3
         and (lower(during), id) > (coalesce($4, '-infinity'), coalesce($5, '00000000-0000-0000-0000-000000000000'))
         and lower(during) < coalesce($6, 'infinity')
       order by lower(during), id
       limit 2000)
    ) as either
  ) as looked
  where matches or nth = 2000
  order by start, id
  limit $13::bigint
)
select page.matches as "matches!", page.last as "last!",
  a.id, a.clinic_id, a.kind, a.patient_id, a.practitioner_id, a.operatory_id, a.service_id,
  lower(a.during) as "start!", upper(a.during) as "end!", upper(a.busy) as "busy_until!", a.time_zone, a.local_start,
  a.status, a.confirmed_at, a.overbooked, a.version, a.schedule_version, a.intent, a.note, a.block_reason,
  a.external_system, a.external_id, a.cancel_reason, a.cancelled_by, a.created_at, a.updated_at
from page
join appointments a on a.tenant_id = $1 and a.id = page.id
order by page.start, page.id
