//! Requests to where somebody else has said: sent to addresses of the public internet alone.
//!
//! What holds is the resolver the client connects by: the addresses it lets through are those that are connected to, so a
//! name that resolves to another address the next time (DNS rebinding) gains nothing. A host that is an address needs
//! no resolver and is checked as the URL is read, before every request. Redirects are not followed, a proxy of the
//! environment is not used, and of an answer nothing is kept but its status and `Retry-After`.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use tokio::time::timeout;
use url::{Host, Url};

use crate::domain::address;
use crate::domain::webhook::{self, Misplaced};

/// A connection is there by then: name, TCP and TLS.
const CONNECT: Duration = Duration::from_secs(5);

/// The answer is there by then, connection included.
pub const TOTAL: Duration = Duration::from_secs(15);

/// A name is looked up no longer than this when somebody waits for the answer.
const LOOK_UP: Duration = Duration::from_secs(2);

/// Of an answer's body so much is read, and dropped, so that the connection can be used again.
const READ: usize = 16 * 1024;

/// How names become addresses: the system's way, or a trial's.
pub type Lookup =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync>;

/// Says where requests may go.
#[derive(Clone)]
pub struct Guard {
    allow_private: bool,
    lookup: Lookup,
}

/// A name has no address that requests may be sent to.
#[derive(Debug, thiserror::Error)]
#[error("none of its addresses is a public one")]
struct Refused;

/// A name has no address.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve: {0}")]
struct Unresolved(io::Error);

impl Guard {
    /// By the system's resolver. With `allow_private`, which is for development, everywhere.
    #[must_use]
    pub fn new(allow_private: bool) -> Self {
        let lookup: Lookup = Arc::new(|name| {
            // Port 0: the client puts the URL's.
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
        });
        Self { allow_private, lookup }
    }

    /// By another resolver.
    #[must_use]
    pub fn by(lookup: Lookup, allow_private: bool) -> Self {
        Self { allow_private, lookup }
    }

    /// Whether requests may go to this URL, as far as it shows without looking its name up.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn place(&self, url: &str) -> Result<Url, Misplaced> {
        webhook::place(url, self.allow_private)
    }

    /// The same with a look at its name, for whoever would rather hear it now. A name that does not resolve yet passes: what
    /// holds is what is found when something is sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn check(&self, url: &str) -> Result<(), Misplaced> {
        let place = self.place(url)?;
        let Some(Host::Domain(name)) = place.host() else { return Ok(()) };
        match timeout(LOOK_UP, self.addresses(name.to_owned())).await {
            Ok(Err(error)) if error.is::<Refused>() => Err("a name that resolves to a public address is wanted"),
            _ => Ok(()),
        }
    }

    /// The addresses of a name that requests may be sent to; there is one at least.
    async fn addresses(&self, name: String) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let mut found = (self.lookup)(name).await.map_err(Unresolved)?;
        if found.is_empty() {
            return Err(Unresolved(io::ErrorKind::NotFound.into()).into());
        }
        found.retain(|found| self.allow_private || address::is_public(found.ip()));
        if found.is_empty() { Err(Refused.into()) } else { Ok(found) }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = guard.addresses(name.as_str().to_owned()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// How long the receiver asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Why nothing came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The URL is not one that requests may go to.
    Url,
    /// None of the name's addresses is.
    Address,
    /// The name has no address.
    Dns,
    /// No connection.
    Connect,
    /// No trust in the other side.
    Tls,
    /// No answer in time.
    Timeout,
    /// What came was no answer, or not whole.
    Protocol,
}

/// Sends requests.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    guard: Guard,
}

impl Client {
    /// One that goes where the guard lets it.
    ///
    /// # Errors
    /// Where the system's certificates cannot be read.
    pub fn new(guard: Guard) -> Result<Self, reqwest::Error> {
        // Another part of the process may have said so already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(concat!("oncebook/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(guard.clone()))
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT)
            .timeout(TOTAL)
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(4)
            .build()?;
        Ok(Self { http, guard })
    }

    /// Posts something.
    ///
    /// # Errors
    /// [`Failure`]: then it may or may not have arrived.
    pub async fn post(&self, url: &str, headers: HeaderMap, body: Vec<u8>, now: Timestamp) -> Result<Answer, Failure> {
        let url = self.guard.place(url).map_err(|_| Failure::Url)?;
        let sent = self.http.post(url).headers(headers).body(body).send().await;
        let mut response = sent.map_err(|error| failure(&error))?;
        let answer = Answer { status: response.status().as_u16(), retry_after: retry_after(response.headers(), now) };
        let mut read = 0;
        // What is wrong with the body changes nothing: the status has been said.
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > READ {
                break;
            }
        }
        Ok(answer)
    }
}

/// `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(until.duration_since(now).try_into().unwrap_or_default())
}

/// What went wrong, from the error and whatever caused it.
fn failure(error: &reqwest::Error) -> Failure {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        // An I/O error keeps what it was made of to itself: it is not its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if error.is::<Refused>() {
            return Failure::Address;
        }
        if error.is::<Unresolved>() {
            return Failure::Dns;
        }
        if error.is::<rustls::Error>() || inner.is_some() {
            return Failure::Tls;
        }
        cause = error.source();
    }
    match error {
        error if error.is_timeout() => Failure::Timeout,
        error if error.is_connect() => Failure::Connect,
        _ => Failure::Protocol,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::future::ready;

    use super::*;

    fn always(addresses: Vec<SocketAddr>) -> Lookup {
        Arc::new(move |_| Box::pin(ready(Ok(addresses.clone()))))
    }

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().expect("an address"), 0)
    }

    async fn found(guard: &Guard) -> Result<Vec<String>, &'static str> {
        match guard.resolve("hooks.example.org".parse().expect("a name")).await {
            Ok(found) => Ok(found.map(|found| found.ip().to_string()).collect()),
            Err(error) if error.is::<Refused>() => Err("refused"),
            Err(error) if error.is::<Unresolved>() => Err("unresolved"),
            Err(_) => Err("other"),
        }
    }

    #[tokio::test]
    async fn a_name_that_turns_private_is_refused_from_then_on() {
        let asked = AtomicUsize::new(0);
        let rebinds: Lookup = Arc::new(move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            Box::pin(ready(Ok(vec![at(if first { "1.1.1.1" } else { "127.0.0.1" })])))
        });
        let guard = Guard::by(rebinds, false);
        assert_eq!(found(&guard).await, Ok(vec!["1.1.1.1".to_owned()]));
        assert_eq!(found(&guard).await, Err("refused"));
        assert!(guard.check("https://hooks.example.org/").await.is_err());
    }

    #[tokio::test]
    async fn of_a_names_addresses_the_public_ones_are_left() {
        let mixed = always(vec![at("10.0.0.1"), at("2606:4700:4700::1111"), at("::ffff:127.0.0.1"), at("1.1.1.1")]);
        assert_eq!(found(&Guard::by(mixed.clone(), false)).await.map(|found| found.len()), Ok(2));
        assert_eq!(found(&Guard::by(mixed, true)).await.map(|found| found.len()), Ok(4));
        assert_eq!(found(&Guard::by(always(vec![]), false)).await, Err("unresolved"));
    }

    #[test]
    fn a_receiver_says_when() {
        let now: Timestamp = "2026-12-01T08:00:00Z".parse().expect("a time");
        let said = |value: &'static str| {
            let headers = [(RETRY_AFTER, value.parse().expect("a header"))].into_iter().collect();
            retry_after(&headers, now).map(|after| after.as_secs())
        };
        assert_eq!(said("120"), Some(120));
        assert_eq!(said("Tue, 01 Dec 2026 08:01:00 GMT"), Some(60));
        assert_eq!(said("Tue, 01 Dec 2026 07:00:00 GMT"), Some(0));
        assert_eq!(said("99999999999999999999999"), Some(u64::MAX));
        assert_eq!([said(""), said("soon"), said("-5")], [None; 3]);
    }
}
