-- Webhooks out: a group's endpoints, what is to be delivered to them, and every attempt at it.

create table webhook_endpoints (
  tenant_id uuid not null,
  id uuid not null,
  url text not null,
  description text not null,
  clinic_ids uuid[],
  event_types text[],
  active boolean not null,
  version int not null default 1,
  secret bytea,
  previous_secret bytea,
  previous_secret_until timestamptz,
  failures int not null default 0,
  failing_since timestamptz,
  paused_until timestamptz,
  last_success_at timestamptz,
  disabled_reason text,
  disabled_at timestamptz,
  created_by text not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz,
  constraint webhook_endpoints_pk primary key (tenant_id, id),
  constraint webhook_endpoints_tenant_fk foreign key (tenant_id) references tenants (id),
  constraint webhook_endpoints_deleted_are_quiet check (deleted_at is null or (not active and secret is null and previous_secret is null)),
  constraint webhook_endpoints_have_a_secret check (deleted_at is not null or secret is not null),
  constraint webhook_endpoints_previous_is_whole check ((previous_secret is null) = (previous_secret_until is null)),
  constraint webhook_endpoints_disabled_are_quiet check (disabled_reason is null or not active)
) with (fillfactor = 50);
create index webhook_endpoints_by_time on webhook_endpoints (tenant_id, created_at, id) where deleted_at is null;
comment on table webhook_endpoints is 'Where a group wants its events sent. What is deleted stays as a row without secrets while its deliveries are kept.';
comment on column webhook_endpoints.clinic_ids is 'Events of these clinics only; null means all of the group.';
comment on column webhook_endpoints.event_types is 'Events of these types only; null means all, those to come included.';
comment on column webhook_endpoints.version is 'The ETag; raised by every change of what an administrator may set, the service''s own switching off included.';
comment on column webhook_endpoints.secret is 'The signing secret, sealed (src/sealed.rs) under this row''s tenant and id.';
comment on column webhook_endpoints.previous_secret is 'After a rotation the old secret signs too, until previous_secret_until.';
comment on column webhook_endpoints.failures is 'Attempts that failed since the last that did not. From some number on the breaker is open.';
comment on column webhook_endpoints.failing_since is 'The first of them. Long enough ago, the endpoint is disabled.';
comment on column webhook_endpoints.paused_until is 'By the database''s clock: until then nothing is sent. The breaker''s pause, or the receiver''s Retry-After.';
comment on column webhook_endpoints.last_success_at is 'Of late: written down every ten seconds at the most.';
comment on column webhook_endpoints.disabled_reason is 'Why the service stopped using it; null where an administrator did, or nobody.';

create table webhook_deliveries (
  tenant_id uuid not null,
  endpoint_id uuid not null,
  event_id uuid not null,
  clinic_id uuid not null,
  subject_kind text not null,
  subject_id uuid not null,
  sequence int not null,
  type text not null,
  payload jsonb not null,
  traceparent text,
  occurred_at timestamptz not null,
  state text not null default 'PENDING',
  redelivery boolean not null default false,
  attempts int not null default 0,
  attempts_before int not null default 0,
  first_attempt_at timestamptz,
  next_attempt_at timestamptz,
  token uuid,
  lease_until timestamptz,
  reason text,
  queued_at timestamptz not null,
  ended_at timestamptz,
  constraint webhook_deliveries_pk primary key (tenant_id, endpoint_id, event_id),
  constraint webhook_deliveries_endpoint_fk foreign key (tenant_id, endpoint_id) references webhook_endpoints (tenant_id, id),
  constraint webhook_deliveries_state check (state in ('PENDING', 'SENT', 'DELIVERED', 'GIVEN_UP', 'CANCELLED')),
  constraint webhook_deliveries_lease_is_whole check ((state = 'SENT') = (token is not null and lease_until is not null)),
  constraint webhook_deliveries_due_some_time check ((state = 'PENDING') = (next_attempt_at is not null)),
  constraint webhook_deliveries_end_once check ((state in ('PENDING', 'SENT')) = (ended_at is null))
) with (fillfactor = 70);
-- These begin with what no other index begins with: a plan made while the table was empty must have no other choice.
-- An endpoint's id is nobody else's, in whatever group.
create index webhook_deliveries_due on webhook_deliveries (endpoint_id, next_attempt_at) where state = 'PENDING';
create index webhook_deliveries_sent on webhook_deliveries (endpoint_id) where state = 'SENT';
create index webhook_deliveries_leases on webhook_deliveries (lease_until) where state = 'SENT';
create index webhook_deliveries_open on webhook_deliveries (subject_id, endpoint_id, sequence) where state in ('PENDING', 'SENT') and not redelivery;
-- For lists alone, by expressions that only those use: with plain columns a plan made early would take one of these for a way to one
-- delivery, by all of its endpoint's.
create index webhook_deliveries_by_time on webhook_deliveries ((array[tenant_id, endpoint_id]), queued_at, event_id);
create index webhook_deliveries_undelivered on webhook_deliveries ((array[endpoint_id, tenant_id]), queued_at, event_id) where state <> 'DELIVERED';
create index webhook_deliveries_ended on webhook_deliveries (ended_at) where ended_at is not null;
comment on table webhook_deliveries is 'One event for one endpoint: the only queue of webhooks, written in the inbox row''s transaction. It keeps the event (ids and times only), so retries and redeliveries hang on no log''s retention.';
comment on column webhook_deliveries.state is 'SENT is committed before the first byte leaves. One that ends in SENT is sent again: the receiver knows it by its webhook-id.';
comment on column webhook_deliveries.redelivery is 'Asked for by an administrator after it had ended. It waits for no other event of its subject, and none for it.';
comment on column webhook_deliveries.attempts is 'Begun so far, redeliveries included. Waiting behind another event, or for the breaker, is none.';
comment on column webhook_deliveries.attempts_before is 'Those of earlier rounds: a redelivery begins anew with the pauses.';
comment on column webhook_deliveries.first_attempt_at is 'Of this round: a day later it is given up.';
comment on column webhook_deliveries.token is 'The fencing token of the attempt at work: a late one finds another and changes nothing.';
comment on column webhook_deliveries.reason is 'Why it is not delivered yet, or never was.';

create table webhook_attempts (
  tenant_id uuid not null,
  endpoint_id uuid not null,
  event_id uuid not null,
  attempt int not null,
  started_at timestamptz not null,
  outcome text,
  status smallint,
  duration_ms int,
  constraint webhook_attempts_pk primary key (tenant_id, endpoint_id, event_id, attempt),
  constraint webhook_attempts_delivery_fk foreign key (tenant_id, endpoint_id, event_id)
    references webhook_deliveries (tenant_id, endpoint_id, event_id) on delete cascade
);
comment on table webhook_attempts is 'Every attempt at a delivery. Nothing a receiver says is kept but its status.';
comment on column webhook_attempts.outcome is 'Null while it is at work; unknown where the process ended in the middle of it.';
