//! The event log in Postgres: a table. A partition is written by whoever holds its row's lock, and read under a lease.

use std::time::Duration;

use jiff::Timestamp;
use scoped_futures::ScopedFutureExt;
use tokio::time::Instant;

use super::{Away, Batch, EventLog, LINKED};
use crate::app::App;
use crate::clock::{Clock, Ids};
use crate::domain::event::{Logged, Place};
use crate::store::log::{self, Moved, Reach};
use crate::store::{Answering, Store};
use crate::trace;
use sqlx::postgres::PgConnection;

/// Events of a partition that the relay moves at a time: 16 times as many take about 100 ms.
const MOVED: i64 = 500;

/// What is read at a time: some milliseconds' work, from few enough partitions that another process finds some too.
const REACH: Reach = Reach { lease: Duration::from_secs(5), partitions: 8, events: 64 };

/// How long a statement is tried.
const PATIENCE: Duration = Duration::from_secs(4);

/// See the top.
#[derive(Clone)]
pub struct PostgresLog {
    store: Store,
    clock: Clock,
    ids: Ids,
}

impl PostgresLog {
    /// The log in the service's database.
    #[must_use]
    pub fn of(app: &App) -> Self {
        Self { store: app.store.clone(), clock: app.clock.clone(), ids: app.ids.clone() }
    }

    async fn insist<'a, T>(&self, statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>) -> Result<T, Away> {
        let deadline = Instant::now() + PATIENCE;
        self.store.insist(deadline, &self.ids, statement).await.map_err(|error| Away(error.to_string()))
    }
}

impl EventLog for PostgresLog {
    async fn relay(&self) -> Result<Moved, Away> {
        // Nobody asks where from, unless it is traced.
        let traceparents = if trace::on() { i64::from(LINKED) } else { 0 };
        self.insist(|connection| log::relay(connection, MOVED, traceparents).scope_boxed()).await
    }

    async fn join(&self, group: &str) -> Result<(), Away> {
        self.insist(|connection| log::join(connection, group).scope_boxed()).await
    }

    async fn read(&self, group: &str) -> Result<Batch, Away> {
        let token = self.ids.uuid(self.clock.now());
        let events = self.insist(|connection| log::read(connection, group, token, REACH).scope_boxed()).await?;
        Ok(Batch { token, events })
    }

    async fn commit(&self, group: &str, batch: &Batch) -> Result<bool, Away> {
        let next = &batch.next();
        self.insist(|connection| log::commit(connection, group, batch.token, next).scope_boxed()).await
    }

    async fn find(&self, places: &[Place]) -> Result<Vec<Logged>, Away> {
        self.insist(|connection| log::find(connection, places).scope_boxed()).await
    }

    async fn lag(&self, group: &str) -> Result<Vec<(i16, i64)>, Away> {
        self.insist(|connection| log::lag(connection, group).scope_boxed()).await
    }

    async fn oldest(&self, group: &str) -> Result<Option<Timestamp>, Away> {
        self.insist(|connection| log::oldest(connection, group).scope_boxed()).await
    }
}
