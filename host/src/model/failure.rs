//! Why a piece of work did not succeed, in terms that its author and its operator can act on.

use std::fmt;
use std::time::Duration;

/// The longest failure text that is kept, in bytes.
pub const FAILURE_TEXT_BYTES_MAX: usize = 2_048;

/// One failed execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it was.
    pub class: FailureClass,
    /// What the guest or the host had to say, at most [`FAILURE_TEXT_BYTES_MAX`] bytes. Never a payload or a secret.
    pub message: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The guest asked to be run again, no sooner than after `delay` if it gave one.
    Retry {
        /// The guest's own wish, bounded by the retry policy.
        delay: Option<Duration>,
    },
    /// The guest wants no part of this event: running it again is of no use.
    Rejected,
    /// The guest could not make sense of the event: running it again is of no use.
    InvalidInput,
    /// The guest panicked.
    Panic,
    /// The guest trapped in another way.
    Trap,
    /// The guest used up its fuel.
    OutOfFuel,
    /// The flow's wall-time deadline passed.
    Deadline,
    /// The guest asked for more memory, tables or host-call data than it may have.
    Memory,
    /// The guest returned something that is out of bounds or that its manifest does not allow.
    BadOutput,
    /// A batch read brought nothing now: the provider was slow, full or broken. It is tried again, no sooner than after
    /// `delay` if the provider named one.
    ReadFailed {
        /// The provider's own wish, bounded by the retry policy.
        delay: Option<Duration>,
    },
    /// A batch read will not bring anything: the provider refused the request, or it may not be made.
    ReadRefused,
    /// The host failed, not the guest.
    Host,
    /// It never ran: the host had no room for it in time. Spends nothing, and is not stored.
    NotRun,
}

impl FailureClass {
    /// The word for it in storage, metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureClass::Retry { .. } => "retry",
            FailureClass::Rejected => "rejected",
            FailureClass::InvalidInput => "invalid_input",
            FailureClass::Panic => "panic",
            FailureClass::Trap => "trap",
            FailureClass::OutOfFuel => "out_of_fuel",
            FailureClass::Deadline => "deadline",
            FailureClass::Memory => "memory",
            FailureClass::BadOutput => "bad_output",
            FailureClass::ReadFailed { .. } => "read_failed",
            FailureClass::ReadRefused => "read_refused",
            FailureClass::Host => "host",
            FailureClass::NotRun => "not_run",
        }
    }

    /// Whether running the same event again could end differently.
    pub const fn is_permanent(self) -> bool {
        match self {
            FailureClass::Rejected | FailureClass::InvalidInput | FailureClass::ReadRefused => true,
            FailureClass::Retry { .. }
            | FailureClass::Panic
            | FailureClass::Trap
            | FailureClass::OutOfFuel
            | FailureClass::Deadline
            | FailureClass::Memory
            | FailureClass::BadOutput
            | FailureClass::ReadFailed { .. }
            | FailureClass::Host
            | FailureClass::NotRun => false,
        }
    }
}

impl Failure {
    /// A failure with its text cut to what is kept.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: cut(message.into()) }
    }
}

/// A text, cut to [`FAILURE_TEXT_BYTES_MAX`] bytes.
pub fn cut(mut text: String) -> String {
    if text.len() > FAILURE_TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(FAILURE_TEXT_BYTES_MAX - '…'.len_utf8());
        text.truncate(end);
        text.push('…');
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.as_str(), self.message)
    }
}
