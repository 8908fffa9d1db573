-- What becomes of a notification intent, and each clinic's settings for them.

alter table notification_intents
  add column channel text,
  add column attempts int not null default 0,
  add column next_attempt_at timestamptz,
  add column token uuid,
  add column lease_until timestamptz,
  add column reason_code text,
  add column decided_at timestamptz;
-- No clock is read here: what was overtaken before this migration was so at the latest when it fell due.
update notification_intents set decided_at = due_at where state = 'SUPERSEDED';
alter table notification_intents
  add constraint notification_intents_state check (
    state in ('PENDING', 'LEASED', 'SENT', 'COMPLETED', 'REJECTED', 'UNKNOWN', 'SUPERSEDED', 'SUPPRESSED')),
  add constraint notification_intents_channel check (channel in ('email', 'sms')),
  add constraint notification_intents_lease_is_whole check (
    (state in ('LEASED', 'SENT')) = (token is not null and lease_until is not null) and (token is null) = (lease_until is null)),
  add constraint notification_intents_decided_once check (
    (state in ('COMPLETED', 'REJECTED', 'UNKNOWN', 'SUPERSEDED', 'SUPPRESSED')) = (decided_at is not null)),
  add constraint notification_intents_sent_through check (state not in ('SENT', 'COMPLETED', 'UNKNOWN') or channel is not null),
  add constraint notification_intents_says_why check (state not in ('REJECTED', 'UNKNOWN', 'SUPPRESSED') or reason_code is not null);
-- It began with the tenant, as the primary key does, and so was taken for that by statements planned on an empty table: see 0004.
alter table notification_intents drop constraint notification_intents_once;
alter table notification_intents add constraint notification_intents_once unique (appointment_id, schedule_version, kind, tenant_id);
-- By when it may be taken up: rows that are done leave both indexes, so they stay as small as the work that is left.
create index notification_intents_due on notification_intents (coalesce(next_attempt_at, due_at)) where state = 'PENDING';
create index notification_intents_leases on notification_intents (lease_until) where state in ('LEASED', 'SENT');
comment on column notification_intents.due_at is 'Not before then. By the command''s clock, and for a reminder by the clinic''s reminder_hours.';
comment on column notification_intents.state is
  'PENDING, LEASED (somebody is at it, nothing has left), SENT (committed before its first byte leaves), COMPLETED (the receiver took it), REJECTED (the receiver will not have it), UNKNOWN (nobody can say whether it was taken: never sent again), SUPERSEDED (a later schedule overtook it, nothing of it was told), SUPPRESSED (not to be sent).';
comment on column notification_intents.channel is 'What it was sent through; it stays with that, whatever the patient prefers by now.';
comment on column notification_intents.attempts is 'Tries that were begun; one that fails because its destination is away is given back.';
comment on column notification_intents.next_attempt_at is 'Not before then, where that is later than due_at: it waits for another try, a quiet hour''s end, or its destination.';
comment on column notification_intents.token is 'The fencing token of the try at work: a late one finds another and changes nothing.';
comment on column notification_intents.lease_until is 'By the database''s clock. One that passes in LEASED is tried again; in SENT it is UNKNOWN, unless the receiver knows our id.';
comment on column notification_intents.reason_code is 'Why it is as it is, or why it waits.';

create table notifier_start (
  one boolean not null default true,
  at timestamptz not null,
  constraint notifier_start_pk primary key (one),
  constraint notifier_start_is_one check (one)
);
comment on table notifier_start is 'One row, no tenant''s: when a notifier first took something up. What fell due before then, nobody was to tell.';

create table clinic_notifications (
  tenant_id uuid not null,
  clinic_id uuid not null,
  reminder_hours int not null,
  quiet_from smallint,
  quiet_to smallint,
  templates jsonb not null,
  version int not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint clinic_notifications_pk primary key (tenant_id, clinic_id),
  constraint clinic_notifications_clinic_fk foreign key (tenant_id, clinic_id) references clinics (tenant_id, id),
  constraint clinic_notifications_reminder_is_real check (reminder_hours between 0 and 720),
  constraint clinic_notifications_quiet_is_whole check (
    (quiet_from is null) = (quiet_to is null) and quiet_from between 0 and 1439 and quiet_to between 0 and 1440
    and quiet_from <> quiet_to % 1440)
);
comment on table clinic_notifications is 'What a clinic set for its notifications; one without a row has the defaults. A row of its own, so that whoever puts a clinic''s other settings cannot reset these.';
comment on column clinic_notifications.reminder_hours is 'Hours before a visit at which its reminder falls due; 0: none is sent.';
comment on column clinic_notifications.quiet_from is 'Minutes since midnight on the clinic''s wall clock; a quiet_to not after it is on the next day.';
comment on column clinic_notifications.templates is 'Kind of notification: {subject, text, html, sms}; a kind that is not there has the default.';
