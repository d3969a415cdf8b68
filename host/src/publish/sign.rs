//! Signing what is sent, by Standard Webhooks (<https://www.standardwebhooks.com>): an HMAC-SHA-256 over id, time and body,
//! once for every secret that is valid, so that a receiver may hold either one while a secret is rotated.

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
#[error("a signing secret must be base64, with or without `whsec_` before it")]
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
