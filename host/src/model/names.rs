//! Names that people choose: namespaces, packs, routes, destinations, secrets. Each kind is a type of its own over one
//! shared, cheaply cloned text, checked once where it enters.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// A text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` cannot be {kind} name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit")]
pub struct ParseNameError {
    text: String,
    kind: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseNameError;

            fn from_str(text: &str) -> Result<Self, ParseNameError> {
                if is_name(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(ParseNameError { text: text.chars().take(80).collect(), kind: $kind })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// A tenant: it owns its events, its secrets and its share of every queue.
    Namespace, "a namespace"
);
name!(
    /// A connector.
    PackName, "a pack"
);
name!(
    /// A way in: the last part of `/in/{namespace}/{route}`.
    RouteName, "a route"
);
name!(
    /// What a pack reads records with.
    ReaderName, "a reader"
);
name!(
    /// A secret that the operator holds.
    SecretName, "a secret"
);

/// Where a message goes: a way out that the operator has configured, or `flow:` and a pack's name, which is where the
/// pack's own actions go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationName(Arc<str>);

/// What the names of flows begin with; no other name has a colon.
const FLOW_PREFIX: &str = "flow:";

impl DestinationName {
    /// Where the actions of a pack go.
    pub fn flow_of(pack: &PackName) -> Self {
        Self(format!("{FLOW_PREFIX}{pack}").into())
    }

    /// The name of a way out that an operator configures.
    pub fn configured(text: &str) -> Result<Self, ParseNameError> {
        if is_name(text) { Ok(Self(text.into())) } else { Err(Self::refusal(text)) }
    }

    fn refusal(text: &str) -> ParseNameError {
        ParseNameError { text: text.chars().take(80).collect(), kind: "a destination" }
    }

    /// The pack whose flow this is, if it is one.
    pub fn pack(&self) -> Option<PackName> {
        Some(PackName(self.0.strip_prefix(FLOW_PREFIX)?.into()))
    }

    /// Whether it is a pack's flow, which nobody configures.
    pub fn is_flow(&self) -> bool {
        self.0.starts_with(FLOW_PREFIX)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DestinationName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        if is_name(text.strip_prefix(FLOW_PREFIX).unwrap_or(text)) {
            Ok(Self(text.into()))
        } else {
            Err(Self::refusal(text))
        }
    }
}

impl fmt::Display for DestinationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DestinationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        for right in ["a", "0", "github", "acme-2_eu", &"x".repeat(63)] {
            assert_eq!(right.parse::<Namespace>().unwrap().as_str(), right);
        }
        for wrong in ["", "-a", "_a", "A", "a/b", "a.b", "ä", "a b", &"x".repeat(64)] {
            assert!(wrong.parse::<Namespace>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_packs_flow_is_a_destination_that_cannot_be_mistaken_for_a_configured_one() {
        let pack: PackName = "github".parse().unwrap();
        let flow = DestinationName::flow_of(&pack);
        assert_eq!((flow.as_str(), flow.pack(), flow.is_flow()), ("flow:github", Some(pack), true));
        assert_eq!(flow.as_str().parse::<DestinationName>().unwrap(), flow);
        let plain: DestinationName = "github".parse().unwrap();
        assert_eq!((plain.pack(), plain.is_flow()), (None, false));
        assert!(DestinationName::configured("flow:github").is_err(), "nobody configures one");
        for wrong in ["flow:", "flow:flow:a", "flows:a", "a:b", "flow:A"] {
            assert!(wrong.parse::<DestinationName>().is_err(), "{wrong:?}");
        }
    }
}
