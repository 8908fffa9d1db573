-- The booking core. Tenant first in the keys and foreign keys of what a tenant owns, last in every exclusion constraint (docs/architecture.md says why).
-- Times are timestamptz, always handed in by the service: no statement here calls now().

create extension if not exists btree_gist;

create table tenants (
  id uuid not null,
  name text not null,
  created_at timestamptz not null,
  constraint tenants_pk primary key (id)
);
comment on table tenants is 'A clinic group: the boundary nothing crosses.';

-- Directory ----------------------------------------------------------------------------------------------------------

create table clinics (
  tenant_id uuid not null,
  id uuid not null,
  name text not null,
  time_zone text not null,
  slot_minutes int not null,
  allow_overbooking boolean not null,
  min_notice_minutes int not null,
  horizon_days int not null,
  key_retention_days int not null,
  hours jsonb not null default '[]',
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint clinics_pk primary key (tenant_id, id),
  constraint clinics_tenant_fk foreign key (tenant_id) references tenants (id),
  constraint clinics_slot_is_real check (slot_minutes between 1 and 1440),
  constraint clinics_limits_are_real check (min_notice_minutes >= 0 and horizon_days > 0 and key_retention_days > 0)
);
comment on table clinics is 'One clinic of a group, with the settings booking reads.';
comment on column clinics.time_zone is 'IANA name. Opening hours and the grid are wall-clock times in it.';
comment on column clinics.slot_minutes is 'The grid: visits start on multiples of this, counted from local midnight.';
comment on column clinics.key_retention_days is 'A success replays until this many days past the end of its appointment.';
comment on column clinics.hours is '[{weekday, opens, closes}], set as a whole by PUT …/hours; empty means closed.';
comment on column clinics.version is 'The row''s ETag; raised by every change of the row.';

create table clinic_closures (
  tenant_id uuid not null,
  clinic_id uuid not null,
  during tstzrange not null,
  reason text,
  constraint clinic_closures_pk primary key (tenant_id, clinic_id, during),
  constraint clinic_closures_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id),
  constraint clinic_closures_during_is_real check (not isempty(during) and not lower_inf(during) and not upper_inf(during))
);
comment on table clinic_closures is 'Half-open stretches in which the clinic is closed whatever its hours say.';

create table practitioners (
  tenant_id uuid not null,
  id uuid not null,
  name text not null,
  active boolean not null,
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint practitioners_pk primary key (tenant_id, id),
  constraint practitioners_tenant_fk foreign key (tenant_id) references tenants (id)
);
comment on table practitioners is 'People who treat. They belong to the group: a dentist in two clinics is not in two places.';

create table practitioner_clinics (
  tenant_id uuid not null,
  practitioner_id uuid not null,
  clinic_id uuid not null,
  active boolean not null,
  hours jsonb,
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint practitioner_clinics_pk primary key (tenant_id, practitioner_id, clinic_id),
  constraint practitioner_clinics_practitioner_fk foreign key (tenant_id, practitioner_id) references practitioners (tenant_id, id),
  constraint practitioner_clinics_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id)
);
create index practitioner_clinics_by_clinic on practitioner_clinics (tenant_id, clinic_id, practitioner_id);
comment on table practitioner_clinics is 'Who works where, and when.';
comment on column practitioner_clinics.hours is 'As clinics.hours and intersected with them; null means the clinic''s.';

create table operatories (
  tenant_id uuid not null,
  id uuid not null,
  clinic_id uuid not null,
  name text not null,
  active boolean not null,
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint operatories_pk primary key (tenant_id, id),
  constraint operatories_clinic_key unique (tenant_id, clinic_id, id),
  constraint operatories_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id)
);
comment on table operatories is 'Treatment rooms.';

create table services (
  tenant_id uuid not null,
  id uuid not null,
  clinic_id uuid not null,
  name text not null,
  minutes int not null,
  buffer_minutes int not null,
  active boolean not null,
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint services_pk primary key (tenant_id, id),
  constraint services_clinic_key unique (tenant_id, clinic_id, id),
  constraint services_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id),
  constraint services_length_is_real check (minutes between 1 and 1440 and buffer_minutes between 0 and 1440)
);
comment on table services is 'What one may book at a clinic, and how long it takes.';
comment on column services.buffer_minutes is 'Follows the visit; holds practitioner and operatory.';

create table patients (
  tenant_id uuid not null,
  id uuid not null,
  name text not null,
  birth_date date,
  email text,
  phone text,
  language text,
  preferred_channel text not null,
  version int not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint patients_pk primary key (tenant_id, id),
  constraint patients_tenant_fk foreign key (tenant_id) references tenants (id),
  constraint patients_channel check (preferred_channel in ('email', 'sms', 'none'))
);
create index patients_by_name on patients (tenant_id, lower(name) text_pattern_ops, id);
create index patients_by_birth_date on patients (tenant_id, birth_date, id);
comment on table patients is 'People who are treated. They belong to the group.';

create table external_ids (
  tenant_id uuid not null,
  clinic_id uuid not null,
  system text not null,
  kind text not null,
  our_id uuid not null,
  their_id text not null,
  created_at timestamptz not null,
  constraint external_ids_pk primary key (tenant_id, clinic_id, system, kind, our_id),
  constraint external_ids_theirs unique (tenant_id, clinic_id, system, kind, their_id),
  constraint external_ids_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id)
);
comment on table external_ids is 'Our ids beside a practice management system''s.';

-- Access -------------------------------------------------------------------------------------------------------------

create table credentials (
  id uuid not null,
  tenant_id uuid not null,
  name text not null,
  subject text not null,
  roles text[] not null,
  clinic_ids uuid[],
  secret_hash bytea not null,
  previous_secret_hash bytea,
  previous_secret_until timestamptz,
  created_by text not null,
  created_at timestamptz not null,
  revoked_at timestamptz,
  constraint credentials_pk primary key (id),
  constraint credentials_tenant_fk foreign key (tenant_id) references tenants (id),
  constraint credentials_roles_are_known check (roles <@ array['CLINIC_ADMIN', 'FRONT_DESK', 'INTEGRATION', 'APPOINTMENT_REPLAY_OPERATOR', 'LEDGER_APPROVER', 'PMS_WORKER']),
  constraint credentials_secret_is_sha256 check (length(secret_hash) = 32)
);
create index credentials_by_tenant on credentials (tenant_id, created_at, id);
comment on table credentials is 'API keys. The secret is 256 random bits, so one SHA-256 of it is enough.';
comment on column credentials.subject is 'The person or system behind the key; two-person rules compare subjects, not keys.';
comment on column credentials.clinic_ids is 'The clinics it may touch; null means all of the group.';
comment on column credentials.previous_secret_hash is 'After a rotation the old secret works until previous_secret_until.';

-- Appointments and blocks --------------------------------------------------------------------------------------------

create table appointments (
  tenant_id uuid not null,
  id uuid not null,
  clinic_id uuid not null,
  kind text not null,
  patient_id uuid,
  practitioner_id uuid,
  operatory_id uuid,
  service_id uuid,
  during tstzrange not null,
  busy tstzrange not null,
  time_zone text not null,
  local_start timestamp not null,
  status text not null,
  holds_slot boolean not null,
  overbooked boolean not null,
  confirmed_at timestamptz,
  version int not null,
  schedule_version int not null,
  intent bytea,
  note text,
  block_reason text,
  source text not null,
  external_system text,
  external_id text,
  cancel_reason text,
  cancelled_by text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint appointments_pk primary key (tenant_id, id),
  constraint appointments_kind check (kind in ('visit', 'block')),
  constraint appointments_status check (status in ('booked', 'arrived', 'fulfilled', 'cancelled', 'noshow')),
  constraint appointments_holds_matches_status check (holds_slot = (status in ('booked', 'arrived'))),
  -- An empty range overlaps nothing, so it would slip past every exclusion constraint.
  constraint appointments_times_are_real check (
    not isempty(during) and not lower_inf(during) and not upper_inf(during) and not upper_inf(busy)
    and lower(busy) = lower(during) and busy @> during),
  constraint appointments_visit_is_whole check (
    kind = 'block' or (patient_id is not null and practitioner_id is not null and service_id is not null and intent is not null and block_reason is null)),
  constraint appointments_block_is_whole check (
    kind = 'visit' or (patient_id is null and service_id is null and intent is null and (practitioner_id is not null or operatory_id is not null))),
  constraint appointments_external_is_whole check ((external_system is null) = (external_id is null)),
  -- Tenant last: first, it makes a booking a third dearer; left out, one group blocks another's schedule.
  constraint appointments_practitioner_free exclude using gist
    (practitioner_id with =, busy with &&, tenant_id with =) where (holds_slot and not overbooked and practitioner_id is not null),
  constraint appointments_operatory_free exclude using gist
    (operatory_id with =, busy with &&, tenant_id with =) where (holds_slot and not overbooked and operatory_id is not null),
  constraint appointments_practitioner_fk foreign key (tenant_id, practitioner_id, clinic_id) references practitioner_clinics (tenant_id, practitioner_id, clinic_id),
  constraint appointments_operatory_fk foreign key (tenant_id, clinic_id, operatory_id) references operatories (tenant_id, clinic_id, id),
  constraint appointments_service_fk foreign key (tenant_id, clinic_id, service_id) references services (tenant_id, clinic_id, id),
  constraint appointments_patient_fk foreign key (tenant_id, patient_id) references patients (tenant_id, id)
) with (fillfactor = 85);
-- These two begin with what no other index begins with: a plan made while the table was empty must have no other choice.
-- The intent covers the service, and so the clinic.
create unique index appointments_one_per_intent on appointments (intent, tenant_id) where holds_slot and intent is not null;
create unique index appointments_one_per_external_id on appointments (external_id, external_system, tenant_id, clinic_id) where external_id is not null;
create index appointments_by_start on appointments (tenant_id, clinic_id, kind, lower(during), id);
create index appointments_by_patient on appointments (tenant_id, patient_id, lower(during), id) where patient_id is not null;
-- The exclusion constraints leave overbooked rows out, so the look counts them through these two, nearly always empty.
create index appointments_overbooked_practitioner on appointments (tenant_id, practitioner_id) where holds_slot and overbooked;
create index appointments_overbooked_operatory on appointments (tenant_id, operatory_id) where holds_slot and overbooked;
comment on table appointments is 'Visits and blocks: whatever keeps a practitioner or an operatory from another visit.';
comment on column appointments.during is 'The visit.';
comment on column appointments.busy is 'The visit and its buffer: what the constraints compare.';
comment on column appointments.holds_slot is 'What the constraints look at, tied to the status by a check.';
comment on column appointments.overbooked is 'Stored only where the slot was indeed taken; outside the exclusion constraints.';
comment on column appointments.version is 'The ETag; raised by every command that changes the row.';
comment on column appointments.schedule_version is 'Raised only by book, move, cancel, no-show and reopen: intents are bound to it, so a note kills no reminder.';
comment on column appointments.intent is 'SHA-256 of patient, practitioner, service and start: the same visit under another key.';
comment on column appointments.local_start is 'Wall clock at time_zone, as intended when it was booked or moved.';
comment on column appointments.source is 'What wrote the row: rest, or the name of an importer.';

-- "Is the slot held by anyone, overbooked rows included?", asked inside a commit that has just waited for the resource
-- locks. Volatile on purpose: a volatile function takes a fresh snapshot, so it sees what was committed during the wait;
-- the same select written into the statement would not. Called only where a clinic near the practitioner allows overbooking.
create function slot_held_by_now(tenant uuid, practitioner uuid, operatory uuid, span tstzrange, but_not uuid) returns boolean
language sql volatile as $$
  select exists (select from appointments a where a.tenant_id = tenant and a.practitioner_id = practitioner
                   and a.busy && span and a.holds_slot and a.id <> but_not)
      or exists (select from appointments a where a.tenant_id = tenant and a.operatory_id = operatory
                   and a.busy && span and a.holds_slot and a.id <> but_not)
$$;

create table appointment_history (
  tenant_id uuid not null,
  appointment_id uuid not null,
  version int not null,
  schedule_version int not null,
  status text not null,
  during tstzrange not null,
  practitioner_id uuid,
  operatory_id uuid,
  service_id uuid,
  overbooked boolean not null,
  operation text not null,
  key_hash bytea,
  request_id uuid not null,
  caller_request_id text,
  subject text not null,
  credential_id uuid not null,
  at timestamptz not null,
  constraint appointment_history_pk primary key (tenant_id, appointment_id, version),
  constraint appointment_history_appointment_fk foreign key (tenant_id, appointment_id) references appointments (tenant_id, id)
);
comment on table appointment_history is 'Every version of an appointment or block: who, when, what, by which command and request.';
comment on column appointment_history.request_id is 'Ours; the caller''s, if well formed, stands beside it.';

create table idempotency_keys (
  tenant_id uuid not null,
  clinic_id uuid not null,
  key_hash bytea not null,
  fingerprint bytea not null,
  fingerprint_version smallint not null,
  operation text not null,
  status smallint not null,
  headers jsonb not null,
  body bytea not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  constraint idempotency_keys_pk primary key (tenant_id, clinic_id, key_hash),
  constraint idempotency_keys_hashes_are_sha256 check (length(key_hash) = 32 and length(fingerprint) = 32)
);
create index idempotency_keys_expiry on idempotency_keys (expires_at);
comment on table idempotency_keys is 'What each command answered. A row is written in the command''s own transaction, or not at all: there is no state in progress.';
comment on column idempotency_keys.key_hash is 'SHA-256 of the key: keys themselves are stored nowhere.';
comment on column idempotency_keys.headers is 'The allow-list: content-type, etag, location.';

create table notification_intents (
  tenant_id uuid not null,
  id uuid not null,
  clinic_id uuid not null,
  appointment_id uuid not null,
  schedule_version int not null,
  kind text not null,
  due_at timestamptz not null,
  state text not null default 'PENDING',
  constraint notification_intents_pk primary key (tenant_id, id),
  constraint notification_intents_once unique (tenant_id, appointment_id, schedule_version, kind),
  constraint notification_intents_kind check (kind in ('confirmation', 'change', 'cancellation', 'reminder'))
);
comment on table notification_intents is 'What a command decided to tell the patient, and when: the only queue of notifications.';

create table outbox (
  position bigint generated always as identity,
  event_id uuid not null,
  tenant_id uuid not null,
  clinic_id uuid not null,
  subject_kind text not null,
  subject_id uuid not null,
  sequence int not null,
  type text not null,
  payload jsonb not null,
  traceparent text,
  occurred_at timestamptz not null,
  constraint outbox_pk primary key (position),
  constraint outbox_once unique (tenant_id, subject_kind, subject_id, sequence)
);
comment on table outbox is 'Events not yet in the log, found by their presence and never by position > last seen: a lower position can commit later.';
comment on column outbox.payload is 'Ids and times only.';
comment on column outbox.traceparent is 'W3C trace context of the request, carried to every delivery.';

-- Trail --------------------------------------------------------------------------------------------------------------

create table audit (
  tenant_id uuid not null,
  id uuid not null,
  at timestamptz not null,
  subject text not null,
  credential_id uuid not null,
  clinic_id uuid,
  operation text not null,
  target_id uuid,
  status smallint not null,
  code text,
  request_id uuid not null,
  caller_request_id text,
  seal bigint,
  constraint audit_pk primary key (id)
);
create index audit_unsealed on audit (at) where seal is null;
comment on table audit is 'Who asked for what and was told what: commands (inside their commit), changes to the directory, refusals of signed-in callers.';
comment on column audit.code is 'The problem code of a refusal.';
comment on column audit.seal is 'The seal that covers the row; null until the janitor comes by.';

create table audit_seals (
  number bigint not null,
  sealed_at timestamptz not null,
  rows int not null,
  previous bytea not null,
  digest bytea not null,
  constraint audit_seals_pk primary key (number)
);
comment on table audit_seals is 'A hash chain over the audit, made behind the commits: a head in the commit would make every command wait for every other.';

create table replay_counts (
  tenant_id uuid not null,
  clinic_id uuid not null,
  minute timestamptz not null,
  replayed int not null,
  constraint replay_counts_pk primary key (tenant_id, clinic_id, minute)
);
comment on table replay_counts is 'Replayed commands, counted in memory and flushed by the minute.';
