//! One member of a group: a thread that polls, whatever the handlers do meanwhile. The brokers say which partitions it reads;
//! where it reads on is in the database, since the brokers forget groups that are idle for long.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use scoped_futures::ScopedFutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use super::desk::Desk;
use super::link::{Link, PATIENCE, Voice};
use super::record;
use crate::clock::{Clock, Ids};
use crate::domain::event::Place;
use crate::hint::Hint;
use crate::store::{Store, groups};

/// How long the thread waits for something to come, and so how long it takes to notice that it is wanted no more.
const POLL: Duration = Duration::from_millis(100);

/// The pause before a group is joined anew.
const BEFORE_JOINING_ANEW: Duration = Duration::from_secs(1);

/// What members of one group agree on. A member that says nothing for the session's time is dead.
const SETTINGS: [(&str, &str); 8] = [
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("session.timeout.ms", "6000"),
    ("heartbeat.interval.ms", "1000"),
    // While the database is away, a member that was told to read waits for it, and is dropped after this.
    ("max.poll.interval.ms", "60000"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // A place that is not in the log any more: the oldest event follows it.
    ("auto.offset.reset", "earliest"),
    ("queued.max.messages.kbytes", "8192"),
];

/// What a member and its thread share.
pub(super) type Shared = Mutex<Desk>;

/// Looks at a desk; a panic of another at it changes nothing.
pub(super) fn at(desk: &Shared) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's part of it. It goes on as long as somebody holds the desk.
#[derive(Clone)]
pub(super) struct Member {
    /// The name of the group, to the brokers and in the database.
    pub(super) group: String,
    pub(super) desk: Weak<Shared>,
    pub(super) link: Link,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    /// Something has come.
    pub(super) came: Hint,
    /// Where statements run.
    pub(super) runtime: Handle,
}

impl Member {
    /// Reads on until nobody wants it any more. Blocks.
    pub(super) fn run(self) {
        while let Some(desk) = self.desk.upgrade() {
            at(&desk).clear();
            drop(desk);
            if let Err(error) = self.follow() {
                tracing::warn!(group = self.group, %error, "out of the group");
            }
            if self.desk.strong_count() > 0 {
                std::thread::sleep(BEFORE_JOINING_ANEW);
            }
        }
    }

    /// Joins the group and reads what it is told to, until it is wanted no more or has to join anew.
    fn follow(&self) -> KafkaResult<()> {
        let settings: Vec<_> = SETTINGS.into_iter().chain([("group.id", self.group.as_str())]).collect();
        let consumer: BaseConsumer<Self> = self.link.client(&settings, self.clone())?;
        consumer.subscribe(&[&self.link.topic])?;
        let mut paused = false;
        loop {
            let polled = consumer.poll(POLL);
            let Some(desk) = self.desk.upgrade() else { return Ok(()) };
            match polled {
                Some(Ok(record)) => {
                    if let Some(logged) = record::read(&record)
                        && at(&desk).come(logged)
                    {
                        self.came.give();
                    }
                }
                Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => return Err(error),
                Some(Err(error)) => tracing::debug!(group = self.group, %error, "nothing came"),
                None => {}
            }
            let (told, overtaken, has_room) = at(&desk).look(paused);
            if overtaken {
                return Err(KafkaError::Rebalance(RDKafkaErrorCode::AssignmentLost));
            }
            self.tell(&consumer, &told);
            if has_room == paused {
                let all = consumer.assignment()?;
                if has_room {
                    consumer.resume(&all)?;
                } else {
                    consumer.pause(&all)?;
                }
                paused = !has_room;
            }
        }
    }

    /// Tells the brokers how far the group has come: for their tools, nothing here rests on it.
    fn tell(&self, consumer: &BaseConsumer<Self>, places: &[Place]) {
        let mut offsets = TopicPartitionList::new();
        for place in places {
            let offset = Offset::Offset(place.offset);
            // Of a partition told of twice the later counts.
            let told = match offsets.find_partition(&self.link.topic, i32::from(place.partition)) {
                Some(mut known) => known.set_offset(offset),
                None => offsets.add_partition_offset(&self.link.topic, i32::from(place.partition), offset),
            };
            if let Err(error) = told {
                tracing::debug!(%error, "no offset");
            }
        }
        if offsets.count() > 0
            && let Err(error) = consumer.commit(&offsets, CommitMode::Async)
        {
            tracing::debug!(group = self.group, %error, "the brokers were not told");
        }
    }

    /// Begins an assignment in the database; says where to read on. Tries for as long as it is wanted: a reader without the
    /// database could do nothing with what it read.
    fn assign(&self, token: Uuid, partitions: &[i16]) -> Vec<Place> {
        while self.desk.strong_count() > 0 {
            let assigned = self.store.insist(Instant::now() + PATIENCE, &self.ids, |connection| {
                groups::assign(connection, &self.group, token, partitions).scope_boxed()
            });
            match self.runtime.block_on(assigned) {
                Ok(places) => return places,
                Err(error) => tracing::warn!(group = self.group, %error, "told to read, and must wait"),
            }
            std::thread::sleep(BEFORE_JOINING_ANEW);
        }
        Vec::new()
    }

    fn told_to_read(&self, list: &mut TopicPartitionList) -> KafkaResult<()> {
        let partitions: Vec<i16> =
            list.elements().iter().filter_map(|part| i16::try_from(part.partition()).ok()).collect();
        let token = self.ids.uuid(self.clock.now());
        let places = self.assign(token, &partitions);
        let Some(desk) = self.desk.upgrade() else { return Ok(()) };
        for place in places {
            list.set_partition_offset(&self.link.topic, i32::from(place.partition), Offset::Offset(place.offset))?;
            at(&desk).begin(place.partition, token);
        }
        Ok(())
    }
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Voice.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Voice.error(error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.told_to_read(list).and_then(|()| consumer.incremental_assign(list))
        } else {
            if let Some(desk) = self.desk.upgrade() {
                for partition in list.elements().iter().filter_map(|part| i16::try_from(part.partition()).ok()) {
                    at(&desk).end(partition);
                }
            }
            consumer.incremental_unassign(list)
        };
        match done {
            Ok(()) => tracing::debug!(group = self.group, ?what, partitions = list.count(), "rebalanced"),
            Err(error) => tracing::warn!(group = self.group, %error, "a rebalance failed"),
        }
    }
}
