use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER_PERMISSIVE;
use http::HeaderValue;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

use super::*;
use crate::model::presets::{PRESET_NAMES, preset};
use crate::model::verification::{Algorithm, KeyForm, SignatureEncoding, SignatureHash};

mod bounds;
mod published;

/// Where they are sent to.
const URI: &str = "https://www.example.com/webhook_uri";
/// When the requests of these tests are signed, in seconds.
const SIGNED_AT: i64 = 1_700_000_000;

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::new(text.as_bytes())).collect()
}

fn signature_of(name: &str) -> Verification {
    Verification::Signature { scheme: scheme_of(name), secret: "signing".parse().unwrap() }
}

fn scheme_of(name: &str) -> SignatureScheme {
    preset(name).unwrap().scheme
}

fn token_in(header: &'static str) -> Verification {
    Verification::SharedToken { header: HeaderName::from_static(header), secret: "token".parse().unwrap() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// The provider's part of a key.
#[derive(Clone)]
enum Signer {
    Shared,
    Ed25519(Arc<Ed25519KeyPair>),
    EcdsaP256(Arc<EcdsaKeyPair>),
}

impl Signer {
    /// A signer, and what the operator holds of it.
    fn new(algorithm: Algorithm) -> (Self, String) {
        match algorithm {
            Algorithm::Hmac { key: KeyForm::StandardWebhooks, .. } => {
                (Self::Shared, "whsec_c2VjcmV0IGtleQ==".to_owned())
            }
            Algorithm::Hmac { key: KeyForm::Raw, .. } => (Self::Shared, "secret key".to_owned()),
            Algorithm::Ed25519 => {
                let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
                let public = BASE64.encode(pair.public_key().as_ref());
                (Self::Ed25519(Arc::new(pair)), public)
            }
            Algorithm::EcdsaP256 => {
                let (how, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
                let private = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
                let pair = EcdsaKeyPair::from_pkcs8(how, private.as_ref(), &random).unwrap();
                let public = BASE64.encode(pair.public_key().as_ref());
                (Self::EcdsaP256(Arc::new(pair)), public)
            }
        }
    }

    fn sign(&self, algorithm: Algorithm, secret: &Secret, parts: &[Cow<'_, [u8]>]) -> Vec<u8> {
        let message = parts.concat();
        match (self, Key::of(algorithm, secret).unwrap()) {
            (Self::Shared, Key::Shared(hash, key)) => key::keyed_hash(hash, &key, &[message]),
            (Self::Ed25519(pair), _) => pair.sign(&message).as_ref().to_vec(),
            (Self::EcdsaP256(pair), _) => pair.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec(),
            (Self::Shared, Key::Public(_)) => panic!("a public key signs nothing"),
        }
    }
}

/// A request to be verified, and what it is verified against.
#[derive(Clone)]
struct Case {
    verification: Verification,
    headers: HeaderMap,
    body: Vec<u8>,
    secrets: Vec<Secret>,
    signer: Signer,
    now: Timestamp,
}

impl Case {
    fn new(verification: Verification, headers: &[(&'static str, &str)], body: &str, secret: &str) -> Self {
        let mut case = Self {
            verification,
            headers: HeaderMap::new(),
            body: body.into(),
            secrets: secrets(&[secret]),
            signer: Signer::Shared,
            now: at(SIGNED_AT),
        };
        for (name, value) in headers {
            case.add(name, value.as_bytes());
        }
        case
    }

    /// A request that this preset's provider could have sent.
    fn signed(name: &str) -> Self {
        let (signer, secret) = Signer::new(scheme_of(name).algorithm);
        let body = format!(r#"{{"id":1,"webhookTimestamp":{SIGNED_AT}000}}"#);
        let mut case = Self { signer, ..Self::new(signature_of(name), &[], &body, &secret) };
        let scheme = scheme_of(name);
        for part in &scheme.signed {
            if let SignedPart::Header(header) = part {
                case.headers.insert(header, HeaderValue::from_static("msg_1"));
            }
        }
        if let Some(TimestampRule { place: TimestampPlace::Header(header), .. }) = &scheme.timestamp {
            let time = written_time(&scheme, &SIGNED_AT.to_string());
            case.headers.insert(header, HeaderValue::try_from(time).unwrap());
        }
        case.sign();
        case
    }

    fn scheme(&self) -> &SignatureScheme {
        let Verification::Signature { scheme, .. } = &self.verification else { panic!("not signed") };
        scheme
    }

    /// Signs what the case holds now.
    fn sign(&mut self) {
        let value = HeaderValue::try_from(self.signature_header()).unwrap();
        let header = self.scheme().header.clone();
        self.headers.insert(header, value);
    }

    /// The signature header's value for what the case holds now.
    fn signature_header(&self) -> String {
        let scheme = self.scheme();
        let time = written_time(scheme, &SIGNED_AT.to_string());
        let uri = address::written(scheme, URI).remove(0);
        let parts = signed_parts(scheme, self.request(), &uri, &time).unwrap();
        let bytes = self.signer.sign(scheme.algorithm, &self.secrets[0], &parts);
        let written = match scheme.encoding {
            SignatureEncoding::Hex => HEXLOWER_PERMISSIVE.encode(&bytes),
            SignatureEncoding::Base64 => BASE64.encode(&bytes),
        };
        match &scheme.form {
            SignatureForm::Prefixed(prefix) => format!("{prefix}{written}"),
            SignatureForm::VersionList(version) => format!("{version},{written}"),
            SignatureForm::Fields(name) => format!("t={time},{name}={written}"),
        }
    }

    fn add(&mut self, name: &'static str, value: &[u8]) {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }

    fn replace(&mut self, name: &'static str, value: &[u8]) {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }

    fn verify(&self) -> Result<(), Refusal> {
        verify(&self.verification, self.request(), &self.secrets, self.now)
    }

    fn request(&self) -> Signed<'_> {
        Signed { method: "POST", uri: URI, headers: &self.headers, body: &self.body }
    }
}

/// A time in seconds, as the scheme counts.
fn written_time(scheme: &SignatureScheme, seconds: &str) -> String {
    match scheme.timestamp.as_ref().map(|rule| rule.unit) {
        Some(TimestampUnit::Milliseconds) => format!("{seconds}000"),
        Some(TimestampUnit::Seconds) | None => seconds.to_owned(),
    }
}

// ADM-4
#[test]
fn raw_bytes_are_what_is_verified() {
    for body in ["", "\u{feff}{}", "{}\r\n", "a\0b", "\u{2028}😀", "payload=%7B%22a%22%3A1%7D", "{ \"a\" : 1e21 }"] {
        // The time that Linear signs is in its body.
        for name in PRESET_NAMES.into_iter().filter(|name| *name != "linear") {
            let mut case = Case::signed(name);
            case.body = body.into();
            case.sign();
            assert_eq!(case.verify(), Ok(()), "{name} {body:?}");
        }
    }
}

#[test]
fn during_a_rotation_every_secret_verifies() {
    for name in PRESET_NAMES {
        let mut case = Case::signed(name);
        let other = match case.scheme().algorithm {
            Algorithm::Hmac { .. } => "bmV3ZXI=".to_owned(),
            // The key of RFC 8032, 7.1, test 1.
            Algorithm::Ed25519 => "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".to_owned(),
            algorithm @ Algorithm::EcdsaP256 => Signer::new(algorithm).1,
        };
        let other = Secret::new(other.as_bytes());
        case.secrets.insert(0, other.clone());
        assert_eq!(case.verify(), Ok(()), "{name}");
        case.secrets = vec![other];
        assert_eq!(case.verify(), Err(Refusal::SignatureWrong), "{name}");
    }
}

#[test]
fn one_right_signature_among_several_is_enough() {
    let mut stripe = Case::signed("stripe");
    let value = stripe.signature_header();
    let wrong = "0".repeat(64);
    let right = value.split_once("v1=").unwrap().1.to_owned();
    stripe.replace("stripe-signature", format!("t={SIGNED_AT},v0={wrong},v1={wrong},v1=short,v1={right}").as_bytes());
    assert_eq!(stripe.verify(), Ok(()));
    stripe.replace("stripe-signature", format!("t={SIGNED_AT},v0={right},v1={wrong}").as_bytes());
    assert_eq!(stripe.verify(), Err(Refusal::SignatureWrong), "v0 is another scheme");

    let mut standard = Case::signed("standard-webhooks");
    let right = standard.signature_header();
    let wrong = BASE64.encode(&[0; 32]);
    standard.replace("webhook-signature", format!("v1a,{wrong} v1,{wrong} {right}").as_bytes());
    assert_eq!(standard.verify(), Ok(()));
    standard.replace("webhook-signature", right.replace("v1,", "v2,").as_bytes());
    assert_eq!(standard.verify(), Err(Refusal::SignatureMalformed));
}

// ADM-4
#[test]
fn a_time_of_signing_is_good_for_the_window_in_both_directions() {
    for name in ["standard-webhooks", "stripe", "slack"] {
        for (seconds, expected) in [
            (-300, Ok(())),
            (300, Ok(())),
            (-301, Err(Refusal::SignatureStale)),
            (301, Err(Refusal::SignatureStale)),
            (1_000_000_000, Err(Refusal::SignatureStale)),
        ] {
            let mut case = Case::signed(name);
            case.now = at(SIGNED_AT + seconds);
            assert_eq!(case.verify(), expected, "{name} {seconds}");
        }
    }
}

// ADM-4
#[test]
fn a_time_of_signing_that_is_no_time_does_not_verify() {
    for time in
        ["", "-1700000000", "+1700000000", "1700000000.0", " 1700000000", "1e9", "99999999999999999999", "0x6553"]
    {
        let mut slack = Case::signed("slack");
        slack.replace("x-slack-request-timestamp", time.as_bytes());
        assert_eq!(slack.verify(), Err(Refusal::SignatureMalformed), "{time:?}");
    }
    let mut far = Case::signed("slack");
    far.replace("x-slack-request-timestamp", b"999999999999");
    assert_eq!(far.verify(), Err(Refusal::SignatureStale));
    let mut without = Case::signed("stripe");
    without.replace("stripe-signature", format!("v1={}", "0".repeat(64)).as_bytes());
    assert_eq!(without.verify(), Err(Refusal::SignatureMissing));
    let mut twice = Case::signed("stripe");
    let value = twice.signature_header();
    twice.replace("stripe-signature", format!("{value},t={SIGNED_AT}").as_bytes());
    assert_eq!(twice.verify(), Err(Refusal::SignatureRepeated));
}

// ADM-4
#[test]
fn each_header_of_a_scheme_is_there_exactly_once() {
    for name in PRESET_NAMES {
        let scheme = scheme_of(name);
        let mut needed = vec![&scheme.header];
        needed.extend(scheme.signed.iter().filter_map(|part| match part {
            SignedPart::Header(header) => Some(header),
            _ => None,
        }));
        if let Some(TimestampRule { place: TimestampPlace::Header(header), .. }) = &scheme.timestamp {
            needed.push(header);
        }
        for header in needed {
            let mut missing = Case::signed(name);
            missing.headers.remove(header);
            assert_eq!(missing.verify(), Err(Refusal::SignatureMissing), "{name} {header}");
            let mut twice = Case::signed(name);
            let value = twice.headers[header].clone();
            twice.headers.append(header, value);
            assert_eq!(twice.verify(), Err(Refusal::SignatureRepeated), "{name} {header}");
        }
    }
}

// ADM-4
#[test]
fn odd_signatures_are_a_no() {
    let right = Case::signed("github").signature_header();
    let hex = right.strip_prefix("sha256=").unwrap().to_owned();
    for odd in [
        String::new(),
        "sha256=".to_owned(),
        hex.clone(),
        format!("sha1={hex}"),
        format!("SHA256={hex}"),
        format!("sha256={}", &hex[1..]),
        format!("sha256={hex}0"),
        format!("sha256= {hex}"),
        format!("sha256={hex},sha256={hex}"),
        format!("sha256=g{}", &hex[1..]),
        format!("sha256={}", "é".repeat(32)),
        format!("sha256={}", "\u{ff11}".repeat(21)),
        "sha256=".to_owned() + &"0".repeat(64 * 1024),
    ] {
        let mut case = Case::signed("github");
        case.replace("x-hub-signature-256", odd.as_bytes());
        assert_eq!(case.verify(), Err(Refusal::SignatureMalformed), "{:.80}", odd);
    }
    let mut upper = Case::signed("github");
    upper.replace("x-hub-signature-256", format!("sha256={}", hex.to_uppercase()).as_bytes());
    assert_eq!(upper.verify(), Ok(()));
}

#[test]
fn base64_has_one_spelling() {
    let right = Case::signed("shopify").signature_header();
    for odd in [right.trim_end_matches('=').to_owned(), right.replace('=', "\t"), format!("{right}\t"), right.repeat(2)]
    {
        let mut case = Case::signed("shopify");
        case.replace("x-shopify-hmac-sha256", odd.as_bytes());
        assert_eq!(case.verify(), Err(Refusal::SignatureMalformed), "{odd}");
    }
}

#[test]
fn standard_webhooks_secrets_are_base64_with_or_without_their_prefix() {
    let mut case = Case::signed("standard-webhooks");
    case.secrets = secrets(&["c2VjcmV0IGtleQ=="]);
    assert_eq!(case.verify(), Ok(()));
    case.secrets = secrets(&["whsec_not base64", "whsec_", ""]);
    assert_eq!(case.verify(), Err(Refusal::SecretUnusable));
    case.secrets = secrets(&["whsec_not base64", "whsec_c2VjcmV0IGtleQ=="]);
    assert_eq!(case.verify(), Ok(()));
}

#[test]
fn sha512_is_a_scheme_too() {
    let mut case = Case::signed("github");
    let Verification::Signature { scheme, .. } = &mut case.verification else { panic!("signed") };
    scheme.algorithm = Algorithm::Hmac { hash: SignatureHash::Sha512, key: KeyForm::Raw };
    assert_eq!(case.verify(), Err(Refusal::SignatureMalformed), "a SHA-256 signature is too short");
    let value = case.signature_header();
    assert_eq!(value.len(), "sha256=".len() + 128);
    case.replace("x-hub-signature-256", value.as_bytes());
    assert_eq!(case.verify(), Ok(()));
}

// ADM-4
#[test]
fn a_shared_token_is_one_of_the_secrets_and_nothing_else() {
    let case = |token: &str| {
        let mut case = Case::new(token_in("x-token"), &[("x-token", token)], "body", "new token");
        case.secrets.push(Secret::new(*b"old token"));
        case.verify()
    };
    assert_eq!(case("new token"), Ok(()));
    assert_eq!(case("old token"), Ok(()));
    for wrong in ["", "new", "new tokenx", "NEW TOKEN", "néw token"] {
        assert_eq!(case(wrong), Err(Refusal::SignatureWrong), "{wrong:?}");
    }
    let mut twice = Case::new(token_in("x-token"), &[("x-token", "t"), ("x-token", "t")], "", "t");
    assert_eq!(twice.verify(), Err(Refusal::SignatureRepeated));
    twice.headers.clear();
    assert_eq!(twice.verify(), Err(Refusal::SignatureMissing));
}

#[test]
fn a_plain_route_takes_everything() {
    assert_eq!(Case::new(Verification::Plain, &[], "whatever", "unused").verify(), Ok(()));
}

proptest! {
    // ADM-4
    #[test]
    fn a_mutated_request_never_verifies(
        name in proptest::sample::select(PRESET_NAMES.as_slice()),
        what in 0..3_usize,
        place in any::<proptest::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut case = Case::signed(name);
        let header = case.scheme().header.clone();
        let is_hex = case.scheme().encoding == SignatureEncoding::Hex;
        match what {
            0 => {
                let place = place.index(case.body.len());
                case.body[place] ^= 1 << bit;
            }
            1 => {
                let mut key = case.secrets[0].expose().to_vec();
                // The prefix of a Standard Webhooks secret may be missing, and its last characters may be padding.
                let (first, last) = if name == "standard-webhooks" { (6, key.len() - 4) } else { (0, key.len()) };
                let place = first + place.index(last - first);
                key[place] ^= 1 << bit;
                case.secrets = vec![Secret::new(key)];
            }
            _ => {
                let mut value = case.headers[&header].as_bytes().to_vec();
                let before = value.clone();
                let place = place.index(value.len());
                value[place] ^= 1 << bit;
                // Hexadecimal signatures may be written in either case.
                prop_assume!(!is_hex || !value.eq_ignore_ascii_case(&before));
                let Ok(mutated) = HeaderValue::from_bytes(&value) else { return Ok(()) };
                case.headers.insert(header, mutated);
            }
        }
        prop_assert!(case.verify().is_err());
    }

    // ADM-4
    #[test]
    fn no_header_makes_it_panic_or_pass(
        name in proptest::sample::select(PRESET_NAMES.as_slice()),
        value in proptest::collection::vec(any::<u8>(), 0..200),
        shape in "(t=[0-9]{0,14},)?(v1=|v1,|sha256=|v0=)?[0-9a-zA-Z+/= ,é]{0,100}",
        written in any::<bool>(),
    ) {
        let mut case = Case::signed(name);
        let value = if written { shape.as_bytes() } else { &value };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            let header = case.scheme().header.clone();
            case.headers.insert(header, value.clone());
            prop_assert!(case.verify().is_err());
            case.headers.insert(HeaderName::from_static("x-slack-request-timestamp"), value.clone());
            case.headers.insert(HeaderName::from_static("webhook-timestamp"), value);
            prop_assert!(case.verify().is_err());
        }
    }
}

#[test]
fn the_longest_window_does_not_overflow() {
    let mut case = Case::signed("slack");
    let Verification::Signature { scheme, .. } = &mut case.verification else { panic!("signed") };
    scheme.timestamp.as_mut().unwrap().window = Duration::MAX;
    case.now = Timestamp::MAX;
    assert_eq!(case.verify(), Ok(()));
}

// ADM-4
#[test]
fn an_address_is_signed_as_hubspot_writes_it_and_no_other_passes() {
    let case = Case::signed("hubspot");
    let elsewhere = Signed { uri: "https://www.example.com/another", ..case.request() };
    assert_eq!(verify(&case.verification, elsewhere, &case.secrets, case.now), Err(Refusal::SignatureWrong));
    let put = Signed { method: "PUT", ..case.request() };
    assert_eq!(verify(&case.verification, put, &case.secrets, case.now), Err(Refusal::SignatureWrong));
}
