//! The event log: what the relay appends to, and consumers read. Partitions of events, each in order; groups, each with a
//! place in every partition; and reads by place, outside of any group, for what is tried again.
//!
//! At least once throughout: whoever reads must take an event that comes again for what it is (`consumer.rs` does).

use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::event::{Logged, Place};
use crate::store::log::Moved;

#[cfg(feature = "kafka")]
pub mod kafka;
pub mod postgres;

/// Events of a step whose traces its span is linked to.
const LINKED: u16 = 512;

/// Why the log did not answer: it is away, and comes back.
#[derive(Debug, thiserror::Error)]
#[error("the event log is away: {0}")]
pub struct Away(pub String);

/// Events that a group has to decide on.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Whoever holds it may move the group on.
    pub token: Uuid,
    /// In order within a partition.
    pub events: Vec<Logged>,
}

impl Batch {
    /// What follows the batch in each of its partitions.
    #[must_use]
    pub fn next(&self) -> Vec<Place> {
        let mut next: Vec<Place> = Vec::new();
        for Place { partition, offset } in self.events.iter().map(|logged| logged.place) {
            let after = Place { partition, offset: offset + 1 };
            match next.last_mut().filter(|last| last.partition == partition) {
                Some(last) => *last = after,
                None => next.push(after),
            }
        }
        next
    }
}

/// An event log. Two there are: Postgres, for one machine, and Kafka, for many.
pub trait EventLog: Send + Sync + 'static {
    /// Moves events out of the outbox into the log, in the order of their subjects, each at least once.
    fn relay(&self) -> impl Future<Output = Result<Moved, Away>> + Send;

    /// Makes a group, if there is none of that name: it begins with the oldest event.
    fn join(&self, group: &str) -> impl Future<Output = Result<(), Away>> + Send;

    /// The next events of a group; none where there are none, or others are at them.
    fn read(&self, group: &str) -> impl Future<Output = Result<Batch, Away>> + Send;

    /// Moves a group past a batch. Says whether it was still the batch's to move.
    fn commit(&self, group: &str, batch: &Batch) -> impl Future<Output = Result<bool, Away>> + Send;

    /// The events at these places, as far as they are still kept; no group moves.
    fn find(&self, places: &[Place]) -> impl Future<Output = Result<Vec<Logged>, Away>> + Send;

    /// How many events of each partition a group has yet to read.
    fn lag(&self, group: &str) -> impl Future<Output = Result<Vec<(i16, i64)>, Away>> + Send;

    /// When the oldest event that a group has yet to read happened; none where there is none, or the log cannot tell.
    fn oldest(&self, _group: &str) -> impl Future<Output = Result<Option<Timestamp>, Away>> + Send {
        std::future::ready(Ok(None))
    }
}
