//! Somebody else at a row: a session that has it locked, so that whoever needs it waits in Postgres.

use jiff_sqlx::ToSqlx;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::app::{Trial, eventually, slot};
use crate::clean::hash;

/// A row held by another session.
pub(crate) struct Hold(PgConnection);

impl Hold {
    /// A patient's row. Whoever books for them is held up by the foreign key: last, with every lock taken.
    pub(crate) async fn patient(trial: &Trial, patient: usize) -> Self {
        Self::row(trial, "select from patients where id = $1 for update", trial.demo.patient_ids[patient]).await
    }

    /// An appointment's row. Whoever changes it waits for it, with the locks of its key and its resources taken.
    pub(crate) async fn appointment(trial: &Trial, id: Uuid) -> Self {
        Self::row(trial, "select from appointments where id = $1 for update", id).await
    }

    /// A key's row.
    pub(crate) async fn key(trial: &Trial, key: &str) -> Self {
        let mut hold = Self(trial.connect().await);
        hold.begin().await;
        let row = sqlx::query("select from idempotency_keys where key_hash = $1 for update").bind(hash(key));
        row.fetch_one(&mut hold.0).await.expect("locked");
        hold
    }

    /// A slot: by a row that was written there and not committed, and never will be. `like` is any appointment.
    pub(crate) async fn slot(trial: &Trial, like: Uuid, n: usize) -> Self {
        let mut hold = Self(trial.connect().await);
        hold.begin().await;
        let row = "insert into appointments
                   select (jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid(), 'kind', 'block', 'intent', null,
                     'patient_id', null, 'service_id', null, 'during', span, 'busy', span))).*
                   from appointments a, tstzrange($2, $2 + interval '15 minutes') as span where a.id = $1";
        let row = sqlx::query(row).bind(like).bind(slot(n).to_sqlx());
        assert_eq!(row.execute(&mut hold.0).await.expect("written").rows_affected(), 1);
        hold
    }

    async fn row(trial: &Trial, statement: &'static str, id: Uuid) -> Self {
        let mut hold = Self(trial.connect().await);
        hold.begin().await;
        let rows = sqlx::query(statement).bind(id).fetch_all(&mut hold.0).await.expect("locked");
        assert_eq!(rows.len(), 1, "one row is held");
        hold
    }

    async fn begin(&mut self) {
        sqlx::raw_sql("begin").execute(&mut self.0).await.expect("begun");
    }

    /// Waits until so many of the service's statements wait for locks.
    pub(crate) async fn waited_for_by(&mut self, backends: usize) {
        eventually("somebody waits for a lock", async || waiting(&mut self.0).await.len() == backends).await;
    }

    pub(crate) async fn let_go(mut self) {
        sqlx::raw_sql("rollback").execute(&mut self.0).await.expect("ended");
        self.0.close().await.expect("closed");
    }
}

/// The service's backends that wait for a lock of somebody else's, or for one who does. What the service's own workers wait
/// for each other, for a moment and behind nobody, is not meant.
pub(crate) async fn waiting(connection: &mut PgConnection) -> Vec<i32> {
    // In a transaction one would else go on seeing what one saw first.
    sqlx::raw_sql("select pg_stat_clear_snapshot()").execute(&mut *connection).await.expect("forgotten");
    sqlx::query_scalar(
        "with recursive own as (
           select pid, pg_blocking_pids(pid) as behind, wait_event_type from pg_stat_activity
           where datname = current_database() and application_name = 'oncebook'
         ),
         held as (
           select pid from own
           where wait_event_type = 'Lock' and exists (select from unnest(behind) as b(pid) where b.pid not in (select pid from own))
           union
           select own.pid from own join held on held.pid = any(own.behind)
         )
         select pid from held",
    )
    .fetch_all(connection)
    .await
    .expect("a look at the sessions")
}
