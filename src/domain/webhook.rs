//! Webhooks as administrators see them: an endpoint, what was delivered to it, and where one may be.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use url::{Host, Url};
use utoipa::ToSchema;
use uuid::Uuid;

use super::address;
use super::event::EventType;

/// Longest URL, in bytes.
pub const LONGEST_URL: usize = 2048;

/// What an administrator sets of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: Uuid,
    /// Where events are sent.
    pub url: String,
    /// For people.
    pub description: String,
    /// Events of these clinics only; none stands for all of the group.
    pub clinic_ids: Option<Vec<Uuid>>,
    /// Events of these types only; none stands for all.
    pub event_types: Option<Vec<String>>,
    /// Whether anything is sent.
    pub active: bool,
    /// Of what stands here; raised by every change of it.
    pub version: i32,
}

/// A webhook endpoint. Never with its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WebhookEndpoint)]
pub struct EndpointView {
    /// The endpoint's id.
    pub id: Uuid,
    /// Where events are sent.
    #[schema(example = "https://hooks.example.org/oncebook")]
    pub url: String,
    /// What it is for, to people; may be empty.
    #[schema(example = "Waiting room screen")]
    pub description: String,
    /// Ids of the clinics whose events are sent; null: all of the group's.
    #[schema(required)]
    pub clinic_ids: Option<Vec<Uuid>>,
    /// The types of event that are sent; null: all, those to come included.
    #[schema(required, example = json!(["appointment.booked"]))]
    pub event_types: Option<Vec<String>>,
    /// Whether anything is sent. The service sets it to false itself where the endpoint is gone or has long failed.
    pub active: bool,
    /// Why the service stopped using it: `gone` (it answered 410), `failing` (no success for five days). Null where it is in
    /// use, or an administrator switched it off.
    #[schema(required, example = "gone")]
    pub disabled_reason: Option<String>,
    /// When it did, in UTC.
    #[schema(required)]
    pub disabled_at: Option<Timestamp>,
    /// Since when every attempt has failed, in UTC; null where the last one succeeded.
    #[schema(required)]
    pub failing_since: Option<Timestamp>,
    /// Nothing is sent before then, in UTC: too much failed, or the receiver asked for it with `Retry-After`.
    #[schema(required)]
    pub paused_until: Option<Timestamp>,
    /// When an attempt last succeeded, in UTC, to some ten seconds.
    #[schema(required)]
    pub last_success_at: Option<Timestamp>,
    /// Until when the secret from before the last rotation signs too, in UTC; null where none does.
    #[schema(required)]
    pub previous_secret_until: Option<Timestamp>,
    /// The version, as in `ETag`.
    #[schema(example = 1)]
    pub version: i32,
    /// The subject that made it.
    #[schema(example = "person:nora.lindqvist")]
    pub created_by: String,
    /// When it was made, in UTC.
    pub created_at: Timestamp,
    /// When it was last changed by an administrator, in UTC.
    pub updated_at: Timestamp,
}

/// Where a delivery stands. `PENDING`: its next attempt is due at `next_attempt_at`. `HELD`: an earlier event of its subject
/// is not delivered yet. `SENT`: an attempt is at work. `DELIVERED`. `GIVEN_UP`: it failed for a day. `CANCELLED`: its
/// endpoint was switched off, disabled, deleted or narrowed to others before it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeliveryState {
    /// Waits for its next attempt.
    Pending,
    /// Waits for an earlier event of its subject.
    Held,
    /// An attempt is at work.
    Sent,
    /// The receiver has it.
    Delivered,
    /// Tried for a day, in vain.
    GivenUp,
    /// Its endpoint is no longer in use, or no longer for it.
    Cancelled,
}

impl DeliveryState {
    /// As it is written in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Held => "HELD",
            Self::Sent => "SENT",
            Self::Delivered => "DELIVERED",
            Self::GivenUp => "GIVEN_UP",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Held, Self::Sent, Self::Delivered, Self::GivenUp, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// One event for one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub struct DeliveryView {
    /// The event's id: the delivery's `webhook-id`, the same in every attempt.
    pub event_id: Uuid,
    /// The clinic where it happened.
    pub clinic_id: Uuid,
    /// The event's type.
    #[serde(rename = "type")]
    #[schema(example = "appointment.booked")]
    pub kind: String,
    /// What it is about: `appointment/ID` or `block/ID`.
    #[schema(example = "appointment/019e0000-0000-7000-8000-000000000001")]
    pub subject: String,
    /// Its place in the order of its subject.
    #[schema(example = 1)]
    pub sequence: i32,
    /// Where it stands.
    pub state: DeliveryState,
    /// Why it is not delivered: the outcome of the last attempt; `secret_unreadable` (a process of the service had no key for
    /// its endpoint's secret, and left it to another: no attempt); or why it was cancelled: `inactive`, `gone`, `failing`,
    /// `deleted`, or `unwanted` (its endpoint is for other clinics or types by now). Null where there is nothing to say.
    #[schema(required, example = "timeout")]
    pub reason: Option<String>,
    /// Whether an administrator had it sent again after it had ended.
    pub redelivery: bool,
    /// When the next attempt is due, in UTC.
    #[schema(required)]
    pub next_attempt_at: Option<Timestamp>,
    /// When it was queued, in UTC.
    pub queued_at: Timestamp,
    /// When it was delivered, given up or cancelled, in UTC.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// Every attempt so far, in order.
    pub attempts: Vec<AttemptView>,
}

/// One attempt at a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[schema(as = WebhookAttempt)]
pub struct AttemptView {
    /// Which attempt, from 1 on.
    #[schema(example = 1)]
    pub attempt: i32,
    /// When it began, in UTC.
    pub started_at: Timestamp,
    /// `delivered`, or what went wrong: `status` (an answer that is no 2xx), `redirect` (a 3xx, which is not followed), `gone`
    /// (410), `timeout`, `connect`, `dns`, `tls`, `protocol` (no whole answer), `address_refused` (no public address),
    /// `url_refused`; `unknown` (the process ended in the middle of it: sent again). Null while it is
    /// at work.
    #[schema(required, example = "delivered")]
    pub outcome: Option<String>,
    /// The status of the answer, if there was one. Nothing else of it is kept.
    #[schema(required, example = 204)]
    pub status: Option<i16>,
    /// How long it took, in milliseconds.
    #[schema(required, example = 42)]
    pub duration_ms: Option<i32>,
}

/// An endpoint's signing secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WebhookSecret)]
pub struct SecretView {
    /// The secret, as libraries for Standard Webhooks take it.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")]
    pub secret: String,
    /// The one from before the last rotation, while it signs too.
    #[schema(required)]
    pub previous_secret: Option<String>,
    /// Until when it does, in UTC.
    #[schema(required)]
    pub previous_secret_until: Option<Timestamp>,
}

/// A secret as receivers take it (Standard Webhooks).
#[must_use]
pub fn show_secret(bytes: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(bytes))
}

/// What an endpoint's sealed secrets are bound to.
#[must_use]
pub fn secret_belongs_to<'a>(tenant: &'a Uuid, endpoint: &'a Uuid) -> [&'a [u8]; 3] {
    [b"webhook secret", tenant.as_bytes(), endpoint.as_bytes()]
}

/// Why an endpoint may not be at a URL, in words.
pub type Misplaced = &'static str;

/// Whether an endpoint may be at this URL, as far as it shows without asking the network: `https`, a name or a public
/// address (in whatever spelling: the URL standard reads `0x7f.1` as 127.0.0.1), the usual port or one of 1024 and more, and
/// no user or password in it. Where private addresses are allowed, `http` and every port are too.
///
/// # Errors
/// What is wrong with it.
pub fn place(text: &str, allow_private: bool) -> Result<Url, Misplaced> {
    if text.len() > LONGEST_URL {
        return Err("at most 2048 bytes are wanted");
    }
    let url = Url::parse(text).map_err(|_| "an absolute URL is wanted")?;
    match url.scheme() {
        "https" => {}
        "http" if allow_private => {}
        _ => return Err("an https URL is wanted"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL without user and password is wanted");
    }
    if url.fragment().is_some() {
        return Err("a URL without fragment is wanted");
    }
    let literal: Option<IpAddr> = match url.host() {
        None => return Err("a URL with a host is wanted"),
        Some(Host::Domain(_)) => None,
        Some(Host::Ipv4(address)) => Some(address.into()),
        Some(Host::Ipv6(address)) => Some(address.into()),
    };
    if !allow_private {
        if literal.is_some_and(|address| !address::is_public(address)) {
            return Err("a public address is wanted");
        }
        if url.port().is_some_and(|port| port < 1024) {
            return Err("port 443 or one of 1024 and more is wanted");
        }
    }
    Ok(url)
}

/// Whether an event's type is one there is.
#[must_use]
pub fn is_event_type(text: &str) -> bool {
    EventType::parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_at_a_public_place() {
        for text in [
            "https://hooks.example.org/oncebook",
            "https://hooks.example.org:8443/?a=b",
            "https://1.1.1.1/",
            "https://[2606:4700:4700::1111]/",
            "HTTPS://EXAMPLE.ORG",
            "https://example.org:443/",
        ] {
            assert!(place(text, false).is_ok(), "{text}");
        }
    }

    #[test]
    fn and_at_no_other() {
        for text in [
            "",
            "/hooks",
            "hooks.example.org",
            "http://hooks.example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "gopher://example.org/",
            "javascript:alert(1)",
            "https://user@example.org/",
            "https://user:pw@example.org/",
            "https://:pw@example.org/",
            "https://example.org/#part",
            "https://example.org:22/",
            "https://example.org:25/",
            "https://example.org:0/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://017700000001/",
            "https://0/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://127%2e0%2e0%2e1/",
            "https://①②⑦.⓪.⓪.①/",
            "https://[::1]/",
            "https://[::]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://169.254.169.254/latest/meta-data/",
            "https://[fd00:ec2::254]/",
            "https://10.0.0.1/",
            "https://192.168.1.1:8443/",
            "https://[fe80::1]/",
            "https://[fe80::1%25eth0]/",
            "https://1.1.1.256/",
            "https:///",
            "https://exa mple.org/",
        ] {
            assert!(place(text, false).is_err(), "{text}");
        }
        assert!(place(&format!("https://example.org/{}", "x".repeat(LONGEST_URL)), false).is_err());
    }

    #[test]
    fn where_private_addresses_are_allowed_the_rest_is_not() {
        for text in ["http://127.0.0.1:8000/", "http://localhost:80/", "https://10.0.0.1/"] {
            assert!(place(text, true).is_ok(), "{text}");
        }
        for text in ["ftp://127.0.0.1/", "http://user@127.0.0.1/", "http:///"] {
            assert!(place(text, true).is_err(), "{text}");
        }
    }
}
