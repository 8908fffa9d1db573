//! The text of an API key: `ob_<id>_<secret>`, the id and 256 random bits in hexadecimal. It is shown once; kept is the
//! SHA-256 of the secret's text, which is enough for a secret nobody can guess.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A key that has just been made.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The whole text, for its holder alone.
    pub text: String,
    /// What is kept of its secret.
    pub secret_hash: [u8; 32],
}

impl NewKey {
    /// Writes the key of a credential.
    #[must_use]
    pub fn new(credential: Uuid, secret: &[u8; 32]) -> Self {
        let mut text = String::with_capacity(64);
        for byte in secret {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        let secret_hash = hash(&text);
        Self { text: format!("ob_{}_{text}", credential.simple()), secret_hash }
    }
}

/// The credential a key's text names, and the hash of the secret it shows.
#[must_use]
pub fn read(text: &str) -> Option<(Uuid, [u8; 32])> {
    let (id, secret) = text.strip_prefix("ob_")?.split_once('_')?;
    Some((Uuid::try_parse(id).ok()?, hash(secret)))
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let id = Uuid::from_u128(0x0195_f3c0_6b1e_7d42_9a57_3f1c_2e8d_4b60);
        let key = NewKey::new(id, &[0xa5; 32]);
        assert_eq!(key.text, format!("ob_0195f3c06b1e7d429a573f1c2e8d4b60_{}", "a5".repeat(32)));
        assert_eq!(read(&key.text), Some((id, key.secret_hash)));
        assert_ne!(read(&format!("{}0", key.text)), Some((id, key.secret_hash)));
        for text in ["", "ob_", "ob_x_y", "0195f3c06b1e7d429a573f1c2e8d4b60", "OB_0195f3c06b1e7d429a573f1c2e8d4b60_a5"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
