//! The `Idempotency-Key` header (draft-ietf-httpapi-idempotency-key-header) by API.md's rule: 1 to 255 bytes of
//! 0x21–0x7E, bare or as an RFC 8941 string. Only its hash leaves this file.

use sha2::{Digest, Sha256};

/// SHA-256 of a key. The key itself is kept nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash(pub [u8; 32]);

/// What is wrong with a header value that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key must be 1 to 255 visible ASCII characters, bare or as one quoted string without parameters")]
pub struct InvalidKey;

/// Longest key, in bytes, quotes not counted.
pub const LONGEST: usize = 255;

/// Parses one header line. `abc` and `"abc"` are one key; a value that starts with a quote must be one whole string.
///
/// # Errors
/// [`InvalidKey`] for anything else, so that a broken key is never taken for no key.
pub fn parse(value: &[u8]) -> Result<KeyHash, InvalidKey> {
    let key = if value.starts_with(b"\"") {
        let item: sfv::Item = sfv::Parser::new(value).parse().map_err(|_| InvalidKey)?;
        match item {
            sfv::Item { bare_item: sfv::BareItem::String(text), params } if params.is_empty() => {
                text.as_str().to_owned().into_bytes()
            }
            _ => return Err(InvalidKey),
        }
    } else {
        value.to_vec()
    };
    let visible = key.iter().all(|byte| (0x21..=0x7E).contains(byte));
    if key.is_empty() || key.len() > LONGEST || !visible {
        return Err(InvalidKey);
    }
    Ok(KeyHash(Sha256::digest(&key).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_and_quoted_are_one_key() {
        assert_eq!(parse(b"abc"), parse(b"\"abc\""));
        assert_eq!(parse(br#""a\"b""#), parse(br#"a"b"#));
        assert_ne!(parse(b"abc"), parse(b"ABC"));
        assert!(parse(b"a;b").is_ok(), "a bare semicolon is part of the key");
        assert!(parse("x".repeat(255).as_bytes()).is_ok());
        assert!(parse(format!("\"{}\"", "x".repeat(255)).as_bytes()).is_ok(), "the quotes do not count");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let long = "x".repeat(256);
        let broken: [&[u8]; 12] = [
            b"",
            b"\"\"",
            b"\"k",
            b"\"a\\x\"",
            b"\"k\";p=1",
            b"\"a\", \"b\"",
            b"a b",
            b"a\tb",
            b"\x7f",
            "é".as_bytes(),
            b"\xff",
            long.as_bytes(),
        ];
        for value in broken {
            assert_eq!(parse(value), Err(InvalidKey), "{value:?}");
        }
    }
}
