//! Text messages, by a gateway over HTTP. The intent's id goes along as `Idempotency-Key`, so the gateway tells a repeated
//! message from a new one: what became of none is asked again under the same key.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde_json::json;
use uuid::Uuid;

use super::senders::{Patience, Sent, Unusable};
use crate::config::Secret;
use crate::domain::notification::Kind;

/// What a gateway asks for is granted up to this: one odd answer is not to keep everybody from hearing of their visits for a
/// day.
const LONGEST_ASKED: Duration = Duration::from_hours(1);

/// A gateway.
pub struct Gateway {
    http: Client,
    url: Url,
}

/// What is sent to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// The intent's id.
    pub(super) id: Uuid,
    /// What it tells.
    pub(super) kind: Kind,
    /// The patient's number.
    pub(super) to: &'a str,
    /// The text.
    pub(super) text: &'a str,
}

impl Gateway {
    pub(super) fn at(url: &str, token: Option<&Secret>, patience: Patience) -> Result<Self, Unusable> {
        let url: Url = url.parse().map_err(|_| Unusable::SmsUrl)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(Unusable::SmsUrl);
        }
        let mut headers = HeaderMap::new();
        if let Some(Secret(token)) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Unusable::SmsToken)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Whoever was first has set one; it is ours either way.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .default_headers(headers)
            // A redirect would take the token, and the patient's number, to who knows where.
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(patience.connect)
            .timeout(patience.message)
            .build()
            .map_err(|_| Unusable::Tls)?;
        Ok(Self { http, url })
    }

    /// Posts a message.
    pub(super) async fn send(&self, message: Message<'_>, now: Timestamp) -> Sent {
        let Message { id, kind, to, text } = message;
        let body = json!({ "id": id, "kind": kind.as_str(), "to": to, "text": text });
        let posted = self.http.post(self.url.clone()).header("idempotency-key", id.to_string()).json(&body);
        match posted.send().await {
            Ok(response) => outcome(response.status(), retry_after(response.headers(), now)),
            Err(error) if error.is_connect() => Sent::Away("connection", None),
            Err(_) => Sent::Unknown { answered: false },
        }
    }
}

/// What a gateway means by its status.
fn outcome(status: StatusCode, after: Option<Duration>) -> Sent {
    match status.as_u16() {
        200..=299 => Sent::Taken,
        // Our token, our URL, or the gateway itself: no fault of the message's.
        401 | 403 => Sent::Away("credentials", None),
        300..=399 | 404 => Sent::Away("no_gateway_there", None),
        503 => Sent::Away("unavailable", after),
        429 => Sent::Busy("http_429".to_owned(), after),
        // It is at the first one still (409), or would have us say it again.
        code @ (408 | 409 | 425) => Sent::NotNow(format!("http_{code}"), after),
        500..=599 => Sent::Unknown { answered: true },
        code => Sent::Refused(format!("http_{code}")),
    }
}

/// `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date; an hour at the most.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds).min(LONGEST_ASKED));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_where_the_message_stands() {
        let of = |status: u16| outcome(StatusCode::from_u16(status).expect("a status"), None);
        assert_eq!([of(200), of(202)], [Sent::Taken, Sent::Taken]);
        assert_eq!(of(400), Sent::Refused("http_400".to_owned()));
        assert_eq!(of(409), Sent::NotNow("http_409".to_owned(), None));
        assert_eq!(of(429), Sent::Busy("http_429".to_owned(), None));
        assert_eq!([of(302), of(404)], [Sent::Away("no_gateway_there", None), Sent::Away("no_gateway_there", None)]);
        assert_eq!([of(401), of(403)], [Sent::Away("credentials", None), Sent::Away("credentials", None)]);
        assert_eq!(of(503), Sent::Away("unavailable", None));
        assert_eq!([of(500), of(504)], [Sent::Unknown { answered: true }, Sent::Unknown { answered: true }]);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "1994-11-06T08:49:07Z".parse().expect("a time");
        let of = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]), now)
        };
        assert_eq!(of("120"), Some(Duration::from_mins(2)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!([of("86400"), of("Mon, 07 Nov 1994 08:49:07 GMT")], [Some(LONGEST_ASKED); 2]);
        assert_eq!([of("soon"), of("-1")], [None, None]);
    }
}
