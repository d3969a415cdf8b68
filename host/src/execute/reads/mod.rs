//! Batch reads: what prepared events ask for is read together, and each gets its own.
//!
//! ```text
//!  events of a batch ──wishes──> gather ──keys of one reader and tenant──> group ──max_keys each──> encode ─> call ─> decode
//!        ^                                                                                                            │
//!        └──────────────────────── each event's readings, or why it has none ───────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A key is asked for once, whatever number of events of a batch want it. Keys of different tenants are never asked
//!   for together: their secrets differ.
//! - What goes wrong with one key fails the events that asked for it, and no others. Where a whole call fails and one
//!   of its keys may be at fault, it is tried again in parts, a bounded number of times (`division`).
//! - An event waits for its own readers only, and never beyond its own deadline.
//! - No key, record, path or secret goes into a log line, a metric or a failure text.

mod caller;
mod division;
mod gather;
mod group;
mod network;
#[cfg(test)]
mod tests;

pub use self::caller::{CallOutcome, Caller, ReaderCall, Unconnected, Unread};
pub use self::division::Blame;
pub use self::gather::read_all;
pub(super) use self::gather::{Gather, Seat, Wish};
pub(super) use self::group::Reads;
pub use self::network::HttpCaller;

use metrics::{describe_counter, describe_histogram};

/// Says what the metrics of batch reads mean.
pub(super) fn describe() {
    describe_counter!("forebay_read_calls_total", "Calls of readers, by pack, reader and outcome");
    describe_counter!("forebay_read_keys_total", "Keys that readers were called for");
    describe_counter!(
        "forebay_read_keys_merged_total",
        "Keys that events asked for and that another event's call brought"
    );
    describe_counter!("forebay_read_records_unasked_total", "Records that match no key, which were dropped");
    describe_histogram!(
        "forebay_read_seconds",
        metrics::Unit::Seconds,
        "Time of a reader's call, the guest's part included"
    );
}
