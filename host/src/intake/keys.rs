//! Keys: which delivery a request is, and what object it is about, by the route's declared rules.
//!
//! A request that comes this far is authentic, and losing it costs more than working it off out of order:
//! - A route's delivery key has to be there. Without it the same delivery sent twice would be two Events (ADM-5), so
//!   the sender is told.
//! - A source key may be missing: the event then stands in no lane, and is counted.
//! - A queue class rule that finds nothing gives the class that it names for that.
//! - Of the events that one request carries, each has the keys that its own part of the body has. What a header says,
//!   it says of all of them: each then has a delivery key with its position behind it.
//! - A key longer than [`KEY_BYTES_MAX`] is replaced by its hash, which still tells one from another. So is one that
//!   ends in a space: databases of the MySQL family compare texts as if they had no spaces behind them, and would take
//!   it for the key without.

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::answer::Refusal;
use super::pointer::{self, NotJson};
use crate::model::pack::{Coalescing, KeyRule, Ordering, QueueClassRule, Route};
use crate::model::queue::QueueClass;

/// The longest key that is kept as it is, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 512;

/// What a request's keys are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// `None` if the route declares none.
    pub(super) delivery: Option<String>,
    /// `None` if the route has no lanes of sources and no projections, or the request has none.
    pub(super) source: Option<String>,
    /// By the route's rule.
    pub(super) queue_class: QueueClass,
}

/// Finds the keys of a request to `route`. Parses the body once, and only if a key is in it.
pub(super) fn find(route: &Route, headers: &HeaderMap, body: &[u8]) -> Result<Keys, Refusal> {
    let source_rule = match (route.ordering, route.coalescing) {
        (Ordering::Source | Ordering::Delivery, _) | (Ordering::None, Coalescing::SourceProjection) => {
            route.source_key.as_ref()
        }
        (Ordering::None, Coalescing::None | Coalescing::LatestBySource) => None,
    };
    let delivery_rule = route.delivery_key.as_ref();
    let class_rule = match &route.queue_class {
        QueueClassRule::Fixed(_) => None,
        QueueClassRule::ByValue { place, .. } => Some(place),
    };
    let pointed = pointer::find(body, [delivery_rule, source_rule, class_rule].map(|rule| rule.and_then(pointer_of)));
    let (delivery_pointed, source_pointed, class_pointed) = match pointed {
        Ok([delivery, source, class]) => (Ok(delivery), source, class),
        Err(NotJson) => (Err(Refusal::BodyNotJson), None, None),
    };
    let delivery = match delivery_rule {
        None => None,
        Some(KeyRule::Header(name)) => Some(in_header(headers, name).ok_or(Refusal::DeliveryKeyMissing)?),
        Some(KeyRule::Pointer(_)) => Some(delivery_pointed?.and_then(bounded).ok_or(Refusal::DeliveryKeyMissing)?),
        Some(KeyRule::Pointers(pointers)) => {
            let composite = composite(pointers, body).map_err(|NotJson| Refusal::BodyNotJson)?;
            Some(composite.ok_or(Refusal::DeliveryKeyMissing)?)
        }
        Some(KeyRule::Body) => Some(hashed(body)),
    };
    let source = optional(source_rule, headers, source_pointed, body);
    let queue_class = queue_class(&route.queue_class, optional(class_rule, headers, class_pointed, body));
    Ok(Keys { delivery, source, queue_class })
}

/// What a rule finds that need not find anything.
fn optional(rule: Option<&KeyRule>, headers: &HeaderMap, pointed: Option<String>, body: &[u8]) -> Option<String> {
    match rule? {
        KeyRule::Header(name) => in_header(headers, name),
        KeyRule::Pointer(_) => pointed.and_then(bounded),
        KeyRule::Pointers(pointers) => composite(pointers, body).ok().flatten(),
        KeyRule::Body => Some(hashed(body)),
    }
}

/// The key that several values make together, each behind its length, so that no two lists of values make the same one;
/// none if one of them is missing.
fn composite(pointers: &[String], body: &[u8]) -> Result<Option<String>, NotJson> {
    let mut key = String::new();
    for pointer in pointers {
        let [found] = pointer::find(body, [Some(pointer.as_str())])?;
        let Some(value) = found.filter(|value| !value.is_empty()) else { return Ok(None) };
        key.push_str(&format!("{}:{value},", value.len()));
    }
    Ok(bounded(key))
}

fn queue_class(rule: &QueueClassRule, value: Option<String>) -> QueueClass {
    match rule {
        QueueClassRule::Fixed(class) => *class,
        QueueClassRule::ByValue { classes, otherwise, .. } => {
            value.and_then(|value| classes.get(&value).copied()).unwrap_or(*otherwise)
        }
    }
}

fn pointer_of(rule: &KeyRule) -> Option<&str> {
    match rule {
        KeyRule::Header(_) | KeyRule::Pointers(_) | KeyRule::Body => None,
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

/// The delivery key of one of the events that a request carries, from what names them all.
pub(super) fn of_part(request: &str, position: usize) -> String {
    let key = format!("{request}#{position}");
    bounded(key).expect("it is not empty")
}

/// A key of bounded length that every database tells from others; none, if it is empty.
fn bounded(key: String) -> Option<String> {
    match key.len() {
        0 => None,
        1..=KEY_BYTES_MAX if !key.ends_with(' ') => Some(key),
        _ => Some(hashed(key.as_bytes())),
    }
}

fn hashed(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests;
