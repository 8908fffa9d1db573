//! Every column a commit writes, each with a value nothing else has. The statements take some forty parameters of few types,
//! so two of them could change places and every other trial would pass.

use jiff::{Timestamp, ToSpan, civil};
use oncebook::domain::access::Caller;
use oncebook::domain::appointment::{Appointment, External, Kind, Status};
use oncebook::domain::event::{EventType, Notice, standing};
use oncebook::domain::key::KeyHash;
use oncebook::domain::time::Span;
use oncebook::store::commit::{self, Asker, Claim, Commit, Outcome, Reply, Written};
use oncebook::store::seen::StoredHeaders;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::app::Trial;

/// Tells one commit's values from another's: each number below stands for values of this commit alone.
#[derive(Clone, Copy)]
struct Round(u8);

impl Round {
    fn id(self, n: u8) -> Uuid {
        Uuid::from_u128(0x0195_0000_0000_7000_8000_0000_0000_0000 + u128::from(self.0) * 256 + u128::from(n))
    }

    fn hash(self, n: u8) -> [u8; 32] {
        let mut hash = [n; 32];
        hash[0] = self.0;
        hash
    }

    fn text(self, what: &str) -> String {
        format!("{what} of round {}", self.0)
    }

    /// Hours apart, whatever the two numbers are.
    fn at(self, n: u8) -> Timestamp {
        let first: Timestamp = "2027-03-01T00:00:07Z".parse().expect("a time");
        first + (i64::from(self.0) * 100 + i64::from(n)).hours()
    }

    fn number(self, n: u8) -> i64 {
        i64::from(self.0) * 1000 + i64::from(n)
    }

    fn asker(self, trial: &Trial) -> Asker {
        let caller = Caller {
            credential_id: self.id(1),
            tenant_id: trial.demo.tenant_id,
            subject: self.text("subject"),
            roles: Vec::new(),
            clinic_ids: None,
        };
        Asker {
            caller,
            request_id: self.id(2),
            caller_request_id: Some(self.text("caller's request")),
            traceparent: Some(self.text("trace")),
        }
    }

    fn claim(self) -> Claim {
        Claim {
            key: KeyHash(self.hash(1)),
            fingerprint: self.hash(2),
            fingerprint_version: i16::from(self.0) + 70,
            same_lock: self.number(1),
            key_lock: self.number(2),
            expires_at: self.at(1),
        }
    }

    fn reply(self, status: u16, row: Uuid) -> Reply {
        let headers = StoredHeaders {
            content_type: Some(self.text("type")),
            etag: Some(self.text("tag")),
            location: Some(self.text("place")),
        };
        Reply { status, headers, body: json!({ "id": row }).to_string().into_bytes() }
    }

    fn commit<'a>(self, trial: &Trial, asker: &'a Asker, claim: &'a Claim, reply: &'a Reply) -> Commit<'a> {
        let operation = ["book", "reschedule", "cancel", "block", "note"][usize::from(self.0)];
        let (clinic, now, audit_id) = (trial.demo.clinic_id, self.at(2), self.id(3));
        Commit { operation, asker, clinic, claim: Some(claim), reply, now, audit_id }
    }

    fn written(self, row: Appointment, event: EventType, recheck: bool) -> Written {
        let notices = vec![
            (self.id(4), Notice { kind: "confirmation", due_at: self.at(3) }),
            (self.id(5), Notice { kind: "reminder", due_at: self.at(4) }),
        ];
        Written { row, event, event_id: self.id(6), notices, resource_locks: vec![self.number(3)], recheck }
    }

    /// What a commit may change of a row, all of it.
    fn moved(self, trial: &Trial, row: &Appointment) -> Appointment {
        let n = usize::from(self.0);
        Appointment {
            practitioner_id: Some(trial.demo.practitioner_ids[n]),
            operatory_id: Some(trial.demo.operatory_ids[n]),
            during: Span { start: self.at(10), end: self.at(11) },
            busy_until: self.at(12),
            time_zone: self.text("zone"),
            local_start: civil::date(2027, 4, 1).at(i8::try_from(n).expect("few"), 8, 9, 0),
            note: Some(self.text("note")),
            ..row.clone()
        }
    }
}

fn row(trial: &Trial, id: Uuid, kind: Kind) -> Appointment {
    let visit = kind == Kind::Visit;
    Appointment {
        id,
        clinic_id: trial.demo.clinic_id,
        kind,
        patient_id: visit.then_some(trial.demo.patient_ids[0]),
        practitioner_id: None,
        operatory_id: None,
        service_id: visit.then_some(trial.demo.service_ids[0]),
        during: Span { start: Timestamp::UNIX_EPOCH, end: Timestamp::UNIX_EPOCH },
        busy_until: Timestamp::UNIX_EPOCH,
        time_zone: String::new(),
        local_start: civil::DateTime::ZERO,
        status: Status::Booked,
        confirmed_at: None,
        overbooked: false,
        version: 1,
        schedule_version: 1,
        intent: None,
        note: None,
        block_reason: None,
        external: None,
        cancel_reason: None,
        cancelled_by: None,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
    }
}

/// A value as Postgres puts it into JSON.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

fn range(start: Timestamp, end: Timestamp) -> String {
    let [start, end] = [start, end].map(|at| at.strftime("%Y-%m-%d %H:%M:%S+00").to_string());
    format!("[\"{start}\",\"{end}\")")
}

fn bytes(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The rows of a table for which something holds, in order of what it is ordered by.
async fn rows(connection: &mut PgConnection, table: &str, holds: &str) -> Value {
    let text = format!(
        "select coalesce(jsonb_agg(to_jsonb(t) order by to_jsonb(t)::text), '[]') from {table} t where {holds}"
    );
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(connection).await.expect("rows")
}

/// What stands in `appointments` after a commit; `first` made the row.
fn appointment(trial: &Trial, first: Round, last: Round, row: &Appointment) -> Value {
    json!({
        "tenant_id": trial.demo.tenant_id, "id": row.id, "clinic_id": row.clinic_id, "kind": row.kind.as_str(),
        "patient_id": row.patient_id, "practitioner_id": row.practitioner_id, "operatory_id": row.operatory_id,
        "service_id": row.service_id, "during": range(row.during.start, row.during.end),
        "busy": range(row.during.start, row.busy_until), "time_zone": row.time_zone,
        "local_start": row.local_start.strftime("%Y-%m-%dT%H:%M:%S").to_string(), "status": row.status.as_str(),
        "holds_slot": row.status.holds_slot(), "overbooked": row.overbooked, "confirmed_at": row.confirmed_at.map(time),
        "version": row.version, "schedule_version": row.schedule_version, "intent": row.intent.map(|intent| bytes(&intent)),
        "note": row.note, "block_reason": row.block_reason, "source": "rest",
        "external_system": row.external.as_ref().map(|external| &external.system),
        "external_id": row.external.as_ref().map(|external| &external.id), "cancel_reason": row.cancel_reason,
        "cancelled_by": row.cancelled_by, "created_at": time(first.at(2)), "updated_at": time(last.at(2)),
    })
}

fn key(trial: &Trial, round: Round, commit: &Commit<'_>) -> Value {
    json!({
        "tenant_id": trial.demo.tenant_id, "clinic_id": trial.demo.clinic_id, "key_hash": bytes(&round.hash(1)),
        "fingerprint": bytes(&round.hash(2)), "fingerprint_version": round.0 + 70, "operation": commit.operation,
        "status": commit.reply.status,
        "headers": { "content_type": round.text("type"), "etag": round.text("tag"), "location": round.text("place") },
        "body": bytes(&commit.reply.body), "created_at": time(round.at(2)), "expires_at": time(round.at(1)),
    })
}

fn audited(trial: &Trial, round: Round, commit: &Commit<'_>, target: Uuid, code: Option<&str>) -> Value {
    json!({
        "tenant_id": trial.demo.tenant_id, "id": round.id(3), "at": time(round.at(2)), "subject": round.text("subject"),
        "credential_id": round.id(1), "clinic_id": trial.demo.clinic_id, "operation": commit.operation,
        "target_id": target, "status": commit.reply.status, "code": code, "request_id": round.id(2),
        "caller_request_id": round.text("caller's request"), "seal": null,
    })
}

/// Compares all that a commit left, in every table.
async fn compare(
    connection: &mut PgConnection,
    trial: &Trial,
    rounds: [Round; 2],
    commit: &Commit<'_>,
    written: &Written,
) {
    let (Written { row, event, .. }, [first, round]) = (written, rounds);
    let (id, version, tenant) = (row.id, row.version, trial.demo.tenant_id);
    let mut found = async |table: &str, holds: String| rows(connection, table, &holds).await;
    let appointments = found("appointments", format!("id = '{id}'")).await;
    assert_eq!(appointments, json!([appointment(trial, first, round, row)]));
    let history = found("appointment_history", format!("appointment_id = '{id}' and version = {version}")).await;
    let entry = json!({
        "tenant_id": tenant, "appointment_id": id, "version": version, "schedule_version": row.schedule_version,
        "status": row.status.as_str(), "during": range(row.during.start, row.during.end),
        "practitioner_id": row.practitioner_id, "operatory_id": row.operatory_id, "service_id": row.service_id,
        "overbooked": row.overbooked, "operation": commit.operation, "key_hash": bytes(&round.hash(1)),
        "request_id": round.id(2), "caller_request_id": round.text("caller's request"), "subject": round.text("subject"),
        "credential_id": round.id(1), "at": time(round.at(2)),
    });
    assert_eq!(history, json!([entry]));
    let keys = found("idempotency_keys", format!("operation = '{}'", commit.operation)).await;
    assert_eq!(keys, json!([key(trial, round, commit)]));
    let intent = |n: u8, kind: &str, due: u8| {
        json!({
            "tenant_id": tenant, "id": round.id(n), "clinic_id": row.clinic_id, "appointment_id": id,
            "schedule_version": row.schedule_version, "kind": kind, "due_at": time(round.at(due)), "state": "PENDING",
            "channel": null, "attempts": 0, "next_attempt_at": null, "token": null, "lease_until": null, "reason_code": null,
            "decided_at": null,
        })
    };
    let of_version = format!("appointment_id = '{id}' and schedule_version = {}", row.schedule_version);
    let intents = found("notification_intents", of_version).await;
    assert_eq!(intents, json!([intent(4, "confirmation", 3), intent(5, "reminder", 4)]));
    let mut outbox = found("outbox", format!("subject_id = '{id}' and sequence = {version}")).await;
    let made = outbox[0].as_object_mut().expect("an event");
    // By the database: its place, and its partition, of the subject's last byte.
    made.remove("position");
    assert_eq!(made.remove("partition"), Some(json!(id.as_bytes()[15] & 15)));
    let told = json!({
        "event_id": round.id(6), "tenant_id": tenant, "clinic_id": row.clinic_id,
        "subject_kind": if row.kind == Kind::Visit { "appointment" } else { "block" }, "subject_id": id,
        "sequence": version, "type": event.as_str(), "payload": standing(row), "traceparent": round.text("trace"),
        "occurred_at": time(round.at(2)),
    });
    assert_eq!(outbox, json!([told]));
    let audit = found("audit", format!("operation = '{}'", commit.operation)).await;
    assert_eq!(audit, json!([audited(trial, round, commit, id, None)]));
}

/// Each of the key's two locks, held by another, is answered in its own way.
async fn held_up(trial: &Trial, claim: &Claim, mut again: impl AsyncFnMut() -> Outcome) {
    let mut other = trial.connect().await;
    for (lock, outcome) in [(claim.same_lock, Outcome::SameRunning), (claim.key_lock, Outcome::OtherRunning)] {
        sqlx::query("select pg_advisory_lock($1)").bind(lock).execute(&mut other).await.expect("locked");
        assert_eq!(again().await, outcome);
        sqlx::query("select pg_advisory_unlock($1)").bind(lock).execute(&mut other).await.expect("unlocked");
    }
    other.close().await.expect("closed");
}

async fn connect(trial: &Trial) -> PgConnection {
    let mut connection = trial.connect().await;
    sqlx::raw_sql("set timezone = 'UTC'").execute(&mut connection).await.expect("set");
    connection
}

#[tokio::test]
async fn every_column_of_a_booking_and_of_its_changes_has_its_own_value() {
    let trial = Trial::new().await;
    let mut connection = connect(&trial).await;
    let first = Round(0);
    let external = External { system: first.text("system"), id: first.text("name there") };
    let id = first.id(9);
    let (intent, external) = (Some(first.hash(3)), Some(external));
    let booked =
        Appointment { intent, external, overbooked: true, ..first.moved(&trial, &row(&trial, id, Kind::Visit)) };

    let second = Round(1);
    let service_id = Some(trial.demo.service_ids[1]);
    let (intent, confirmed_at) = (Some(second.hash(3)), Some(second.at(20)));
    let moved = Appointment { intent, confirmed_at, service_id, overbooked: false, ..second.moved(&trial, &booked) };
    let moved = Appointment { version: 2, schedule_version: 5, status: Status::Arrived, ..moved };

    let third = Round(2);
    let (cancel_reason, cancelled_by) = (Some(third.text("reason")), Some(third.text("who cancelled")));
    let cancelled = Appointment { cancel_reason, cancelled_by, confirmed_at: None, ..third.moved(&trial, &moved) };
    let cancelled = Appointment { version: 3, schedule_version: 9, status: Status::Cancelled, ..cancelled };

    // Whether the slot is looked at again differs from whether it was taken, so that these two cannot change places either.
    for (round, status, row, event, recheck) in [
        (first, 201, booked, EventType::Booked, false),
        (second, 207, moved, EventType::Rescheduled, true),
        (third, 208, cancelled, EventType::Cancelled, true),
    ] {
        let (asker, claim, reply) = (round.asker(&trial), round.claim(), round.reply(status, id));
        let commit = round.commit(&trial, &asker, &claim, &reply);
        let written = round.written(row, event, recheck);
        let mut write = async || {
            let done = match round.0 {
                0 => commit::insert(&mut connection, &commit, &written).await,
                _ => commit::change(&mut connection, &commit, &written).await,
            };
            done.expect("an outcome")
        };
        held_up(&trial, &claim, &mut write).await;
        assert_eq!(write().await, Outcome::Done);
        compare(&mut connection, &trial, [first, round], &commit, &written).await;
    }
    connection.close().await.expect("closed");
    trial.end().await;
}

#[tokio::test]
async fn every_column_of_a_block_and_of_an_answer_has_its_own_value() {
    let trial = Trial::new().await;
    let mut connection = connect(&trial).await;
    let round = Round(3);
    let (asker, claim, reply) = (round.asker(&trial), round.claim(), round.reply(201, round.id(9)));
    let commit = round.commit(&trial, &asker, &claim, &reply);
    let block_reason = Some(round.text("why"));
    let block = Appointment { block_reason, ..round.moved(&trial, &row(&trial, round.id(9), Kind::Block)) };
    let written = round.written(block, EventType::BlockCreated, true);
    assert_eq!(commit::insert(&mut connection, &commit, &written).await.expect("an outcome"), Outcome::Done);
    compare(&mut connection, &trial, [round, round], &commit, &written).await;

    let round = Round(4);
    let (asker, claim, reply) = (round.asker(&trial), round.claim(), round.reply(409, round.id(9)));
    let commit = round.commit(&trial, &asker, &claim, &reply);
    let (target, code) = (round.id(8), round.text("code"));
    let mut write = async || {
        let done = commit::answer(&mut connection, &commit, &claim, Some(target), Some(&code)).await;
        done.expect("an outcome")
    };
    held_up(&trial, &claim, &mut write).await;
    assert_eq!(write().await, Outcome::Done);
    assert_eq!(
        rows(&mut connection, "idempotency_keys", "operation = 'note'").await,
        json!([key(&trial, round, &commit)])
    );
    let audit = rows(&mut connection, "audit", "operation = 'note'").await;
    assert_eq!(audit, json!([audited(&trial, round, &commit, target, Some(&code))]));
    connection.close().await.expect("closed");
    trial.end().await;
}
