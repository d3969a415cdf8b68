//! Bodies and headers on the wire, without credentials.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::event::Header;

/// The most bytes of a body that are shown.
pub const BODY_SHOWN_BYTES_MAX: usize = 256 * 1_024;

/// Headers whose value is a credential by definition: shown by name only.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// A body, or the beginning of one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Body {
    /// Encoding of `data`.
    pub encoding: Encoding,
    /// The body, or its beginning.
    pub data: String,
    /// Size of the whole body.
    pub bytes: u64,
    /// Whether `data` is only the beginning.
    pub truncated: bool,
}

/// The encoding of bytes in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Encoding {
    /// UTF-8 text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64 with padding.
    #[serde(rename = "base64")]
    Base64,
}

/// A header.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeaderValue {
    /// Its name, in lower case.
    pub name: String,
    /// Its value, with bytes that are not text replaced; null if it is a credential.
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
