//! Secrets at rest: sealed with a key from the environment, so that a copy of the database gives none away.
//!
//! AES-256-GCM (NIST SP 800-38D) with a random nonce. What is sealed is bound to what it belongs to: moved to another row it
//! does not open. In front stand the form's version and the key's id, so keys can be changed: the first of a ring
//! seals, all of them open.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use crate::clock::Ids;

/// The first byte of everything sealed.
const FORM: u8 = 1;

/// Bytes of a key's id.
const ID: usize = 4;

/// Bytes of a key.
const KEY: usize = 32;

/// Why a text is no ring of keys. Says nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be base64 of 32 bytes (openssl rand -base64 32), or several of these with commas between")]
pub struct NotAKey;

/// Why something does not open: it was sealed with a key that is not in the ring, for something else, or it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key opens it")]
pub struct Shut;

/// The keys of a process.
pub struct Keyring(Vec<([u8; ID], LessSafeKey)>);

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring of {}", self.0.len())
    }
}

impl Keyring {
    /// Reads `ONCEBOOK_ENCRYPTION_KEY`: keys in base64, with commas between; the first is the one that seals.
    ///
    /// # Errors
    /// [`NotAKey`].
    pub fn read(text: &str) -> Result<Self, NotAKey> {
        let keys = text.split(',').map(|key| {
            let bytes = STANDARD.decode(key.trim()).ok().filter(|bytes| bytes.len() == KEY).ok_or(NotAKey)?;
            let digest = Sha256::digest(&bytes);
            let mut id = [0; ID];
            id.copy_from_slice(&digest[..ID]);
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| NotAKey)?;
            Ok((id, LessSafeKey::new(key)))
        });
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// Seals a secret for what it belongs to.
    ///
    /// # Errors
    /// [`Shut`] where it is longer than the cipher takes.
    pub fn seal(&self, ids: &Ids, belongs_to: &[&[u8]], secret: &[u8]) -> Result<Vec<u8>, Shut> {
        let (id, key) = self.0.first().ok_or(Shut)?;
        let nonce = ids.nonce();
        let mut sealed = secret.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound(belongs_to), &mut sealed)
            .map_err(|_| Shut)?;
        Ok([&[FORM], id.as_slice(), &nonce, &sealed].concat())
    }

    /// Opens what was sealed for the same thing.
    ///
    /// # Errors
    /// [`Shut`].
    pub fn open(&self, belongs_to: &[&[u8]], sealed: &[u8]) -> Result<Vec<u8>, Shut> {
        let rest = sealed.strip_prefix(&[FORM]).ok_or(Shut)?;
        let (id, rest) = rest.split_first_chunk::<ID>().ok_or(Shut)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(Shut)?;
        // Two keys may have one id, some day.
        self.0
            .iter()
            .filter(|(known, _)| known == id)
            .find_map(|(_, key)| {
                let mut opened = sealed.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let length = key.open_in_place(nonce, bound(belongs_to), &mut opened).ok()?.len();
                opened.truncate(length);
                Some(opened)
            })
            .ok_or(Shut)
    }
}

/// What it belongs to, each part after its length so that no two run together.
fn bound(parts: &[&[u8]]) -> Aad<Vec<u8>> {
    Aad::from(parts.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes(), *part].concat()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(seed: u64) -> (String, Keyring) {
        let text = STANDARD.encode(Ids::seeded(seed).secret());
        let ring = Keyring::read(&text).expect("a key");
        (text, ring)
    }

    #[test]
    fn what_is_sealed_opens_for_the_same_thing_alone() {
        let ((_, ring), ids) = (self::ring(1), Ids::seeded(2));
        let sealed = ring.seal(&ids, &[b"webhook", b"a"], b"secret").expect("sealed");
        assert_eq!(ring.open(&[b"webhook", b"a"], &sealed).as_deref(), Ok(b"secret".as_slice()));
        for other in [&[b"webhook".as_slice(), b"b"], &[b"webhoo".as_slice(), b"ka"]] {
            assert_eq!(ring.open(other, &sealed), Err(Shut));
        }
        for at in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(ring.open(&[b"webhook", b"a"], &bent), Err(Shut), "byte {at}");
            assert_eq!(ring.open(&[b"webhook", b"a"], &sealed[..at]), Err(Shut), "{at} bytes");
        }
        assert_ne!(sealed, ring.seal(&ids, &[b"webhook", b"a"], b"secret").expect("sealed"), "another nonce");
    }

    #[test]
    fn a_new_key_goes_before_the_old_ones() {
        let ((old_text, old), (new_text, new), ids) = (ring(1), ring(2), Ids::seeded(3));
        let before = old.seal(&ids, &[b"it"], b"secret").expect("sealed");
        let both = Keyring::read(&format!("{new_text}, {old_text}")).expect("keys");
        assert_eq!(both.open(&[b"it"], &before).as_deref(), Ok(b"secret".as_slice()));
        let after = both.seal(&ids, &[b"it"], b"secret").expect("sealed");
        assert!(new.open(&[b"it"], &after).is_ok() && old.open(&[b"it"], &after).is_err());
    }

    #[test]
    fn only_a_key_is_a_key() {
        for text in ["", "secret", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33]), &"A".repeat(44)] {
            assert!(Keyring::read(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", ring(1).1), "Keyring of 1");
    }
}
