//! The Destination Lane's identity, which of its destination's messages keep their order, and its gate.

use std::fmt;

use super::hash::fnv1a;
use super::names::{DestinationName, Namespace};

/// Which messages of a destination keep their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// None: whatever is due is sent, side by side.
    None,
    /// Those of one ordering key: each key has a lane of its own.
    Exact,
    /// Those of one ordering key; so many lanes share all keys.
    Hashed {
        /// The lanes; at least 1.
        domains: u16,
    },
}

/// What of a destination's messages a lane holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderingDomain {
    /// Those that keep no order.
    Unordered,
    /// Those of one ordering key, in order.
    Key(String),
    /// Those of all keys that hash to this number, in order.
    Hash(u16),
}

impl Ordering {
    /// The domain of a message with this ordering key. One without a key keeps no order.
    pub fn domain(self, key: Option<&str>) -> OrderingDomain {
        match (self, key) {
            (Ordering::None, _) | (_, None) => OrderingDomain::Unordered,
            (Ordering::Exact, Some(key)) => OrderingDomain::Key(key.to_owned()),
            (Ordering::Hashed { domains }, Some(key)) => OrderingDomain::hashed(key, domains),
        }
    }
}

impl OrderingDomain {
    /// One of so many domains.
    pub fn hashed(key: &str, domains: u16) -> Self {
        let number = fnv1a(key.bytes()) % u64::from(domains.max(1));
        OrderingDomain::Hash(u16::try_from(number).expect("a remainder is smaller than its divisor"))
    }

    /// Whether only its head is sent.
    pub fn is_ordered(&self) -> bool {
        match self {
            OrderingDomain::Unordered => false,
            OrderingDomain::Key(_) | OrderingDomain::Hash(_) => true,
        }
    }
}

/// What a lane groups: one tenant's messages to one destination, of one ordering domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneName {
    /// The tenant.
    pub namespace: Namespace,
    /// Where they go. It says which capability they need: that of the adapter that calls it.
    pub destination: DestinationName,
    /// Which of them.
    pub ordering: OrderingDomain,
}

impl fmt::Display for LaneName {
    /// `acme/sink`, `acme/sink#7` for a domain of keys, `acme/sink:key` for one key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.destination)?;
        match &self.ordering {
            OrderingDomain::Unordered => Ok(()),
            OrderingDomain::Hash(number) => write!(formatter, "#{number}"),
            OrderingDomain::Key(key) => write!(formatter, ":{key}"),
        }
    }
}

/// Whether lanes take part at all; the later ones are the stricter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// They do.
    Open,
    /// They are paused: by an operator, or because their destination said that it is gone.
    Paused,
    /// An operator has closed them.
    Closed,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Gate; 3] = [Gate::Open, Gate::Paused, Gate::Closed];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Gate::Open => "open",
            Gate::Paused => "paused",
            Gate::Closed => "closed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // LAN-1
    #[test]
    fn a_key_has_a_lane_of_its_own_or_shares_one_of_a_few_and_always_the_same() {
        assert_eq!(Ordering::None.domain(Some("k")), OrderingDomain::Unordered);
        assert_eq!(Ordering::Exact.domain(None), OrderingDomain::Unordered);
        assert_eq!(Ordering::Exact.domain(Some("k")), OrderingDomain::Key("k".to_owned()));
        let hashed = Ordering::Hashed { domains: 4 };
        let domains: std::collections::BTreeSet<_> =
            (0..100).map(|key| hashed.domain(Some(&format!("key-{key}")))).collect();
        assert_eq!(domains, (0..4).map(OrderingDomain::Hash).collect());
        assert_eq!(hashed.domain(Some("octo/hello")), hashed.domain(Some("octo/hello")));
    }
}
