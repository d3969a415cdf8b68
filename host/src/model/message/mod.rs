//! The message: what a flow emits to a destination, now or later. Its states, and what an attempt makes of it.
//!
//! ```text
//!  emit ──> scheduled ──admit──> publishing ──> published
//!             │  ^ │ ^              │ │ │ └───> dead
//!             │  │ │ └─reschedule─┐ │ │ └─────> retry_wait ──admit──> publishing
//!             │  └─┼──────────────┴─┼─┼───────────┘ │
//!             │    └──> expired <───┼─┼─────────────┤
//!             └───────> cancelled <─┼─┼─────────────┘
//!                                   │ └─(no outcome known)─> uncertain ──policy──> publishing | dead
//!                                   └───> handed_off, if it is an action
//! ```
//!
//! A message of which an attempt was uncertain stays so, whatever its policy makes of it: a cancel or a reschedule of
//! it comes too late until somebody has found out ([`TooLate`]), while it is retried, expires or ends as ever.
//!
//! *Claim* is not a state: it takes permits in memory and gives them back. `publishing` is the durable Publish
//! Admission; from there a cancel or a reschedule comes too late.

mod life;

pub use life::{AttemptEnd, Life, NotRedriven, Resolution, TooLate, in_time, is_unsettled};

use std::time::Duration;

use super::ids::{EventId, MessageId, WorkItemId};
use super::names::{DestinationName, Namespace, PackName};
use super::pack::GenerationNumber;
use super::retry::RetryPolicy;
use super::time::Timestamp;

/// The most that a message can have, in bytes: no pack may ask for more output, of all of its messages together.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Headers that are the host's to set, or that belong to the connection and not to the message (RFC 9110, 7.6.1).
pub const RESERVED_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
/// As [`RESERVED_HEADERS`], by how they begin.
const RESERVED_HEADER_PREFIXES: [&str; 2] = ["proxy-", "webhook-"];

/// Whether a message may not have a header of this name, given in lower case. Asked when a flow emits it, so that its
/// author hears of it, and again when it is sent.
pub fn is_reserved_header(name: &str) -> bool {
    RESERVED_HEADERS.contains(&name) || RESERVED_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageState {
    /// Waiting for its time, or for its turn.
    Scheduled,
    /// Admitted: its destination is being called, or was when the host died.
    Publishing,
    /// An attempt failed; waiting for the next.
    RetryWait,
    /// An attempt's outcome is not known.
    Uncertain,
    /// The destination took it.
    Published,
    /// Cancelled in time.
    Cancelled,
    /// Not published before it expired.
    Expired,
    /// Refused for good, or out of attempts.
    Dead,
    /// It was an action, and is a WorkItem now.
    HandedOff,
}

impl MessageState {
    /// Every state, in the order in which statistics name them.
    pub const ALL: [MessageState; 9] = [
        MessageState::Scheduled,
        MessageState::Publishing,
        MessageState::RetryWait,
        MessageState::Uncertain,
        MessageState::Published,
        MessageState::Cancelled,
        MessageState::Expired,
        MessageState::Dead,
        MessageState::HandedOff,
    ];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            MessageState::Scheduled => "scheduled",
            MessageState::Publishing => "publishing",
            MessageState::RetryWait => "retry_wait",
            MessageState::Uncertain => "uncertain",
            MessageState::Published => "published",
            MessageState::Cancelled => "cancelled",
            MessageState::Expired => "expired",
            MessageState::Dead => "dead",
            MessageState::HandedOff => "handed_off",
        }
    }

    /// Whether nothing more happens to it.
    pub const fn is_terminal(self) -> bool {
        match self {
            MessageState::Published
            | MessageState::Cancelled
            | MessageState::Expired
            | MessageState::Dead
            | MessageState::HandedOff => true,
            MessageState::Scheduled | MessageState::Publishing | MessageState::RetryWait | MessageState::Uncertain => {
                false
            }
        }
    }

    /// Whether it waits for an attempt, and neither is in one nor has ended nor is held.
    pub const fn waits(self) -> bool {
        match self {
            MessageState::Scheduled | MessageState::RetryWait => true,
            MessageState::Publishing
            | MessageState::Uncertain
            | MessageState::Published
            | MessageState::Cancelled
            | MessageState::Expired
            | MessageState::Dead
            | MessageState::HandedOff => false,
        }
    }
}

/// A message that a flow emits, before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Its identity; derived from the event and its position, so that a second run makes the same one.
    pub id: MessageId,
    /// Where it goes.
    pub destination: DestinationName,
    /// Its body.
    pub body: bytes::Bytes,
    /// Its `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<super::event::Header>,
    /// Messages of one destination and key keep their order, where the lane is ordered.
    pub ordering_key: Option<String>,
    /// What the receiver tells duplicates by; the message's id if the flow gave none.
    pub idempotency_key: Option<String>,
    /// When it is due, unless it is so long after it is stored.
    pub due_at: Timestamp,
    /// How long after it is stored it is due: by the store's time, which where runtimes share it is no clock of theirs.
    pub due_after: Option<Duration>,
    /// When it is of no more use.
    pub expire_at: Option<Timestamp>,
    /// What it is, if it goes to its pack's flow.
    pub action: Option<NewAction>,
}

/// What tells a message to a pack's flow from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAction {
    /// What to do, in the pack's own words.
    pub name: String,
    /// The pack, whose flow the message's destination is.
    pub pack: PackName,
    /// The generation that emitted it, and that applies it.
    pub generation: GenerationNumber,
}

/// An action that has come due, as its pack's `apply` gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAction {
    /// Its identity: that of its message.
    pub id: MessageId,
    /// What to do, in the pack's own words.
    pub name: String,
    /// What it needs to know.
    pub body: bytes::Bytes,
    /// When it was due.
    pub due_at: Timestamp,
}

/// What the timeline needs to know of a stored message: everything but its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageEntry {
    /// Its identity.
    pub id: MessageId,
    /// Its place in the shard's feed.
    pub seq: u64,
    /// The event it came from.
    pub event_id: EventId,
    /// The execution that emitted it.
    pub work_item_id: WorkItemId,
    /// The tenant it belongs to.
    pub namespace: Namespace,
    /// Where it goes.
    pub destination: DestinationName,
    /// What it keeps its order with, where its lane is ordered.
    pub ordering_key: Option<String>,
    /// Its place in an ordered lane.
    pub place: u64,
    /// Its state.
    pub state: MessageState,
    /// How often it was rescheduled, plus one.
    pub generation: u32,
    /// How many attempts were admitted.
    pub attempt: u32,
    /// When it is due.
    pub due_at: Timestamp,
    /// When the next attempt may be made: `due_at`, or later in `RetryWait`.
    pub eligible_at: Timestamp,
    /// When it is of no more use.
    pub expire_at: Option<Timestamp>,
    /// Body and headers, in bytes.
    pub bytes: u32,
}

/// What an attempt did to the destination, and what that says about the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination took it.
    Published,
    /// It is an action that becomes a WorkItem, in the transaction that records this.
    HandedOff,
    /// The destination certainly did not take it, and may take it later.
    Retriable {
        /// The destination's own word on when, if it gave one.
        retry_after: Option<Duration>,
    },
    /// The destination will never take it.
    Permanent,
    /// Nobody knows.
    Unknown,
}

/// What to do with a message whose last attempt's outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UncertainPolicy {
    /// Try again, with the same idempotency key.
    Retry,
    /// Wait for an operator.
    Hold,
    /// End it.
    End,
}

/// What an attempt makes of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterAttempt {
    /// It was published.
    Published,
    /// It is a WorkItem now.
    HandedOff,
    /// It is tried again at this time.
    RetryAt(Timestamp),
    /// It waits for an operator.
    Uncertain,
    /// It ends as dead.
    Dead,
    /// It ends as expired.
    Expired,
}

impl AfterAttempt {
    /// The state that it stands in afterwards.
    pub const fn state(self) -> MessageState {
        match self {
            AfterAttempt::Published => MessageState::Published,
            AfterAttempt::HandedOff => MessageState::HandedOff,
            AfterAttempt::RetryAt(_) => MessageState::RetryWait,
            AfterAttempt::Uncertain => MessageState::Uncertain,
            AfterAttempt::Dead => MessageState::Dead,
            AfterAttempt::Expired => MessageState::Expired,
        }
    }
}

/// Decides what the outcome of attempt number `attempt` makes of a message.
///
/// `now` is the latest that it can be: backing off from it never lets the next attempt come too soon.
pub fn after_attempt(
    id: MessageId,
    attempt: u32,
    expire_at: Option<Timestamp>,
    outcome: &Outcome,
    retry: &RetryPolicy,
    uncertain: UncertainPolicy,
    now: Timestamp,
) -> AfterAttempt {
    let retry_after = match (outcome, uncertain) {
        (Outcome::Published, _) => return AfterAttempt::Published,
        (Outcome::HandedOff, _) => return AfterAttempt::HandedOff,
        (Outcome::Permanent, _) | (Outcome::Unknown, UncertainPolicy::End) => return AfterAttempt::Dead,
        (Outcome::Unknown, UncertainPolicy::Hold) => return AfterAttempt::Uncertain,
        (Outcome::Unknown, UncertainPolicy::Retry) => None,
        (Outcome::Retriable { retry_after }, _) => *retry_after,
    };
    let Some(backoff) = retry.delay_after(attempt, id.as_bytes()) else {
        return AfterAttempt::Dead;
    };
    let next = now + retry_after.map_or(backoff, |wish| wish.min(retry.max).max(backoff));
    match expire_at {
        Some(expire_at) if expire_at <= next => AfterAttempt::Expired,
        _ => AfterAttempt::RetryAt(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: RetryPolicy =
        RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(600), failures_max: 4 };
    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn id() -> MessageId {
        MessageId::from_bytes([3; 16])
    }

    fn decide(attempt: u32, outcome: Outcome, uncertain: UncertainPolicy) -> AfterAttempt {
        after_attempt(id(), attempt, None, &outcome, &RETRY, uncertain, NOW)
    }

    // TL-6
    #[test]
    fn an_unknown_outcome_follows_the_lanes_policy() {
        assert!(matches!(decide(1, Outcome::Unknown, UncertainPolicy::Retry), AfterAttempt::RetryAt(at) if at > NOW));
        assert_eq!(decide(1, Outcome::Unknown, UncertainPolicy::Hold), AfterAttempt::Uncertain);
        assert_eq!(decide(1, Outcome::Unknown, UncertainPolicy::End), AfterAttempt::Dead);
    }

    #[test]
    fn attempts_are_counted_exactly() {
        let refused = Outcome::Retriable { retry_after: None };
        for attempt in 1..4 {
            assert!(matches!(decide(attempt, refused.clone(), UncertainPolicy::Hold), AfterAttempt::RetryAt(_)));
        }
        assert_eq!(decide(4, refused, UncertainPolicy::Hold), AfterAttempt::Dead);
    }

    #[test]
    fn a_destinations_wish_delays_within_bounds_and_never_hastens() {
        let after = |secs| {
            let outcome = Outcome::Retriable { retry_after: Some(Duration::from_secs(secs)) };
            match decide(1, outcome, UncertainPolicy::Hold) {
                AfterAttempt::RetryAt(at) => at.since(NOW),
                other => panic!("{other:?}"),
            }
        };
        assert!(after(0) >= Duration::from_millis(500));
        assert_eq!(after(30), Duration::from_secs(30));
        assert_eq!(after(86_400), RETRY.max);
    }

    #[test]
    fn a_message_whose_next_attempt_would_come_too_late_expires_now() {
        let refused = Outcome::Retriable { retry_after: None };
        let expire_at = Some(NOW + Duration::from_millis(100));
        let decided = after_attempt(id(), 1, expire_at, &refused, &RETRY, UncertainPolicy::Hold, NOW);
        assert_eq!(decided, AfterAttempt::Expired);
    }
}
