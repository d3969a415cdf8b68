//! Bodies and headers on the wire: what was sent, as far as it may be shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::event::Header;

/// The most of a body that is shown, in bytes.
pub const BODY_SHOWN_BYTES_MAX: usize = 256 * 1_024;

/// Headers whose value is a credential by definition: shown by name only.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// A body, or the beginning of one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Body {
    /// How `data` is written.
    pub encoding: Encoding,
    /// The bytes that are shown.
    pub data: String,
    /// How many there are.
    pub bytes: u64,
    /// Whether that is more than is shown.
    pub truncated: bool,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Encoding {
    /// As the text that they are.
    #[serde(rename = "utf-8")]
    Utf8,
    /// In base64, with padding.
    #[serde(rename = "base64")]
    Base64,
}

/// A header.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeaderValue {
    /// Its name, in lower case.
    pub name: String,
    /// Its value, with bytes that are no text replaced; null where it is a credential.
    #[schema(required = true)]
    pub value: Option<String>,
}

impl Body {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let shown = &bytes[..bytes.len().min(BODY_SHOWN_BYTES_MAX)];
        let (encoding, data) = match std::str::from_utf8(shown) {
            Ok(text) => (Encoding::Utf8, text.to_owned()),
            // A cut through a character is no reason to show base64.
            Err(error) if error.error_len().is_none() && shown.len() < bytes.len() => {
                (Encoding::Utf8, String::from_utf8_lossy(&shown[..error.valid_up_to()]).into_owned())
            }
            Err(_) => (Encoding::Base64, STANDARD.encode(shown)),
        };
        Self { encoding, data, bytes: bytes.len() as u64, truncated: shown.len() < bytes.len() }
    }
}

impl From<Header> for HeaderValue {
    fn from(header: Header) -> Self {
        let credential = CREDENTIAL_HEADERS.contains(&header.name.as_str());
        let value = (!credential).then(|| String::from_utf8_lossy(&header.value).into_owned());
        Self { name: header.name, value }
    }
}
