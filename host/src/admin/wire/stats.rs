//! Statistics on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::message::MessageState;
use crate::model::work_item::WorkState;
use crate::store::{self, ExactStats};

/// `GET /api/v1/stats`: a count for every state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Work items by state.
    pub work_items: WorkItemCounts,
    /// Messages by state.
    pub messages: MessageCounts,
    /// Present with `exact=true`; the counts above are then counts of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Exact>,
}

/// Work items by state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are the states of `model::work_item::WorkState`, documented there")]
pub struct WorkItemCounts {
    pub ready: u64,
    pub delayed: u64,
    pub blocked: u64,
    pub processing: u64,
    pub done: u64,
    pub dead: u64,
}

/// Messages by state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are the states of `model::message::MessageState`, documented there")]
pub struct MessageCounts {
    pub scheduled: u64,
    pub publishing: u64,
    pub retry_wait: u64,
    pub uncertain: u64,
    pub published: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub dead: u64,
    pub handed_off: u64,
}

/// Figures that only a count of the rows gives.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exact {
    /// Ready heads: the next claim with room takes them.
    pub ready: u64,
    /// Delayed work items whose time has come.
    pub due: u64,
    /// Work items in `processing` whose lease has expired.
    pub stale: u64,
    /// Blocked work items that are queued behind the active item of their projection.
    pub queued: u64,
    /// Events without a work item: no claim finds them.
    pub uncovered_events: u64,
    /// Whether counters and rows agreed at the same moment.
    pub counters_agree: bool,
}

impl From<store::Stats> for Stats {
    fn from(stats: store::Stats) -> Self {
        let work_items = |state| stats.work_items.get(&state).copied().unwrap_or(0);
        let messages = |state| stats.messages.get(&state).copied().unwrap_or(0);
        Self {
            exact: None,
            work_items: WorkItemCounts {
                ready: work_items(WorkState::Ready),
                delayed: work_items(WorkState::Delayed),
                blocked: work_items(WorkState::Blocked),
                processing: work_items(WorkState::Processing),
                done: work_items(WorkState::Done),
                dead: work_items(WorkState::Dead),
            },
            messages: MessageCounts {
                scheduled: messages(MessageState::Scheduled),
                publishing: messages(MessageState::Publishing),
                retry_wait: messages(MessageState::RetryWait),
                uncertain: messages(MessageState::Uncertain),
                published: messages(MessageState::Published),
                cancelled: messages(MessageState::Cancelled),
                expired: messages(MessageState::Expired),
                dead: messages(MessageState::Dead),
                handed_off: messages(MessageState::HandedOff),
            },
        }
    }
}

impl From<ExactStats> for Stats {
    fn from(exact: ExactStats) -> Self {
        let counters_agree = exact.rows == exact.counters;
        let claimable = exact.claimable;
        let (ready, due, stale) = (claimable.ready, claimable.due, claimable.stale);
        let (queued, uncovered_events) = (exact.queued, exact.uncovered);
        let details = Exact { ready, due, stale, queued, uncovered_events, counters_agree };
        Self { exact: Some(details), ..Stats::from(exact.rows) }
    }
}
