//! The destination: a way out that the operator has configured, and how its lane behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::UncertainPolicy;
use super::names::{DestinationName, SecretName};
use super::retry::RetryPolicy;

/// Every destination, by name.
pub type Destinations = BTreeMap<DestinationName, Destination>;

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
