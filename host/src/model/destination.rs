//! The destination: a way out that the operator has configured, and how its lane behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use super::destination_lane::Ordering;
use super::hash::fnv1a;
use super::message::UncertainPolicy;
use super::names::{DestinationName, SecretName};
use super::retry::RetryPolicy;

/// Every destination, by name.
pub type Destinations = BTreeMap<DestinationName, Destination>;

/// Stands for which messages keep their order: another number means that lanes are told apart in another way.
pub fn ordering_fingerprint(destinations: &Destinations) -> u64 {
    let ordered = destinations.values().filter(|destination| destination.ordering != Ordering::None);
    let words = ordered.map(|destination| format!("{}={:?};", destination.name, destination.ordering));
    fnv1a(words.flat_map(String::into_bytes))
}

/// A way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its name, which flows emit to.
    pub name: DestinationName,
    /// Where it is; `http` or `https`, with no userinfo.
    pub url: http::Uri,
    /// What its messages are signed with; the operator may hold several during a rotation.
    pub secret: Option<SecretName>,
    /// Over DNS, connect, TLS, head and body of one attempt together.
    pub deadline: Duration,
    /// How failed attempts are spaced, and when they end.
    pub retry: RetryPolicy,
    /// What to do when an attempt's outcome is not known.
    pub uncertain: UncertainPolicy,
    /// Which of its messages keep their order.
    pub ordering: Ordering,
    /// What its lanes may have in flight.
    pub limits: LaneLimits,
    /// Its share beside other lanes; at least 1.
    pub weight: u32,
}

/// What a Destination Lane may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Messages.
    pub messages: u32,
    /// Bytes of their bodies and headers.
    pub bytes: u64,
}
