-- Look found this key past its retention. Forgetting it is always right, on its own, whatever happens next; then the command is new.
-- $1 tenant $2 clinic $3 key hash $4 now
delete from idempotency_keys
where tenant_id = $1::uuid and clinic_id = $2::uuid and key_hash = $3::bytea and expires_at <= least($4::timestamptz, statement_timestamp())
