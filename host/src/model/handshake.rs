//! Handshakes: what providers ask of an address before they deliver there. Each provider has its own; none of them is a
//! delivery, and nothing is stored.

use super::names::SecretName;

/// How a provider makes sure of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handshake {
    /// `GET ?challenge=…`: the challenge, as text (Dropbox).
    Dropbox,
    /// `GET ?hub.mode=subscribe&hub.verify_token=…&hub.challenge=…`: the challenge, as text, if the token is the
    /// operator's (Meta, WebSub).
    Meta {
        /// The token that the operator told the provider.
        secret: SecretName,
    },
    /// `POST ?validationToken=…`, unsigned: the token, as text (Microsoft Graph).
    MicrosoftGraph,
    /// `GET ?crc_token=…`: its HMAC-SHA-256 by the route's secret (X).
    X,
    /// A signed `{"type":"url_verification","challenge":…}`: the challenge, as text (Slack).
    Slack,
    /// A signed `{"event":"endpoint.url_validation","payload":{"plainToken":…}}`: the token, and its HMAC-SHA-256 by
    /// the route's secret (Zoom).
    Zoom,
    /// A signed ping: `204`, or to an interaction's ping `{"type":1}` (Discord).
    Discord,
}

impl Handshake {
    /// The secret that it takes besides the route's own.
    pub fn secret(&self) -> Option<&SecretName> {
        match self {
            Handshake::Meta { secret } => Some(secret),
            Handshake::Dropbox
            | Handshake::MicrosoftGraph
            | Handshake::X
            | Handshake::Slack
            | Handshake::Zoom
            | Handshake::Discord => None,
        }
    }

    /// Whether it computes with the route's own secret.
    pub fn takes_route_secret(&self) -> bool {
        matches!(self, Handshake::X | Handshake::Zoom)
    }
}
