//! Verification: does a request come from somebody who has one of the route's secrets? (ADM-4)
//!
//! Schemes are data ([`Verification`]); nothing here knows a provider.
//!
//! Invariants:
//! - What is hashed is the raw body and the raw header text, never something that was parsed and written again.
//! - Everything that depends on a secret is compared in constant time; the answer does not tell one failure from
//!   another.
//! - A header that a scheme needs is there exactly once: with two of a kind, a proxy and this host might each believe a
//!   different one.
//! - Whatever the headers hold, the result is a yes or a no, after work bounded by their length and by the number of
//!   secrets.

use std::borrow::Cow;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

use super::answer::Refusal;
use crate::model::pack::{
    HmacScheme, KeyForm, SignatureEncoding, SignatureForm, SignatureHash, SignedPart, TimestampPlace, TimestampRule,
    TimestampUnit, UriForm, Verification,
};
use crate::model::time::Timestamp;
use crate::secrets::Secret;

/// The longest value of a header that takes part in a verification. Two SHA-512 signatures in hex are 256 bytes.
const HEADER_BYTES_MAX: usize = 4096;

/// The longest output of a [`SignatureHash`], in bytes.
const MAC_BYTES_MAX: usize = 64;

/// The digits of a time of signing; more would be after the year 30,000, counted in milliseconds.
const TIMESTAMP_DIGITS_MAX: usize = 15;

/// The percent-escapes that HubSpot decodes before it signs an address, and what they stand for.
const HUBSPOT_DECODED: [(&str, char); 12] = [
    ("3A", ':'),
    ("2F", '/'),
    ("3F", '?'),
    ("40", '@'),
    ("21", '!'),
    ("24", '$'),
    ("27", '\''),
    ("28", '('),
    ("29", ')'),
    ("2A", '*'),
    ("2C", ','),
    ("3B", ';'),
];

/// What Standard Webhooks secrets begin with.
const STANDARD_WEBHOOKS_PREFIX: &[u8] = b"whsec_";

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
        Verification::Hmac { scheme, .. } => verify_hmac(scheme, request, secrets, now),
    }
}

/// Whether any of `secrets` can verify anything.
pub(super) fn can_verify(verification: &Verification, secrets: &[Secret]) -> bool {
    match verification {
        Verification::Plain => true,
        Verification::SharedToken { .. } => !secrets.is_empty(),
        Verification::Hmac { scheme, .. } => secrets.iter().any(|secret| key_of(scheme.key, secret).is_some()),
    }
}

/// Hashes are compared, so that not even the length of a secret shows in the time.
fn verify_token(token: &[u8], secrets: &[Secret]) -> Result<(), Refusal> {
    let token = Sha256::digest(token);
    let matches = |secret: &Secret| bool::from(Sha256::digest(secret.expose()).ct_eq(&token));
    if secrets.iter().any(matches) { Ok(()) } else { Err(Refusal::SignatureWrong) }
}

fn verify_hmac(scheme: &HmacScheme, request: Signed<'_>, secrets: &[Secret], now: Timestamp) -> Result<(), Refusal> {
    let signatures = single_text(request.headers, &scheme.header)?;
    let timestamp = match &scheme.timestamp {
        Some(rule) => time_of_signing(rule, request.headers, signatures, now)?,
        None => "",
    };
    let uri = signed_uri(scheme, request.uri);
    let parts = signed_parts(scheme, request, &uri, timestamp)?;
    let candidates = candidates(scheme, signatures)?;

    let mut usable = false;
    for key in secrets.iter().filter_map(|secret| key_of(scheme.key, secret)) {
        usable = true;
        let expected = Code::of(scheme.hash, &key, &parts);
        if candidates.iter().any(|candidate| candidate.equals(&expected)) {
            return Ok(());
        }
    }
    Err(if usable { Refusal::SignatureWrong } else { Refusal::SecretUnusable })
}

/// The bytes that are signed, piece by piece.
fn signed_parts<'request>(
    scheme: &'request HmacScheme,
    request: Signed<'request>,
    uri: &'request str,
    timestamp: &'request str,
) -> Result<Vec<&'request [u8]>, Refusal> {
    let part = |part: &'request SignedPart| match part {
        SignedPart::Body => Ok(request.body),
        SignedPart::Method => Ok(request.method.as_bytes()),
        SignedPart::Uri(_) => Ok(uri.as_bytes()),
        SignedPart::Timestamp => Ok(timestamp.as_bytes()),
        SignedPart::Header(name) => single(request.headers, name),
        SignedPart::Literal(text) => Ok(text.as_bytes()),
    };
    scheme.signed.iter().map(part).collect()
}

/// The address as the scheme writes it.
fn signed_uri<'request>(scheme: &HmacScheme, uri: &'request str) -> Cow<'request, str> {
    let form = scheme.signed.iter().find_map(|part| match part {
        SignedPart::Uri(form) => Some(*form),
        SignedPart::Body
        | SignedPart::Method
        | SignedPart::Timestamp
        | SignedPart::Header(_)
        | SignedPart::Literal(_) => None,
    });
    match form {
        Some(UriForm::HubSpot) if uri.contains('%') => Cow::Owned(hubspot_decoded(uri)),
        Some(UriForm::HubSpot | UriForm::AsRequested) | None => Cow::Borrowed(uri),
    }
}

/// Decodes the percent-escapes of the characters that HubSpot signs as themselves, and no others.
/// <https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>
fn hubspot_decoded(uri: &str) -> String {
    let mut decoded = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let escaped = after.get(..2).and_then(|hex| {
            HUBSPOT_DECODED.into_iter().find(|(code, _)| code.eq_ignore_ascii_case(hex)).map(|(_, character)| character)
        });
        match escaped {
            Some(character) => {
                decoded.push(character);
                rest = &after[2..];
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// The signatures that the header offers; at least one of them is written as the scheme demands.
fn candidates(scheme: &HmacScheme, header: &str) -> Result<Vec<Code>, Refusal> {
    let bytes = match scheme.hash {
        SignatureHash::Sha256 => 32,
        SignatureHash::Sha512 => 64,
    };
    let decode = |text: &str| Code::decode(scheme.encoding, text, bytes);
    let candidates: Vec<Code> = match &scheme.form {
        SignatureForm::Prefixed(prefix) => header.strip_prefix(prefix.as_str()).and_then(decode).into_iter().collect(),
        SignatureForm::VersionList(version) => {
            header.split(' ').filter_map(|item| named(item, ',', version)).filter_map(decode).collect()
        }
        SignatureForm::Fields(name) => fields(header, name).filter_map(decode).collect(),
    };
    if candidates.is_empty() { Err(Refusal::SignatureMalformed) } else { Ok(candidates) }
}

/// The text of the time of signing, if that time is close enough to now.
fn time_of_signing<'request>(
    rule: &TimestampRule,
    headers: &'request HeaderMap,
    signatures: &'request str,
    now: Timestamp,
) -> Result<&'request str, Refusal> {
    let text = match &rule.place {
        TimestampPlace::Header(name) => single_text(headers, name)?,
        TimestampPlace::Field(name) => {
            let mut found = fields(signatures, name);
            let first = found.next().ok_or(Refusal::SignatureMissing)?;
            if found.next().is_some() {
                return Err(Refusal::SignatureRepeated);
            }
            first
        }
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

/// The key that a stored secret stands for; `None` if it stands for none.
fn key_of(form: KeyForm, secret: &Secret) -> Option<Vec<u8>> {
    match form {
        KeyForm::Raw => Some(secret.expose().to_vec()),
        KeyForm::StandardWebhooks => {
            let stored = secret.expose();
            let encoded = stored.strip_prefix(STANDARD_WEBHOOKS_PREFIX).unwrap_or(stored);
            BASE64.decode(encoded).ok().filter(|key| !key.is_empty())
        }
    }
}

/// A message authentication code.
struct Code {
    bytes: [u8; MAC_BYTES_MAX],
    length: usize,
}

impl Code {
    fn of(hash: SignatureHash, key: &[u8], parts: &[&[u8]]) -> Self {
        match hash {
            SignatureHash::Sha256 => Self::computed::<Hmac<Sha256>>(key, parts),
            SignatureHash::Sha512 => Self::computed::<Hmac<Sha512>>(key, parts),
        }
    }

    fn computed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Self {
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        Self::from_slice(&mac.finalize().into_bytes())
    }

    /// A code of `length` bytes as it is written in a header; `None` if that is not how one is written.
    fn decode(encoding: SignatureEncoding, text: &str, length: usize) -> Option<Self> {
        let encoding = match encoding {
            SignatureEncoding::Hex => &HEXLOWER_PERMISSIVE,
            SignatureEncoding::Base64 => &BASE64,
        };
        // The length is asked first: nothing longer than a signature is decoded.
        if text.len() != encoding.encode_len(length) {
            return None;
        }
        encoding
            .decode(text.as_bytes())
            .ok()
            .filter(|bytes| bytes.len() == length)
            .map(|bytes| Self::from_slice(&bytes))
    }

    fn from_slice(slice: &[u8]) -> Self {
        let mut bytes = [0; MAC_BYTES_MAX];
        bytes[..slice.len()].copy_from_slice(slice);
        Self { bytes, length: slice.len() }
    }

    fn equals(&self, other: &Self) -> bool {
        self.length == other.length && bool::from(self.bytes.ct_eq(&other.bytes))
    }
}

#[cfg(test)]
mod tests;
