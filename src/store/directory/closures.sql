-- Sets a clinic's closures as a whole, and raises the clinic's version. Whoever writes them takes the clinic's row first,
-- so where its version is still the one that was seen, the closures are too: the snapshot's rows are the current ones.
-- $1 to $8 audit (store/audit.rs) $9 version seen $10 clinic $11 froms $12 tos $13 reasons
with clinic as (
  update clinics
  set version = version + 1, updated_at = $3
  where tenant_id = $1 and id = $10 and version = $9
  returning tenant_id, id
), wanted as (
  select clinic.tenant_id, clinic.id as clinic_id, tstzrange(w.from_at, w.to_at) as during, w.reason
  from clinic, unnest($11::timestamptz[], $12::timestamptz[], $13::text[]) as w (from_at, to_at, reason)
), gone as (
  -- Only what is wanted no more: a key that is deleted cannot be inserted again in the same statement.
  delete from clinic_closures k
  using clinic
  where k.tenant_id = clinic.tenant_id and k.clinic_id = clinic.id
    and not exists (select from wanted w where w.during = k.during)
), come as (
  insert into clinic_closures as k (tenant_id, clinic_id, during, reason)
  select tenant_id, clinic_id, during, reason
  from wanted
  on conflict (tenant_id, clinic_id, during) do update
  set reason = excluded.reason
  where k.reason is distinct from excluded.reason
)
insert into audit (tenant_id, id, at, subject, credential_id, clinic_id, operation, target_id, status, request_id,
  caller_request_id)
select tenant_id, $2, $3, $4, $5, id, $6, id, 200, $7, $8
from clinic
