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
    /// Answers, of those that would end a message, after which it is tried again all the same.
    pub retry_statuses: Vec<u16>,
    /// Which of its messages keep their order.
    pub ordering: Ordering,
    /// What its lanes may have in flight.
    pub limits: LaneLimits,
    /// Its share beside other lanes; at least 1.
    pub weight: u32,
}

/// How messages are worked off, whatever calls their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How failed attempts are spaced, and when they end.
    pub retry: RetryPolicy,
    /// What to do when an attempt's outcome is not known.
    pub uncertain: UncertainPolicy,
    /// Which messages keep their order.
    pub ordering: Ordering,
    /// What lanes may have in flight.
    pub limits: LaneLimits,
    /// The share beside other lanes; at least 1.
    pub weight: u32,
}

/// The terms of every pack's flow. Handing an action off fails for the host's own reasons only, and then has not
/// happened: it is tried until it has.
pub const FLOW_TERMS: Terms = Terms {
    retry: RetryPolicy { initial: Duration::from_millis(100), max: Duration::from_secs(10), failures_max: u32::MAX },
    uncertain: UncertainPolicy::Retry,
    ordering: Ordering::None,
    limits: LaneLimits { messages: 256, bytes: 64 << 20 },
    weight: 1,
};

/// The terms of a destination: a configured one, or a pack's flow. `None` if nobody can call it here.
pub fn terms_of(destinations: &Destinations, name: &DestinationName) -> Option<Terms> {
    if name.is_flow() {
        return Some(FLOW_TERMS);
    }
    destinations.get(name).map(Destination::terms)
}

impl Destination {
    /// How its messages are worked off.
    pub fn terms(&self) -> Terms {
        Terms {
            retry: self.retry,
            uncertain: self.uncertain,
            ordering: self.ordering,
            limits: self.limits,
            weight: self.weight,
        }
    }
}

/// One part in so many of what all destinations together may have, in flight or claimed by a shard, is the most that
/// one destination has: one that is stuck leaves room for the others, however many lanes it has.
pub const DESTINATION_PART: usize = 2;

/// One part in so many of what all destinations together may have in flight is for those that have nothing in flight.
pub const RESERVE_PART: usize = 8;

/// What a Destination Lane may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Messages.
    pub messages: u32,
    /// Bytes of their bodies and headers.
    pub bytes: u64,
}
