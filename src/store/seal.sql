-- Seals audit rows into the next link of the chain. Found by presence (seal is null), never by "at > last": a row may commit late.
-- $1 older than $2 now $3 at most
with last as materialized (
  select number, digest from audit_seals order by number desc limit 1
),
due as materialized (
  select id from audit where seal is null and at < $1::timestamptz order by at, id limit $3::bigint for update skip locked
),
covered as materialized (
  select coalesce((select number from last), 0) + 1 as number, coalesce((select digest from last), ''::bytea) as previous, count(*) as rows,
    string_agg(row(a.tenant_id, a.id, extract(epoch from a.at), a.subject, a.credential_id, a.clinic_id, a.operation, a.target_id,
                         a.status, a.code, a.request_id, a.caller_request_id)::text, E'\n' order by a.at, a.id) as text
  from audit a join due on due.id = a.id
),
sealed as (
  insert into audit_seals (number, sealed_at, rows, previous, digest)
  select number, $2::timestamptz, rows, previous, sha256(previous || convert_to(text, 'UTF8')) from covered where rows > 0
  returning number
),
marked as (
  update audit a set seal = sealed.number from due, sealed where a.id = due.id
)
select rows as "rows!" from covered
