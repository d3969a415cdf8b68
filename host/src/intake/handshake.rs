//! Handshakes: what a provider asks of an address before it delivers there, and the answer. Pure, and nothing is
//! stored.
//!
//! Invariants:
//! - Only a route that declares a handshake answers one, and each answers its own only.
//! - What is sent back is text that no browser takes for a page.
//! - What a provider signs is answered only if its signature is right.
//! - What this host signs for whoever asks is no delivery: it has another alphabet than the bodies of such a route.

use std::borrow::Cow;

use data_encoding::{BASE64, HEXLOWER};
use http::{Method, Uri};
use serde_json::json;

use super::answer::Refusal;
use super::pointer;
use super::verify;
use crate::model::handshake::Handshake;
use crate::model::verification::SignatureHash;
use crate::secrets::Secret;

/// The longest challenge or token that is sent back, in bytes.
const CHALLENGE_BYTES_MAX: usize = 4_096;
/// The longest token that is signed, in bytes.
const SIGNED_TOKEN_BYTES_MAX: usize = 256;

/// What a provider wants to hear.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `200` with this text.
    Text(String),
    /// `200` with this JSON.
    Json(String),
    /// `204`.
    Empty,
}

/// A handshake that a request's address asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To send this back.
    Echo(String),
    /// To send the challenge back if the token is the operator's.
    EchoForToken { token: String, challenge: String },
    /// To send this back under the route's secret.
    Code(String),
}

/// The handshake that the address of a request asks for, if it asks for this one.
pub(super) fn asked(handshake: &Handshake, method: &Method, uri: &Uri) -> Option<Asked> {
    let query = uri.query().unwrap_or_default();
    let value = |name: &str| {
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| Cow::into_owned(value))
    };
    match handshake {
        Handshake::Dropbox if method == Method::GET => value("challenge").map(Asked::Echo),
        Handshake::Meta { .. } if method == Method::GET => {
            let challenge = value("hub.challenge").filter(|_| value("hub.mode").as_deref() == Some("subscribe"))?;
            Some(Asked::EchoForToken { token: value("hub.verify_token").unwrap_or_default(), challenge })
        }
        Handshake::MicrosoftGraph if method == Method::POST => value("validationToken").map(Asked::Echo),
        Handshake::X if method == Method::GET => value("crc_token").map(Asked::Code),
        Handshake::Dropbox
        | Handshake::Meta { .. }
        | Handshake::MicrosoftGraph
        | Handshake::X
        | Handshake::Slack
        | Handshake::Zoom
        | Handshake::Discord => None,
    }
}

/// The reply to what was asked. `secrets` are those that it takes: the operator's tokens, or the route's secrets.
pub(super) fn reply(asked: Asked, secrets: &[Secret]) -> Result<Reply, Refusal> {
    match asked {
        Asked::Echo(challenge) => bounded(challenge).map(Reply::Text),
        Asked::EchoForToken { token, challenge } => {
            verify::verify_token(token.as_bytes(), secrets).map_err(|_| Refusal::HandshakeDenied)?;
            bounded(challenge).map(Reply::Text)
        }
        Asked::Code(token) => {
            let is_token = (1..=SIGNED_TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_of_token);
            if !is_token {
                return Err(Refusal::HandshakeMalformed);
            }
            // A provider has one secret; it is not said which.
            let code = BASE64.encode(&code(&token, secrets.first())?);
            Ok(Reply::Json(json!({ "response_token": format!("sha256={code}") }).to_string()))
        }
    }
}

/// The reply to a verified body, if it is this handshake and no delivery. `secret` is the one that verifies it.
pub(super) fn reply_to_body<'s>(
    handshake: &Handshake,
    body: &[u8],
    secret: impl FnOnce() -> Option<&'s Secret>,
) -> Result<Option<Reply>, Refusal> {
    let fields = match handshake {
        Handshake::Slack => ["/type", "/challenge"],
        Handshake::Zoom => ["/event", "/payload/plainToken"],
        // An interaction has a token, and an event what happened.
        Handshake::Discord => ["/type", "/token"],
        Handshake::Dropbox | Handshake::Meta { .. } | Handshake::MicrosoftGraph | Handshake::X => return Ok(None),
    };
    let Ok([kind, text]) = pointer::find(body, fields.map(Some)) else { return Ok(None) };
    match (handshake, kind.as_deref(), text) {
        (Handshake::Slack, Some("url_verification"), Some(challenge)) => bounded(challenge).map(Reply::Text).map(Some),
        (Handshake::Zoom, Some("endpoint.url_validation"), Some(token)) => {
            let token = bounded(token)?;
            let encrypted = HEXLOWER.encode(&code(&token, secret())?);
            Ok(Some(Reply::Json(json!({ "plainToken": token, "encryptedToken": encrypted }).to_string())))
        }
        (Handshake::Discord, Some("0"), None) => Ok(Some(Reply::Empty)),
        // Of an event the type 1 means another thing.
        (Handshake::Discord, Some("1"), Some(_)) => Ok(Some(Reply::Json(json!({ "type": 1 }).to_string()))),
        (_, _, _) => Ok(None),
    }
}

/// Whether a body may be a delivery to a route with this handshake. X is told the code of any token by the secret that
/// signs its deliveries, so none of these may be such a token: they are JSON objects, and no token has a brace.
pub(super) fn may_deliver(handshake: &Handshake, body: &[u8]) -> bool {
    match handshake {
        Handshake::X => body.trim_ascii_start().starts_with(b"{"),
        Handshake::Dropbox
        | Handshake::Meta { .. }
        | Handshake::MicrosoftGraph
        | Handshake::Slack
        | Handshake::Zoom
        | Handshake::Discord => true,
    }
}

/// The alphabets of base64 and of its form for addresses, and a separator.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'.')
}

fn bounded(text: String) -> Result<String, Refusal> {
    if text.len() <= CHALLENGE_BYTES_MAX { Ok(text) } else { Err(Refusal::HandshakeMalformed) }
}

/// HMAC-SHA-256 of `text` by the secret.
fn code(text: &str, secret: Option<&Secret>) -> Result<Vec<u8>, Refusal> {
    let secret = secret.ok_or(Refusal::SecretUnusable)?;
    Ok(verify::keyed_hash(SignatureHash::Sha256, secret.expose(), &[text]))
}

#[cfg(test)]
mod tests;
