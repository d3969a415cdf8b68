//! Verification: does a request come from somebody who has one of the route's secrets? (ADM-4)
//!
//! Schemes are data ([`Verification`]); nothing here knows a provider.
//!
//! Invariants:
//! - What is signed is the raw body and the raw header text, never something that was parsed and written again; but for
//!   the schemes that sign the fields of a form.
//! - Everything that depends on a shared secret is compared in constant time; the answer does not tell one failure from
//!   another.
//! - A header that a scheme needs is there exactly once: with two of a kind, a proxy and this host might each believe a
//!   different one.
//! - Whatever the headers hold, the result is a yes or a no, after work bounded by the request's length and by the
//!   number of secrets.

mod address;
mod form;
mod key;

use std::borrow::Cow;

use data_encoding::BASE64;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use self::form::fields as signed_form;
pub use self::key::keyed_hash;
use self::key::{Key, Proof};
use super::answer::Refusal;
use super::pointer;
use crate::model::time::Timestamp;
use crate::model::verification::{
    SignatureForm, SignatureScheme, SignedPart, TimestampPlace, TimestampRule, TimestampUnit, Verification,
};
use crate::secrets::Secret;

/// The longest value of a header that takes part in a verification. Two SHA-512 signatures in hex are 256 bytes.
const HEADER_BYTES_MAX: usize = 4096;

/// The most signatures that one request may offer: by a public key, each costs a hash of the whole body.
const PROOFS_MAX: usize = 8;

/// The digits of a time of signing; more would be after the year 30,000, counted in milliseconds.
const TIMESTAMP_DIGITS_MAX: usize = 15;

/// What the credentials of HTTP Basic authentication begin with, in either case.
const BASIC: &str = "basic ";

/// A request, as far as verification looks at it.
#[derive(Clone, Copy)]
pub(super) struct Signed<'request> {
    pub(super) method: &'request str,
    /// The whole address, as its sender knows it.
    pub(super) uri: &'request str,
    pub(super) headers: &'request HeaderMap,
    pub(super) body: &'request [u8],
}

/// Whether `request` proves that its sender has one of `secrets`.
pub(super) fn verify(
    verification: &Verification,
    request: Signed<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<(), Refusal> {
    match verification {
        Verification::Plain => Ok(()),
        Verification::SharedToken { header, .. } => verify_token(single(request.headers, header)?, secrets),
        Verification::Basic { .. } => verify_token(&basic_credentials(request.headers)?, secrets),
        Verification::Signature { scheme, .. } => verify_signature(scheme, request, secrets, now),
    }
}

/// Whether any of `secrets` can verify anything; if not, what a secret of this kind is.
pub(super) fn can_verify(verification: &Verification, secrets: &[Secret]) -> Result<(), &'static str> {
    match verification {
        Verification::Plain => Ok(()),
        Verification::SharedToken { .. } => usable(!secrets.is_empty(), "a text"),
        Verification::Basic { .. } => {
            let is_pair = |secret: &Secret| secret.expose().contains(&b':');
            usable(secrets.iter().any(is_pair), "`user:password`")
        }
        Verification::Signature { scheme, .. } => {
            let is_key = |secret: &Secret| Key::of(scheme.algorithm, secret).is_some();
            usable(secrets.iter().any(is_key), key::description(scheme.algorithm))
        }
    }
}

fn usable(is_usable: bool, expected: &'static str) -> Result<(), &'static str> {
    if is_usable { Ok(()) } else { Err(expected) }
}

/// Whether `token` is one of the secrets. Hashes are compared, so that not even the length of a secret shows in the
/// time.
pub(super) fn verify_token(token: &[u8], secrets: &[Secret]) -> Result<(), Refusal> {
    let token = Sha256::digest(token);
    let matches = |secret: &Secret| bool::from(Sha256::digest(secret.expose()).ct_eq(&token));
    if secrets.iter().any(matches) { Ok(()) } else { Err(Refusal::SignatureWrong) }
}

/// `user:password`, as the request carries it.
fn basic_credentials(headers: &HeaderMap) -> Result<Vec<u8>, Refusal> {
    let value = single_text(headers, &AUTHORIZATION)?;
    let (scheme, encoded) = value.split_at_checked(BASIC.len()).ok_or(Refusal::SignatureMalformed)?;
    let decoded = if scheme.eq_ignore_ascii_case(BASIC) { BASE64.decode(encoded.as_bytes()).ok() } else { None };
    decoded.ok_or(Refusal::SignatureMalformed)
}

fn verify_signature(
    scheme: &SignatureScheme,
    request: Signed<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<(), Refusal> {
    let signatures = single_text(request.headers, &scheme.header)?;
    let time = match &scheme.timestamp {
        Some(rule) => time_of_signing(rule, request, signatures, now)?,
        None => Cow::Borrowed(""),
    };
    let proofs = proofs(scheme, signatures)?;
    let keys: Vec<Key> = secrets.iter().filter_map(|secret| Key::of(scheme.algorithm, secret)).collect();
    if keys.is_empty() {
        return Err(Refusal::SecretUnusable);
    }
    for uri in address::written(scheme, request.uri) {
        let parts = signed_parts(scheme, request, &uri, &time)?;
        if keys.iter().any(|key| key.verifies(&parts, &proofs)) {
            return Ok(());
        }
    }
    Err(Refusal::SignatureWrong)
}

/// The bytes that are signed, piece by piece.
fn signed_parts<'request>(
    scheme: &'request SignatureScheme,
    request: Signed<'request>,
    uri: &'request str,
    time: &'request str,
) -> Result<Vec<Cow<'request, [u8]>>, Refusal> {
    let part = |part: &'request SignedPart| match part {
        SignedPart::Body => Ok(Cow::Borrowed(request.body)),
        SignedPart::Form => form::signed(uri, request.body).map(Cow::Owned),
        SignedPart::Method => Ok(Cow::Borrowed(request.method.as_bytes())),
        SignedPart::Uri(_) => Ok(Cow::Borrowed(uri.as_bytes())),
        SignedPart::Timestamp => Ok(Cow::Borrowed(time.as_bytes())),
        SignedPart::Header(name) => single(request.headers, name).map(Cow::Borrowed),
        SignedPart::Literal(text) => Ok(Cow::Borrowed(text.as_bytes())),
    };
    scheme.signed.iter().map(part).collect()
}

/// The signatures that the header offers: those, at least one, that are written as the scheme demands.
fn proofs(scheme: &SignatureScheme, header: &str) -> Result<Vec<Proof>, Refusal> {
    let decode = |text: &str| Proof::decode(scheme.algorithm, scheme.encoding, text);
    let proofs: Vec<Proof> = match &scheme.form {
        SignatureForm::Prefixed(prefix) => header.strip_prefix(prefix.as_str()).and_then(decode).into_iter().collect(),
        SignatureForm::VersionList(version) => {
            header.split(' ').filter_map(|item| named(item, ',', version)).filter_map(decode).collect()
        }
        SignatureForm::Fields(name) => fields(header, name).filter_map(decode).collect(),
    };
    if (1..=PROOFS_MAX).contains(&proofs.len()) { Ok(proofs) } else { Err(Refusal::SignatureMalformed) }
}

/// The text of the time of signing, if that time is close enough to now.
fn time_of_signing<'request>(
    rule: &TimestampRule,
    request: Signed<'request>,
    signatures: &'request str,
    now: Timestamp,
) -> Result<Cow<'request, str>, Refusal> {
    let text = match &rule.place {
        TimestampPlace::Header(name) => Cow::Borrowed(single_text(request.headers, name)?),
        TimestampPlace::Field(name) => {
            let mut found = fields(signatures, name);
            let first = found.next().ok_or(Refusal::SignatureMissing)?;
            if found.next().is_some() {
                return Err(Refusal::SignatureRepeated);
            }
            Cow::Borrowed(first)
        }
        TimestampPlace::Pointer(pointer) => match pointer::find(request.body, [Some(pointer)]) {
            Ok([found]) => Cow::Owned(found.ok_or(Refusal::SignatureMissing)?),
            Err(pointer::NotJson) => return Err(Refusal::SignatureMissing),
        },
    };
    let digits =
        !text.is_empty() && text.len() <= TIMESTAMP_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    let count: i64 = text.parse().ok().filter(|_| digits).ok_or(Refusal::SignatureMalformed)?;
    let signed_at = Timestamp::from_millis(match rule.unit {
        TimestampUnit::Seconds => count.saturating_mul(1_000),
        TimestampUnit::Milliseconds => count,
    });
    if now.since(signed_at) > rule.window || signed_at.since(now) > rule.window {
        return Err(Refusal::SignatureStale);
    }
    Ok(text)
}

/// The values of the fields `name=value` of this name.
fn fields<'text>(header: &'text str, name: &str) -> impl Iterator<Item = &'text str> {
    header.split(',').filter_map(move |field| named(field, '=', name))
}

/// What stands behind `name` and `separator`.
fn named<'text>(item: &'text str, separator: char, name: &str) -> Option<&'text str> {
    item.strip_prefix(name)?.strip_prefix(separator)
}

/// The value of a header that is there once, and not longer than a header has reason to be.
fn single<'request>(headers: &'request HeaderMap, name: &HeaderName) -> Result<&'request [u8], Refusal> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Refusal::SignatureMissing)?.as_bytes();
    if values.next().is_some() {
        return Err(Refusal::SignatureRepeated);
    }
    if value.len() > HEADER_BYTES_MAX { Err(Refusal::SignatureMalformed) } else { Ok(value) }
}

/// The same, if it is visible ASCII.
fn single_text<'request>(headers: &'request HeaderMap, name: &HeaderName) -> Result<&'request str, Refusal> {
    let value = single(headers, name)?;
    let visible = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| visible).ok_or(Refusal::SignatureMalformed)
}

#[cfg(test)]
mod tests;
