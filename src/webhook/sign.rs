//! Signatures of Standard Webhooks, version 1: HMAC-SHA256 over id, time and body, one for each secret in use.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The value of `webhook-signature`: `v1,…`, and while an old secret signs too, another one after a space.
#[must_use]
pub fn signatures(secrets: &[Vec<u8>], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signed = [id.as_bytes(), b".", timestamp.to_string().as_bytes(), b".", body].concat();
    let of = |secret: &Vec<u8>| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &signed);
        format!("v1,{}", STANDARD.encode(tag))
    };
    secrets.iter().map(of).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the libraries of Standard Webhooks are tested with.
    #[test]
    fn it_signs_as_the_standard_does() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let (id, at, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signatures(std::slice::from_ref(&secret), id, at, body), signature);
        let both = signatures(&[vec![7; 32], secret], id, at, body);
        assert!(both.ends_with(signature) && both.split(' ').count() == 2, "{both}");
    }
}
