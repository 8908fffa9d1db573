//! An event as a record of Kafka's, and back: the `CloudEvents` Kafka protocol binding 1.0.2, structured content mode. The key
//! is the subject, the value the event, and the partition the outbox's.

use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::domain::cloud_event::CloudEvent;
use crate::domain::event::{Event, Logged, Place};
use crate::log::Away;

/// An event, ready to be sent.
pub(super) struct Outgoing {
    partition: i16,
    key: String,
    value: Vec<u8>,
}

impl Outgoing {
    /// An event on its way to a partition.
    pub(super) fn new(partition: i16, event: Event) -> Result<Self, Away> {
        let event = CloudEvent::from(event);
        let value = serde_json::to_vec(&event).map_err(|error| Away(error.to_string()))?;
        Ok(Self { partition, key: event.subject, value })
    }

    /// As it is sent.
    pub(super) fn record<'a>(&'a self, topic: &'a str) -> FutureRecord<'a, String, Vec<u8>> {
        let header = Header { key: "content-type", value: Some("application/cloudevents+json; charset=UTF-8") };
        FutureRecord::to(topic)
            .partition(i32::from(self.partition))
            .key(&self.key)
            .payload(&self.value)
            .headers(OwnedHeaders::new().insert(header))
    }
}

/// Where a record lies; none for a partition that is none of ours.
pub(super) fn place(record: &BorrowedMessage<'_>) -> Option<Place> {
    Some(Place { partition: i16::try_from(record.partition()).ok()?, offset: record.offset() })
}

/// The event in a record. None where it is no event: nobody but the relay should write to the topic.
pub(super) fn read(record: &BorrowedMessage<'_>) -> Option<Logged> {
    let place = place(record)?;
    let event = serde_json::from_slice::<CloudEvent>(record.payload().unwrap_or_default())
        .map_err(|error| error.to_string())
        .and_then(|event| Event::try_from(event).map_err(str::to_owned));
    match event {
        Ok(event) => Some(Logged { place, event }),
        Err(why) => {
            tracing::error!(partition = place.partition, offset = place.offset, why, "no event of ours in the log");
            None
        }
    }
}
