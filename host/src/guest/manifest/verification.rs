//! The part of a manifest that says how a request proves where it comes from.
//!
//! Invariants: a signature has a key and covers the body; a time that is checked is a time that is signed.

use std::time::Duration;

use http::HeaderName;

use super::json_pointer;
use super::section::{Section, Value};
use crate::guest::LoadError;
use crate::model::handshake::Handshake;
use crate::model::names::SecretName;
use crate::model::presets::{PRESET_NAMES, Preset, preset};
use crate::model::verification::{
    Algorithm, KeyForm, SignatureEncoding, SignatureForm, SignatureHash, SignatureScheme, SignedPart, TimestampPlace,
    TimestampRule, TimestampUnit, UriForm, Verification,
};

/// Pieces that the signed bytes may be made of.
const SIGNED_PARTS_MAX: usize = 16;
/// The widest window for a time of signing, in seconds.
const WINDOW_SECONDS_MAX: u64 = 86_400;
/// The window of a scheme that names none: what providers commonly ask for.
const WINDOW_SECONDS_DEFAULT: u64 = 300;

const SIGNATURE_KEYS: [&str; 8] = ["scheme", "hash", "key", "header", "form", "encoding", "signed", "timestamp"];
const SHARED_TOKEN_KEYS: [&str; 2] = ["scheme", "header"];

/// How the signatures of a scheme are made.
#[derive(Clone, Copy)]
enum Made {
    /// With a keyed hash, of which the table says more.
    WithHash,
    /// By this algorithm.
    By(Algorithm),
}

/// The schemes with signatures, as manifests write them.
const SIGNATURES: [(&str, Made); 3] = [
    ("hmac", Made::WithHash),
    ("ecdsa-p256", Made::By(Algorithm::EcdsaP256)),
    ("ed25519", Made::By(Algorithm::Ed25519)),
];

/// A verification, and the preset it came from, whose other rules are the route's defaults.
pub(super) struct Verified {
    pub(super) verification: Verification,
    pub(super) preset: Option<Preset>,
}

/// Reads `verify` and `secret` of a route.
pub(super) fn read(route: &mut Section<'_>) -> Result<Verified, LoadError> {
    let verify = route.required("verify", "\"github\"")?;
    let secret = route.optional("secret");
    if verify.is_text() { by_name(&verify, route, secret) } else { by_table(verify, route, secret) }
}

fn by_name(verify: &Value<'_>, route: &Section<'_>, secret: Option<Value<'_>>) -> Result<Verified, LoadError> {
    #[derive(Clone, Copy)]
    enum Named {
        Plain,
        SharedToken,
        Basic,
        Signature,
        Preset(&'static str),
    }
    let mut names = vec![("plain", Named::Plain), ("shared-token", Named::SharedToken), ("basic", Named::Basic)];
    names.extend(SIGNATURES.map(|(name, _)| (name, Named::Signature)));
    names.extend(PRESET_NAMES.map(|name| (name, Named::Preset(name))));
    match verify.choice(&names)? {
        Named::Plain => match secret {
            None => Ok(Verified { verification: Verification::Plain, preset: None }),
            Some(secret) => Err(secret.error("has no use where `verify` is `plain`: leave it out, or choose a scheme")),
        },
        Named::SharedToken => Err(verify.error(
            "must say which header carries the token: write `verify = { scheme = \"shared-token\", header = \"x-token\" }`",
        )),
        Named::Basic => {
            let verification = Verification::Basic { secret: required(route, secret)? };
            Ok(Verified { verification, preset: None })
        }
        Named::Signature => Err(verify.error(
            "must say where the signature is: write `verify = { scheme = \"..\", header = \"..\", encoding = \"hex\" }`",
        )),
        Named::Preset(name) => {
            let preset = preset(name).ok_or_else(|| verify.error("names no preset"))?;
            let verification = Verification::Signature { scheme: preset.scheme.clone(), secret: required(route, secret)? };
            Ok(Verified { verification, preset: Some(preset) })
        }
    }
}

fn by_table(verify: Value<'_>, route: &Section<'_>, secret: Option<Value<'_>>) -> Result<Verified, LoadError> {
    #[derive(Clone, Copy)]
    enum Scheme {
        SharedToken,
        Signature(Made),
    }
    // Which keys belong depends on the scheme, which is one of them.
    let mut table = verify.section(&SIGNATURE_KEYS)?;
    let scheme = table.required("scheme", "\"hmac\"")?;
    let mut schemes = vec![("shared-token", Scheme::SharedToken)];
    schemes.extend(SIGNATURES.map(|(name, made)| (name, Scheme::Signature(made))));
    let verification = match scheme.choice(&schemes)? {
        Scheme::SharedToken => {
            let header = table.required("header", "\"x-token\"")?.parse()?;
            if let Some(stray) = SIGNATURE_KEYS.iter().find_map(|key| table.optional(key)) {
                let known = SHARED_TOKEN_KEYS.join("` and `");
                return Err(stray.error(&format!("does not belong to a shared token, which has `{known}` only")));
            }
            Verification::SharedToken { header, secret: required(route, secret)? }
        }
        Scheme::Signature(made) => {
            Verification::Signature { scheme: signature(table, made)?, secret: required(route, secret)? }
        }
    };
    Ok(Verified { verification, preset: None })
}

fn required(route: &Section<'_>, secret: Option<Value<'_>>) -> Result<SecretName, LoadError> {
    match secret {
        Some(secret) => secret.parse(),
        None => Err(route.error(
            "the route's `verify` needs a secret: add for example `secret = \"webhook\"`, the name of a file in the secrets \
             directory",
        )),
    }
}

fn signature(mut table: Section<'_>, made: Made) -> Result<SignatureScheme, LoadError> {
    let algorithm = match made {
        Made::WithHash => hmac(&mut table)?,
        Made::By(algorithm) => {
            for key in ["hash", "key"] {
                if let Some(stray) = table.optional(key) {
                    return Err(stray.error("belongs to `scheme = \"hmac\"`: this scheme's keys are public ones"));
                }
            }
            algorithm
        }
    };
    let header: HeaderName = table.required("header", "\"x-signature\"")?.parse()?;
    let form = match table.optional("form") {
        None => SignatureForm::Prefixed(String::new()),
        Some(form) => signature_form(form)?,
    };
    let encoding = table.required("encoding", "\"hex\"")?;
    let encoding = encoding.choice(&[("hex", SignatureEncoding::Hex), ("base64", SignatureEncoding::Base64)])?;
    let timestamp = table.optional("timestamp").map(|rule| timestamp(rule, &form)).transpose()?;
    let signed = match table.optional("signed") {
        None => vec![SignedPart::Body],
        Some(parts) => signed_parts(parts)?,
    };
    if !signed.iter().any(SignedPart::covers_body) {
        return Err(table.error("`signed` must contain \"body\": a signature that leaves it out proves nothing"));
    }
    if signed.contains(&SignedPart::Form) && !signed.iter().any(|part| matches!(part, SignedPart::Uri(_))) {
        return Err(
            table.error("`signed` contains \"form\", and must contain \"uri\": it has the hash of other bodies")
        );
    }
    // A time in the body is signed with it.
    let in_body = |rule: &TimestampRule| matches!(rule.place, TimestampPlace::Pointer(_));
    match (signed.contains(&SignedPart::Timestamp), &timestamp) {
        (true, None) => {
            Err(table.error("`signed` contains \"timestamp\": say where it is, `timestamp = { header = \"..\" }`"))
        }
        (false, Some(rule)) if !in_body(rule) => {
            Err(table.error("`timestamp` is not in `signed`: a time that is not signed proves nothing"))
        }
        (_, _) => Ok(SignatureScheme { algorithm, header, form, encoding, signed, timestamp }),
    }
}

fn hmac(table: &mut Section<'_>) -> Result<Algorithm, LoadError> {
    let hash = match table.optional("hash") {
        None => SignatureHash::Sha256,
        Some(hash) => hash.choice(&[
            ("sha1", SignatureHash::Sha1),
            ("sha256", SignatureHash::Sha256),
            ("sha512", SignatureHash::Sha512),
        ])?,
    };
    let key = match table.optional("key") {
        None => KeyForm::Raw,
        Some(key) => key.choice(&[("raw", KeyForm::Raw), ("standard-webhooks", KeyForm::StandardWebhooks)])?,
    };
    Ok(Algorithm::Hmac { hash, key })
}

fn signature_form(form: Value<'_>) -> Result<SignatureForm, LoadError> {
    let mut table = form.section(&["prefix", "version", "field"])?;
    match (table.optional("prefix"), table.optional("version"), table.optional("field")) {
        (Some(prefix), None, None) => Ok(SignatureForm::Prefixed(prefix.text()?.to_owned())),
        (None, Some(version), None) => Ok(SignatureForm::VersionList(version.text()?.to_owned())),
        (None, None, Some(field)) => Ok(SignatureForm::Fields(field.text()?.to_owned())),
        (_, _, _) => Err(table.error("`form` has exactly one of `prefix`, `version` and `field`")),
    }
}

fn signed_parts(parts: Value<'_>) -> Result<Vec<SignedPart>, LoadError> {
    parts.list(SIGNED_PARTS_MAX)?.into_iter().map(signed_part).collect()
}

fn signed_part(part: Value<'_>) -> Result<SignedPart, LoadError> {
    #[derive(Clone, Copy)]
    enum Word {
        Body,
        Form,
        Method,
        Uri,
        Timestamp,
    }
    if part.is_text() {
        return Ok(
            match part.choice(&[
                ("body", Word::Body),
                ("form", Word::Form),
                ("method", Word::Method),
                ("uri", Word::Uri),
                ("timestamp", Word::Timestamp),
            ])? {
                Word::Body => SignedPart::Body,
                Word::Form => SignedPart::Form,
                Word::Method => SignedPart::Method,
                Word::Uri => SignedPart::Uri(UriForm::AsRequested),
                Word::Timestamp => SignedPart::Timestamp,
            },
        );
    }
    let mut table = part.section(&["header", "literal"])?;
    match (table.optional("header"), table.optional("literal")) {
        (Some(header), None) => Ok(SignedPart::Header(header.parse()?)),
        (None, Some(literal)) => Ok(SignedPart::Literal(literal.text()?.to_owned())),
        (_, _) => Err(table.error("an entry of `signed` has exactly one of `header` and `literal`")),
    }
}

fn timestamp(rule: Value<'_>, form: &SignatureForm) -> Result<TimestampRule, LoadError> {
    let mut table = rule.section(&["header", "field", "pointer", "unit", "window_seconds"])?;
    let window = match table.optional("window_seconds") {
        None => WINDOW_SECONDS_DEFAULT,
        Some(window) => window.integer(1..=WINDOW_SECONDS_MAX, " seconds")?,
    };
    let place = match (table.optional("header"), table.optional("field"), table.optional("pointer")) {
        (Some(header), None, None) => TimestampPlace::Header(header.parse()?),
        (None, None, Some(pointer)) => TimestampPlace::Pointer(json_pointer(&pointer)?),
        (None, Some(field), None) => match form {
            SignatureForm::Fields(_) => TimestampPlace::Field(field.text()?.to_owned()),
            SignatureForm::Prefixed(_) | SignatureForm::VersionList(_) => {
                return Err(field.error("needs a signature header with fields: add `form = { field = \"v1\" }`"));
            }
        },
        (_, _, _) => return Err(table.error("`timestamp` has exactly one of `header`, `field` and `pointer`")),
    };
    let unit = match table.optional("unit") {
        None => TimestampUnit::Seconds,
        Some(unit) => {
            unit.choice(&[("seconds", TimestampUnit::Seconds), ("milliseconds", TimestampUnit::Milliseconds)])?
        }
    };
    Ok(TimestampRule { place, unit, window: Duration::from_secs(window) })
}

/// Reads `handshake` of a route.
pub(super) fn handshake(value: Value<'_>, verification: &Verification) -> Result<Handshake, LoadError> {
    #[derive(Clone, Copy)]
    enum Scheme {
        Meta,
        Other(&'static Handshake),
    }
    let schemes = [
        ("meta", Scheme::Meta),
        ("dropbox", Scheme::Other(&Handshake::Dropbox)),
        ("microsoft-graph", Scheme::Other(&Handshake::MicrosoftGraph)),
        ("x", Scheme::Other(&Handshake::X)),
        ("slack", Scheme::Other(&Handshake::Slack)),
        ("zoom", Scheme::Other(&Handshake::Zoom)),
        ("discord", Scheme::Other(&Handshake::Discord)),
    ];
    const META: &str = "takes a token of its own: write `handshake = { scheme = \"meta\", secret = \"verify-token\" }`";
    if value.is_text() {
        let Scheme::Other(handshake) = value.choice(&schemes)? else { return Err(value.error(META)) };
        if handshake.takes_route_secret() && verification.secret().is_none() {
            return Err(value.error("answers with the route's secret: choose a `verify` that has one"));
        }
        return Ok(handshake.clone());
    }
    let mut table = value.section(&["scheme", "secret"])?;
    let scheme = table.required("scheme", "\"meta\"")?;
    match scheme.choice(&schemes)? {
        Scheme::Meta => Ok(Handshake::Meta { secret: table.required("secret", "\"verify-token\"")?.parse()? }),
        Scheme::Other(_) => Err(scheme.error("takes no secret: write its name alone, `handshake = \"..\"`")),
    }
}
