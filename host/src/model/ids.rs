//! Identifiers. Each is a UUIDv7 behind a type of its own, written as a prefix and 32 hex digits (`evt_0192…`), so that
//! ids sort by creation, cannot be confused with one another, and say in a log line what they name.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::time::Timestamp;

/// A text that should have been an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind} id: expected `{prefix}_` and 32 hex digits")]
pub struct ParseIdError {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id: the time it was made, then `entropy`.
            pub fn new(now: Timestamp, entropy: [u8; 10]) -> Self {
                Self(uuid_v7(now, entropy))
            }

            /// The 16 bytes that are stored.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The id that was stored as these bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex(text, concat!($prefix, "_")).map(Self).ok_or_else(|| ParseIdError {
                    text: text.chars().take(64).collect(),
                    kind: $kind,
                    prefix: $prefix,
                })
            }
        }
    };
}

identifier!(
    /// One admitted request of a provider.
    ReceiptId, "rcp", "a receipt"
);
identifier!(
    /// The immutable fact that something was delivered.
    EventId, "evt", "an event"
);
identifier!(
    /// The row that owns an execution.
    WorkItemId, "wi", "a work item"
);
identifier!(
    /// An outbound message. Also the `webhook-id` that its receiver sees, on every attempt.
    MessageId, "msg", "a message"
);
identifier!(
    /// What a claim writes into the rows that it won; every later transition must present it.
    LeaseToken, "lease", "a lease"
);
identifier!(
    /// One running host process, fresh at every start.
    RuntimeId, "rt", "a runtime"
);

fn uuid_v7(now: Timestamp, entropy: [u8; 10]) -> Uuid {
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid()
}

fn parse_hex(text: &str, prefix: &str) -> Option<Uuid> {
    let digits = text.strip_prefix(prefix)?;
    // `Uuid::try_parse` also takes hyphens and braces; an id has one spelling.
    if digits.len() != 32 || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    Uuid::try_parse(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = EventId::new(Timestamp::from_millis(1_700_000_000_000), [7; 10]);
        assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        assert_eq!(EventId::from_bytes(*id.as_bytes()), id);
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = EventId::new(Timestamp::from_millis(1), [1; 10]).to_string();
        for wrong in ["", "evt_", &id.to_uppercase(), &id.replace("evt", "msg"), &format!("{id}0"), "evt_{}"] {
            assert!(wrong.parse::<EventId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_sort_by_the_time_they_were_made() {
        let early = MessageId::new(Timestamp::from_millis(1_000), [255; 10]);
        let late = MessageId::new(Timestamp::from_millis(1_001), [0; 10]);
        assert!(early < late);
    }
}
