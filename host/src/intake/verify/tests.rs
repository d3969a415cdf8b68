use std::time::Duration;

use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::model::presets::{PRESET_NAMES, preset};

/// Where they are sent to.
const URI: &str = "https://www.example.com/webhook_uri";
/// When the requests of these tests are signed, in seconds.
const SIGNED_AT: i64 = 1_700_000_000;

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::new(text.as_bytes())).collect()
}

fn hmac_of(name: &str) -> Verification {
    Verification::Hmac { scheme: scheme_of(name), secret: "signing".parse().unwrap() }
}

fn scheme_of(name: &str) -> HmacScheme {
    preset(name).unwrap().scheme
}

fn token_in(header: &'static str) -> Verification {
    Verification::SharedToken { header: HeaderName::from_static(header), secret: "token".parse().unwrap() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// A request to be verified, and what it is verified against.
#[derive(Clone)]
struct Case {
    verification: Verification,
    headers: HeaderMap,
    body: Vec<u8>,
    secrets: Vec<Secret>,
    now: Timestamp,
}

impl Case {
    fn new(verification: Verification, headers: &[(&'static str, &str)], body: &str, secret: &str) -> Self {
        let mut case = Self {
            verification,
            headers: HeaderMap::new(),
            body: body.into(),
            secrets: secrets(&[secret]),
            now: at(SIGNED_AT),
        };
        for (name, value) in headers {
            case.add(name, value.as_bytes());
        }
        case
    }

    /// A request that this preset's provider could have sent.
    fn signed(name: &str) -> Self {
        let secret = if name == "standard-webhooks" { "whsec_c2VjcmV0IGtleQ==" } else { "secret key" };
        let mut case = Self::new(hmac_of(name), &[], r#"{"id":1}"#, secret);
        let time = SIGNED_AT.to_string();
        for header in ["webhook-timestamp", "x-slack-request-timestamp"] {
            case.add(header, time.as_bytes());
        }
        case.add("x-hubspot-request-timestamp", format!("{time}000").as_bytes());
        case.add("webhook-id", b"msg_1");
        let value = case.signature_header(&time);
        case.add(case.signature_header_name(), value.as_bytes());
        case
    }

    fn signature_header_name(&self) -> &'static str {
        let Verification::Hmac { scheme, .. } = &self.verification else { panic!("not signed") };
        let names = [
            "x-hub-signature-256",
            "webhook-signature",
            "stripe-signature",
            "x-slack-signature",
            "x-shopify-hmac-sha256",
            "x-hubspot-signature-v3",
        ];
        names.into_iter().find(|name| scheme.header == *name).unwrap()
    }

    /// The signature header's value for what the case holds now.
    fn signature_header(&self, time: &str) -> String {
        let Verification::Hmac { scheme, .. } = &self.verification else { panic!("not signed") };
        let time = &*written_time(scheme, time);
        let parts = signed_parts(scheme, self.request(), URI, time).unwrap();
        let code = Code::of(scheme.hash, &key_of(scheme.key, &self.secrets[0]).unwrap(), &parts);
        let bytes = &code.bytes[..code.length];
        let written = match scheme.encoding {
            SignatureEncoding::Hex => HEXLOWER_PERMISSIVE.encode(bytes),
            SignatureEncoding::Base64 => BASE64.encode(bytes),
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
fn written_time(scheme: &HmacScheme, seconds: &str) -> String {
    match scheme.timestamp.as_ref().map(|rule| rule.unit) {
        Some(TimestampUnit::Milliseconds) => format!("{seconds}000"),
        Some(TimestampUnit::Seconds) | None => seconds.to_owned(),
    }
}

#[derive(serde::Deserialize)]
struct Published {
    preset: String,
    secret: String,
    signature: String,
    body: String,
    id: Option<String>,
    timestamp: Option<String>,
}

impl Published {
    fn case(&self) -> Case {
        let (header, value) = match self.preset.as_str() {
            "github" => ("x-hub-signature-256", self.signature.clone()),
            "standard-webhooks" => ("webhook-signature", self.signature.clone()),
            "slack" => ("x-slack-signature", self.signature.clone()),
            "shopify" => ("x-shopify-hmac-sha256", self.signature.clone()),
            "hubspot" => ("x-hubspot-signature-v3", self.signature.clone()),
            "stripe" => {
                let time = self.timestamp.as_ref().unwrap();
                ("stripe-signature", format!("t={time},v1={}", self.signature))
            }
            other => panic!("no preset {other}"),
        };
        let mut case = Case::new(hmac_of(&self.preset), &[(header, &value)], &self.body, &self.secret);
        if let Some(id) = &self.id {
            case.add("webhook-id", id.as_bytes());
        }
        if let Some(time) = &self.timestamp {
            case.add("webhook-timestamp", time.as_bytes());
            case.add("x-slack-request-timestamp", time.as_bytes());
            case.add("x-hubspot-request-timestamp", time.as_bytes());
            let count: i64 = time.parse().unwrap();
            case.now = if self.preset == "hubspot" { Timestamp::from_millis(count) } else { at(count) };
        }
        case
    }
}

// ADM-4: signatures as the providers publish them. `published.json` names the source of each.
#[test]
fn published_signatures_verify_and_no_other_secret_or_body_does() {
    let published: Vec<Published> = serde_json::from_str(include_str!("published.json")).unwrap();
    for name in PRESET_NAMES {
        assert!(published.iter().any(|vector| vector.preset == name), "{name} has no vector");
    }
    for vector in &published {
        let case = vector.case();
        assert_eq!(case.verify(), Ok(()), "{}: {:?}", vector.preset, vector.body);
        let mut longer = case.clone();
        longer.body.push(b'\n');
        assert_eq!(longer.verify(), Err(Refusal::SignatureWrong), "{}", vector.preset);
        let mut other = case.clone();
        other.secrets = secrets(&["whsec_b3RoZXI="]);
        assert_eq!(other.verify(), Err(Refusal::SignatureWrong), "{}", vector.preset);
    }
}

// ADM-4
#[test]
fn raw_bytes_are_what_is_verified() {
    for body in ["", "\u{feff}{}", "{}\r\n", "a\0b", "\u{2028}😀", "payload=%7B%22a%22%3A1%7D", "{ \"a\" : 1e21 }"] {
        for name in PRESET_NAMES {
            let mut case = Case::signed(name);
            case.body = body.into();
            let value = case.signature_header(&SIGNED_AT.to_string());
            case.replace(case.signature_header_name(), value.as_bytes());
            assert_eq!(case.verify(), Ok(()), "{name} {body:?}");
        }
    }
}

#[test]
fn during_a_rotation_every_secret_verifies() {
    for name in PRESET_NAMES {
        let mut case = Case::signed(name);
        let other = secrets(&["bmV3ZXI="]).remove(0);
        case.secrets.insert(0, other.clone());
        assert_eq!(case.verify(), Ok(()), "{name}");
        case.secrets = vec![other];
        assert_eq!(case.verify(), Err(Refusal::SignatureWrong), "{name}");
    }
}

#[test]
fn one_right_signature_among_several_is_enough() {
    let mut stripe = Case::signed("stripe");
    let value = stripe.signature_header(&SIGNED_AT.to_string());
    let wrong = "0".repeat(64);
    let right = value.split_once("v1=").unwrap().1.to_owned();
    stripe.replace("stripe-signature", format!("t={SIGNED_AT},v0={wrong},v1={wrong},v1=short,v1={right}").as_bytes());
    assert_eq!(stripe.verify(), Ok(()));
    stripe.replace("stripe-signature", format!("t={SIGNED_AT},v0={right},v1={wrong}").as_bytes());
    assert_eq!(stripe.verify(), Err(Refusal::SignatureWrong), "v0 is another scheme");

    let mut standard = Case::signed("standard-webhooks");
    let right = standard.signature_header(&SIGNED_AT.to_string());
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
    let value = twice.signature_header(&SIGNED_AT.to_string());
    twice.replace("stripe-signature", format!("{value},t={SIGNED_AT}").as_bytes());
    assert_eq!(twice.verify(), Err(Refusal::SignatureRepeated));
}

// ADM-4
#[test]
fn each_header_of_a_scheme_is_there_exactly_once() {
    for name in PRESET_NAMES {
        let signature = Case::signed(name).signature_header_name();
        let needed: &[&'static str] = match name {
            "standard-webhooks" => &["webhook-id", "webhook-timestamp", signature],
            "slack" => &["x-slack-request-timestamp", signature],
            _ => &[signature],
        };
        for &header in needed {
            let mut missing = Case::signed(name);
            missing.headers.remove(header);
            assert_eq!(missing.verify(), Err(Refusal::SignatureMissing), "{name} {header}");
            let mut twice = Case::signed(name);
            let value = twice.headers[header].clone();
            twice.add(header, value.as_bytes());
            assert_eq!(twice.verify(), Err(Refusal::SignatureRepeated), "{name} {header}");
        }
    }
}

// ADM-4
#[test]
fn odd_signatures_are_a_no() {
    let right = Case::signed("github").signature_header("");
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
    let right = Case::signed("shopify").signature_header("");
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
    let Verification::Hmac { scheme, .. } = &mut case.verification else { panic!("signed") };
    scheme.hash = SignatureHash::Sha512;
    assert_eq!(case.verify(), Err(Refusal::SignatureMalformed), "a SHA-256 signature is too short");
    let value = case.signature_header("");
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
        let header = case.signature_header_name();
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
                let mut value = case.headers[header].as_bytes().to_vec();
                let before = value.clone();
                let place = place.index(value.len());
                value[place] ^= 1 << bit;
                // Hexadecimal signatures may be written in either case.
                prop_assume!(!value.eq_ignore_ascii_case(&before) || name == "standard-webhooks" || name == "shopify");
                let Ok(mutated) = HeaderValue::from_bytes(&value) else { return Ok(()) };
                case.headers.insert(HeaderName::from_static(header), mutated);
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
            case.headers.insert(HeaderName::from_static(case.signature_header_name()), value.clone());
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
    let Verification::Hmac { scheme, .. } = &mut case.verification else { panic!("signed") };
    scheme.timestamp.as_mut().unwrap().window = Duration::MAX;
    case.now = Timestamp::MAX;
    assert_eq!(case.verify(), Ok(()));
}

// ADM-4
#[test]
fn an_address_is_signed_as_hubspot_writes_it_and_no_other_passes() {
    let written = hubspot_decoded("https://a.example/in/t%2Fh?q=%40%3a%21%20%25%4&x=%C3%A4%");
    assert_eq!(written, "https://a.example/in/t/h?q=@:!%20%25%4&x=%C3%A4%");
    let case = Case::signed("hubspot");
    let elsewhere = Signed { uri: "https://www.example.com/another", ..case.request() };
    assert_eq!(verify(&case.verification, elsewhere, &case.secrets, case.now), Err(Refusal::SignatureWrong));
    let put = Signed { method: "PUT", ..case.request() };
    assert_eq!(verify(&case.verification, put, &case.secrets, case.now), Err(Refusal::SignatureWrong));
}
