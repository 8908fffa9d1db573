//! The service's database, from outside: rows counted, keys aged, rows locked. All SQL of the checks is here.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::answer::Answer;
use super::case::{Verdict, ensure, failed};

/// How many rows the group of a clinic has, table by table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Counts {
    pub(super) appointments: i64,
    pub(super) history: i64,
    pub(super) keys: i64,
    pub(super) events: i64,
    pub(super) intents: i64,
    pub(super) audit: i64,
    /// The directory and the credentials together.
    pub(super) directory: i64,
}

/// How many rows a step may add.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) appointments: i64,
    pub(super) history: i64,
    pub(super) keys: i64,
    pub(super) events: i64,
    /// At least and at most.
    pub(super) intents: (i64, i64),
    /// At least and at most.
    pub(super) audit: (i64, i64),
}

impl Growth {
    /// A replay, or whatever is refused before anyone is known.
    pub(super) const NOTHING: Self =
        Self { appointments: 0, history: 0, keys: 0, events: 0, intents: (0, 0), audit: (0, 0) };
    /// A refusal that is not stored: of a signed-in caller, so it may be audited.
    pub(super) const REFUSED: Self = Self { audit: (0, 1), ..Self::NOTHING };
    /// A stored refusal, or a command that finds everything as asked.
    pub(super) const KEY: Self = Self { keys: 1, audit: (0, 1), ..Self::NOTHING };
    /// A command that writes a new version.
    pub(super) const CHANGE: Self = Self { history: 1, events: 1, intents: (0, 8), ..Self::KEY };
    /// A booking of a patient who can be told.
    pub(super) const BOOKING: Self = Self { appointments: 1, intents: (1, 8), ..Self::CHANGE };
    /// A block.
    pub(super) const BLOCK: Self = Self { appointments: 1, intents: (0, 0), ..Self::CHANGE };

    fn allows(&self, before: Counts, after: Counts) -> bool {
        let within = |grown: i64, (least, most): (i64, i64)| (least..=most).contains(&grown);
        after.appointments - before.appointments == self.appointments
            && after.history - before.history == self.history
            && after.keys - before.keys == self.keys
            && after.events - before.events == self.events
            && within(after.intents - before.intents, self.intents)
            && within(after.audit - before.audit, self.audit)
            && after.directory == before.directory
    }
}

/// Rows before a step; without a database it counts nothing and asserts nothing.
pub(super) struct Tally<'a> {
    pub(super) counting: Option<(&'a Database, Counts)>,
    pub(super) clinic: String,
}

impl Tally<'_> {
    /// Starts again from here, whatever grew since.
    pub(super) async fn restart(&mut self) -> Verdict {
        if let Some((database, before)) = self.counting.as_mut() {
            *before = database.counts(&self.clinic).await?;
        }
        Ok(())
    }

    /// Passes if rows grew by this much since, and starts again from here.
    pub(super) async fn grew(&mut self, growth: &Growth, answer: &Answer) -> Verdict {
        let Some((database, before)) = self.counting.as_mut() else { return Ok(()) };
        let after = database.counts(&self.clinic).await?;
        let expected = format!("rows to grow from {before:?} by {growth:?}, not to {after:?}");
        answer.ensure(growth.allows(*before, after), expected)?;
        *before = after;
        Ok(())
    }
}

/// A stored answer's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct KeyRow {
    pub(super) status: i16,
    pub(super) fingerprint_version: i16,
    /// Microseconds since 1970.
    pub(super) created_micros: i64,
    /// Microseconds since 1970.
    pub(super) expires_micros: i64,
}

/// What may be locked from outside to hold a command up: what it writes, or what its foreign keys look at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row {
    Appointment,
    Patient,
    /// A practitioner's place in a clinic, by the practitioner.
    Membership,
}

/// Where the database is.
#[derive(Clone, Debug)]
pub(super) struct Database {
    url: String,
}

const COUNTS: &str = "with t as (select tenant_id as id from clinics where id = $1::text::uuid)
    select (select count(*) from appointments where tenant_id = (select id from t)) as appointments,
      (select count(*) from appointment_history where tenant_id = (select id from t)) as history,
      -- Those that have expired the janitor may take at any time.
      (select count(*) from idempotency_keys where tenant_id = (select id from t) and expires_at > clock_timestamp()) as keys,
      (select count(*) from notification_intents where tenant_id = (select id from t)) as intents,
      (select count(*) from audit where tenant_id = (select id from t)) as audit,
      (select count(*) from clinics) + (select count(*) from clinic_closures) + (select count(*) from practitioners)
        + (select count(*) from practitioner_clinics) + (select count(*) from operatories)
        + (select count(*) from services) + (select count(*) from patients) + (select count(*) from external_ids)
        + (select count(*) from credentials) as directory,";

/// An event is in the outbox or, once relayed, in the log; for a moment in both.
const EVENTS: &str = "(select count(*) from outbox where tenant_id = (select id from t)) as events";
const EVENTS_AND_LOG: &str = "(select count(*) from (
      select subject_id, sequence from outbox where tenant_id = (select id from t)
      union select subject_id, sequence from event_log
        where subject_id in (select id from appointments where tenant_id = (select id from t))) e) as events";

impl Database {
    /// A database at this URL; connected to when asked something.
    pub(super) fn new(url: String) -> Self {
        Self { url }
    }

    /// A connection of its own.
    pub(super) async fn connect(&self) -> Verdict<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    /// How many rows the group of this clinic has.
    pub(super) async fn counts(&self, clinic: &str) -> Verdict<Counts> {
        let mut connection = self.connect().await?;
        let log: Option<String> =
            sqlx::query_scalar("select to_regclass('event_log')::text").fetch_one(&mut connection).await?;
        let events = if log.is_some() { EVENTS_AND_LOG } else { EVENTS };
        let counted = sqlx::query_as(AssertSqlSafe(format!("{COUNTS} {events}"))).bind(clinic);
        Ok(counted.fetch_one(&mut connection).await?)
    }

    /// The row of a key, if the clinic has one.
    pub(super) async fn key(&self, clinic: &str, key: &str) -> Verdict<Option<KeyRow>> {
        let row = sqlx::query_as(
            "select status, fingerprint_version, (extract(epoch from created_at) * 1000000)::bigint as created_micros,
               (extract(epoch from expires_at) * 1000000)::bigint as expires_micros
             from idempotency_keys where clinic_id = $1::text::uuid and key_hash = $2",
        )
        .bind(clinic)
        .bind(hashed(key));
        Ok(row.fetch_optional(&mut self.connect().await?).await?)
    }

    /// Ages a key: it expires so many seconds from now.
    pub(super) async fn expire(&self, clinic: &str, key: &str, seconds: f64) -> Verdict {
        let aged = sqlx::query(
            "update idempotency_keys set expires_at = clock_timestamp() + make_interval(secs => $3)
             where clinic_id = $1::text::uuid and key_hash = $2",
        );
        let aged = aged.bind(clinic).bind(hashed(key)).bind(seconds).execute(&mut self.connect().await?).await?;
        ensure(aged.rows_affected() == 1, "one row of the key to age", format!("{}", aged.rows_affected()))
    }

    /// Says of a key that another release wrote it.
    pub(super) async fn set_fingerprint_version(&self, clinic: &str, key: &str, version: i16) -> Verdict {
        let written = sqlx::query(
            "update idempotency_keys set fingerprint_version = $3 where clinic_id = $1::text::uuid and key_hash = $2",
        );
        written.bind(clinic).bind(hashed(key)).bind(version).execute(&mut self.connect().await?).await?;
        Ok(())
    }

    /// The transactions that wrote the newest version of an appointment: its row, its history, its key, its event.
    pub(super) async fn written_by(&self, clinic: &str, appointment: &str, key: &str) -> Verdict<Vec<String>> {
        let found: (String, String, String, Option<String>) = sqlx::query_as(
            "select a.xmin::text, h.xmin::text, k.xmin::text,
               (select o.xmin::text from outbox o where o.subject_id = a.id and o.sequence = a.version)
             from appointments a
             join appointment_history h on h.appointment_id = a.id and h.version = a.version
             join idempotency_keys k on k.clinic_id = a.clinic_id and k.key_hash = $3
             where a.clinic_id = $1::text::uuid and a.id = $2::text::uuid",
        )
        .bind(clinic)
        .bind(appointment)
        .bind(hashed(key))
        .fetch_one(&mut self.connect().await?)
        .await?;
        let (row, history, key, event) = found;
        Ok([Some(row), Some(history), Some(key), event].into_iter().flatten().collect())
    }

    /// The types of the events of a subject, in order.
    pub(super) async fn events(&self, subject: &str) -> Verdict<Vec<String>> {
        let mut connection = self.connect().await?;
        let log: Option<String> =
            sqlx::query_scalar("select to_regclass('event_log')::text").fetch_one(&mut connection).await?;
        let logged = "union select sequence, type from event_log where subject_id = $1::text::uuid";
        let asked = format!(
            "select type from (select sequence, type from outbox where subject_id = $1::text::uuid {}) e order by sequence",
            if log.is_some() { logged } else { "" }
        );
        Ok(sqlx::query_scalar(AssertSqlSafe(asked)).bind(subject).fetch_all(&mut connection).await?)
    }

    /// The tables of which a row holds this text.
    pub(super) async fn rows_holding(&self, text: &str) -> Verdict<Vec<String>> {
        let mut connection = self.connect().await?;
        let tables: Vec<String> = sqlx::query_scalar(
            "select format('%I', tablename) from pg_tables where schemaname = 'public' and tablename not like '\\_%'",
        )
        .fetch_all(&mut connection)
        .await?;
        let mut holding = vec![];
        for table in tables {
            let asked = format!("select exists (select from {table} t where strpos(t::text, $1) > 0)");
            if sqlx::query_scalar(AssertSqlSafe(asked)).bind(text).fetch_one(&mut connection).await? {
                holding.push(table);
            }
        }
        Ok(holding)
    }

    /// How many deadlocks Postgres has resolved here by ending one side.
    pub(super) async fn deadlocks(&self) -> Verdict<i64> {
        let asked = "select deadlocks from pg_stat_database where datname = current_database()";
        Ok(sqlx::query_scalar(asked).fetch_one(&mut self.connect().await?).await?)
    }

    /// Whether an index leads with the column a purge asks for.
    pub(super) async fn has_expiry_index(&self) -> Verdict<bool> {
        let asked = "select exists (select from pg_indexes where tablename = 'idempotency_keys'
                     and indexdef like '%(expires_at%')";
        Ok(sqlx::query_scalar(asked).fetch_one(&mut self.connect().await?).await?)
    }

    /// What the clinic's appointments were last asked by, in the caller's own words.
    pub(super) async fn caller_request_ids(&self, appointment: &str) -> Verdict<Vec<Option<String>>> {
        let asked = sqlx::query_scalar(
            "select caller_request_id from appointment_history where appointment_id = $1::text::uuid order by version",
        );
        Ok(asked.bind(appointment).fetch_all(&mut self.connect().await?).await?)
    }

    /// Takes back a credential's clinics, or gives them again: `None` means all.
    pub(super) async fn set_clinics(&self, credential: &str, clinics: Option<&[String]>) -> Verdict {
        let written = sqlx::query("update credentials set clinic_ids = $2::text[]::uuid[] where id = $1::text::uuid");
        written.bind(credential).bind(clinics).execute(&mut self.connect().await?).await?;
        Ok(())
    }

    /// Locks a row, as a long transaction of somebody else's would: commands that need it hang until it is let go.
    pub(super) async fn hold(&self, row: Row, id: &str) -> Verdict<Hold> {
        let mut connection = self.connect().await?;
        connection.execute("begin").await?;
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        let mut hold = Hold { connection, pid };
        hold.also(row, id).await?;
        Ok(hold)
    }

    /// Cancels a backend's statement, or ends the backend, as an administrator might at any moment.
    pub(super) async fn disturb(&self, pid: i32, how: Disturbance) -> Verdict {
        let asked = match how {
            Disturbance::Cancel => "select pg_cancel_backend($1)",
            Disturbance::Terminate => "select pg_terminate_backend($1)",
        };
        sqlx::query(asked).bind(pid).execute(&mut self.connect().await?).await?;
        Ok(())
    }
}

/// What may befall a backend.
#[derive(Clone, Copy, Debug)]
pub(super) enum Disturbance {
    Cancel,
    Terminate,
}

/// A row held by the checks. Dropped, it is let go: the connection closes.
pub(super) struct Hold {
    connection: PgConnection,
    pid: i32,
}

impl Hold {
    /// Locks another row, to be let go at the same moment.
    pub(super) async fn also(&mut self, row: Row, id: &str) -> Verdict {
        let asked = match row {
            Row::Appointment => "select 1 from appointments where id = $1::text::uuid for update",
            Row::Patient => "select 1 from patients where id = $1::text::uuid for update",
            Row::Membership => "select 1 from practitioner_clinics where practitioner_id = $1::text::uuid for update",
        };
        let found = sqlx::query(asked).bind(id).fetch_optional(&mut self.connection).await?;
        ensure(found.is_some(), "the row to lock", format!("no {row:?} {id}"))
    }

    /// The backends that wait for it right now.
    pub(super) async fn waiting(&mut self) -> Verdict<Vec<i32>> {
        let asked = "select distinct pid from pg_locks where not granted and $1 = any(pg_blocking_pids(pid))";
        Ok(sqlx::query_scalar(asked).bind(self.pid).fetch_all(&mut self.connection).await?)
    }

    /// Waits until a backend waits for it: from here on, the command is held up.
    pub(super) async fn awaited(&mut self) -> Verdict<i32> {
        for _ in 0..300 {
            if let Some(pid) = self.waiting().await?.first() {
                return Ok(*pid);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        failed("the command to wait for the row locked from outside", "nothing waited for it within 3 s")
    }

    /// Waits until no backend waits for it: what was given up is gone, not to be carried out once the row is let go.
    pub(super) async fn abandoned(&mut self) -> Verdict {
        // A duplicate in another process may have taken the owner's place, and has a command's five seconds of its own.
        for _ in 0..300 {
            if self.waiting().await?.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        failed("a statement that was given up to end", "it waits still, 6 s after the 503")
    }

    /// Waits for an advisory lock of that backend, which waits for this row: a deadlock, of which Postgres ends the
    /// other side, since that one has waited longer. Then lets go. False where the backend holds no such lock.
    pub(super) async fn deadlock_with(mut self, pid: i32) -> Verdict<bool> {
        let held: Option<i64> = sqlx::query_scalar(
            "select (classid::bigint << 32) | objid::bigint from pg_locks
             where pid = $1 and locktype = 'advisory' and granted and objsubid = 1 limit 1",
        )
        .bind(pid)
        .fetch_optional(&mut self.connection)
        .await?;
        if let Some(lock) = held {
            // In one go: between the two, the command's next try would find its key at work elsewhere.
            let and_let_go = format!("select pg_advisory_xact_lock({lock}); commit");
            sqlx::raw_sql(sqlx::AssertSqlSafe(and_let_go)).execute(&mut self.connection).await?;
            return Ok(true);
        }
        self.release().await?;
        Ok(false)
    }

    /// Lets go.
    pub(super) async fn release(mut self) -> Verdict {
        self.connection.execute("rollback").await?;
        Ok(self.connection.close().await?)
    }
}

fn hashed(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_exact_but_for_intents_and_audit() {
        let before = Counts::default();
        let booked = Counts { appointments: 1, history: 1, keys: 1, events: 1, intents: 2, audit: 1, directory: 0 };
        assert!(Growth::BOOKING.allows(before, booked));
        assert!(!Growth::BOOKING.allows(before, Counts { intents: 0, ..booked }));
        assert!(!Growth::NOTHING.allows(before, Counts { audit: 1, ..before }));
        assert!(Growth::REFUSED.allows(before, Counts { audit: 1, ..before }));
        assert!(!Growth::REFUSED.allows(before, Counts { directory: 1, ..before }));
    }
}
