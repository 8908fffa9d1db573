-- What a consumer has to do with the events that came: their inbox rows, and for each whether its effect is to follow in
-- this transaction. An event that is known writes nothing and is left out: a twin at work on it at this moment is waited for.
-- $1 consumer $2 in order? $3 event ids $4 tenants $5 clinics $6 partitions $7 offsets $8 subject kinds $9 subjects
-- $10 sequences $11 faults found without the database $12 ids for tasks $13 now $14 how long what is held back rests
-- $15 token, of who tries each alone, in transactions of their own; none where the effect follows in this one $16 its lease
with came as materialized (
  select *
  from unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::smallint[], $7::bigint[], $8::text[], $9::uuid[], $10::int[], $11::text[], $12::uuid[])
    as c(event_id, tenant_id, clinic_id, partition, "offset", subject_kind, subject_id, sequence, fault, task_id)
),
judged as materialized (
  -- Scope and provenance: the event must be of a version that was written, in that tenant, at that clinic.
  select c.*, h.at,
         coalesce(c.fault,
                  case when h.at is null or a.kind is distinct from case c.subject_kind when 'appointment' then 'visit' else c.subject_kind end then 'no_such_version'
                       when a.clinic_id <> c.clinic_id then 'wrong_clinic' end) as reason
  from came c
  left join appointment_history h on h.tenant_id = c.tenant_id and h.appointment_id = c.subject_id and h.version = c.sequence
  left join appointments a on a.tenant_id = c.tenant_id and a.id = c.subject_id
),
known as materialized (
  -- Each looked up by itself: joined, a plan made while the inbox was empty might read all of it.
  select j.*,
         (select i.state from inbox i where i.logical_consumer_id = $1 and i.event_id = j.event_id) as own_state,
         (select i.state from inbox i
          where i.logical_consumer_id = $1 and i.subject_id = j.subject_id and i.sequence = j.sequence - 1
            and i.tenant_id = j.tenant_id and i.subject_kind = j.subject_kind limit 1) as state_before
  from judged j where $2::boolean
),
ordered as materialized (
  -- For a consumer that wants a subject's events in order: what became of the version before each. Where that one is done, so
  -- are all before it. One from before the consumer was there is none of its business.
  select k.event_id, k.tenant_id, k.subject_id, k.sequence, k.reason is not null and k.own_state is distinct from 'PROCESSED' as spoilt,
         k.sequence - row_number() over (partition by k.tenant_id, k.subject_id order by k.sequence) as run,
         case when k.reason is not null or k.sequence = 1 then null
              when k.state_before is not null then case when k.state_before <> 'PROCESSED' then 'held_behind' end
              when lag(k.sequence) over (partition by k.tenant_id, k.subject_id order by k.sequence) = k.sequence - 1 then null
              when exists (select from appointment_history e join consumers s on s.logical_consumer_id = $1 and e.at >= s.since
                           where e.tenant_id = k.tenant_id and e.appointment_id = k.subject_id and e.version = k.sequence - 1) then 'out_of_order' end as reason
  from known k
),
behind as materialized (
  -- What waits, or cannot be taken, holds back what follows it among those that came.
  select o.event_id,
         coalesce(o.reason, case when bool_or(o.spoilt or o.reason is not null)
           over (partition by o.tenant_id, o.subject_id, o.run order by o.sequence rows between unbounded preceding and 1 preceding)
           then 'held_behind' end) as reason
  from ordered o
),
written as (
  insert into inbox (logical_consumer_id, event_id, tenant_id, clinic_id, partition, "offset", subject_kind, subject_id, sequence,
                     state, attempts, reason_code, next_attempt_at, token, lease_until, received_at, decided_at)
  select $1, j.event_id, j.tenant_id, j.clinic_id, j.partition, j."offset", j.subject_kind, j.subject_id, j.sequence,
         case when j.reason is not null then 'QUARANTINED' when b.reason is not null then 'RETRYABLE'
              when $15::uuid is not null then 'PROCESSING' else 'PROCESSED' end,
         case when b.reason is null then 1 else 0 end, coalesce(j.reason, b.reason), case when b.reason is not null then clock_timestamp() + $14::interval end,
         case when j.reason is null and b.reason is null then $15 end,
         case when j.reason is null and b.reason is null and $15 is not null then clock_timestamp() + $16::interval end,
         $13::timestamptz, case when j.reason is not null or (b.reason is null and $15 is null) then $13 end
  from judged j left join behind b on b.event_id = j.event_id and j.reason is null
  -- One order for all, so that two who receive the same events at once do not wait for each other.
  order by j.event_id
  on conflict (logical_consumer_id, event_id) do nothing
  returning event_id, tenant_id, clinic_id, subject_kind, subject_id, state, reason_code
),
tasked as (
  insert into staff_tasks (tenant_id, id, clinic_id, kind, logical_consumer_id, event_id, subject_kind, subject_id, reason_code, created_at)
  select w.tenant_id, c.task_id, w.clinic_id, 'quarantined_event', $1, w.event_id, w.subject_kind, w.subject_id, w.reason_code, $13
  from written w join came c on c.event_id = w.event_id
  where w.state = 'QUARANTINED'
)
select event_id as "event_id!", state as "state!" from written
-- For who keeps an order: what was known. Neither written nor known is what a twin wrote since this statement began.
union all select event_id, 'KNOWN' from known where own_state is not null
