//! What is known of providers' webhooks: named presets of how they sign, where a delivery's key is, which headers say
//! what an event is, what they want to hear, and how they make sure of an address. A manifest names one, and may say
//! otherwise in any of it.

use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::handshake::Handshake;
use super::pack::{Answer, EventList, KeyRule};
use super::verification::{
    Algorithm, KeyForm, SignatureEncoding, SignatureForm, SignatureHash, SignatureScheme, SignedPart, TimestampPlace,
    TimestampRule, TimestampUnit, UriForm,
};

/// How far a time of signing may lie from now: what nearly every provider that signs a time asks for.
const WINDOW: Duration = Duration::from_secs(300);

/// What a provider's webhooks look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// How requests are signed.
    pub scheme: SignatureScheme,
    /// Where the delivery's own key is; none if the provider gives none that tells deliveries apart.
    pub delivery_key: Option<KeyRule>,
    /// Where the events are, if a request carries many.
    pub event_list: Option<EventList>,
    /// The headers that say what an event is.
    pub keep_headers: Vec<HeaderName>,
    /// What the provider wants to hear.
    pub answer: Answer,
    /// How it makes sure of an address, if no more than the route's secret is needed to answer.
    pub handshake: Option<Handshake>,
}

/// The name of a preset, as manifests write it, and what makes it.
type Named = (&'static str, fn() -> Preset);

/// Every preset.
const PRESETS: [Named; 16] = [
    ("github", github),
    ("standard-webhooks", standard_webhooks),
    ("stripe", stripe),
    ("slack", slack),
    ("shopify", shopify),
    ("hubspot", hubspot),
    ("twilio", twilio),
    ("sendgrid", sendgrid),
    ("square", square),
    ("zendesk", zendesk),
    ("linear", linear),
    ("discord", discord),
    ("meta", meta),
    ("zoom", zoom),
    ("dropbox", dropbox),
    ("x", x),
];

/// The names of the presets.
pub const PRESET_NAMES: [&str; PRESETS.len()] = {
    let mut names = [""; PRESETS.len()];
    let mut at = 0;
    while at < PRESETS.len() {
        names[at] = PRESETS[at].0;
        at += 1;
    }
    names
};

/// The preset of this name.
pub fn preset(name: &str) -> Option<Preset> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, preset)| preset())
}

/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
fn github() -> Preset {
    Preset {
        delivery_key: in_header("x-github-delivery"),
        keep_headers: headers(&["x-github-event", "x-github-delivery", "x-github-hook-id"]),
        ..signed_body("x-hub-signature-256", "sha256=", SignatureEncoding::Hex)
    }
}

/// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
fn standard_webhooks() -> Preset {
    let (id, time) = ("webhook-id", "webhook-timestamp");
    Preset {
        delivery_key: in_header(id),
        keep_headers: headers(&[id, time]),
        ..plain(SignatureScheme {
            algorithm: Algorithm::Hmac { hash: SignatureHash::Sha256, key: KeyForm::StandardWebhooks },
            header: HeaderName::from_static("webhook-signature"),
            form: SignatureForm::VersionList("v1".to_owned()),
            encoding: SignatureEncoding::Base64,
            signed: vec![header(id), literal("."), SignedPart::Timestamp, literal("."), SignedPart::Body],
            timestamp: Some(signed_within_window(time_in(time))),
        })
    }
}

/// <https://docs.stripe.com/webhooks/signature>: the key is the secret as shown, `whsec_` included.
fn stripe() -> Preset {
    let mut preset = signed_body("stripe-signature", "", SignatureEncoding::Hex);
    preset.scheme.form = SignatureForm::Fields("v1".to_owned());
    preset.scheme.signed = vec![SignedPart::Timestamp, literal("."), SignedPart::Body];
    preset.scheme.timestamp = Some(signed_within_window(TimestampPlace::Field("t".to_owned())));
    Preset { delivery_key: pointer("/id"), ..preset }
}

/// <https://docs.slack.dev/authentication/verifying-requests-from-slack>
fn slack() -> Preset {
    Preset {
        delivery_key: pointer("/event_id"),
        keep_headers: headers(&["x-slack-retry-num", "x-slack-retry-reason"]),
        handshake: Some(Handshake::Slack),
        ..signed_v0("x-slack-signature", "x-slack-request-timestamp")
    }
}

/// <https://shopify.dev/docs/apps/build/webhooks/subscribe/https>
fn shopify() -> Preset {
    Preset {
        delivery_key: in_header("x-shopify-webhook-id"),
        keep_headers: headers(&[
            "x-shopify-topic",
            "x-shopify-shop-domain",
            "x-shopify-api-version",
            "x-shopify-webhook-id",
            "x-shopify-event-id",
            "x-shopify-triggered-at",
        ]),
        ..signed_body("x-shopify-hmac-sha256", "", SignatureEncoding::Base64)
    }
}

/// <https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>, version 3. A request
/// carries many events, and an event's id alone is not unique.
fn hubspot() -> Preset {
    let keys = ["/portalId", "/subscriptionType", "/objectId", "/eventId", "/occurredAt"];
    let mut preset = signed_body("x-hubspot-signature-v3", "", SignatureEncoding::Base64);
    preset.scheme.signed =
        vec![SignedPart::Method, SignedPart::Uri(UriForm::HubSpot), SignedPart::Body, SignedPart::Timestamp];
    preset.scheme.timestamp = Some(TimestampRule {
        unit: TimestampUnit::Milliseconds,
        ..signed_within_window(time_in("x-hubspot-request-timestamp"))
    });
    Preset { delivery_key: Some(KeyRule::Pointers(keys.map(str::to_owned).into())), event_list: list(100), ..preset }
}

/// <https://www.twilio.com/docs/usage/security>. An answer with a body would be taken for instructions.
fn twilio() -> Preset {
    Preset {
        delivery_key: in_header("i-twilio-idempotency-token"),
        keep_headers: headers(&["i-twilio-idempotency-token"]),
        answer: Answer::Empty(StatusCode::NO_CONTENT),
        ..plain(SignatureScheme {
            algorithm: Algorithm::Hmac { hash: SignatureHash::Sha1, key: KeyForm::Raw },
            header: HeaderName::from_static("x-twilio-signature"),
            form: SignatureForm::Prefixed(String::new()),
            encoding: SignatureEncoding::Base64,
            signed: vec![SignedPart::Uri(UriForm::AnyPort), SignedPart::Form],
            timestamp: None,
        })
    }
}

/// <https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features>
fn sendgrid() -> Preset {
    Preset {
        delivery_key: pointer("/sg_event_id"),
        event_list: list(1_000),
        ..plain(SignatureScheme {
            algorithm: Algorithm::EcdsaP256,
            header: HeaderName::from_static("x-twilio-email-event-webhook-signature"),
            form: SignatureForm::Prefixed(String::new()),
            encoding: SignatureEncoding::Base64,
            signed: vec![header("x-twilio-email-event-webhook-timestamp"), SignedPart::Body],
            timestamp: None,
        })
    }
}

/// <https://developer.squareup.com/docs/webhooks/step3validate>
fn square() -> Preset {
    let mut preset = signed_body("x-square-hmacsha256-signature", "", SignatureEncoding::Base64);
    preset.scheme.signed = vec![SignedPart::Uri(UriForm::AsRequested), SignedPart::Body];
    Preset { delivery_key: pointer("/event_id"), ..preset }
}

/// <https://developer.zendesk.com/documentation/webhooks/verifying/>
fn zendesk() -> Preset {
    let mut preset = signed_body("x-zendesk-webhook-signature", "", SignatureEncoding::Base64);
    preset.scheme.signed = vec![header("x-zendesk-webhook-signature-timestamp"), SignedPart::Body];
    Preset { delivery_key: pointer("/id"), keep_headers: headers(&["x-zendesk-webhook-id"]), ..preset }
}

/// <https://linear.app/developers/webhooks>: the time is in the body, good for a minute, and the answer is `200`.
fn linear() -> Preset {
    let mut preset = signed_body("linear-signature", "", SignatureEncoding::Hex);
    preset.scheme.timestamp = Some(TimestampRule {
        place: TimestampPlace::Pointer("/webhookTimestamp".to_owned()),
        unit: TimestampUnit::Milliseconds,
        window: Duration::from_secs(60),
    });
    Preset {
        delivery_key: in_header("linear-delivery"),
        keep_headers: headers(&["linear-event", "linear-delivery"]),
        answer: Answer::Empty(StatusCode::OK),
        ..preset
    }
}

/// <https://docs.discord.com/developers/events/webhook-events>. It names no window. Within a day, no digit of the time
/// can be taken for one of the body, or the other way round.
fn discord() -> Preset {
    Preset {
        delivery_key: Some(KeyRule::Body),
        answer: Answer::Empty(StatusCode::NO_CONTENT),
        handshake: Some(Handshake::Discord),
        ..plain(SignatureScheme {
            algorithm: Algorithm::Ed25519,
            header: HeaderName::from_static("x-signature-ed25519"),
            form: SignatureForm::Prefixed(String::new()),
            encoding: SignatureEncoding::Hex,
            signed: vec![SignedPart::Timestamp, SignedPart::Body],
            timestamp: Some(TimestampRule {
                window: Duration::from_secs(86_400),
                ..signed_within_window(time_in("x-signature-timestamp"))
            }),
        })
    }
}

/// <https://developers.facebook.com/docs/graph-api/webhooks/getting-started>. Its handshake has a token of its own.
fn meta() -> Preset {
    Preset {
        delivery_key: Some(KeyRule::Body),
        answer: Answer::Empty(StatusCode::OK),
        ..signed_body("x-hub-signature-256", "sha256=", SignatureEncoding::Hex)
    }
}

/// <https://developers.zoom.us/docs/api/webhooks/>
fn zoom() -> Preset {
    Preset {
        delivery_key: Some(KeyRule::Body),
        answer: Answer::Empty(StatusCode::OK),
        handshake: Some(Handshake::Zoom),
        ..signed_v0("x-zm-signature", "x-zm-request-timestamp")
    }
}

/// <https://www.dropbox.com/developers/reference/webhooks>. One notification looks like another: none is a repetition.
fn dropbox() -> Preset {
    let handshake = Some(Handshake::Dropbox);
    Preset { handshake, ..signed_body("x-dropbox-signature", "", SignatureEncoding::Hex) }
}

/// <https://docs.x.com/x-api/webhooks/introduction>
fn x() -> Preset {
    Preset {
        delivery_key: Some(KeyRule::Body),
        answer: Answer::Empty(StatusCode::OK),
        handshake: Some(Handshake::X),
        ..signed_body("x-twitter-webhooks-signature", "sha256=", SignatureEncoding::Base64)
    }
}

/// A preset of which nothing is known but how it signs.
fn plain(scheme: SignatureScheme) -> Preset {
    Preset {
        scheme,
        delivery_key: None,
        event_list: None,
        keep_headers: Vec::new(),
        answer: Answer::Receipt,
        handshake: None,
    }
}

/// HMAC-SHA-256 over the body.
fn signed_body(header: &'static str, prefix: &str, encoding: SignatureEncoding) -> Preset {
    plain(SignatureScheme {
        algorithm: Algorithm::HMAC_SHA256,
        header: HeaderName::from_static(header),
        form: SignatureForm::Prefixed(prefix.to_owned()),
        encoding,
        signed: vec![SignedPart::Body],
        timestamp: None,
    })
}

/// HMAC-SHA-256 over `v0:{time}:{body}`.
fn signed_v0(header: &'static str, time: &'static str) -> Preset {
    let mut preset = signed_body(header, "v0=", SignatureEncoding::Hex);
    preset.scheme.signed = vec![literal("v0:"), SignedPart::Timestamp, literal(":"), SignedPart::Body];
    preset.scheme.timestamp = Some(signed_within_window(time_in(time)));
    preset
}

fn signed_within_window(place: TimestampPlace) -> TimestampRule {
    TimestampRule { place, unit: TimestampUnit::Seconds, window: WINDOW }
}

fn time_in(header: &'static str) -> TimestampPlace {
    TimestampPlace::Header(HeaderName::from_static(header))
}

fn header(name: &'static str) -> SignedPart {
    SignedPart::Header(HeaderName::from_static(name))
}

fn literal(text: &str) -> SignedPart {
    SignedPart::Literal(text.to_owned())
}

fn in_header(name: &'static str) -> Option<KeyRule> {
    Some(KeyRule::Header(HeaderName::from_static(name)))
}

fn pointer(text: &str) -> Option<KeyRule> {
    Some(KeyRule::Pointer(text.to_owned()))
}

/// The body is a list of events.
fn list(events_max: u32) -> Option<EventList> {
    Some(EventList { pointer: String::new(), events_max })
}

fn headers(names: &[&'static str]) -> Vec<HeaderName> {
    names.iter().copied().map(HeaderName::from_static).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_a_preset_and_no_other() {
        assert!(PRESET_NAMES.iter().all(|name| preset(name).is_some()));
        assert_eq!(preset("GitHub"), None);
        assert_eq!(preset(""), None);
    }

    #[test]
    fn a_preset_signs_the_body_and_its_time_and_says_where_that_is() {
        for name in PRESET_NAMES {
            let SignatureScheme { signed, timestamp, .. } = preset(name).unwrap().scheme;
            assert!(signed.iter().any(SignedPart::covers_body), "{name}");
            let in_body = timestamp.as_ref().is_some_and(|rule| matches!(rule.place, TimestampPlace::Pointer(_)));
            assert_eq!(signed.contains(&SignedPart::Timestamp), timestamp.is_some() && !in_body, "{name}");
        }
    }
}
