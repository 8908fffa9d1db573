-- Plans that hold. The service plans a statement once for each connection, without its parameters, perhaps while a table is
-- empty and has no statistics. Then every index that can use a statement's first columns looks as good as every other, and
-- the newest is taken. So which index a statement uses is settled here by what it can use at all, not by what it costs.
--
-- Indexes are built inside the migration's transaction, which keeps writers of appointments out for as long as it takes:
-- about a second for each hundred thousand rows.

-- A clinic's list of visits. It held blocks too and began with the tenant: so it was taken for (tenant, id), the primary key's
-- own columns, by looks, by changes and by the foreign key of the history, and each of them read through all the group's
-- appointments. Now it begins with the clinic, and serves only who says "kind = 'visit'".
drop index appointments_by_start;
create index appointments_by_start on appointments (clinic_id, tenant_id, lower(during), id) where kind = 'visit';

-- A clinic's list of blocks, without those that were removed: a page of it reads what it shows.
create index appointments_blocks_by_start on appointments (clinic_id, tenant_id, lower(during), id) where kind = 'block' and holds_slot;

-- The overbooked rows of a resource, by time, as the exclusion constraints have the others. Both began with the tenant, so that
-- the one was taken for the other's question, and read all that the group, or a practitioner, had ever overbooked and not
-- closed. "is not null" keeps each to its own: it follows from "operatory_id = $7" and from nothing about a practitioner.
drop index appointments_overbooked_practitioner;
drop index appointments_overbooked_operatory;
create index appointments_overbooked_practitioner on appointments using gist (practitioner_id, busy, tenant_id)
  where holds_slot and overbooked and practitioner_id is not null;
create index appointments_overbooked_operatory on appointments using gist (operatory_id, busy, tenant_id)
  where holds_slot and overbooked and operatory_id is not null;

-- The question as before, in four arms: an index with a condition is used only where the statement says all of it. With two
-- arms none could be, and under the locks of a practitioner everything the group had ever booked was read.
-- Volatile and in sql, as before: see 0001.
create or replace function slot_held_by_now(tenant uuid, practitioner uuid, operatory uuid, span tstzrange, but_not uuid) returns boolean
language sql volatile as $$
  select exists (select from appointments a where a.practitioner_id = practitioner and a.busy && span and a.tenant_id = tenant
                   and a.holds_slot and not a.overbooked and a.practitioner_id is not null and a.id <> but_not)
      or exists (select from appointments a where a.operatory_id = operatory and a.busy && span and a.tenant_id = tenant
                   and a.holds_slot and not a.overbooked and a.operatory_id is not null and a.id <> but_not)
      or exists (select from appointments a where a.practitioner_id = practitioner and a.busy && span and a.tenant_id = tenant
                   and a.holds_slot and a.overbooked and a.practitioner_id is not null and a.id <> but_not)
      or exists (select from appointments a where a.operatory_id = operatory and a.busy && span and a.tenant_id = tenant
                   and a.holds_slot and a.overbooked and a.operatory_id is not null and a.id <> but_not)
$$;
