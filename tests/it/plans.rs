//! Plans made early hold later. Every statement of the commands is planned on a schema that was never analysed, as by a process
//! that starts on a new database; then the tables fill, still without statistics, and the same plans run. What they read is
//! counted page by page, foreign keys and functions included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, civil};
use jiff_sqlx::ToSqlx;
use oncebook::clock::{Clock, Ids};
use oncebook::domain::access::Caller;
use oncebook::domain::appointment::{Appointment, External, Kind, Status};
use oncebook::domain::event::{EventType, Notice};
use oncebook::domain::key::KeyHash;
use oncebook::domain::time::Span;
use oncebook::store::appointments::{self, Filter, Place};
use oncebook::store::commit::{self, Asker, Claim, Commit, Outcome, Reply, Written};
use oncebook::store::look::{self, Change, NewRow, Question};
use oncebook::store::seen::StoredHeaders;
use oncebook::store::{databases, schedule, session};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use uuid::Uuid;

use crate::ground::Ground;

/// Visits, keys, patients and blocks, when the tables are full.
pub(crate) const ROWS: i32 = 20_000;

/// Pages a statement may read. It is some five for each index it looks into or writes, and each table has hundreds.
pub(crate) const PAGES: i64 = 150;

/// Pages of the question that is put under the locks: four arms.
const PAGES_OF_HELD: i64 = 25;

/// Longer than filling the tables takes on any machine.
const FILLING: Duration = Duration::from_mins(5);

pub(crate) const TENANT: Uuid = Uuid::from_u128(1);
pub(crate) const CLINIC: Uuid = Uuid::from_u128(2);
const SERVICE: Uuid = Uuid::from_u128(3);
/// Behind all the others, so that who goes through them goes through all.
const PATIENT: Uuid = Uuid::from_u128(0x4000_0000_0000_0000_0000_0000_0000_0000);
const CREDENTIAL: Uuid = Uuid::from_u128(5);
/// Practitioner and operatory of every visit.
const OF_VISITS: Uuid = Uuid::from_u128(6);
/// A visit among those the tables are filled with.
pub(crate) const A_VISIT: Uuid = Uuid::from_u128(0x1000_0000_0000_7000_8000_0000_0000_0001);

pub(crate) const WORLD: &str = "
  insert into tenants values (lpad('1', 32, '0')::uuid, 'Group', '2026-01-01');
  insert into clinics (tenant_id, id, name, time_zone, slot_minutes, allow_overbooking, min_notice_minutes, horizon_days,
    key_retention_days, created_at, updated_at)
  select id, lpad('2', 32, '0')::uuid, 'Clinic', 'UTC', 15, true, 0, 730, 7, created_at, created_at from tenants;
  insert into services (tenant_id, id, clinic_id, name, minutes, buffer_minutes, active, created_at, updated_at)
  select tenant_id, lpad('3', 32, '0')::uuid, id, 'Filling', 30, 0, true, created_at, created_at from clinics;
  insert into patients (tenant_id, id, name, preferred_channel, created_at, updated_at)
  select id, rpad('4', 32, '0')::uuid, 'Ada', 'none', created_at, created_at from tenants;
  insert into credentials (id, tenant_id, name, subject, roles, secret_hash, created_by, created_at)
  select lpad('5', 32, '0')::uuid, id, 'Desk', 'desk', '{FRONT_DESK}', sha256(''), 'test', created_at from tenants;
  insert into practitioners (tenant_id, id, name, active, created_at, updated_at)
  select id, lpad(n, 32, '0')::uuid, n, true, created_at, created_at from tenants, unnest(array['6', '7']) as n;
  insert into practitioner_clinics (tenant_id, practitioner_id, clinic_id, active, created_at, updated_at)
  select p.tenant_id, p.id, c.id, true, p.created_at, p.created_at from practitioners p, clinics c;
  insert into operatories (tenant_id, id, clinic_id, name, active, created_at, updated_at)
  select p.tenant_id, p.id, c.id, p.name, true, p.created_at, p.created_at from practitioners p, clinics c;";

/// Half an hour for each number from `$1` to `$2`, back from `$3`: visits, each other one overbooked, with history and key.
const VISITS: &str = "
  with made as (
    insert into appointments (tenant_id, id, clinic_id, kind, patient_id, practitioner_id, operatory_id, service_id, during, busy,
      time_zone, local_start, status, holds_slot, overbooked, version, schedule_version, intent, source, external_system,
      external_id, created_at, updated_at)
    select s.tenant_id, ('10000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, s.clinic_id, 'visit',
      rpad('4', 32, '0')::uuid, o.id, o.id, s.id, span, span, 'UTC', lower(span)::timestamp, 'booked', true, n % 2 = 0, 1, 1,
      sha256(n::text::bytea), 'rest', 'recall', n::text, $3, $3
    from generate_series($1::int, $2::int) as n
    cross join lateral (select tstzrange($3 - n * interval '30 minutes', $3 - (n - 1) * interval '30 minutes') as span) as half
    cross join services s join operatories o on o.name = '6'
    returning *
  ),
  told as (
    insert into appointment_history (tenant_id, appointment_id, version, schedule_version, status, during, overbooked,
      operation, request_id, subject, credential_id, at)
    select tenant_id, id, 1, 1, status, during, overbooked, 'book', id, 'somebody', id, created_at from made
  )
  insert into idempotency_keys (tenant_id, clinic_id, key_hash, fingerprint, fingerprint_version, operation, status, headers,
    body, created_at, expires_at)
  select tenant_id, clinic_id, intent, intent, 1, 'book', 201, '{}', '', created_at, $3 + interval '1 year' from made";

/// As many patients and blocks. A block a half-hour, from a day ahead back; of each two one was removed.
const THE_REST: &str = "
  with patients as (
    insert into patients (tenant_id, id, name, preferred_channel, created_at, updated_at)
    select id, ('20000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'Patient ' || n, 'none', $3, $3
    from tenants, generate_series($1::int, $2::int) as n
  )
  insert into appointments (tenant_id, id, clinic_id, kind, practitioner_id, during, busy, time_zone, local_start, status,
    holds_slot, overbooked, version, schedule_version, source, created_at, updated_at)
  select o.tenant_id, ('30000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, o.clinic_id, 'block', o.id, span, span,
    'UTC', lower(span)::timestamp, case when n % 2 = 0 then 'booked' else 'cancelled' end, n % 2 = 0, false, 1, 1, 'rest', $3, $3
  from generate_series($1::int, $2::int) as n
  cross join lateral (select tstzrange($3 + (48 - n) * interval '30 minutes', $3 + (49 - n) * interval '30 minutes') as span) as half
  join operatories o on o.name = '7'";

/// A database of its own, and a connection as the service opens them.
pub(crate) struct Early {
    ground: Arc<Ground>,
    database: String,
    pub(crate) connection: PgConnection,
    ids: Ids,
    now: Timestamp,
}

impl Early {
    pub(crate) async fn new(name: &str) -> Self {
        let ground = Ground::shared().await;
        // By the names of trials, so that the next run drops what this one may leave.
        let database = format!("trial_plans_{name}");
        ground.cluster.create_database(&database, None).await.expect("a database");
        let options: PgConnectOptions = ground.cluster.url(&database).parse().expect("a URL");
        let mut connection = options.options(session(FILLING)).connect().await.expect("connected");
        databases::migrate(&mut connection).await.expect("migrated");
        // Autovacuum would bring the statistics that this is about the lack of.
        let quiet = "do $$ declare t regclass; begin
            for t in select oid from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' loop
              execute format('alter table %s set (autovacuum_enabled = false)', t);
            end loop; end $$";
        sqlx::raw_sql(quiet).execute(&mut connection).await.expect("without autovacuum");
        let now = Timestamp::from_second(Clock::system().now().as_second() / 86_400 * 86_400).expect("midnight");
        Self { ground, database, connection, ids: Ids::seeded(11), now }
    }

    pub(crate) async fn fill(&mut self, from: i32, to: i32) {
        for rows in [VISITS, THE_REST] {
            let rows = sqlx::query(rows).bind(from).bind(to).bind(self.now.to_sqlx());
            rows.execute(&mut self.connection).await.expect("rows");
        }
    }

    /// Runs something, undoes it, and tells how many pages it read of what.
    pub(crate) async fn pages(&mut self, work: impl AsyncFnOnce(&mut PgConnection, &Errand)) -> BTreeMap<String, i64> {
        let errand = Errand::new(&self.ids, self.now);
        let connection = &mut self.connection;
        sqlx::raw_sql("begin").execute(&mut *connection).await.expect("begun");
        let before = fetched(connection).await;
        work(connection, &errand).await;
        let mut read = fetched(connection).await;
        sqlx::raw_sql("rollback").execute(connection).await.expect("undone");
        for (name, pages) in &mut read {
            *pages -= before.get(name).copied().unwrap_or(0);
        }
        read.retain(|_, pages| *pages > 0);
        read
    }

    pub(crate) async fn end(self) {
        self.connection.close().await.expect("closed");
        self.ground.cluster.drop_database(&self.database).await.expect("dropped");
    }
}

/// Pages this session has fetched so far, by table and index.
pub(crate) async fn fetched(connection: &mut PgConnection) -> BTreeMap<String, i64> {
    let counted = "select relname::text, pg_stat_get_xact_blocks_fetched(oid) from pg_class
                   where relnamespace = 'public'::regnamespace";
    let counted: Vec<(String, i64)> = sqlx::query_as(counted).fetch_all(connection).await.expect("counted");
    counted.into_iter().collect()
}

/// What a command brings to its commit.
pub(crate) struct Errand {
    pub(crate) asker: Asker,
    claim: Claim,
    reply: Reply,
    pub(crate) now: Timestamp,
    pub(crate) ids: Ids,
}

impl Errand {
    fn new(ids: &Ids, now: Timestamp) -> Self {
        let caller = Caller {
            credential_id: CREDENTIAL,
            tenant_id: TENANT,
            subject: "desk".to_owned(),
            roles: Vec::new(),
            clinic_ids: None,
        };
        let (fingerprint, fingerprint_version, same_lock, key_lock) = ([9; 32], 1, 1, 2);
        Self {
            asker: Asker { caller, request_id: ids.uuid(now), caller_request_id: None, traceparent: None },
            claim: Claim {
                key: KeyHash([9; 32]),
                fingerprint,
                fingerprint_version,
                same_lock,
                key_lock,
                expires_at: now,
            },
            reply: Reply { status: 200, headers: StoredHeaders::default(), body: Vec::new() },
            now,
            ids: ids.clone(),
        }
    }

    fn commit(&self) -> Commit<'_> {
        Commit {
            operation: "book",
            asker: &self.asker,
            clinic: CLINIC,
            claim: Some(&self.claim),
            reply: &self.reply,
            now: self.now,
            audit_id: self.ids.uuid(self.now),
        }
    }

    /// Noon, three days ahead: nobody is there.
    fn during(&self) -> Span {
        let start = self.now + SignedDuration::from_hours(3 * 24 + 12);
        Span { start, end: start + SignedDuration::from_mins(30) }
    }

    /// With the resource locks and the question under them, as where a clinic overbooks.
    fn written(&self, id: Uuid, version: i32) -> Written {
        let row = Appointment {
            id,
            clinic_id: CLINIC,
            kind: Kind::Visit,
            patient_id: Some(PATIENT),
            practitioner_id: Some(OF_VISITS),
            operatory_id: Some(OF_VISITS),
            service_id: Some(SERVICE),
            during: self.during(),
            busy_until: self.during().end,
            time_zone: "UTC".to_owned(),
            local_start: civil::date(2027, 1, 1).at(8, 0, 0, 0),
            status: Status::Booked,
            confirmed_at: None,
            overbooked: false,
            version,
            schedule_version: version,
            intent: Some([7; 32]),
            note: None,
            block_reason: None,
            external: None,
            cancel_reason: None,
            cancelled_by: None,
            created_at: self.now,
            updated_at: self.now,
        };
        let notices = vec![(self.ids.uuid(self.now), Notice { kind: "change", due_at: self.now })];
        let event_id = self.ids.uuid(self.now);
        Written { row, event: EventType::Booked, event_id, notices, resource_locks: vec![3], recheck: true }
    }

    async fn look(&self, connection: &mut PgConnection, new: bool) -> bool {
        let (start, both) = (self.during().start, Some(OF_VISITS));
        let question = if new {
            Question::New(NewRow {
                clinic: CLINIC,
                patient: Some(PATIENT),
                practitioner: both,
                operatory: both,
                service: Some(SERVICE),
                start,
                end: None,
                intent: Some([7; 32]),
                external: Some(External { system: "recall".to_owned(), id: "0".to_owned() }),
            })
        } else {
            let stays = Change::of(A_VISIT, Kind::Visit);
            Question::Change(Change { practitioner: both, start: Some(start), enters_slot: true, ..stays })
        };
        let seen = look::look(connection, CREDENTIAL, Some(&[9; 32]), self.now, &question).await.expect("seen");
        seen.clinic.is_some() && seen.slot.is_some_and(|slot| !slot.held && slot.twin.is_none())
    }

    /// The first page of what is from today on.
    async fn list(&self, connection: &mut PgConnection, filter: Filter) -> usize {
        let from = Place { start: self.now - SignedDuration::from_mins(90), id: Uuid::nil() };
        let after = matches!(filter, Filter::Visits { .. }).then_some(from);
        let found = appointments::list(connection, TENANT, CLINIC, &filter, after, 11).await.expect("a page");
        found.expect("a clinic").rows.len()
    }
}

/// What is asked and written, under its name; the least of it the caller sees.
const STATEMENTS: [&str; 10] = [
    "look_new",
    "look_change",
    "insert",
    "change",
    "answer",
    "visits",
    "visits of a patient",
    "blocks",
    "history",
    "schedule",
];

async fn run(which: &str, connection: &mut PgConnection, errand: &Errand) -> usize {
    let visits = |patient| Filter::Visits { patient, practitioner: None, status: None, starts_before: None };
    let done = match which {
        "look_new" | "look_change" => return usize::from(errand.look(connection, which == "look_new").await),
        "insert" => {
            let written = errand.written(errand.ids.uuid(errand.now), 1);
            commit::insert(connection, &errand.commit(), &written).await
        }
        "change" => commit::change(connection, &errand.commit(), &errand.written(A_VISIT, 2)).await,
        "answer" => commit::answer(connection, &errand.commit(), &errand.claim, None, None).await,
        "visits" => return errand.list(connection, visits(None)).await,
        "visits of a patient" => return errand.list(connection, visits(Some(PATIENT))).await,
        "blocks" => {
            let (practitioner, operatory, starts_before, ends_after) = (None, None, None, Some(errand.now));
            let blocks = Filter::Blocks { practitioner, operatory, starts_before, ends_after };
            return errand.list(connection, blocks).await;
        }
        "history" => {
            let found = appointments::history(connection, TENANT, A_VISIT, 0, 201).await.expect("a history");
            return found.map_or(0, |(_, versions)| versions.len());
        }
        _ => {
            let plan = schedule::read(connection, TENANT, CLINIC, errand.during(), None, Some(OF_VISITS)).await;
            return plan.expect("a schedule").people.len();
        }
    };
    usize::from(done.expect(which) == Outcome::Done)
}

#[tokio::test]
async fn what_was_planned_on_empty_tables_reads_little_of_full_ones() {
    let mut early = Early::new("early").await;
    // The looks and the lists run without a single row; the others need something to refer to.
    for which in ["look_new", "look_change", "history", "schedule"] {
        early.pages(async |connection, errand| _ = run(which, connection, errand).await).await;
    }
    sqlx::raw_sql(WORLD).execute(&mut early.connection).await.expect("a world");
    early.fill(1, 1).await;
    for which in STATEMENTS {
        early.pages(async |connection, errand| _ = run(which, connection, errand).await).await;
    }
    early.fill(2, ROWS).await;
    let mut much = Vec::new();
    for which in STATEMENTS {
        let mut came = 0;
        let pages = early.pages(async |connection, errand| came = run(which, connection, errand).await).await;
        let sum: i64 = pages.values().sum();
        println!("{which}: {came} from {sum} pages {pages:?}");
        let wanted = match which {
            "visits" | "visits of a patient" => 3,
            "blocks" => 11,
            "schedule" => 2,
            _ => 1,
        };
        assert_eq!(came, wanted, "{which}");
        if sum > PAGES {
            much.push(format!("{which} read {sum} pages: {pages:?}"));
        }
    }
    assert!(much.is_empty(), "{much:#?}");
    early.end().await;
}

#[tokio::test]
async fn the_question_under_the_locks_does_not_read_the_past() {
    let mut early = Early::new("held").await;
    sqlx::raw_sql(WORLD).execute(&mut early.connection).await.expect("a world");
    early.fill(1, ROWS).await;
    for (hours, held) in [(12, false), (-12, true)] {
        let pages = early
            .pages(async |connection, errand| {
                let asked = "select slot_held_by_now($1, $2, $2, tstzrange($3, $3 + interval '1 minute'), $1)";
                let start = errand.now + SignedDuration::from_hours(hours);
                let asked = sqlx::query_scalar(asked).bind(TENANT).bind(OF_VISITS).bind(start.to_sqlx());
                assert_eq!(asked.fetch_one(connection).await.ok(), Some(held));
            })
            .await;
        println!("{pages:?}");
        assert!(pages.values().sum::<i64>() <= PAGES_OF_HELD, "{pages:?}");
    }
    early.end().await;
}
