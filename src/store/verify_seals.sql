-- The first seal that does not fit: its digest is not that of the rows it covers, or it does not follow the seal before it, or
-- it is gone and its rows are there. The audit is gone through once, whatever the number of seals.
with covered as materialized (
  select a.seal, count(*) as rows,
    string_agg(row(a.tenant_id, a.id, extract(epoch from a.at), a.subject, a.credential_id, a.clinic_id, a.operation, a.target_id,
                         a.status, a.code, a.request_id, a.caller_request_id)::text, E'\n' order by a.at, a.id) as text
  from audit a
  where a.seal is not null
  group by a.seal
),
again as (
  select coalesce(s.number, c.seal) as number, s.previous, s.digest, s.rows, c.rows as rows_now,
    lag(s.digest, 1, ''::bytea) over in_order as before, lag(s.number, 1, 0::bigint) over in_order as number_before,
    sha256(s.previous || convert_to(c.text, 'UTF8')) as digest_now
  from audit_seals s
  full join covered c on c.seal = s.number
  window in_order as (order by coalesce(s.number, c.seal))
)
select number as "number!" from again
where digest_now is distinct from digest or previous is distinct from before or number <> number_before + 1 or rows is distinct from rows_now
order by number limit 1
