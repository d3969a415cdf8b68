//! Keys: which delivery a request is, and what object it is about, by the route's declared rules.
//!
//! A request that comes this far is authentic, and losing it costs more than working it off out of order:
//! - A route's delivery key has to be there. Without it the same delivery sent twice would be two Events (ADM-5), so the
//!   sender is told.
//! - A source key may be missing: the event then stands in no lane, and is counted.
//! - A key longer than [`KEY_BYTES_MAX`] is replaced by its hash, which still tells one from another.

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::answer::Refusal;
use super::pointer::{self, NotJson};
use crate::model::pack::{KeyRule, Ordering, Route};

/// The longest key that is kept as it is, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 512;

/// What a request's keys are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// `None` if the route declares none.
    pub(super) delivery: Option<String>,
    /// `None` if the route does not order by source, or the request has none.
    pub(super) source: Option<String>,
}

/// Finds the keys of a request to `route`. Parses the body once, and only if a key is in it.
pub(super) fn find(route: &Route, headers: &HeaderMap, body: &[u8]) -> Result<Keys, Refusal> {
    let source_rule = match route.ordering {
        Ordering::Source => route.source_key.as_ref(),
        Ordering::None => None,
    };
    let delivery_rule = route.delivery_key.as_ref();
    let pointed = pointer::find(body, [delivery_rule, source_rule].map(|rule| rule.and_then(pointer_of)));
    let (delivery_pointed, source_pointed) = match pointed {
        Ok([delivery, source]) => (Ok(delivery), source),
        Err(NotJson) => (Err(Refusal::BodyNotJson), None),
    };
    let delivery = match delivery_rule {
        None => None,
        Some(KeyRule::Header(name)) => Some(in_header(headers, name).ok_or(Refusal::DeliveryKeyMissing)?),
        Some(KeyRule::Pointer(_)) => Some(delivery_pointed?.and_then(bounded).ok_or(Refusal::DeliveryKeyMissing)?),
    };
    let source = match source_rule {
        None => None,
        Some(KeyRule::Header(name)) => in_header(headers, name),
        Some(KeyRule::Pointer(_)) => source_pointed.and_then(bounded),
    };
    Ok(Keys { delivery, source })
}

fn pointer_of(rule: &KeyRule) -> Option<&str> {
    match rule {
        KeyRule::Header(_) => None,
        KeyRule::Pointer(pointer) => Some(pointer),
    }
}

/// The value of a header that is there exactly once and is text.
fn in_header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned).and_then(bounded)
}

/// A key of bounded length; none, if it is empty.
fn bounded(key: String) -> Option<String> {
    match key.len() {
        0 => None,
        1..=KEY_BYTES_MAX => Some(key),
        _ => Some(format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(&key)))),
    }
}

#[cfg(test)]
mod tests;
