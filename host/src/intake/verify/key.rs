//! Keys and what they prove: keyed hashes, and signatures by public keys.

use std::borrow::Cow;

use data_encoding::{BASE64, Encoding, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq;

use crate::model::verification::{Algorithm, KeyForm, SignatureEncoding, SignatureHash};
use crate::secrets::Secret;

/// The prefix of Standard Webhooks secrets.
const STANDARD_WEBHOOKS_PREFIX: &[u8] = b"whsec_";

/// The start of a SubjectPublicKeyInfo of P-256 (RFC 5480), up to the point: the identifiers of the algorithm and of
/// the curve, and the head of the bit string.
const P256_INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point of P-256.
const P256_POINT_BYTES: usize = 65;
/// The start of a SubjectPublicKeyInfo of Ed25519 (RFC 8410), up to the key.
const ED25519_INFO: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const ED25519_KEY_BYTES: usize = 32;
const ED25519_SIGNATURE_BYTES: usize = 64;
/// The bounds of an ECDSA signature in DER: two integers of 1 to 33 bytes.
const ECDSA_SIGNATURE_BYTES: std::ops::RangeInclusive<usize> = 8..=72;

/// A signature, as the request offers it.
pub(super) struct Proof(Vec<u8>);

impl Proof {
    /// A signature as it is written in a header; `None` if that is not how one is written.
    pub(super) fn decode(algorithm: Algorithm, encoding: SignatureEncoding, text: &str) -> Option<Self> {
        let encoding = match encoding {
            SignatureEncoding::Hex => HEXLOWER_PERMISSIVE,
            SignatureEncoding::Base64 => BASE64,
        };
        let bytes = match algorithm {
            Algorithm::Hmac { hash, .. } => output_bytes(hash)..=output_bytes(hash),
            Algorithm::EcdsaP256 => ECDSA_SIGNATURE_BYTES,
            Algorithm::Ed25519 => ED25519_SIGNATURE_BYTES..=ED25519_SIGNATURE_BYTES,
        };
        // The length is asked first: nothing longer than a signature is decoded.
        if text.len() < encoding.encode_len(*bytes.start()) || text.len() > encoding.encode_len(*bytes.end()) {
            return None;
        }
        encoding.decode(text.as_bytes()).ok().filter(|decoded| bytes.contains(&decoded.len())).map(Self)
    }
}

/// A key that a stored secret stands for.
pub(super) enum Key {
    /// Of a keyed hash.
    Shared(SignatureHash, Vec<u8>),
    /// The provider's public one.
    Public(UnparsedPublicKey<Vec<u8>>),
}

impl Key {
    /// `None` if the secret is none for this algorithm.
    pub(super) fn of(algorithm: Algorithm, secret: &Secret) -> Option<Self> {
        let stored = secret.expose();
        match algorithm {
            Algorithm::Hmac { hash, key: KeyForm::Raw } => Some(Self::Shared(hash, stored.to_vec())),
            Algorithm::Hmac { hash, key: KeyForm::StandardWebhooks } => {
                let encoded = stored.strip_prefix(STANDARD_WEBHOOKS_PREFIX).unwrap_or(stored);
                BASE64.decode(encoded).ok().filter(|key| !key.is_empty()).map(|key| Self::Shared(hash, key))
            }
            Algorithm::EcdsaP256 => {
                let point = public_key(stored, &P256_INFO, P256_POINT_BYTES)?;
                Some(Self::public(&signature::ECDSA_P256_SHA256_ASN1, point))
            }
            Algorithm::Ed25519 => {
                let key = public_key(stored, &ED25519_INFO, ED25519_KEY_BYTES)?;
                Some(Self::public(&signature::ED25519, key))
            }
        }
    }

    fn public(algorithm: &'static dyn VerificationAlgorithm, key: Vec<u8>) -> Self {
        Self::Public(UnparsedPublicKey::new(algorithm, key))
    }

    /// Whether one of `proofs` is its signature of `parts`, one behind the other.
    pub(super) fn verifies(&self, parts: &[Cow<'_, [u8]>], proofs: &[Proof]) -> bool {
        match self {
            Self::Shared(hash, key) => {
                let expected = keyed_hash(*hash, key, parts);
                proofs.iter().any(|Proof(offered)| bool::from(offered.as_slice().ct_eq(&expected)))
            }
            Self::Public(key) => {
                let message = parts.concat();
                proofs.iter().any(|Proof(offered)| key.verify(&message, offered).is_ok())
            }
        }
    }
}

/// What a secret for this algorithm is, for operators.
pub(super) fn description(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Hmac { key: KeyForm::Raw, .. } => "a text",
        Algorithm::Hmac { key: KeyForm::StandardWebhooks, .. } => "base64, behind `whsec_`",
        Algorithm::EcdsaP256 => "the provider's public key, a SubjectPublicKeyInfo of P-256 in base64",
        Algorithm::Ed25519 => "the provider's public key, in hexadecimal or base64",
    }
}

/// The bytes of a public key that is written in hexadecimal or base64, by itself or as a SubjectPublicKeyInfo.
fn public_key(text: &[u8], info: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let decoded_by = |encoding: &Encoding| {
        let decoded = encoding.decode(text).ok()?;
        let key = decoded.strip_prefix(info).unwrap_or(&decoded);
        (key.len() == bytes).then(|| key.to_vec())
    };
    decoded_by(&HEXLOWER_PERMISSIVE).or_else(|| decoded_by(&BASE64))
}

fn output_bytes(hash: SignatureHash) -> usize {
    match hash {
        SignatureHash::Sha1 => 20,
        SignatureHash::Sha256 => 32,
        SignatureHash::Sha512 => 64,
    }
}

/// The message authentication code of `parts`, one behind the other.
pub fn keyed_hash<P: AsRef<[u8]>>(hash: SignatureHash, key: &[u8], parts: &[P]) -> Vec<u8> {
    match hash {
        SignatureHash::Sha1 => computed::<Hmac<Sha1>, P>(key, parts),
        SignatureHash::Sha256 => computed::<Hmac<Sha256>, P>(key, parts),
        SignatureHash::Sha512 => computed::<Hmac<Sha512>, P>(key, parts),
    }
}

fn computed<M: Mac + KeyInit, P: AsRef<[u8]>>(key: &[u8], parts: &[P]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part.as_ref());
    }
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    // ADM-4
    #[test]
    fn public_keys_are_taken_as_providers_show_them_and_nothing_else_is_one() {
        let point = [[4].as_slice(), &[7; 64]].concat();
        let info = [P256_INFO.as_slice(), &point].concat();
        for right in [BASE64.encode(&info), BASE64.encode(&point), HEXLOWER_PERMISSIVE.encode(&point)] {
            assert!(Key::of(Algorithm::EcdsaP256, &Secret::new(right.as_bytes())).is_some(), "{right}");
            assert!(Key::of(Algorithm::Ed25519, &Secret::new(right.as_bytes())).is_none(), "{right}");
        }
        let key = [9; ED25519_KEY_BYTES];
        let info = [ED25519_INFO.as_slice(), &key].concat();
        for right in [HEXLOWER_PERMISSIVE.encode(&key), BASE64.encode(&key), BASE64.encode(&info)] {
            assert!(Key::of(Algorithm::Ed25519, &Secret::new(right.as_bytes())).is_some(), "{right}");
        }
        for wrong in ["", "secret", "-----BEGIN PUBLIC KEY-----", &"0".repeat(63), &"0".repeat(66)] {
            assert!(Key::of(Algorithm::Ed25519, &Secret::new(wrong.as_bytes())).is_none(), "{wrong}");
            assert!(Key::of(Algorithm::EcdsaP256, &Secret::new(wrong.as_bytes())).is_none(), "{wrong}");
        }
    }
}
