//! Answers that say how they disappoint.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::case::{Failure, Stop, Verdict};

/// What a replay repeats (API.md, "Idempotency"), and the expiry, fixed when the answer is stored.
const REPLAYED_HEADERS: [&str; 4] = ["content-type", "location", "etag", "idempotency-expires"];

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Names in lower case, one entry a line.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) took: Duration,
    /// The request as a person would read it.
    pub(super) request: String,
}

impl Answer {
    /// A header's value; the first, where there are several lines.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Passes if `holds`; otherwise shows this answer and its request.
    pub(super) fn ensure(&self, holds: bool, expected: impl Into<String>) -> Verdict<&Self> {
        if holds {
            return Ok(self);
        }
        let mut came = self.status.to_string();
        for name in ["location", "etag", "retry-after", "idempotent-replayed", "idempotency-expires"] {
            if let Some(value) = self.header(name) {
                let _ = write!(came, " {name}: {value};");
            }
        }
        let _ = write!(came, " {} ({} ms)", shortened(&self.text()), self.took.as_millis());
        Err(Stop::Failed(Failure { expected: expected.into(), came, request: self.request.clone() }))
    }

    /// Passes if it has this status.
    pub(super) fn is(&self, status: u16) -> Verdict<&Self> {
        self.ensure(self.status == status, status.to_string())
    }

    /// Passes if `Idempotent-Replayed` says so.
    pub(super) fn replayed(&self, replayed: bool) -> Verdict<&Self> {
        let said = self.header("idempotent-replayed") == Some(if replayed { "true" } else { "false" });
        self.ensure(said, format!("Idempotent-Replayed: {replayed}"))
    }

    /// The body as JSON.
    pub(super) fn json(&self) -> Verdict<Value> {
        serde_json::from_slice(&self.body).or_else(|_| self.ensure(false, "a JSON body").map(|_| Value::Null))
    }

    /// Passes if it is this problem, and gives its members.
    pub(super) fn refused(&self, status: u16, code: &str) -> Verdict<Value> {
        self.ensure(self.status == status && self.code() == code, format!("{status} {code}"))?;
        self.json()
    }

    /// The problem's code; empty where it is none.
    pub(super) fn code(&self) -> String {
        let problem = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    /// A text member of the body.
    pub(super) fn member(&self, name: &str) -> Verdict<String> {
        let found = self.json()?[name].as_str().map(str::to_owned);
        found.map_or_else(|| self.ensure(false, format!("a text member {name:?}")).map(|_| String::new()), Ok)
    }

    /// The entries of a list, `{"items":[…]}`.
    pub(super) fn items(&self) -> Verdict<Vec<Value>> {
        let found = self.json()?["items"].as_array().cloned();
        found.map_or_else(|| self.ensure(false, "{\"items\":[…]}").map(|_| vec![]), Ok)
    }

    /// Passes if it is the same answer as `first`: status, body bytes and every header a replay repeats.
    pub(super) fn same_as(&self, first: &Self) -> Verdict<&Self> {
        self.ensure(self.status == first.status, format!("{} again, as the first time", first.status))?;
        self.ensure(self.body == first.body, format!("the first body again: {}", shortened(&first.text())))?;
        for name in REPLAYED_HEADERS {
            let (then, now) = (first.header(name), self.header(name));
            self.ensure(then == now, format!("{name}: {then:?} again, not {now:?}"))?;
        }
        Ok(self)
    }

    /// Passes if it is the replay of `first`.
    pub(super) fn replays(&self, first: &Self) -> Verdict<&Self> {
        self.same_as(first)?.replayed(true)
    }
}

/// Text of a length that a person reads.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 700;
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let cut: String = text.chars().take(SHOWN).collect();
    format!("{cut}… ({} bytes)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer { status, headers, body: body.into(), took: Duration::ZERO, request: String::new() }
    }

    #[test]
    fn a_replay_differs_in_nothing_but_the_word_replayed() {
        let first = answer(201, &[("etag", "\"1\""), ("idempotent-replayed", "false")], "{}");
        answer(201, &[("etag", "\"1\""), ("idempotent-replayed", "true")], "{}").replays(&first).expect("a replay");
        for other in [
            answer(200, &[("etag", "\"1\""), ("idempotent-replayed", "true")], "{}"),
            answer(201, &[("etag", "\"2\""), ("idempotent-replayed", "true")], "{}"),
            answer(201, &[("etag", "\"1\""), ("idempotent-replayed", "true")], "{ }"),
            answer(201, &[("etag", "\"1\"")], "{}"),
        ] {
            other.replays(&first).expect_err("not a replay");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let shown = shortened(&"é".repeat(800));
        assert!(shown.ends_with("(1600 bytes)") && shown.chars().count() < 730);
    }
}
