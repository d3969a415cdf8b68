//! Retention: how long what has ended is kept, and what may go.
//!
//! Decisions only. Nothing that is live goes, and nothing that somebody may still run or send again, unless an operator
//! set a time for that too.

use std::time::Duration;

use super::message::MessageState;
use super::time::Timestamp;
use super::work_item::WorkState;

/// One day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The fewest days that Events are kept: they are what redeliveries of a provider are recognized by.
pub const EVENTS_DAYS_MIN: u32 = 7;

/// How long what has ended is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Events, from the end of their last WorkItem on.
    pub events: Duration,
    /// Messages, from their end on.
    pub messages: Duration,
    /// What failed; `None` keeps it until an operator acts.
    pub failed: Option<Duration>,
}

/// The times before which something must have ended to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For WorkItems.
    pub events: Timestamp,
    /// For messages.
    pub messages: Timestamp,
    /// For what failed; `None`: it stays.
    pub failed: Option<Timestamp>,
}

/// A WorkItem, as far as retention looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedWorkItem {
    /// Its state.
    pub state: WorkState,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Whether it was run again.
    pub is_replayed: bool,
    /// Whether it stands in a lane.
    pub is_in_lane: bool,
}

/// A message, as far as retention looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedMessage {
    /// Its state.
    pub state: MessageState,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Keep {
    /// For so many days.
    pub const fn of_days(events: u32, messages: u32, failed: Option<u32>) -> Self {
        let failed = match failed {
            Some(failed) => Some(DAY.saturating_mul(failed)),
            None => None,
        };
        Self { events: DAY.saturating_mul(events), messages: DAY.saturating_mul(messages), failed }
    }

    /// The limits at `now`.
    pub fn limits(&self, now: Timestamp) -> Limits {
        Limits {
            events: now - self.events,
            messages: now - self.messages,
            failed: self.failed.map(|failed| now - failed),
        }
    }
}

impl Limits {
    /// Whether a WorkItem may go, as far as it is concerned.
    pub fn pass_work_item(&self, item: EndedWorkItem) -> bool {
        let limit = match item.state {
            WorkState::Done => Some(self.events),
            // It holds up those behind it, which is an operator's to settle.
            WorkState::Dead if item.is_in_lane => None,
            WorkState::Dead if item.is_replayed => Some(self.events),
            WorkState::Dead => self.failed,
            WorkState::Blocked | WorkState::Ready | WorkState::Delayed | WorkState::Processing => None,
        };
        ended_before(item.finished_at, limit)
    }

    /// Whether a message may go, as far as it is concerned.
    pub fn pass_message(&self, message: EndedMessage) -> bool {
        let limit = match message.state {
            MessageState::Published | MessageState::HandedOff | MessageState::Cancelled | MessageState::Expired => {
                Some(self.messages)
            }
            MessageState::Dead => self.failed,
            MessageState::Scheduled | MessageState::Publishing | MessageState::RetryWait | MessageState::Uncertain => {
                None
            }
        };
        ended_before(message.finished_at, limit)
    }
}

/// What has no time of its end stays.
fn ended_before(finished_at: Option<Timestamp>, limit: Option<Timestamp>) -> bool {
    finished_at.zip(limit).is_some_and(|(finished_at, limit)| finished_at < limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn limits(failed_days: Option<u32>) -> Limits {
        Keep::of_days(30, 20, failed_days).limits(NOW)
    }

    // RET-1, RET-2
    #[test]
    fn only_what_ended_long_enough_ago_goes_and_what_failed_only_if_it_was_said() {
        let item = |state, days: u32, is_replayed, is_in_lane| EndedWorkItem {
            state,
            finished_at: Some(NOW - DAY * days),
            is_replayed,
            is_in_lane,
        };
        let (kept, timed) = (limits(None), limits(Some(60)));
        assert!(kept.pass_work_item(item(WorkState::Done, 31, false, true)), "a lane is left by being done");
        assert!(!kept.pass_work_item(item(WorkState::Done, 30, false, false)), "not before the days are over");
        for state in WorkState::ALL.into_iter().filter(|state| !state.is_terminal()) {
            assert!(!timed.pass_work_item(item(state, 400, false, false)), "{state:?}");
        }
        assert!(!kept.pass_work_item(item(WorkState::Dead, 400, false, false)));
        assert!(kept.pass_work_item(item(WorkState::Dead, 31, true, false)), "an operator ran it again");
        assert!(!timed.pass_work_item(item(WorkState::Dead, 60, false, false)));
        assert!(timed.pass_work_item(item(WorkState::Dead, 61, false, false)));
        assert!(!timed.pass_work_item(item(WorkState::Dead, 400, false, true)), "it holds its lane up");
        let unknown = EndedWorkItem { finished_at: None, ..item(WorkState::Done, 0, false, false) };
        assert!(!timed.pass_work_item(unknown));
    }

    // RET-1, RET-2
    #[test]
    fn a_message_goes_by_its_own_days() {
        let message = |state, days: u32| EndedMessage { state, finished_at: Some(NOW - DAY * days) };
        let (kept, timed) = (limits(None), limits(Some(60)));
        for state in MessageState::ALL {
            let ends_well = state.is_terminal() && state != MessageState::Dead;
            assert_eq!(kept.pass_message(message(state, 21)), ends_well, "{state:?}");
            assert!(!kept.pass_message(message(state, 20)), "{state:?}");
            assert_eq!(timed.pass_message(message(state, 61)), state.is_terminal(), "{state:?}");
        }
        assert!(!timed.pass_message(message(MessageState::Dead, 59)));
    }
}
