//! Turns a fixture into a fresh request of its provider: with a new delivery key, so that it is no duplicate, and
//! signed by the scheme of the route.

use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::keypair;
use crate::cli::fixture::Fixture;
use crate::intake;
use crate::model::names::SecretName;
use crate::model::pack::{KeyRule, Route};
use crate::model::time::Timestamp;
use crate::model::verification::{
    Algorithm, KeyForm, SignatureEncoding, SignatureForm, SignatureScheme, SignedPart, TimestampPlace, TimestampUnit,
    Verification,
};

/// Prefix of Standard Webhooks secrets, not part of the key.
const STANDARD_WEBHOOKS_PREFIX: &str = "whsec_";

/// Gives the fixture a new delivery key: its own one with the time.
pub(super) fn renew(fixture: &mut Fixture<'_>, now: Timestamp) -> anyhow::Result<()> {
    match &fixture.route.delivery_key {
        // A body that is all of its key changes with the time that is signed, or not at all.
        None | Some(KeyRule::Body) => Ok(()),
        Some(KeyRule::Header(name)) => {
            // A fixture without its key is refused, which may be its purpose.
            if let Some(key) = fixture.headers.get_mut(name) {
                *key = HeaderValue::try_from(renewed(key.to_str()?, now))?;
            }
            Ok(())
        }
        Some(rule @ (KeyRule::Pointer(_) | KeyRule::Pointers(_))) => {
            // One new value among several makes a new key.
            let pointers = match rule {
                KeyRule::Pointers(pointers) => pointers.as_slice(),
                KeyRule::Pointer(pointer) => std::slice::from_ref(pointer),
                KeyRule::Header(_) | KeyRule::Body => &[],
            };
            let Ok(mut body) = serde_json::from_slice::<Value>(&fixture.body) else { return Ok(()) };
            for event in events(&mut body, fixture.route) {
                let Some(pointer) = pointers.last() else { continue };
                match event.pointer_mut(pointer) {
                    Some(Value::String(key)) => *key = renewed(key, now),
                    Some(key @ Value::Number(_)) => *key = now.as_millis().into(),
                    Some(_) | None => {}
                }
            }
            fixture.body = Bytes::from(serde_json::to_vec(&body)?);
            Ok(())
        }
    }
}

fn renewed(key: &str, now: Timestamp) -> String {
    format!("{key}-{:x}", now.as_millis())
}

/// The events of a request's body.
fn events<'b>(body: &'b mut Value, route: &Route) -> Vec<&'b mut Value> {
    let Some(list) = &route.event_list else { return vec![body] };
    match body.pointer_mut(&list.pointer) {
        Some(Value::Array(events)) => events.iter_mut().collect(),
        Some(_) | None => Vec::new(),
    }
}

/// Adds the headers of the route's verification. `uri` is the public address of the host with the path; `secrets` the
/// folder of the secret whose first one is `secret`.
pub(super) fn sign(
    fixture: &mut Fixture<'_>,
    uri: &str,
    secrets: &Path,
    secret: &str,
    now: Timestamp,
) -> anyhow::Result<()> {
    match &fixture.route.verification {
        Verification::Plain => Ok(()),
        Verification::SharedToken { header, .. } => {
            fixture.headers.insert(header, HeaderValue::from_str(secret)?);
            Ok(())
        }
        Verification::Basic { .. } => {
            let credentials = format!("Basic {}", BASE64.encode(secret.as_bytes()));
            fixture.headers.insert(AUTHORIZATION, HeaderValue::try_from(credentials)?);
            Ok(())
        }
        Verification::Signature { scheme, secret: name } => {
            let time = put_time(scheme, fixture, now)?;
            let message = message(scheme, fixture, uri, &time)?;
            let proof = proof(scheme.algorithm, &message, secrets, name, secret)?;
            fixture.headers.insert(&scheme.header, HeaderValue::try_from(written(scheme, &proof, &time))?);
            Ok(())
        }
    }
}

/// The time of signing, as the scheme writes it. Puts it into the header or the place in the body that is its own.
fn put_time(scheme: &SignatureScheme, fixture: &mut Fixture<'_>, now: Timestamp) -> anyhow::Result<String> {
    let time = match scheme.timestamp.as_ref().map(|rule| rule.unit) {
        Some(TimestampUnit::Milliseconds) => now.as_millis(),
        Some(TimestampUnit::Seconds) | None => now.as_millis().div_euclid(1_000),
    };
    match scheme.timestamp.as_ref().map(|rule| &rule.place) {
        Some(TimestampPlace::Header(name)) => {
            fixture.headers.insert(name, HeaderValue::from(time));
        }
        Some(TimestampPlace::Pointer(pointer)) => {
            let mut body: Value = serde_json::from_slice(&fixture.body).context("the fixture's body is not JSON")?;
            let place = body.pointer_mut(pointer).with_context(|| format!("the fixture's body has no `{pointer}`"))?;
            *place = time.into();
            fixture.body = Bytes::from(serde_json::to_vec(&body)?);
        }
        Some(TimestampPlace::Field(_)) | None => {}
    }
    Ok(time.to_string())
}

/// The bytes that are signed.
fn message(scheme: &SignatureScheme, fixture: &Fixture<'_>, uri: &str, time: &str) -> anyhow::Result<Vec<u8>> {
    let mut signed = Vec::new();
    for part in &scheme.signed {
        match part {
            SignedPart::Body => signed.extend_from_slice(&fixture.body),
            SignedPart::Form => signed.extend(intake::signed_form(&fixture.body)),
            SignedPart::Method => signed.extend_from_slice(b"POST"),
            // The path of a fixture needs no escapes.
            SignedPart::Uri(_) => signed.extend_from_slice(uri.as_bytes()),
            SignedPart::Timestamp => signed.extend_from_slice(time.as_bytes()),
            SignedPart::Literal(text) => signed.extend_from_slice(text.as_bytes()),
            SignedPart::Header(name) => {
                let value = fixture.headers.get(name).with_context(|| format!("the fixture has no header `{name}`"))?;
                signed.extend_from_slice(value.as_bytes());
            }
        }
    }
    Ok(signed)
}

/// The signature of `message`: by the secret, or by the private key to it.
fn proof(
    algorithm: Algorithm,
    message: &[u8],
    secrets: &Path,
    name: &SecretName,
    secret: &str,
) -> anyhow::Result<Vec<u8>> {
    let Algorithm::Hmac { hash, key } = algorithm else {
        return keypair::sign(algorithm, secrets, name.as_str(), message);
    };
    let key = match key {
        KeyForm::Raw => secret.as_bytes().to_vec(),
        KeyForm::StandardWebhooks => {
            let text = secret.strip_prefix(STANDARD_WEBHOOKS_PREFIX).unwrap_or(secret);
            BASE64.decode(text.as_bytes()).context("the secret is not base64 behind `whsec_`")?
        }
    };
    Ok(intake::keyed_hash(hash, &key, &[message]))
}

/// The value of the scheme's signature header.
fn written(scheme: &SignatureScheme, proof: &[u8], time: &str) -> String {
    let text = match scheme.encoding {
        SignatureEncoding::Hex => HEXLOWER.encode(proof),
        SignatureEncoding::Base64 => BASE64.encode(proof),
    };
    match (&scheme.form, scheme.timestamp.as_ref().map(|rule| &rule.place)) {
        (SignatureForm::Prefixed(prefix), _) => format!("{prefix}{text}"),
        (SignatureForm::VersionList(version), _) => format!("{version},{text}"),
        (SignatureForm::Fields(name), Some(TimestampPlace::Field(field))) => format!("{field}={time},{name}={text}"),
        (SignatureForm::Fields(name), _) => format!("{name}={text}"),
    }
}

/// The first secret in the text of a secret's file.
pub(super) fn first_secret(text: &str) -> anyhow::Result<&str> {
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(secret) => Ok(secret),
        None => bail!("the secret's file is empty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::parse_manifest;
    use crate::model::pack::Manifest;
    use crate::rig::providers::Provider;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);
    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn manifest(route: &str) -> Manifest {
        let text = format!("name = \"p\"\nversion = \"1\"\n[[routes]]\npath = \"p\"\n{route}\n");
        parse_manifest(&text).unwrap()
    }

    fn fixture<'m>(manifest: &'m Manifest, headers: &[(&'static str, &str)], body: &'static str) -> Fixture<'m> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        Fixture {
            route: &manifest.routes[0],
            headers,
            body: Bytes::from_static(body.as_bytes()),
            answers: Default::default(),
        }
    }

    // What the rig signs by each provider's documentation, and what the host's tests hold to be right.
    #[test]
    fn presets_are_signed_as_their_providers_sign() {
        let body = r#"{"id":"one"}"#;
        for (preset, provider) in [
            ("github", Provider::GitHub),
            ("shopify", Provider::Shopify),
            ("standard-webhooks", Provider::StandardWebhooks),
            ("stripe", Provider::Stripe),
        ] {
            let manifest = manifest(&format!("verify = \"{preset}\"\nsecret = \"s\""));
            let mut fixture = fixture(&manifest, &[("webhook-id", "msg_1")], body);
            sign(&mut fixture, "https://dev.example/in/default/p", Path::new("secrets"), SECRET, NOW).unwrap();
            for (name, value) in provider.signature(SECRET, "msg_1", 1_700_000_000, body.as_bytes()) {
                assert_eq!(fixture.headers[name], value.as_str(), "{preset}: {name}");
            }
        }
    }

    #[test]
    fn a_token_is_put_where_it_belongs() {
        let manifest = manifest("verify = { scheme = \"shared-token\", header = \"x-token\" }\nsecret = \"s\"");
        let mut fixture = fixture(&manifest, &[], "{}");
        sign(&mut fixture, "", Path::new("secrets"), "letmein", NOW).unwrap();
        assert_eq!(fixture.headers["x-token"], "letmein");
    }

    #[test]
    fn a_delivery_is_given_a_new_key_wherever_its_key_is() {
        let by_header = manifest("verify = \"plain\"\ndelivery_key = { header = \"x-id\" }");
        let mut sent = fixture(&by_header, &[("x-id", "one")], "{}");
        renew(&mut sent, NOW).unwrap();
        assert_eq!(sent.headers["x-id"], "one-18bcfe5687b");
        let by_pointer = manifest("verify = \"plain\"\ndelivery_key = { pointer = \"/id\" }");
        let mut sent = fixture(&by_pointer, &[], r#"{"id":"one"}"#);
        renew(&mut sent, NOW).unwrap();
        assert_eq!(&sent.body[..], br#"{"id":"one-18bcfe5687b"}"#);
        let list =
            manifest("verify = \"plain\"\ndelivery_key = { pointer = \"/id\" }\nevent_list = { pointer = \"/e\" }");
        let mut sent = fixture(&list, &[], r#"{"e":[{"id":"a"},{"id":7},{}]}"#);
        renew(&mut sent, NOW).unwrap();
        assert_eq!(&sent.body[..], br#"{"e":[{"id":"a-18bcfe5687b"},{"id":1700000000123},{}]}"#);
    }

    #[test]
    fn what_has_no_key_is_left_as_it_is() {
        let by_header = manifest("verify = \"plain\"\ndelivery_key = { header = \"x-id\" }");
        let mut sent = fixture(&by_header, &[], "{}");
        renew(&mut sent, NOW).unwrap();
        assert!(sent.headers.is_empty());
        let by_pointer = manifest("verify = \"plain\"\ndelivery_key = { pointer = \"/id\" }");
        let mut sent = fixture(&by_pointer, &[], "no JSON");
        renew(&mut sent, NOW).unwrap();
        assert_eq!(&sent.body[..], b"no JSON");
    }
}
