//! Signing what is sent, by Standard Webhooks (<https://www.standardwebhooks.com>): an HMAC-SHA-256 over id, time and
//! body, once for every secret that is valid, so that a receiver may hold either one while a secret is rotated.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderValue;
use sha2::Sha256;

use crate::secrets::Secret;

/// What such secrets are shown with; it is no part of the key.
const SECRET_PREFIX: &[u8] = b"whsec_";

/// A secret that no key can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret must be base64, with or without the prefix `whsec_`")]
pub(super) struct BadSecret;

/// The value of `webhook-signature`: `v1,` and a signature for each of `secrets`, separated by spaces.
pub(super) fn sign(secrets: &[Secret], id: &str, seconds: i64, body: &[u8]) -> Result<HeaderValue, BadSecret> {
    let head = format!("{id}.{seconds}.");
    let mut value = String::new();
    for secret in secrets {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key(secret)?).map_err(|_| BadSecret)?;
        mac.update(head.as_bytes());
        mac.update(body);
        value.push_str(if value.is_empty() { "v1," } else { " v1," });
        STANDARD.encode_string(mac.finalize().into_bytes(), &mut value);
    }
    HeaderValue::try_from(value).map_err(|_| BadSecret)
}

fn key(secret: &Secret) -> Result<Vec<u8>, BadSecret> {
    let text = secret.expose();
    let key =
        STANDARD_PAD_INDIFFERENT.decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(text)).map_err(|_| BadSecret)?;
    if key.is_empty() { Err(BadSecret) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // From the reference implementation's own tests: standard-webhooks, libraries/rust/src/lib.rs.
    const SECRET: &[u8] = b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const ID: &str = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
    const SECONDS: i64 = 1_649_367_553;
    const BODY: &[u8] = br#"{"email":"test@example.com","username":"test_user"}"#;
    const SIGNATURE: &str = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";

    #[test]
    fn a_published_vector_is_signed_as_published() {
        let secret = Secret::new(SECRET);
        assert_eq!(sign(&[secret], ID, SECONDS, BODY).unwrap(), SIGNATURE);
    }

    #[test]
    fn every_valid_secret_signs_and_the_prefix_makes_no_difference() {
        let secrets =
            [Secret::new(SECRET), Secret::new(&SECRET[SECRET_PREFIX.len()..]), Secret::new(*b"whsec_b3RoZXI=")];
        let value = sign(&secrets, ID, SECONDS, BODY).unwrap();
        let signatures: Vec<&str> = value.to_str().unwrap().split(' ').collect();
        assert_eq!(signatures[..2], [SIGNATURE, SIGNATURE]);
        assert!(signatures[2].starts_with("v1,") && signatures[2] != SIGNATURE);
        assert_eq!(signatures.len(), 3);
    }

    #[test]
    fn a_secret_that_is_no_key_signs_nothing() {
        for wrong in ["whsec_", "", "whsec_*", "not base64"] {
            assert_eq!(sign(&[Secret::new(wrong.as_bytes())], ID, SECONDS, BODY), Err(BadSecret), "{wrong:?}");
        }
    }
}
