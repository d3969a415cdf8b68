//! Retention on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::model::retention::{DAY, Keep};
use crate::store::{self, RetentionStanding};
use crate::supervise::{Pass, Progress};

/// `GET /api/v1/retention`: how long what has ended is kept, and how far this host is with removing it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// How long it is kept.
    pub days: RetentionDays,
    /// What has ended and is still there.
    pub kept: RetentionShelves,
    /// `waiting` for the clock to go evenly, `clearing`, or `resting` until the next pass.
    pub phase: String,
    /// What was removed since this host started.
    pub removed: Removed,
    /// What the pass that is under way, or the last one, has come to.
    pub pass: RetentionPass,
    /// When this host last went through all that is past its time; null before it did.
    #[schema(required = true)]
    pub last_pass_at: Option<String>,
    /// What that pass came to.
    #[schema(required = true)]
    pub last_pass: Option<RetentionPass>,
}

/// How many days what has ended is kept.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionDays {
    /// Events, from the end of their work on.
    pub events: u64,
    /// Messages, from their end on.
    pub messages: u64,
    /// What failed; null keeps it until an operator acts.
    #[schema(required = true)]
    pub failed: Option<u64>,
}

/// What has ended and is still there, by kind.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionShelves {
    /// Events whose work is done.
    pub events: OnShelf,
    /// Events whose work is dead.
    pub dead_events: OnShelf,
    /// Messages that were sent, cancelled or handed off, or expired.
    pub messages: OnShelf,
    /// Dead messages.
    pub dead_messages: OnShelf,
}

/// What has ended of one kind.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OnShelf {
    /// How much ended longer ago than it is kept, counted up to 100,000. Some of it stays: something refers to it.
    pub past: u64,
    /// When the oldest ended; null if there is none.
    #[schema(required = true)]
    pub oldest: Option<String>,
}

/// Rows that were removed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// Events.
    pub events: u64,
    /// Work items.
    pub work_items: u64,
    /// Messages.
    pub messages: u64,
}

/// What a pass came to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionPass {
    /// Events and messages that it looked at, each past its time.
    pub looked: u64,
    /// What it removed of them.
    pub removed: Removed,
}

impl Retention {
    /// As it is answered.
    pub fn of(keep: &Keep, standing: &RetentionStanding, progress: &Progress) -> Self {
        let days = |duration: std::time::Duration| duration.as_secs() / DAY.as_secs();
        let RetentionStanding { messages, dead_messages, events, dead_events } = *standing;
        Self {
            days: RetentionDays {
                events: days(keep.events),
                messages: days(keep.messages),
                failed: keep.failed.map(days),
            },
            kept: RetentionShelves {
                events: events.into(),
                dead_events: dead_events.into(),
                messages: messages.into(),
                dead_messages: dead_messages.into(),
            },
            phase: progress.phase.as_str().to_owned(),
            removed: progress.removed.into(),
            pass: progress.pass.into(),
            last_pass_at: progress.last.map(|last| rfc3339(last.at)),
            last_pass: progress.last.map(|last| last.pass.into()),
        }
    }
}

impl From<store::OnShelf> for OnShelf {
    fn from(shelf: store::OnShelf) -> Self {
        Self { past: shelf.past, oldest: shelf.oldest.map(rfc3339) }
    }
}

impl From<store::Removed> for Removed {
    fn from(store::Removed { events, work_items, messages }: store::Removed) -> Self {
        Self { events, work_items, messages }
    }
}

impl From<Pass> for RetentionPass {
    fn from(pass: Pass) -> Self {
        Self { looked: pass.looked, removed: pass.removed.into() }
    }
}
