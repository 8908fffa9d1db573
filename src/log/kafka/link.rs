//! How the brokers are reached: the settings every client has, the topic, and what librdkafka has to say.

use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use crate::config::Kafka;
use crate::log::Away;

/// As many as the outbox has: whatever a subject's partition is there, it is here.
pub(super) const PARTITIONS: i32 = 16;

/// How long a topic that is made here keeps events: as long as a try of one may have to wait, many times over. One that was
/// there before keeps its own settings.
const RETENTION: Duration = Duration::from_hours(30 * 24);

/// How long an answer of the brokers is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// Where the brokers are, and which topic is ours.
#[derive(Clone)]
pub struct Link {
    pub(super) topic: String,
    client: ClientConfig,
}

impl Link {
    /// As configured.
    #[must_use]
    pub fn of(config: &Kafka) -> Self {
        let mut client = ClientConfig::new();
        // A broker that comes back is not left waiting; one that is away is not rushed.
        client.set("reconnect.backoff.max.ms", "1000");
        client.set("client.id", "oncebook");
        for (name, value) in config.properties.iter().flat_map(|properties| &properties.0) {
            client.set(name, value);
        }
        client.set("bootstrap.servers", config.brokers.join(","));
        client.set_log_level(RDKafkaLogLevel::Warning);
        Self { topic: config.topic.clone(), client }
    }

    /// A client with these settings beside those of the link, over which they win.
    pub(super) fn client<C, T: FromClientConfigAndContext<C>>(
        &self,
        settings: &[(&str, &str)],
        context: C,
    ) -> KafkaResult<T>
    where
        C: ClientContext,
    {
        let mut config = self.client.clone();
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config.create_with_context(context)
    }

    /// Whether the topic is as it must be.
    pub(super) fn judge(&self, partitions: Option<i32>) -> Result<(), Away> {
        match partitions {
            Some(PARTITIONS) => Ok(()),
            Some(other) => Err(Away(format!(
                "the topic {} has {other} partitions, and {PARTITIONS} are needed: name another in ONCEBOOK_KAFKA_TOPIC, \
                 or delete it if it is nobody's",
                self.topic
            ))),
            None => Err(Away(format!("the topic {} has not appeared yet", self.topic))),
        }
    }

    /// How many partitions the topic has; none where there is no such topic. Blocks.
    pub(super) fn partitions(&self) -> Result<Option<i32>, Away> {
        // A consumer: asked by a producer, a broker may make the topic as it likes.
        let client: BaseConsumer<Voice> = self.client(&[], Voice)?;
        let metadata = client.fetch_metadata(Some(&self.topic), PATIENCE)?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == self.topic) else { return Ok(None) };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => Ok(i32::try_from(topic.partitions().len()).ok().filter(|partitions| *partitions > 0)),
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => Ok(None),
            Some(code) => Err(KafkaError::MetadataFetch(code).into()),
        }
    }

    /// Makes the topic.
    pub(super) async fn create(&self) -> Result<(), Away> {
        let admin: AdminClient<Voice> = self.client(&[], Voice)?;
        let retention = RETENTION.as_millis().to_string();
        // The brokers know best how often they keep what they keep (default.replication.factor).
        let topic = NewTopic::new(&self.topic, PARTITIONS, TopicReplication::Fixed(-1)).set("retention.ms", &retention);
        let made = admin.create_topics([&topic], &AdminOptions::new().operation_timeout(Some(PATIENCE))).await?;
        match made.into_iter().next() {
            Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => {
                Err(Away(format!("the topic {} cannot be made: {code}", self.topic)))
            }
            _ => {
                tracing::info!(topic = self.topic, "the topic is there");
                Ok(())
            }
        }
    }
}

impl From<KafkaError> for Away {
    fn from(error: KafkaError) -> Self {
        Self(error.to_string())
    }
}

/// Passes on what librdkafka says. It goes on by itself after most of what it calls an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice;

impl ClientContext for Voice {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            // Of settings that are ours, and meant.
            _ if facility == "CONFWARN" => tracing::debug!("Kafka: {message}"),
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::warn!(facility, "Kafka: {message}"),
            _ => tracing::debug!(facility, "Kafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, "Kafka: {reason}");
    }
}

impl ConsumerContext for Voice {}
