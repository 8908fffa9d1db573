//! What must be true of the rows after any trial, whatever was done to the service.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, sleep};

use crate::client::Told;

/// Each statement lists what breaks a promise.
const PROMISES: [(&str, &str); 16] = [
    (
        // First, since what it is still at may break or mend what follows.
        "no session of the service is left, and nobody is in a transaction or holds a lock",
        "select format('%s: %s', pid, query) from pg_stat_activity
         where datname = current_database() and (application_name = 'oncebook' or state like 'idle in transaction%')
         union all
         select format('%s holds a lock', pid) from pg_locks join pg_database d on d.oid = database
         where d.datname = current_database() and locktype = 'advisory'",
    ),
    (
        "history has every version, from 1 on",
        "select format('%s at version %s: %s', a.id, a.version, h.versions)
         from appointments a left join lateral (
           select array_agg(version order by version) as versions from appointment_history h
           where h.tenant_id = a.tenant_id and h.appointment_id = a.id) as h on true
         where h.versions is distinct from array(select generate_series(1, a.version))",
    ),
    (
        "the last version of the history is the row",
        "select format('%s', a.id) from appointments a
         join appointment_history h on h.tenant_id = a.tenant_id and h.appointment_id = a.id and h.version = a.version
         where (h.status, h.during, h.schedule_version, h.overbooked) <> (a.status, a.during, a.schedule_version, a.overbooked)
            or h.practitioner_id is distinct from a.practitioner_id or h.operatory_id is distinct from a.operatory_id",
    ),
    (
        "every version has one event",
        "select format('%s at version %s: %s', a.id, a.version, o.sequences)
         from appointments a left join lateral (
           select array_agg(sequence order by sequence) as sequences
           from (select tenant_id, subject_kind, subject_id, sequence from outbox
                 union all select tenant_id, subject_kind, subject_id, sequence from event_log) as o
           where o.tenant_id = a.tenant_id and o.subject_id = a.id
             and o.subject_kind = case a.kind when 'visit' then 'appointment' else 'block' end) as o on true
         where o.sequences is distinct from array(select generate_series(1, a.version))",
    ),
    (
        "every event has its row",
        "select format('%s %s', o.subject_id, o.sequence)
         from (select tenant_id, subject_id, sequence from outbox union all select tenant_id, subject_id, sequence from event_log) as o
         where not exists (select from appointments a where a.tenant_id = o.tenant_id and a.id = o.subject_id)",
    ),
    (
        "the log is dense, and in the order of its subjects",
        "select format('partition %s: %s of %s', p.partition, count(l.*), p.next_offset)
         from log_partitions p left join event_log l on l.partition = p.partition
         group by p.partition, p.next_offset having count(l.*) <> p.next_offset
         union all
         select format('%s at %s before %s', a.subject_id, a.sequence, b.sequence)
         from event_log a join event_log b on b.partition = a.partition and b.subject_id = a.subject_id and b.tenant_id = a.tenant_id
           and b.\"offset\" < a.\"offset\" and b.sequence > a.sequence",
    ),
    (
        // One at work is of a process that was killed: the next one takes it up when its lease is over.
        "no event is due",
        "select format('%s %s: %s', logical_consumer_id, event_id, state) from inbox
         where state = 'RETRYABLE' and attempts > 0 and next_attempt_at < clock_timestamp() - interval '10 s'",
    ),
    (
        "every quarantined event is a task",
        "select format('%s %s', i.logical_consumer_id, i.event_id) from inbox i where i.state = 'QUARANTINED' and not exists (
           select from staff_tasks t where t.logical_consumer_id = i.logical_consumer_id and t.event_id = i.event_id)",
    ),
    (
        "every attempt of a delivery is written down, and has its end",
        "select format('%s %s: %s of %s', d.endpoint_id, d.event_id, count(a.*), d.attempts)
         from webhook_deliveries d left join webhook_attempts a
           on a.tenant_id = d.tenant_id and a.endpoint_id = d.endpoint_id and a.event_id = d.event_id
         group by d.tenant_id, d.endpoint_id, d.event_id
         having count(a.*) <> d.attempts or d.state = 'SENT' or count(*) filter (where a.attempt is not null and a.outcome is null) > 0",
    ),
    (
        "every version has one line in the audit",
        "select format('%s at version %s: %s', h.appointment_id, h.version, n.lines)
         from appointment_history h left join (
           select tenant_id, request_id, target_id, count(*) as lines from audit group by tenant_id, request_id, target_id
         ) as n on n.tenant_id = h.tenant_id and n.request_id = h.request_id and n.target_id = h.appointment_id
         where n.lines is distinct from 1",
    ),
    (
        "a key that made a row names one that is there",
        "select format('%s', convert_from(k.body, 'UTF8')) from idempotency_keys k
         where k.status = 201 and not exists (
           select from webhook_endpoints e where e.tenant_id = k.tenant_id and k.operation = 'create_webhook_endpoint'
             and e.id = (convert_from(k.body, 'UTF8')::jsonb ->> 'id')::uuid)
         and not exists (
           select from appointments a where a.tenant_id = k.tenant_id and a.clinic_id = k.clinic_id
             and a.id = (convert_from(k.body, 'UTF8')::jsonb ->> 'id')::uuid)",
    ),
    (
        "a refused key changed nothing",
        "select format('%s %s', h.appointment_id, h.version) from appointment_history h
         join idempotency_keys k on k.tenant_id = h.tenant_id and k.key_hash = h.key_hash and k.created_at = h.at
         where k.status >= 400",
    ),
    (
        "an intent stands once",
        "select format('%s', min(id::text)) from appointments where holds_slot and intent is not null
         group by tenant_id, clinic_id, intent having count(*) > 1",
    ),
    (
        "no practitioner and no operatory is in two places",
        "select format('%s and %s', a.id, b.id) from appointments a join appointments b
           on b.tenant_id = a.tenant_id and b.id > a.id and b.busy && a.busy
          and (b.practitioner_id = a.practitioner_id or b.operatory_id = a.operatory_id)
         where a.holds_slot and b.holds_slot and not a.overbooked and not b.overbooked",
    ),
    (
        "a notification that was refused, or that nobody can answer for, is one task",
        "select format('%s: %s', n.id, n.state) from notification_intents n
         where (select count(*) from staff_tasks t where t.tenant_id = n.tenant_id and t.subject_kind = 'notification'
                  and t.subject_id = n.id) <> case when n.state in ('REJECTED', 'UNKNOWN') then 1 else 0 end
           and n.state <> 'SUPPRESSED'",
    ),
    (
        "what is to be told to a patient is about a visit that is there",
        "select format('%s', n.id) from notification_intents n
         where not exists (select from appointments a where a.tenant_id = n.tenant_id and a.id = n.appointment_id
                             and a.schedule_version >= n.schedule_version)",
    ),
];

/// What a key may do once, it did once. Left out where a trial outlives the retention of its keys.
const ONCE: &str = "select format('%s did it %s times', h.key_hash, count(*)) from appointment_history h
   join appointments a on a.tenant_id = h.tenant_id and a.id = h.appointment_id
   where h.key_hash is not null group by h.tenant_id, a.clinic_id, h.key_hash having count(*) > 1";

/// Looks until the database is quiet, then says which promises are broken.
pub(crate) async fn broken_promises(connection: &mut PgConnection, keys_expire: bool) -> Vec<String> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let mut broken = Vec::new();
        for (promise, statement) in PROMISES {
            broken.extend(found(connection, promise, statement).await);
        }
        if !keys_expire {
            broken.extend(found(connection, "a key does what it does once", ONCE).await);
        }
        // The backend of a process that was killed finishes or gives up a little later.
        if broken.is_empty() || Instant::now() > patience {
            return broken;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn found(connection: &mut PgConnection, promise: &str, statement: &'static str) -> Vec<String> {
    let rows: Vec<String> = sqlx::query_scalar(statement).fetch_all(connection).await.expect("the checker's statement");
    rows.into_iter().map(|row| format!("{promise}: {row}")).collect()
}

/// What a key's row holds, if there is one.
pub(crate) async fn stored(connection: &mut PgConnection, key: &str) -> Option<Told> {
    let row: Option<(i16, Vec<u8>)> = sqlx::query_as("select status, body from idempotency_keys where key_hash = $1")
        .bind(hash(key))
        .fetch_optional(connection)
        .await
        .expect("a look at the keys");
    row.map(|(status, body)| Told { status: status.cast_unsigned(), body })
}

/// What all keys' rows hold, by their hash.
pub(crate) async fn all_stored(connection: &mut PgConnection) -> BTreeMap<Vec<u8>, Told> {
    let rows: Vec<(Vec<u8>, i16, Vec<u8>)> = sqlx::query_as("select key_hash, status, body from idempotency_keys")
        .fetch_all(connection)
        .await
        .expect("a look at the keys");
    rows.into_iter().map(|(key, status, body)| (key, Told { status: status.cast_unsigned(), body })).collect()
}

/// How many versions of appointments a key has made.
pub(crate) async fn done_by(connection: &mut PgConnection, key: &str) -> i64 {
    sqlx::query_scalar("select count(*) from appointment_history where key_hash = $1")
        .bind(hash(key))
        .fetch_one(connection)
        .await
        .expect("a look at the history")
}

/// As keys are stored.
pub(crate) fn hash(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}
