-- The first seal that does not fit: its digest is not that of the rows it covers, or it does not follow the seal before it.
with again as (
  select s.number, s.previous, s.digest, s.rows, lag(s.digest, 1, ''::bytea) over (order by s.number) as before,
    lag(s.number, 1, 0::bigint) over (order by s.number) as number_before, counted.rows as rows_now,
    sha256(s.previous || convert_to(counted.text, 'UTF8')) as digest_now
  from audit_seals s
  left join lateral (
    select count(*) as rows,
      string_agg(row(a.tenant_id, a.id, extract(epoch from a.at), a.subject, a.credential_id, a.clinic_id, a.operation, a.target_id,
                           a.status, a.code, a.request_id, a.caller_request_id)::text, E'\n' order by a.at, a.id) as text
    from audit a where a.seal = s.number
  ) as counted on true
)
select number as "number!" from again
where digest_now is distinct from digest or previous <> before or number <> number_before + 1 or rows <> rows_now
order by number limit 1
