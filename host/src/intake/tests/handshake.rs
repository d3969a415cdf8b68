//! How providers make sure of an address before they deliver there.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::client::request;
use super::fixture::{NOW, SECRET, Setup, World, base64_signature, delivery, github_route, plain_route};
use crate::model::handshake::Handshake;
use crate::model::pack::{KeyRule, Route};
use crate::model::presets::preset;
use crate::model::verification::Verification;

fn slack_route() -> Route {
    let preset = preset("slack").unwrap();
    Route {
        verification: Verification::Signature { scheme: preset.scheme, secret: "github".parse().unwrap() },
        delivery_key: preset.delivery_key,
        handshake: preset.handshake,
        ..plain_route("slack")
    }
}

/// A request to it, signed with this secret.
fn to_slack(body: &[u8], secret: &str) -> Vec<u8> {
    let time = (NOW.as_millis() / 1_000).to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("v0:{time}:").as_bytes());
    mac.update(body);
    let signature = format!("v0={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
    request("POST", "/in/acme/slack", &[("x-slack-request-timestamp", &time), ("x-slack-signature", &signature)], body)
}

// ADM-4
#[tokio::test]
async fn a_signed_challenge_is_sent_back_and_is_no_event() {
    let world = World::start(Setup { routes: vec![slack_route()], ..Setup::default() }).await;
    let body = br#"{"type":"url_verification","challenge":"<b>3eZbrw1a</b>"}"#;
    let reply = world.send(&to_slack(body, SECRET)).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "<b>3eZbrw1a</b>"));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"), "no browser takes it for a page");
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(world.send(&to_slack(body, "forged")).await.status, 401);
    let event = br#"{"type":"event_callback","event_id":"Ev1"}"#;
    assert_eq!(world.send(&to_slack(event, SECRET)).await.status, 202);
    assert_eq!(world.events().await.len(), 1, "the event alone");
    assert_eq!(world.metric("forebay_intake_handshakes_total"), 1.0);
}

// ADM-4: X is told the code of any token, by the secret that signs its deliveries.
#[tokio::test]
async fn what_the_host_signs_for_whoever_asks_is_no_delivery() {
    let preset = preset("x").unwrap();
    let route = Route {
        verification: Verification::Signature { scheme: preset.scheme, secret: "github".parse().unwrap() },
        delivery_key: preset.delivery_key,
        handshake: preset.handshake,
        ..plain_route("x")
    };
    let world = World::start(Setup { routes: vec![route], ..Setup::default() }).await;
    let deliver = |body: &str, signature: &str| {
        request("POST", "/in/acme/x", &[("x-twitter-webhooks-signature", signature)], body.as_bytes())
    };
    let forged = world.send(&request("GET", "/in/acme/x?crc_token=%7B%22forged%22%3A1%7D", &[], b"")).await;
    assert_eq!((forged.status, forged.code().as_str()), (400, "handshake_malformed"));
    let reply = world.send(&request("GET", "/in/acme/x?crc_token=12345", &[], b"")).await.json();
    let code = reply["response_token"].as_str().unwrap();
    assert_eq!(code, format!("sha256={}", base64_signature(b"12345")));
    assert_eq!(world.send(&deliver("12345", code)).await.status, 401, "a token is no delivery");
    let body = r#"{"for_user_id":"1"}"#;
    let signature = format!("sha256={}", base64_signature(body.as_bytes()));
    assert_eq!(world.send(&deliver(body, &signature)).await.status, 202);
    assert_eq!(world.events().await.len(), 1);
}

// ADM-4
#[tokio::test]
async fn an_address_is_confirmed_to_whoever_has_the_operators_token_and_takes_deliveries_as_before() {
    let handshake = Some(Handshake::Meta { secret: "token".parse().unwrap() });
    let route = Route { handshake, delivery_key: Some(KeyRule::Body), ..github_route("github") };
    let world = World::start(Setup { routes: vec![route, plain_route("plain")], ..Setup::default() }).await;
    let confirm = |route: &str, token: &str| {
        let path = format!("/in/acme/{route}?hub.mode=subscribe&hub.verify_token={token}&hub.challenge=1158201444");
        request("GET", &path, &[], b"")
    };
    let token = SECRET.replace(' ', "+");
    let reply = world.send(&confirm("github", &token)).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "1158201444"));
    assert_eq!(world.send(&confirm("github", "guess")).await.code(), "handshake_denied");
    assert_eq!(world.send(&confirm("plain", &token)).await.status, 405, "it has no handshake");
    assert_eq!(world.send(&request("GET", "/in/acme/github", &[], b"")).await.status, 405);

    // Its deliveries have no name but what is in them.
    let body = br#"{"repository":{"id":1}}"#;
    let first = world.send(&delivery("one", body)).await;
    assert_eq!((first.status, first.json()["duplicate"].as_bool()), (202, Some(false)));
    let again = world.send(&delivery("two", body)).await;
    assert_eq!((again.status, again.json()["duplicate"].as_bool()), (202, Some(true)));
    let other = world.send(&delivery("one", br#"{"repository":{"id":2}}"#)).await;
    assert_eq!((other.status, other.json()["duplicate"].as_bool()), (202, Some(false)));
    assert!(world.events().await.iter().all(|event| event.delivery_key.starts_with("sha256:")));
    assert_eq!(world.events().await.len(), 2);
}
