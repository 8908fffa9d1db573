//! The event log on Kafka: a topic of as many partitions as the outbox has. Groups are Kafka's own, and so is who reads what;
//! how far a group has come is kept in the database beside the inbox, and only what is there counts.
//!
//! Late writers, lost acknowledgements, readers that are replaced: all of them lead to repeats, never to losses, and the inbox
//! knows repeats. No statement runs while the brokers are waited for, and no transaction is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scoped_futures::ScopedFutureExt;
use sqlx::postgres::PgConnection;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::finder::Finder;
pub use self::link::Link;
use self::link::PATIENCE;
use self::member::{Member, Shared, at};
use self::record::Outgoing;
use self::sender::{Sender, Sent};
use super::{Away, Batch, EventLog, LINKED};
use crate::app::App;
use crate::clock::{Clock, Ids};
use crate::domain::event::{Logged, Place};
use crate::hint::Hint;
use crate::store::log::Moved;
use crate::store::outbox::{self, Waiting};
use crate::store::{Answering, Store, groups};
use crate::trace;

mod desk;
mod finder;
mod link;
mod member;
mod record;
mod sender;

/// Events of a partition that the relay sends at a time.
const SENT: i64 = 500;

/// A relay's lease on the partitions it sends: longer than it waits for the brokers, and a statement on either side.
const LEASE: Duration = Duration::from_secs(10);

/// See the top. Its copies are one log; when the last is dropped, it leaves its groups.
#[derive(Clone)]
pub struct KafkaLog(Arc<Parts>);

struct Parts {
    link: Link,
    store: Store,
    clock: Clock,
    ids: Ids,
    tasks: TaskTracker,
    came: Hint,
    ready: OnceCell<()>,
    sender: Sender,
    finder: Arc<Finder>,
    members: Mutex<HashMap<String, Arc<Shared>>>,
}

impl KafkaLog {
    /// The log behind this link. `came` is told when events have come for a group.
    #[must_use]
    pub fn of(app: &App, link: Link, came: Hint) -> Self {
        Self(Arc::new(Parts {
            link,
            store: app.store.clone(),
            clock: app.clock.clone(),
            ids: app.ids.clone(),
            tasks: app.tasks.clone(),
            came,
            ready: OnceCell::new(),
            sender: Sender::default(),
            finder: Arc::default(),
            members: Mutex::default(),
        }))
    }

    /// A group's name to the brokers and in the database: others have groups there too.
    fn name(&self, group: &str) -> String {
        format!("{}.{group}", self.0.link.topic)
    }

    fn member(&self, group: &str) -> Option<Arc<Shared>> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner).get(group).cloned()
    }

    /// Sees to it, once, that the topic is there and as it must be.
    async fn ready(&self) -> Result<(), Away> {
        let ready = self.0.ready.get_or_try_init(async || {
            let link = &self.0.link;
            let mut partitions = self.partitions().await?;
            if partitions.is_none() {
                link.create().await?;
                partitions = self.partitions().await?;
            }
            link.judge(partitions)
        });
        ready.await.copied()
    }

    async fn partitions(&self) -> Result<Option<i32>, Away> {
        let link = self.0.link.clone();
        self.blocking(move || link.partitions()).await
    }

    async fn insist<'a, T>(&self, statement: impl Fn(&mut PgConnection) -> Answering<'a, '_, T>) -> Result<T, Away> {
        let deadline = Instant::now() + PATIENCE;
        self.0.store.insist(deadline, &self.0.ids, statement).await.map_err(|error| Away(error.to_string()))
    }

    /// Runs what blocks where that is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Away> + Send + 'static,
    ) -> Result<T, Away> {
        self.0.tasks.spawn_blocking(work).await.map_err(|error| Away(error.to_string()))?
    }

    /// Sends what waits; says what arrived, in order without a gap within a partition, and what went wrong.
    async fn send(&self, waiting: Vec<Waiting>) -> Result<(Vec<(i16, i64)>, Option<Away>), Away> {
        let places: Vec<_> = waiting.iter().map(|waiting| (waiting.partition, waiting.position)).collect();
        let outgoing =
            waiting.into_iter().map(|it| Outgoing::new(it.partition, it.event)).collect::<Result<Vec<_>, _>>()?;
        let Sent { acknowledged, failed } = self.0.sender.send(&self.0.link, &outgoing).await?;
        let (mut arrived, mut broken) = (Vec::new(), None);
        for (place, acknowledged) in places.into_iter().zip(acknowledged) {
            if broken == Some(place.0) {
                continue;
            }
            if acknowledged {
                arrived.push(place);
            } else {
                broken = Some(place.0);
            }
        }
        let why = failed.map(|(why, producer)| {
            self.0.tasks.spawn_blocking(move || drop(producer));
            why
        });
        Ok((arrived, why))
    }
}

/// The trace contexts of what is sent, of as many as a span is linked to; nobody asks for them unless it is traced.
fn traceparents(waiting: &[Waiting]) -> Vec<String> {
    let linked = usize::from(if trace::on() { LINKED } else { 0 });
    waiting.iter().filter_map(|waiting| waiting.event.traceparent.clone()).take(linked).collect()
}

impl EventLog for KafkaLog {
    async fn relay(&self) -> Result<Moved, Away> {
        self.ready().await?;
        let token = self.0.ids.uuid(self.0.clock.now());
        let mine = &self.insist(|connection| outbox::claim(connection, token, LEASE).scope_boxed()).await?;
        if mine.is_empty() {
            return Ok(Moved { events: 0, full: false, oldest: None, traceparents: Vec::new() });
        }
        let waiting = self.insist(|connection| outbox::waiting(connection, mine, SENT).scope_boxed()).await?;
        let traceparents = traceparents(&waiting);
        let (arrived, why) = self.send(waiting).await?;
        let arrived = &arrived;
        let moved = self.insist(|connection| outbox::arrived(connection, token, arrived, SENT).scope_boxed()).await?;
        why.map_or(Ok(Moved { traceparents, ..moved }), Err)
    }

    async fn join(&self, group: &str) -> Result<(), Away> {
        self.ready().await?;
        let name = &self.name(group);
        self.insist(|connection| groups::make(connection, name).scope_boxed()).await?;
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        if !members.contains_key(group) {
            let desk = Arc::new(Shared::default());
            let member = Member {
                group: name.clone(),
                desk: Arc::downgrade(&desk),
                link: self.0.link.clone(),
                store: self.0.store.clone(),
                clock: self.0.clock.clone(),
                ids: self.0.ids.clone(),
                came: self.0.came.clone(),
                runtime: Handle::current(),
            };
            members.insert(group.to_owned(), desk);
            self.0.tasks.spawn_blocking(|| member.run());
        }
        Ok(())
    }

    async fn read(&self, group: &str) -> Result<Batch, Away> {
        let token = self.0.ids.uuid(self.0.clock.now());
        let events = self.member(group).map(|desk| at(&desk).hand_out(token, Instant::now()));
        Ok(Batch { token, events: events.unwrap_or_default() })
    }

    async fn commit(&self, group: &str, batch: &Batch) -> Result<bool, Away> {
        let Some(desk) = self.member(group) else { return Ok(false) };
        let next = batch.next();
        let asked = at(&desk).may_advance(batch.token, &next);
        let asked = &asked;
        let name = &self.name(group);
        let moved = self.insist(|connection| groups::advance(connection, name, asked).scope_boxed()).await?;
        at(&desk).advanced(batch.token, asked, &moved);
        Ok(moved.len() == next.len())
    }

    async fn find(&self, places: &[Place]) -> Result<Vec<Logged>, Away> {
        self.ready().await?;
        let (finder, link, places) = (Arc::clone(&self.0.finder), self.0.link.clone(), places.to_vec());
        self.blocking(move || finder.find(&link, &places)).await
    }

    async fn lag(&self, group: &str) -> Result<Vec<(i16, i64)>, Away> {
        self.ready().await?;
        let name = &self.name(group);
        let places = self.insist(|connection| groups::places(connection, name).scope_boxed()).await?;
        let (finder, link) = (Arc::clone(&self.0.finder), self.0.link.clone());
        let ends = self.blocking(move || finder.ends(&link)).await?;
        let lag = places.iter().filter_map(|place| {
            let (_, first, next) = ends.iter().find(|(partition, ..)| *partition == place.partition)?;
            // What is not kept any more is not read any more.
            Some((place.partition, next - place.offset.clamp(*first, *next)))
        });
        Ok(lag.collect())
    }
}
