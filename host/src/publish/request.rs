//! The request that carries a message: its headers, and what a flow may not set of them.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::Full;

use super::sign::{BadSecret, sign};
use crate::model::event::Header;
use crate::model::message::is_reserved_header;
use crate::model::time::Timestamp;
use crate::secrets::Secret;
use crate::store::Payload;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const FOREBAY: HeaderValue = HeaderValue::from_static(concat!("forebay/", env!("CARGO_PKG_VERSION")));

/// Headers of its own that a message may have. Receivers commonly take about a hundred in all.
const HEADERS_MAX: usize = 64;

/// Why no request can be made of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsendable {
    /// The message is at fault: no later attempt can do better. Dropping the header instead would hide from its author
    /// that it has no effect.
    #[error("{0}")]
    Message(Cow<'static, str>),
    /// The operator's secret is at fault.
    #[error(transparent)]
    Secret(#[from] BadSecret),
}

/// A `POST` of `payload` to `url`, signed with `secrets` (unsigned if there are none) at `now`.
pub(super) fn build(
    url: &Uri,
    payload: Payload,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, Unsendable> {
    if payload.headers.len() > HEADERS_MAX {
        return Err(message(format!("it has more than {HEADERS_MAX} headers")));
    }
    let seconds = now.as_millis().div_euclid(1_000);
    let mut headers = HeaderMap::with_capacity(payload.headers.len() + 6);
    headers.insert(USER_AGENT, FOREBAY);
    if !payload.content_type.is_empty() {
        let content_type = HeaderValue::try_from(payload.content_type);
        headers.insert(CONTENT_TYPE, content_type.map_err(|_| message("its content type cannot be a header"))?);
    }
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
    if !secrets.is_empty() {
        headers.insert(WEBHOOK_SIGNATURE, sign(secrets, &payload.idempotency_key, seconds, &payload.body)?);
    }
    headers.insert(WEBHOOK_ID, webhook_id(payload.idempotency_key)?);
    for header in payload.headers {
        let (name, value) = guest_header(header)?;
        headers.append(name, value);
    }
    let mut request = Request::new(Full::new(payload.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    *request.headers_mut() = headers;
    Ok(request)
}

/// A receiver signs the text that it reads. Spaces around it would be trimmed and bytes beyond ASCII decoded in one way
/// or another, and the signatures would differ.
fn webhook_id(key: String) -> Result<HeaderValue, Unsendable> {
    let unusable = || message("its idempotency key cannot be a header: use printable ASCII, with no space around it");
    let is_printable = key.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if key.is_empty() || key.trim().len() != key.len() || !is_printable {
        return Err(unusable());
    }
    HeaderValue::try_from(key).map_err(|_| unusable())
}

fn guest_header(header: Header) -> Result<(HeaderName, HeaderValue), Unsendable> {
    let bad_name = |_| message("one of its headers has a name that HTTP does not allow");
    let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(bad_name)?;
    if is_reserved_header(name.as_str()) {
        return Err(message(format!("its header `{name}` is the host's to set")));
    }
    let bad_value = |_| message(format!("its header `{name}` has a value that HTTP does not allow"));
    let value = HeaderValue::from_maybe_shared(header.value).map_err(bad_value)?;
    Ok((name, value))
}

fn message(text: impl Into<Cow<'static, str>>) -> Unsendable {
    Unsendable::Message(text.into())
}

#[cfg(test)]
mod tests;
