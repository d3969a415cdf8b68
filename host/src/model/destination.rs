//! The destination: a way out that the operator has configured, and how its lane behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use super::destination_lane::Ordering;
use super::hash::fnv1a;
use super::message::UncertainPolicy;
use super::names::{DestinationName, SecretName};
use super::retry::RetryPolicy;

/// The most destinations that are set while hosts run, those that were removed and still have messages among them.
pub const DESTINATIONS_SET_MAX: usize = 1_024;

/// Every destination, by name, and the ones that were removed while messages waited for them.
///
/// It never changes: whoever follows destinations is given another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destinations {
    callable: BTreeMap<DestinationName, Destination>,
    /// What is emitted to these waits, and stands in the lines that it stood in before.
    removed: BTreeMap<DestinationName, Ordering>,
}

impl Destinations {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// The destination of this name, if it can be called.
    pub fn get(&self, name: &DestinationName) -> Option<&Destination> {
        self.callable.get(name)
    }

    /// As [`Destinations::get`], to be changed.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self, name: &DestinationName) -> Option<&mut Destination> {
        self.callable.get_mut(name)
    }

    /// Those that can be called, by name.
    pub fn values(&self) -> impl Iterator<Item = &Destination> {
        self.callable.values()
    }

    /// How many can be called.
    pub fn len(&self) -> usize {
        self.callable.len()
    }

    /// Whether none can be called.
    pub fn is_empty(&self) -> bool {
        self.callable.is_empty()
    }

    /// Adds one that can be called, or has another one in its place.
    pub fn insert(&mut self, destination: Destination) {
        self.removed.remove(&destination.name);
        self.callable.insert(destination.name.clone(), destination);
    }

    /// Has one be called no more. What waits for it keeps its order.
    pub fn remove(&mut self, name: &DestinationName, ordering: Ordering) {
        self.callable.remove(name);
        self.removed.insert(name.clone(), ordering);
    }

    /// Which messages of a destination keep their order. Nobody said so of one that is not known: none.
    pub fn ordering_of(&self, name: &DestinationName) -> Ordering {
        let callable = self.callable.get(name).map(|destination| destination.ordering);
        callable.or_else(|| self.removed.get(name).copied()).unwrap_or(Ordering::None)
    }

    /// Stands for which messages keep their order: another number means that lanes are told apart in another way.
    pub fn ordering_fingerprint(&self) -> u64 {
        let callable = self.callable.values().map(|destination| (&destination.name, destination.ordering));
        let removed = self.removed.iter().map(|(name, ordering)| (name, *ordering));
        let all: BTreeMap<&DestinationName, Ordering> = callable.chain(removed).collect();
        let ordered = all.into_iter().filter(|(_, ordering)| *ordering != Ordering::None);
        let words = ordered.map(|(name, ordering)| format!("{name}={ordering:?};"));
        fnv1a(words.flat_map(String::into_bytes))
    }
}

impl FromIterator<Destination> for Destinations {
    fn from_iter<T: IntoIterator<Item = Destination>>(destinations: T) -> Self {
        let callable = destinations.into_iter().map(|destination| (destination.name.clone(), destination)).collect();
        Self { callable, removed: BTreeMap::new() }
    }
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

/// The terms of a destination of which the operator says nothing else.
pub const DEFAULT_TERMS: Terms = Terms {
    retry: RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(3_600), failures_max: 12 },
    uncertain: UncertainPolicy::Retry,
    ordering: Ordering::None,
    limits: LaneLimits { messages: 32, bytes: 16 << 20 },
    weight: 1,
};

/// One attempt's deadline, if the operator sets no other.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(15);

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
    /// A destination with [`DEFAULT_TERMS`] and [`DEFAULT_DEADLINE`], unsigned.
    pub fn new(name: DestinationName, url: http::Uri) -> Self {
        let Terms { retry, uncertain, ordering, limits, weight } = DEFAULT_TERMS;
        let (secret, deadline, retry_statuses) = (None, DEFAULT_DEADLINE, Vec::new());
        Self { name, url, secret, deadline, retry, uncertain, retry_statuses, ordering, limits, weight }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(name: &str, ordering: Ordering) -> Destination {
        let url = http::Uri::from_static("https://a.example/");
        Destination { ordering, ..Destination::new(name.parse().unwrap(), url) }
    }

    // LAN-1
    #[test]
    fn what_waits_for_a_removed_destination_keeps_its_order_and_what_was_never_known_has_none() {
        let name: DestinationName = "line".parse().unwrap();
        let mut destinations: Destinations = [destination("line", Ordering::Exact)].into_iter().collect();
        let before = destinations.ordering_fingerprint();
        destinations.remove(&name, Ordering::Exact);
        assert_eq!((destinations.len(), terms_of(&destinations, &name)), (0, None));
        assert_eq!(destinations.ordering_of(&name), Ordering::Exact);
        assert_eq!(destinations.ordering_fingerprint(), before, "lanes are told apart as before");
        destinations.insert(destination("line", Ordering::Hashed { domains: 4 }));
        assert_eq!(destinations.ordering_of(&name), Ordering::Hashed { domains: 4 });
        assert_ne!(destinations.ordering_fingerprint(), before);
        assert_eq!(destinations.ordering_of(&"other".parse().unwrap()), Ordering::None);
        let unordered: Destinations = [destination("plain", Ordering::None)].into_iter().collect();
        assert_eq!(unordered.ordering_fingerprint(), Destinations::new().ordering_fingerprint());
    }
}
