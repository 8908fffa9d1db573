-- For an event log outside the database (Kafka): who drains a partition of the outbox holds a lease, since no lock can be held
-- while the network is used. The log in Postgres has no need of it: there the row's lock does.

alter table log_partitions add column token uuid, add column lease_until timestamptz;
alter table log_partitions add constraint log_partitions_lease_is_whole check ((token is null) = (lease_until is null));
comment on column log_partitions.token is 'Of the relay that sends this partition''s events to a log outside: only its holder takes them out of the outbox.';
comment on column log_partitions.lease_until is 'By the database''s clock; past it another relay may send, and what the late one still sends are repeats.';
comment on column log_groups.name is 'The group; for a log outside, TOPIC.GROUP.';
comment on column log_groups.lease_until is 'By the database''s clock. Where the log outside says who reads a partition, it is over from the start: whoever is told to read may take over.';
