//! The life of one message: which inputs come in time, and what each makes of it.
//!
//! Decisions only. The store locks a message's row, asks its [`Life`], and writes what came of it; the tests explore
//! every order of claims, admissions, outcomes, commands and crashes over the same decisions.

use super::{AfterAttempt, MessageState};
use crate::model::time::Timestamp;

/// Where a message is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Life {
    /// Its state.
    pub state: MessageState,
    /// How often it was rescheduled or redriven, plus one.
    pub generation: u32,
    /// Admitted attempts of this generation.
    pub attempt: u32,
    /// Attempts of all generations whose effect on the destination is unknown.
    pub uncertain_attempts: u32,
    /// When it is due.
    pub due_at: Timestamp,
    /// When the next attempt may be made.
    pub eligible_at: Timestamp,
    /// When it expires, if it does.
    pub expire_at: Option<Timestamp>,
    /// When its last attempt was admitted.
    pub admitted_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// The end of an attempt, as its publisher reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptEnd {
    /// The generation that was admitted.
    pub generation: u32,
    /// The attempt's number in it.
    pub attempt: u32,
    /// What becomes of the message.
    pub after: AfterAttempt,
    /// Whether the attempt's effect on the destination is unknown.
    pub uncertain: bool,
    /// Whether it costs no attempt: the next one has its number.
    pub spared: bool,
}

/// What an operator found out about a message with an uncertain attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Nothing: it is tried again, with the same idempotency key.
    Retry,
    /// The destination took it.
    Published,
    /// The destination did not take it, and it is not tried again.
    Dead,
}

impl Resolution {
    /// Every resolution.
    pub const ALL: [Resolution; 3] = [Resolution::Retry, Resolution::Published, Resolution::Dead];

    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Resolution::Retry => "retry",
            Resolution::Published => "published",
            Resolution::Dead => "dead",
        }
    }
}

/// Why a cancel or a reschedule comes too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLate {
    /// Publish Admission came first, the message is held, or it has ended.
    Stands(MessageState),
    /// It waits, but the effect of an earlier attempt is unknown. What may have arrived cannot be taken back, and no
    /// command claims that it was.
    MayHaveArrived(MessageState),
}

impl TooLate {
    /// The message's state.
    pub const fn state(self) -> MessageState {
        match self {
            TooLate::Stands(state) | TooLate::MayHaveArrived(state) => state,
        }
    }
}

/// Why a message is not redriven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRedriven {
    /// It is in this state, and not dead.
    NotDead(MessageState),
    /// It expired at this time.
    Expired(Timestamp),
}

/// Whether a cancel or a reschedule comes in time to a message with so many uncertain attempts.
pub const fn in_time(state: MessageState, uncertain_attempts: u32) -> Result<(), TooLate> {
    match (state.waits(), uncertain_attempts) {
        (true, 0) => Ok(()),
        (true, _) => Err(TooLate::MayHaveArrived(state)),
        (false, _) => Err(TooLate::Stands(state)),
    }
}

/// Whether an operator can find something out about a message: it is held for that, or waits for another attempt after
/// an uncertain one.
pub const fn is_unsettled(state: MessageState, uncertain_attempts: u32) -> bool {
    matches!(state, MessageState::Uncertain) || state.waits() && uncertain_attempts > 0
}

impl Life {
    /// Publish Admission of a claim of `generation`: the number of the attempt, or `None` if the message has moved on.
    pub fn admit(&mut self, generation: u32, now: Timestamp) -> Option<u32> {
        if !self.state.waits() || self.generation != generation {
            return None;
        }
        self.state = MessageState::Publishing;
        self.attempt += 1;
        self.admitted_at = Some(now);
        Some(self.attempt)
    }

    /// The end of an attempt; `false` if it is not the one that is being made.
    pub fn conclude(&mut self, end: AttemptEnd, now: Timestamp) -> bool {
        let is_current = (self.generation, self.attempt) == (end.generation, end.attempt);
        if self.state != MessageState::Publishing || !is_current {
            return false;
        }
        self.state = end.after.state();
        self.uncertain_attempts += u32::from(end.uncertain);
        self.attempt -= u32::from(end.spared);
        match end.after {
            AfterAttempt::RetryAt(at) => self.eligible_at = at,
            AfterAttempt::Uncertain => {}
            AfterAttempt::Published | AfterAttempt::HandedOff | AfterAttempt::Dead | AfterAttempt::Expired => {
                self.finished_at = Some(now);
            }
        }
        true
    }

    /// Its expiry in `generation`; `false` if it is not over, is being attempted, or has moved on.
    pub fn expire(&mut self, generation: u32, now: Timestamp) -> bool {
        let is_over = self.expire_at.is_some_and(|expire_at| expire_at <= now);
        if !self.state.waits() || self.generation != generation || !is_over {
            return false;
        }
        self.end(MessageState::Expired, now);
        true
    }

    /// A cancel.
    pub fn cancel(&mut self, now: Timestamp) -> Result<(), TooLate> {
        in_time(self.state, self.uncertain_attempts)?;
        self.end(MessageState::Cancelled, now);
        Ok(())
    }

    /// A reschedule: the new generation's number.
    pub fn reschedule(&mut self, due_at: Timestamp) -> Result<u32, TooLate> {
        in_time(self.state, self.uncertain_attempts)?;
        Ok(self.begin(due_at))
    }

    /// A redrive: the new generation's number.
    pub fn redrive(&mut self, now: Timestamp) -> Result<u32, NotRedriven> {
        match (self.state, self.expire_at) {
            (MessageState::Dead, Some(expire_at)) if expire_at <= now => Err(NotRedriven::Expired(expire_at)),
            (MessageState::Dead, _) => Ok(self.begin(now)),
            (state, _) => Err(NotRedriven::NotDead(state)),
        }
    }

    /// What an operator found out; an error with its state if there is nothing to find out.
    pub fn resolve(&mut self, resolution: Resolution, now: Timestamp) -> Result<(), MessageState> {
        if !is_unsettled(self.state, self.uncertain_attempts) {
            return Err(self.state);
        }
        match resolution {
            Resolution::Retry => {
                if self.state.waits() {
                    // A claim of it may be on its way to its admission, and must come too late.
                    self.generation += 1;
                    self.attempt = 0;
                }
                self.state = MessageState::RetryWait;
            }
            Resolution::Published => self.end(MessageState::Published, now),
            Resolution::Dead => {
                // It is known now that none of its attempts arrived.
                self.uncertain_attempts = 0;
                self.end(MessageState::Dead, now);
            }
        }
        self.eligible_at = now;
        Ok(())
    }

    /// Ends it.
    pub fn end(&mut self, state: MessageState, now: Timestamp) {
        debug_assert!(state.is_terminal());
        self.state = state;
        self.finished_at = Some(now);
    }

    /// Begins a new generation, whose attempts are counted from the start.
    fn begin(&mut self, due_at: Timestamp) -> u32 {
        self.state = MessageState::Scheduled;
        self.generation += 1;
        self.attempt = 0;
        self.due_at = due_at;
        self.eligible_at = due_at;
        self.finished_at = None;
        self.generation
    }
}

#[cfg(test)]
mod tests;
