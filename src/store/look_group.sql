-- The look of a command that is about the group and no one clinic: webhook endpoints. One statement, so one snapshot.
-- Exactly one row comes back, whatever exists.
-- $1 credential $2 key hash $3 now $4 clinics named $5 endpoint|null $6 event|null $7 scope of the group's keys
select
  c.tenant_id as "tenant_id?", c.subject as "subject?", c.roles as "roles?", c.clinic_ids as "clinic_ids?",
  c.secret_hash as "secret_hash?", c.previous_secret_hash as "previous_secret_hash?",
  c.previous_secret_until as "previous_secret_until?", c.revoked_at as "revoked_at?",
  k.fingerprint as "fingerprint?", k.fingerprint_version as "fingerprint_version?",
  k.status as "reply_status?", k.headers as "headers?: Json<StoredHeaders>", k.body as "body?", k.expires_at as "expires_at?",
  -- Past its retention only when this process's clock and the database's both say so.
  k.expires_at <= least($3::timestamptz, statement_timestamp()) as "expired?",
  (select count(*) from clinics cl where cl.tenant_id = c.tenant_id and cl.id = any($4::uuid[])) = cardinality($4) as "clinics_exist?",
  (select count(*) from webhook_endpoints w where w.tenant_id = c.tenant_id and w.deleted_at is null) as "endpoints!",
  d.state as "delivery_state?", d.active as "endpoint_active?", d.wanted as "delivery_wanted?"
from (select 1) as one
left join credentials c on c.id = $1::uuid
left join lateral (
  select * from idempotency_keys k where k.tenant_id = c.tenant_id and k.clinic_id = $7::uuid and k.key_hash = $2::bytea
  offset 0
) as k on true
left join lateral (
  select d.state, e.active, (e.clinic_ids is null or d.clinic_id = any(e.clinic_ids)) and (e.event_types is null or d.type = any(e.event_types)) as wanted
  from webhook_endpoints e
  join webhook_deliveries d on d.tenant_id = e.tenant_id and d.endpoint_id = e.id and d.event_id = $6::uuid
  where e.tenant_id = c.tenant_id and e.id = $5::uuid and e.deleted_at is null
    and (c.clinic_ids is null or (e.clinic_ids <@ c.clinic_ids and d.clinic_id = any(c.clinic_ids)))
  offset 0
) as d on true
