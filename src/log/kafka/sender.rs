//! Sends events, each until the brokers have acknowledged it. What arrives of a partition is always the beginning of what was
//! sent, so no event comes before an earlier one of its subject for the first time.

use std::sync::{Mutex, PoisonError};

use rdkafka::error::KafkaError;
use rdkafka::producer::FutureProducer;
use tokio::time::{Instant, timeout_at};

use super::link::{Link, PATIENCE, Voice};
use super::record::Outgoing;
use crate::log::Away;

/// What order and durability rest on.
const SETTINGS: [(&str, &str); 5] = [
    ("enable.idempotence", "true"),
    ("acks", "all"),
    // What cannot be sent at all ends the producer, or what comes after it would be sent without it.
    ("enable.gapless.guarantee", "true"),
    // For the same reason nothing is given up one by one: when our patience is over, all that waits is given up at once.
    ("message.timeout.ms", "0"),
    // All of a step's events are handed over at once; nothing more comes until they are acknowledged.
    ("linger.ms", "1"),
];

/// See the top. A producer that has failed is thrown away with all it still had to send.
#[derive(Default)]
pub(super) struct Sender(Mutex<Option<FutureProducer<Voice>>>);

/// What became of events that were sent.
pub(super) struct Sent {
    /// Which were acknowledged, in the order in which they were given.
    pub(super) acknowledged: Vec<bool>,
    /// Why not all, and the producer to be dropped, which blocks for a moment.
    pub(super) failed: Option<(Away, FutureProducer<Voice>)>,
}

impl Sender {
    /// Sends events, which come in order within a partition, and waits for their acknowledgements.
    pub(super) async fn send(&self, link: &Link, events: &[Outgoing]) -> Result<Sent, Away> {
        let producer = self.producer(link)?;
        let deadline = Instant::now() + PATIENCE;
        let mut why = None;
        let mut on_their_way = Vec::with_capacity(events.len());
        for event in events {
            match producer.send_result(event.record(&link.topic)) {
                Ok(sent) => on_their_way.push(sent),
                Err((error, _)) => {
                    why = Some(Away::from(error));
                    break;
                }
            }
        }
        let mut acknowledged = vec![false; events.len()];
        for (acknowledged, sent) in acknowledged.iter_mut().zip(on_their_way) {
            // Past the deadline, what has been acknowledged by then still counts.
            match timeout_at(deadline, sent).await {
                // The offset is not looked at: of a batch that had to be sent again it may be -1.
                Ok(Ok(Ok(_))) => *acknowledged = true,
                Ok(Ok(Err((error, _)))) => why = why.or_else(|| Some(error.into())),
                Ok(Err(_)) => why = why.or_else(|| Some(KafkaError::Canceled.into())),
                Err(_) => why = why.or_else(|| Some(Away("no acknowledgement came in time".to_owned()))),
            }
        }
        let failed = why.map(|why| {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            (why, producer)
        });
        Ok(Sent { acknowledged, failed })
    }

    fn producer(&self, link: &Link) -> Result<FutureProducer<Voice>, Away> {
        let mut producer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*producer {
            return Ok(producer.clone());
        }
        Ok(producer.insert(link.client(&SETTINGS, Voice)?).clone())
    }
}
