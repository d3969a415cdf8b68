//! Deliveries as GitHub makes them: signed over the raw body, each with an id of its own.

use std::fmt::Write;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use sha2::Sha256;

/// One delivery, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub event: String,
    /// The raw body.
    pub body: Bytes,
    /// `X-Hub-Signature-256`.
    pub signature: String,
}

impl Delivery {
    /// A delivery that is signed with `secret`.
    pub fn signed(secret: &[u8], id: impl Into<String>, event: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { id: id.into(), event: event.into(), signature: sign(secret, &body), body }
    }

    /// The request that delivers it to `path`.
    pub fn request(&self, host: &str, path: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::post(path)
            .header("host", host)
            .header("content-type", "application/json")
            .header("user-agent", "GitHub-Hookshot/044aadd")
            .header("x-github-delivery", &self.id)
            .header("x-github-event", &self.event)
            .header("x-hub-signature-256", &self.signature)
            .body(Full::new(self.body.clone()))?;
        Ok(request)
    }
}

/// The value of `X-Hub-Signature-256` for a body.
pub fn sign(secret: &[u8], body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(body);
    let mut text = String::from("sha256=");
    for byte in mac.finalize().into_bytes() {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
    }
    text
}
