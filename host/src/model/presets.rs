//! What is known of providers' webhooks: named presets of how they sign, where their delivery's key is, and which
//! headers say what an event is. A manifest names one, and may say otherwise in any of it.

use std::time::Duration;

use http::HeaderName;

use super::pack::{
    HmacScheme, KeyForm, KeyRule, SignatureEncoding, SignatureForm, SignatureHash, SignedPart, TimestampPlace,
    TimestampRule, TimestampUnit, UriForm,
};

/// The names of the presets, as manifests write them.
pub const PRESET_NAMES: [&str; 6] = ["github", "standard-webhooks", "stripe", "slack", "shopify", "hubspot"];

/// How far a time of signing may lie from now: what every provider here that signs a time asks for.
const WINDOW: Duration = Duration::from_secs(300);

/// What a provider's webhooks look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// How requests are signed.
    pub scheme: HmacScheme,
    /// Where the delivery's own key is.
    pub delivery_key: KeyRule,
    /// The headers that say what an event is.
    pub keep_headers: Vec<HeaderName>,
}

/// The preset of this name.
pub fn preset(name: &str) -> Option<Preset> {
    match name {
        "github" => Some(github()),
        "standard-webhooks" => Some(standard_webhooks()),
        "stripe" => Some(stripe()),
        "slack" => Some(slack()),
        "shopify" => Some(shopify()),
        "hubspot" => Some(hubspot()),
        _ => None,
    }
}

/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
fn github() -> Preset {
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::Raw,
            header: HeaderName::from_static("x-hub-signature-256"),
            form: SignatureForm::Prefixed("sha256=".to_owned()),
            encoding: SignatureEncoding::Hex,
            signed: vec![SignedPart::Body],
            timestamp: None,
        },
        delivery_key: KeyRule::Header(HeaderName::from_static("x-github-delivery")),
        keep_headers: headers(&["x-github-event", "x-github-delivery", "x-github-hook-id"]),
    }
}

/// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
fn standard_webhooks() -> Preset {
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::StandardWebhooks,
            header: HeaderName::from_static("webhook-signature"),
            form: SignatureForm::VersionList("v1".to_owned()),
            encoding: SignatureEncoding::Base64,
            signed: vec![
                SignedPart::Header(HeaderName::from_static("webhook-id")),
                literal("."),
                SignedPart::Timestamp,
                literal("."),
                SignedPart::Body,
            ],
            timestamp: Some(signed_within_window(TimestampPlace::Header(HeaderName::from_static("webhook-timestamp")))),
        },
        delivery_key: KeyRule::Header(HeaderName::from_static("webhook-id")),
        keep_headers: headers(&["webhook-id", "webhook-timestamp"]),
    }
}

/// <https://docs.stripe.com/webhooks/signature>: the key is the secret as shown, `whsec_` included.
fn stripe() -> Preset {
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::Raw,
            header: HeaderName::from_static("stripe-signature"),
            form: SignatureForm::Fields("v1".to_owned()),
            encoding: SignatureEncoding::Hex,
            signed: vec![SignedPart::Timestamp, literal("."), SignedPart::Body],
            timestamp: Some(signed_within_window(TimestampPlace::Field("t".to_owned()))),
        },
        delivery_key: KeyRule::Pointer("/id".to_owned()),
        keep_headers: Vec::new(),
    }
}

/// <https://docs.slack.dev/authentication/verifying-requests-from-slack>
fn slack() -> Preset {
    let time = HeaderName::from_static("x-slack-request-timestamp");
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::Raw,
            header: HeaderName::from_static("x-slack-signature"),
            form: SignatureForm::Prefixed("v0=".to_owned()),
            encoding: SignatureEncoding::Hex,
            signed: vec![literal("v0:"), SignedPart::Timestamp, literal(":"), SignedPart::Body],
            timestamp: Some(signed_within_window(TimestampPlace::Header(time))),
        },
        delivery_key: KeyRule::Pointer("/event_id".to_owned()),
        keep_headers: headers(&["x-slack-retry-num", "x-slack-retry-reason"]),
    }
}

/// <https://shopify.dev/docs/apps/build/webhooks/subscribe/https>
fn shopify() -> Preset {
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::Raw,
            header: HeaderName::from_static("x-shopify-hmac-sha256"),
            form: SignatureForm::Prefixed(String::new()),
            encoding: SignatureEncoding::Base64,
            signed: vec![SignedPart::Body],
            timestamp: None,
        },
        delivery_key: KeyRule::Header(HeaderName::from_static("x-shopify-webhook-id")),
        keep_headers: headers(&[
            "x-shopify-topic",
            "x-shopify-shop-domain",
            "x-shopify-api-version",
            "x-shopify-webhook-id",
            "x-shopify-event-id",
            "x-shopify-triggered-at",
        ]),
    }
}

/// <https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>, version 3. A request
/// carries many events, and an event's id alone is not unique.
fn hubspot() -> Preset {
    let time = HeaderName::from_static("x-hubspot-request-timestamp");
    let signed_at = TimestampPlace::Header(time);
    Preset {
        scheme: HmacScheme {
            hash: SignatureHash::Sha256,
            key: KeyForm::Raw,
            header: HeaderName::from_static("x-hubspot-signature-v3"),
            form: SignatureForm::Prefixed(String::new()),
            encoding: SignatureEncoding::Base64,
            signed: vec![
                SignedPart::Method,
                SignedPart::Uri(UriForm::HubSpot),
                SignedPart::Body,
                SignedPart::Timestamp,
            ],
            timestamp: Some(TimestampRule { unit: TimestampUnit::Milliseconds, ..signed_within_window(signed_at) }),
        },
        delivery_key: KeyRule::Pointers(
            ["/portalId", "/subscriptionType", "/objectId", "/eventId", "/occurredAt"].map(str::to_owned).into(),
        ),
        keep_headers: Vec::new(),
    }
}

fn signed_within_window(place: TimestampPlace) -> TimestampRule {
    TimestampRule { place, unit: TimestampUnit::Seconds, window: WINDOW }
}

fn literal(text: &str) -> SignedPart {
    SignedPart::Literal(text.to_owned())
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
    fn a_preset_that_signs_a_time_says_where_it_is() {
        for name in PRESET_NAMES {
            let scheme = preset(name).unwrap().scheme;
            assert_eq!(scheme.signed.contains(&SignedPart::Timestamp), scheme.timestamp.is_some(), "{name}");
        }
    }
}
