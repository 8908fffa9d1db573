-- From commit to effect: the outbox by partition, the event log, its groups, and the inbox of what each consumer has done.

-- A subject's last random byte decides its partition, so a subject's events stay in one, in order. The ids are ours (UUID
-- v7: 62 random bits at the end).
alter table outbox add column partition smallint not null generated always as (get_byte(uuid_send(subject_id), 15) & 15) stored;
alter table outbox drop constraint outbox_pk;
alter table outbox add constraint outbox_pk primary key (partition, position);
-- Rows come and go; the table stays small as long as the dead are cleared away.
alter table outbox set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
                        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 5000);
comment on column outbox.partition is 'Of the event log. Within one, a later version of a subject has a higher position: the row is locked before its outbox row is made.';

create table log_partitions (
  partition smallint not null,
  next_offset bigint not null default 0,
  constraint log_partitions_pk primary key (partition),
  constraint log_partitions_are_16 check (partition between 0 and 15)
) with (fillfactor = 50);
comment on table log_partitions is 'One row a partition; whoever holds its lock is the partition''s only sequencer.';
comment on column log_partitions.next_offset is 'Offsets are dense: every one below is in the log, or was until its retention passed.';
insert into log_partitions (partition) select generate_series(0, 15);

create table event_log (
  partition smallint not null,
  "offset" bigint not null,
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
  logged_at timestamptz not null,
  constraint event_log_pk primary key (partition, "offset"),
  constraint event_log_once unique (subject_id, sequence, tenant_id, subject_kind)
);
comment on table event_log is 'Events in order, by partition: what the relay moved out of the outbox. Ids and times only.';
comment on column event_log.logged_at is 'The database''s clock: retention is by this. Within a partition it follows the offsets, so the oldest are the lowest.';

create table log_groups (
  name text not null,
  partition smallint not null,
  "offset" bigint not null default 0,
  token uuid,
  lease_until timestamptz,
  read_at timestamptz,
  constraint log_groups_pk primary key (name, partition),
  constraint log_groups_partition_fk foreign key (partition) references log_partitions (partition),
  constraint log_groups_lease_is_whole check ((token is null) = (lease_until is null))
) with (fillfactor = 50);
comment on table log_groups is 'How far each consumer group has read, and who reads on.';
comment on column log_groups."offset" is 'The next to be read: everything below has been decided on.';
comment on column log_groups.read_at is 'When somebody last began to read: partitions take turns.';
comment on column log_groups.token is 'The reader''s fencing token: only its holder moves the offset.';

create table consumers (
  logical_consumer_id text not null,
  since timestamptz not null,
  constraint consumers_pk primary key (logical_consumer_id)
);
comment on table consumers is 'The logical consumers there are.';
comment on column consumers.since is 'When it was first there. A version from before then that it has not seen may have left the log, or its memory, and holds no later one back: the janitor moves it on with what it forgets.';

create table inbox (
  logical_consumer_id text not null,
  event_id uuid not null,
  tenant_id uuid not null,
  clinic_id uuid not null,
  partition smallint not null,
  "offset" bigint not null,
  subject_kind text not null,
  subject_id uuid not null,
  sequence int not null,
  state text not null,
  attempts int not null default 1,
  reason_code text,
  next_attempt_at timestamptz,
  token uuid,
  lease_until timestamptz,
  received_at timestamptz not null,
  decided_at timestamptz,
  constraint inbox_pk primary key (event_id, logical_consumer_id),
  constraint inbox_state check (state in ('PROCESSING', 'PROCESSED', 'RETRYABLE', 'QUARANTINED')),
  constraint inbox_lease_is_whole check ((state = 'PROCESSING') = (token is not null and lease_until is not null)),
  constraint inbox_retry_is_due_some_time check ((state = 'RETRYABLE') = (next_attempt_at is not null)),
  constraint inbox_says_why check (state not in ('RETRYABLE', 'QUARANTINED') or reason_code is not null)
);
-- Key and subject first, not the consumer: a plan made while the table was empty must have no other choice.
create index inbox_due on inbox (logical_consumer_id, next_attempt_at) where state = 'RETRYABLE' and attempts > 0;
create index inbox_held on inbox (logical_consumer_id, next_attempt_at) where state = 'RETRYABLE' and attempts = 0;
create index inbox_leases on inbox (logical_consumer_id, lease_until) where state = 'PROCESSING';
-- Where a consumer wants a subject's events in order, each asks what became of the one before it.
create index inbox_by_subject on inbox (subject_id, sequence, logical_consumer_id);
-- What keeps an event in the log.
create index inbox_pins on inbox (partition) where state <> 'PROCESSED';
create index inbox_open on inbox (logical_consumer_id, state, received_at) where state <> 'PROCESSED';
comment on table inbox is 'What each logical consumer has done with each event: provenance and reasons, never the event itself, which is read from the log again.';
comment on column inbox.attempts is 'Tries that were begun; one that is held behind another, or ended by an outage, is none.';
comment on column inbox.token is 'The fencing token of the try at work: a late one finds another and changes nothing.';

create table staff_tasks (
  tenant_id uuid not null,
  id uuid not null,
  clinic_id uuid not null,
  kind text not null,
  logical_consumer_id text,
  event_id uuid,
  subject_kind text not null,
  subject_id uuid not null,
  reason_code text not null,
  created_at timestamptz not null,
  resolved_at timestamptz,
  resolved_by text,
  resolution text,
  constraint staff_tasks_pk primary key (tenant_id, id),
  constraint staff_tasks_resolved_whole check ((resolved_at is null) = (resolution is null))
);
create index staff_tasks_open on staff_tasks (tenant_id, clinic_id, created_at, id) where resolved_at is null;
create unique index staff_tasks_one_per_event on staff_tasks (logical_consumer_id, event_id) where event_id is not null and resolved_at is null;
comment on table staff_tasks is 'What needs a person: quarantined events, sends of unknown outcome.';

create table change_feeds (
  tenant_id uuid not null,
  clinic_id uuid not null,
  next_position bigint not null,
  first_position bigint not null default 0,
  constraint change_feeds_pk primary key (tenant_id, clinic_id)
) with (fillfactor = 50);
comment on table change_feeds is 'The next place in each clinic''s feed of changes. Its row''s lock is held until the changes are committed, so a reader who has seen one place has seen all before it.';
comment on column change_feeds.first_position is 'The first place that is still kept: whoever stopped before it has missed something, and is told.';

create table changes (
  tenant_id uuid not null,
  clinic_id uuid not null,
  position bigint not null,
  event_id uuid not null,
  subject_kind text not null,
  subject_id uuid not null,
  sequence int not null,
  type text not null,
  payload jsonb not null,
  traceparent text,
  occurred_at timestamptz not null,
  appended_at timestamptz not null,
  constraint changes_pk primary key (tenant_id, clinic_id, position)
);
create index changes_by_time on changes (appended_at, position);
comment on table changes is 'What GET /v1/changes shows, in order per subject: kept by a consumer, whatever the log is.';
comment on column changes.appended_at is 'Retention is by this: it follows the positions, as what happened need not.';
