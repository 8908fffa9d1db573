//! The knobs, and the only place that reads the environment.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// A part of the service a process may play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Answers requests.
    Api,
    /// Moves events out of the outbox into the log.
    Relay,
    /// Reads the log and does, once each, what follows from its events.
    Consumers,
    /// Tells patients of their visits.
    Notifier,
    /// Delivers events to endpoints outside.
    Webhooks,
    /// Forgets keys past their retention, seals the audit.
    Janitor,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 6] = [Self::Api, Self::Relay, Self::Consumers, Self::Notifier, Self::Webhooks, Self::Janitor];
}

/// Which event log there is between a commit and its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// A table: for one database, and as many processes as it carries.
    Postgres,
    /// A topic.
    #[cfg(feature = "kafka")]
    Kafka,
}

/// Parses the name of an event log.
fn log(text: &str) -> Result<Log, String> {
    match text {
        "postgres" => Ok(Log::Postgres),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(Log::Kafka),
        #[cfg(not(feature = "kafka"))]
        "kafka" => {
            Err("this build has no Kafka in it; one that has: cargo build --release --features kafka".to_owned())
        }
        _ => Err("postgres or kafka is wanted".to_owned()),
    }
}

/// How Kafka is reached.
#[cfg(feature = "kafka")]
#[derive(Args, Clone, Debug)]
pub struct Kafka {
    /// The brokers to ask first, as host:port.
    #[arg(id = "kafka_brokers", long = "kafka-brokers", env = "ONCEBOOK_KAFKA_BROKERS", value_delimiter = ',')]
    #[arg(required_if_eq("log", "kafka"), value_name = "BROKERS")]
    pub brokers: Vec<String>,
    /// The topic of the events, of 16 partitions; made where there is none. One that was deleted and made anew needs another
    /// name.
    #[arg(id = "kafka_topic", long = "kafka-topic", env = "ONCEBOOK_KAFKA_TOPIC", default_value = "oncebook.events")]
    #[arg(value_name = "TOPIC")]
    pub topic: String,
    /// A file of further settings of librdkafka, such as those for TLS and SASL (in a build with kafka-tls): name=value, one
    /// a line, # begins a comment.
    #[arg(id = "kafka_properties", long = "kafka-properties", env = "ONCEBOOK_KAFKA_PROPERTIES", value_name = "FILE")]
    #[arg(value_parser = properties)]
    pub properties: Option<Properties>,
}

/// Settings by name. There may be a password among them, so they are never shown.
#[cfg(feature = "kafka")]
#[derive(Clone)]
pub struct Properties(pub Vec<(String, String)>);

#[cfg(feature = "kafka")]
impl std::fmt::Debug for Properties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Reads a file of settings: `name=value`, one a line.
#[cfg(feature = "kafka")]
fn properties(file: &str) -> Result<Properties, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let lines = text.lines().zip(1..).map(|(line, n)| (line.trim(), n));
    let settings = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')).map(|(line, n)| {
        // Not what it says: it may be a password.
        let (name, value) = line.split_once('=').ok_or_else(|| format!("line {n} is not name=value"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    Ok(Properties(settings.collect::<Result<_, String>>()?))
}

/// Which database, by flag or by environment.
///
/// It may be missing, and any text: clap would name the flag alone where there is none, and quote a URL that is none, with
/// the password in it.
#[derive(Args, Clone)]
pub struct Database {
    /// Postgres, as `postgres://user:password@host:5432/database`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL", global = true)]
    pub database_url: Option<String>,
}

/// What `oncebook serve` can be told, by flag or by environment.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Where the API listens.
    #[arg(long, env = "ONCEBOOK_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where metrics and readiness listen; with the API when unset.
    #[arg(long, env = "ONCEBOOK_ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,
    /// Connections to Postgres at the most.
    #[arg(long, env = "ONCEBOOK_DATABASE_CONNECTIONS", default_value = "16")]
    pub database_connections: NonZeroUsize,
    /// Requests a second from one address (0: no limit).
    #[arg(long, env = "ONCEBOOK_RATE_PER_ADDRESS", default_value_t = 200)]
    pub rate_per_address: u32,
    /// Requests a second with one credential (0: no limit); bursts of twice as many pass.
    #[arg(long, env = "ONCEBOOK_RATE_PER_CREDENTIAL", default_value_t = 50)]
    pub rate_per_credential: u32,
    /// Addresses of proxies whose X-Forwarded-For is believed.
    #[arg(long, env = "ONCEBOOK_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<IpAddr>,
    /// Origins a browser may call from; none: same origin only.
    #[arg(long, env = "ONCEBOOK_CORS_ORIGINS", value_delimiter = ',', value_parser = origin)]
    pub cors_origins: Vec<String>,
    /// A command takes no longer than this many seconds, then 503. Beyond 9, what `GET /v1/commands` says of a key it does
    /// not know is final only that many seconds after the command was sent, and a second.
    #[arg(long, env = "ONCEBOOK_COMMAND_TIMEOUT", default_value = "5", value_parser = seconds)]
    pub command_timeout: Duration,
    /// A duplicate waits this many seconds for the first, then 409.
    #[arg(long, env = "ONCEBOOK_IDEMPOTENCY_WAIT", default_value = "2", value_parser = seconds)]
    pub idempotency_wait: Duration,
    /// Where events go from their commit on: postgres, or kafka. Every process on a database must say the same.
    #[arg(long, env = "ONCEBOOK_LOG", default_value = "postgres", value_parser = log)]
    pub log: Log,
    /// How Kafka is reached.
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    pub kafka: Kafka,
    /// Days an event stays in the event log; longer where a consumer has yet to read it or to try it again.
    #[arg(long, env = "ONCEBOOK_LOG_RETENTION_DAYS", default_value = "14", value_parser = days)]
    pub log_retention: Duration,
    /// Days a consumer remembers what it did with an event, and at least as long as the event is in the log.
    #[arg(long, env = "ONCEBOOK_INBOX_RETENTION_DAYS", default_value = "90", value_parser = days)]
    pub inbox_retention: Duration,
    /// Days a change is shown by `GET /v1/changes`.
    #[arg(long, env = "ONCEBOOK_CHANGES_RETENTION_DAYS", default_value = "90", value_parser = days)]
    pub changes_retention: Duration,
    /// Seconds a background worker may fail, be stuck or have the oldest of its work waiting, before /readyz says it is not
    /// ok; a process without the role api is then not ready.
    #[arg(long, env = "ONCEBOOK_READY_BEHIND", default_value = "60", value_parser = patience)]
    pub ready_behind: Duration,
    /// The mail server of the role notifier, as `smtps://user:password@host:465`, or `smtp://host:587` for one that goes over
    /// to TLS, which it must where there is a password, or with `?tls=required`, and does not with `?tls=none`. A path is the
    /// name to greet it with.
    #[arg(long, env = "ONCEBOOK_SMTP_URL", hide_env_values = true, value_name = "URL")]
    pub smtp_url: Option<Secret>,
    /// The sender of mails: `desk@example.org`, or `Spree Dental <desk@example.org>`; without a name each has its clinic's.
    #[arg(long, env = "ONCEBOOK_MAIL_FROM", value_name = "MAILBOX")]
    pub mail_from: Option<String>,
    /// Where text messages are posted to as JSON, with the intent's id as `Idempotency-Key`.
    #[arg(long, env = "ONCEBOOK_SMS_URL", hide_env_values = true, value_name = "URL")]
    pub sms_url: Option<Secret>,
    /// The bearer token that goes with them.
    #[arg(long, env = "ONCEBOOK_SMS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub sms_token: Option<Secret>,
    /// A folder that takes mails and text messages as files, where nothing else is set to: for `oncebook dev`.
    #[arg(skip)]
    pub messages_folder: Option<PathBuf>,
    /// Seals secrets in the database: base64 of 32 bytes (`openssl rand -base64 32`). To change it, put the new key before
    /// the old one, with a comma between. Without it there are no webhook endpoints.
    #[arg(long, env = "ONCEBOOK_ENCRYPTION_KEY", hide_env_values = true, value_name = "KEY")]
    pub encryption_key: Option<Secret>,
    /// Lets webhooks go to private addresses and by http: for development alone.
    #[arg(long, env = "ONCEBOOK_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,
}

/// A setting that no message shows or quotes (clap would, of a value it does not take, so it takes any): a password, or a URL with
/// one in it.
#[derive(Clone)]
pub struct Secret(pub String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

impl Config {
    /// As the environment says, and the defaults where it is silent.
    #[must_use]
    pub fn from_environment() -> Self {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            config: Config,
        }
        <Alone as clap::Parser>::parse_from(["oncebook"]).config
    }
}

/// An origin as browsers send it (RFC 6454): scheme, host and port, without a path; never `*`.
fn origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        Some(host)
            if !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'*') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("an origin is wanted, such as https://desk.example.org".to_owned()),
    }
}

/// Bounds of every time that can be set: a command may be given more patience, not a day's.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(1);

/// Parses a number of seconds, fractions allowed.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "a number of seconds is wanted, such as 2 or 0.5".to_owned())?;
    let wait = Duration::try_from_secs_f64(number).ok().filter(|wait| (SHORTEST..=LONGEST).contains(wait));
    wait.ok_or_else(|| "0.1 to 60 seconds are wanted".to_owned())
}

/// Parses a number of seconds, up to a day.
fn patience(text: &str) -> Result<Duration, String> {
    let seconds: Option<u64> = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "1 to 86400 seconds are wanted".to_owned())
}

/// Parses a number of days.
fn days(text: &str) -> Result<Duration, String> {
    let days: Option<u64> = text.parse().ok().filter(|days| (1..=3650).contains(days));
    days.map(|days| Duration::from_hours(24 * days)).ok_or_else(|| "1 to 3650 days are wanted".to_owned())
}

/// The PATH, for whoever looks for programs.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one home of the environment")]
pub fn path() -> Option<std::ffi::OsString> {
    std::env::var_os("PATH")
}

/// What `ONCEBOOK_LOG_FILTER` says of what is logged (tracing's filter syntax).
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one home of the environment")]
pub fn log_filter() -> Option<String> {
    std::env::var("ONCEBOOK_LOG_FILTER").ok()
}

/// Where spans are exported to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// The URL that takes traces.
    pub endpoint: String,
    /// What the service is called there.
    pub service_name: String,
}

/// As the environment says in OpenTelemetry's own variables; none where it names no endpoint, or says no.
#[must_use]
pub fn otlp() -> Option<Otlp> {
    otlp_of(|name| {
        #[expect(clippy::disallowed_methods, reason = "the one home of the environment")]
        std::env::var(name).ok()
    })
}

/// OpenTelemetry's specification, "Environment Variables" and "OTLP Exporter": the endpoint for traces is taken as it is,
/// the one for everything is a base; an empty value is none.
fn otlp_of(variable: impl Fn(&str) -> Option<String>) -> Option<Otlp> {
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    let says = |name, word: &str| set(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word));
    if says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    let base = || Some(format!("{}/v1/traces", set("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/')));
    let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(base)?;
    let service_name = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "oncebook".to_owned());
    Some(Otlp { endpoint, service_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_where_the_standard_says() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
            otlp_of(find).map(|otlp| (otlp.endpoint, otlp.service_name))
        };
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/in");
        let told = |endpoint: &str, name: &str| Some((endpoint.to_owned(), name.to_owned()));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        assert_eq!(of(&[base]), told("http://collector:4318/v1/traces", "oncebook"));
        assert_eq!(of(&[base, traces, ("OTEL_SERVICE_NAME", "north")]), told("http://traces:4318/in", "north"));
        assert_eq!(of(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(of(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        config: Config,
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_build_without_kafka_says_how_to_make_one_with_it() {
        let refused = <Alone as clap::Parser>::try_parse_from(["oncebook", "--log", "kafka"]).map(|alone| alone.config);
        let said = refused.expect_err("it has none").to_string();
        assert!(said.contains("cargo build --release --features kafka"), "{said}");
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn kafka_needs_brokers_and_shows_no_password() {
        let parse = |more: &[&str]| {
            let arguments = ["oncebook", "--log", "kafka"].iter().chain(more);
            <Alone as clap::Parser>::try_parse_from(arguments)
                .map(|alone| alone.config)
                .map_err(|error| error.to_string())
        };
        assert!(parse(&[]).expect_err("where?").contains("--kafka-brokers"));
        let file = std::env::temp_dir().join(format!("oncebook-properties-{}", std::process::id()));
        let name = file.to_str().expect("a path");
        std::fs::write(&file, "# ours\nsasl.password = a=b\n\n").expect("written");
        let config = parse(&["--kafka-brokers", "one:9092,two:9092", "--kafka-properties", name]).expect("whole");
        assert_eq!(config.kafka.brokers, ["one:9092", "two:9092"]);
        let said = format!("{config:?}");
        assert!(said.contains("sasl.password") && !said.contains("a=b"), "{said}");
        assert_eq!(config.kafka.properties.expect("some").0, [("sasl.password".to_owned(), "a=b".to_owned())]);
        std::fs::write(&file, "hunter2\n").expect("written");
        let refused = parse(&["--kafka-brokers", "one:9092", "--kafka-properties", name]).expect_err("no setting");
        assert!(refused.contains("line 1 is not name=value") && !refused.contains("hunter2"), "{refused}");
        std::fs::remove_file(&file).expect("removed");
    }
}
