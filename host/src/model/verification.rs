//! How a request proves where it comes from, as data: what a manifest declares, and intake checks.

use std::time::Duration;

use http::HeaderName;

use super::names::SecretName;

/// How a request proves where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// Not at all: for providers that cannot sign, behind a secret address or a private network.
    Plain,
    /// A header carries the secret itself.
    SharedToken {
        /// The header.
        header: HeaderName,
        /// The secret, of which the operator may hold several.
        secret: SecretName,
    },
    /// HTTP Basic authentication (RFC 7617).
    Basic {
        /// The secret, `user:password`, of which the operator may hold several.
        secret: SecretName,
    },
    /// A header carries a signature over the request.
    Signature {
        /// How it is made.
        scheme: SignatureScheme,
        /// The key, of which the operator may hold several.
        secret: SecretName,
    },
}

impl Verification {
    /// The secret that it takes, if it takes one.
    pub fn secret(&self) -> Option<&SecretName> {
        match self {
            Verification::Plain => None,
            Verification::SharedToken { secret, .. }
            | Verification::Basic { secret }
            | Verification::Signature { secret, .. } => Some(secret),
        }
    }

    /// Whether the signature covers the address that a request was sent to.
    pub fn signs_uri(&self) -> bool {
        match self {
            Verification::Plain | Verification::SharedToken { .. } | Verification::Basic { .. } => false,
            Verification::Signature { scheme, .. } => {
                scheme.signed.iter().any(|part| matches!(part, SignedPart::Uri(_)))
            }
        }
    }
}

/// A signature scheme, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureScheme {
    /// What makes the signature.
    pub algorithm: Algorithm,
    /// The header that carries the signature or signatures.
    pub header: HeaderName,
    /// How the header's value is divided.
    pub form: SignatureForm,
    /// How a signature is written.
    pub encoding: SignatureEncoding,
    /// The bytes that are signed, in order.
    pub signed: Vec<SignedPart>,
    /// Where the time of signing is, if the scheme has one.
    pub timestamp: Option<TimestampRule>,
}

/// What makes the signatures of a [`SignatureScheme`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// A keyed hash, whose key both sides hold.
    Hmac {
        /// The hash.
        hash: SignatureHash,
        /// How the stored secret becomes the key.
        key: KeyForm,
    },
    /// ECDSA on the curve P-256 with SHA-256, signatures in DER. The operator holds the provider's public key.
    EcdsaP256,
    /// Ed25519. The operator holds the provider's public key.
    Ed25519,
}

impl Algorithm {
    /// HMAC-SHA-256, whose key is the stored secret as it is: what most providers use.
    pub const HMAC_SHA256: Algorithm = Algorithm::Hmac { hash: SignatureHash::Sha256, key: KeyForm::Raw };
}

/// The hash of [`Algorithm::Hmac`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureHash {
    /// HMAC-SHA-1.
    Sha1,
    /// HMAC-SHA-256.
    Sha256,
    /// HMAC-SHA-512.
    Sha512,
}

/// How a stored secret becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// Its bytes as they are.
    Raw,
    /// Base64 behind the prefix `whsec_`, which may be missing (Standard Webhooks).
    StandardWebhooks,
}

/// How the value of a signature header is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignatureForm {
    /// One signature behind this prefix, which may be empty (`sha256=…`, `v0=…`).
    Prefixed(String),
    /// Space-separated `version,signature`; those of this version count (Standard Webhooks).
    VersionList(String),
    /// Comma-separated `name=value`; those of this name are signatures (Stripe).
    Fields(String),
}

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureEncoding {
    /// Hexadecimal, in either case.
    Hex,
    /// Standard base64 with padding.
    Base64,
}

/// A piece of the signed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedPart {
    /// The raw body.
    Body,
    /// The fields of a form body, sorted by name: each name with its value behind it (Twilio). A body that is no form
    /// is signed by its SHA-256 in hexadecimal, as the field `bodySHA256` of the address's query.
    Form,
    /// The method, in upper case.
    Method,
    /// The address that the provider delivers to, as it signs it.
    Uri(UriForm),
    /// The time of signing, as written in the request.
    Timestamp,
    /// A header's value.
    Header(HeaderName),
    /// This text.
    Literal(String),
}

impl SignedPart {
    /// Whether it stands for the body.
    pub fn covers_body(&self) -> bool {
        matches!(self, SignedPart::Body | SignedPart::Form)
    }
}

/// How a provider writes the address that it signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriForm {
    /// As it is requested.
    AsRequested,
    /// With the percent-escapes of some characters decoded (HubSpot).
    HubSpot,
    /// As it is requested, or with its port left out, or with its scheme's default port written (Twilio).
    AnyPort,
}

/// Where a request says when it was signed, and how far from now that may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampRule {
    /// Where it is.
    pub place: TimestampPlace,
    /// What it counts.
    pub unit: TimestampUnit,
    /// How far it may lie in the past or in the future.
    pub window: Duration,
}

/// What a time of signing counts since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampUnit {
    /// Whole seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// Where the time of signing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimestampPlace {
    /// In a header of its own.
    Header(HeaderName),
    /// In the field of this name of the signature header ([`SignatureForm::Fields`]).
    Field(String),
    /// In the JSON body, where this RFC 6901 pointer leads.
    Pointer(String),
}
