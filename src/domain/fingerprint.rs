//! What makes two requests the same request: SHA-256 over the operation and every field of the typed, resolved command.
//!
//! Fields are tagged and length-prefixed, so no two commands run together. An absent field is not hashed: null, absent and
//! a default given are one, and a release that adds an optional field keeps old rows valid. A stored row carries the version
//! it was made with and is compared with a fingerprint of that version.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The version new rows are stored with.
pub const CURRENT: i16 = 2;

/// The oldest version a stored row may have. Version 1 had no domain prefix.
pub const OLDEST: i16 = 1;

/// A fingerprint in the making.
pub struct Fingerprint(Sha256);

impl Fingerprint {
    /// Starts one for an operation, or nothing for a version this release does not know.
    #[must_use]
    pub fn new(version: i16, operation: &str) -> Option<Self> {
        if !(OLDEST..=CURRENT).contains(&version) {
            return None;
        }
        let mut fingerprint = Self(Sha256::new());
        if version >= 2 {
            fingerprint.bytes("oncebook", b"command");
        }
        fingerprint.bytes("operation", operation.as_bytes());
        Some(fingerprint)
    }

    /// Starts the hash of anything else that needs an identity; `purpose` keeps it apart from every other.
    #[must_use]
    pub fn for_purpose(purpose: &str) -> Self {
        let mut fingerprint = Self(Sha256::new());
        fingerprint.bytes("purpose", purpose.as_bytes());
        fingerprint
    }

    /// One field.
    pub fn bytes(&mut self, tag: &str, value: &[u8]) {
        for part in [tag.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// A text, if there is one. The empty text is a text.
    pub fn text(&mut self, tag: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.bytes(tag, value.as_bytes());
        }
    }

    /// An id, if there is one.
    pub fn id(&mut self, tag: &str, value: Option<Uuid>) {
        if let Some(value) = value {
            self.bytes(tag, value.as_bytes());
        }
    }

    /// An instant, if there is one: the same for every way to write it.
    pub fn time(&mut self, tag: &str, value: Option<Timestamp>) {
        if let Some(value) = value {
            self.bytes(tag, &value.as_nanosecond().to_le_bytes());
        }
    }

    /// A switch whose default is off.
    pub fn flag(&mut self, tag: &str, value: bool) {
        if value {
            self.bytes(tag, b"1");
        }
    }

    /// The 32 bytes.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// The first 64 bits, as the number of a Postgres advisory lock.
    #[must_use]
    pub fn finish_as_lock(self) -> i64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.finish()[..8]);
        i64::from_le_bytes(first)
    }
}

/// The lock of a practitioner or an operatory: who leaves or enters its schedule by an update holds it.
#[must_use]
pub fn resource_lock(tenant: Uuid, resource: Uuid) -> i64 {
    let mut lock = Fingerprint::for_purpose("resource lock");
    lock.id("tenant", Some(tenant));
    lock.id("resource", Some(resource));
    lock.finish_as_lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: i16, fill: impl Fn(&mut Fingerprint)) -> [u8; 32] {
        let mut fingerprint = Fingerprint::new(version, "book").expect("a known version");
        fill(&mut fingerprint);
        fingerprint.finish()
    }

    #[test]
    fn fields_do_not_run_together_and_absent_is_not_empty() {
        assert_ne!(of(CURRENT, |f| f.text("a", Some("bc"))), of(CURRENT, |f| f.text("ab", Some("c"))));
        assert_ne!(of(CURRENT, |f| f.text("note", Some(""))), of(CURRENT, |f| f.text("note", None)));
        assert_eq!(of(CURRENT, |f| f.flag("overbook", false)), of(CURRENT, |_| ()));
    }

    #[test]
    fn versions_differ_and_an_unknown_one_is_said_to_be_unknown() {
        assert_ne!(of(1, |_| ()), of(2, |_| ()));
        assert!(Fingerprint::new(CURRENT + 1, "book").is_none());
        assert!(Fingerprint::new(0, "book").is_none());
    }

    /// A change of this value is a change of every stored fingerprint: raise CURRENT instead.
    #[test]
    fn version_two_is_what_it_was() {
        let hash = of(2, |f| f.id("clinic", Some(Uuid::from_u128(7))));
        let hex = format!("{hash:02x?}").replace(", ", "");
        assert_eq!(hex, "[96c866b33cee6cc1bd9cd17f2b2349a27b6101a1cf51336014e9b88ac0adedbb]");
    }
}
