//! The knobs, and the only place that reads the environment.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
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
    /// Delivers events to endpoints outside.
    Webhooks,
    /// Forgets keys past their retention, seals the audit.
    Janitor,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 5] = [Self::Api, Self::Relay, Self::Consumers, Self::Webhooks, Self::Janitor];
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
    /// Seals secrets in the database: base64 of 32 bytes (`openssl rand -base64 32`). To change it, put the new key before
    /// the old one, with a comma between. Without it there are no webhook endpoints.
    #[arg(long, env = "ONCEBOOK_ENCRYPTION_KEY", hide_env_values = true, value_name = "KEY")]
    pub encryption_key: Option<Secret>,
    /// Lets webhooks go to private addresses and by http: for development alone.
    #[arg(long, env = "ONCEBOOK_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,
}

/// A text that no message quotes: clap would, of a value it does not take, so it takes any.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
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
