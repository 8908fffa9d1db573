//! Reads by place, outside of any group: `assign` and seek, never `subscribe`, never a commit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::link::{Link, PARTITIONS, PATIENCE, Voice};
use super::record;
use crate::domain::event::{Logged, Place};
use crate::log::Away;

/// How long the thread waits for something to come.
const POLL: Duration = Duration::from_millis(100);

/// An event this far ahead or less is read on to; one farther ahead is sought.
const NEAR: i64 = 256;

const SETTINGS: [(&str, &str); 6] = [
    // Without a name there is nothing to assign to; the brokers never hear it, since nothing is committed under it.
    ("group.id", "oncebook.finder"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // A place beyond the end leads to the end.
    ("auto.offset.reset", "latest"),
    ("enable.partition.eof", "true"),
    ("queued.max.messages.kbytes", "1024"),
];

/// See the top. One client, made when it is first needed, and thrown away when it has failed.
#[derive(Default)]
pub(super) struct Finder(Mutex<Option<BaseConsumer<Voice>>>);

/// What is yet to be found, by partition, in order.
type Wanted = BTreeMap<i32, VecDeque<i64>>;

impl Finder {
    /// The events at these places, as far as they are still kept, by partition and offset. Blocks.
    pub(super) fn find(&self, link: &Link, places: &[Place]) -> Result<Vec<Logged>, Away> {
        self.with(link, |consumer| {
            let mut wanted = wanted(consumer, link, places)?;
            let found = collect(consumer, link, &mut wanted);
            consumer.unassign()?;
            found
        })
    }

    /// The first offset that is kept and the next that will be given, of each partition. Blocks.
    pub(super) fn ends(&self, link: &Link) -> Result<Vec<(i16, i64, i64)>, Away> {
        self.with(link, |consumer| {
            let ends = (0..PARTITIONS).map(|partition| {
                let (first, next) = consumer.fetch_watermarks(&link.topic, partition, PATIENCE)?;
                Ok((i16::try_from(partition).unwrap_or_default(), first, next))
            });
            ends.collect()
        })
    }

    fn with<T>(&self, link: &Link, work: impl FnOnce(&BaseConsumer<Voice>) -> Result<T, Away>) -> Result<T, Away> {
        let mut client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let consumer = match client.take() {
            Some(consumer) => consumer,
            None => link.client(&SETTINGS, Voice)?,
        };
        let done = work(&consumer)?;
        *client = Some(consumer);
        Ok(done)
    }
}

/// The places of which something may still be kept.
fn wanted(consumer: &BaseConsumer<Voice>, link: &Link, places: &[Place]) -> Result<Wanted, Away> {
    let mut wanted = Wanted::new();
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    for place in sorted.iter().filter(|place| (0..PARTITIONS).contains(&i32::from(place.partition))) {
        wanted.entry(i32::from(place.partition)).or_default().push_back(place.offset);
    }
    for (partition, offsets) in &mut wanted {
        let (first, _) = consumer.fetch_watermarks(&link.topic, *partition, PATIENCE)?;
        offsets.retain(|offset| *offset >= first);
    }
    wanted.retain(|_, offsets| !offsets.is_empty());
    Ok(wanted)
}

/// Reads until all of it is found, or turns out to be gone.
fn collect(consumer: &BaseConsumer<Voice>, link: &Link, wanted: &mut Wanted) -> Result<Vec<Logged>, Away> {
    let mut assignment = TopicPartitionList::new();
    for (partition, offsets) in &*wanted {
        let first = offsets.front().copied().unwrap_or_default();
        assignment.add_partition_offset(&link.topic, *partition, Offset::Offset(first))?;
    }
    consumer.assign(&assignment)?;
    let mut found = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while !wanted.is_empty() {
        if Instant::now() > deadline {
            return Err(Away("events that are sought did not come in time".to_owned()));
        }
        let record = match consumer.poll(POLL) {
            None => continue,
            Some(Ok(record)) => record,
            // What has not come by the end is beyond it.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                wanted.remove(&partition);
                continue;
            }
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => return Err(error.into()),
            Some(Err(error)) => {
                tracing::debug!(%error, "not found yet");
                continue;
            }
        };
        let (partition, offset) = (record.partition(), record.offset());
        let Some(offsets) = wanted.get_mut(&partition) else { continue };
        let mut here = false;
        // What lies before it and did not come is gone.
        while let Some(front) = offsets.pop_front_if(|front| *front <= offset) {
            here |= front == offset;
        }
        if here {
            found.extend(record::read(&record));
        }
        match offsets.front() {
            None => {
                wanted.remove(&partition);
            }
            Some(next) if next - offset > NEAR => {
                consumer.seek(&link.topic, partition, Offset::Offset(*next), PATIENCE)?;
            }
            Some(_) => {}
        }
    }
    found.sort_unstable_by_key(|logged| logged.place);
    Ok(found)
}
