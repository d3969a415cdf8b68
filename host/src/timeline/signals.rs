//! What is counted about the timeline. Labels are shards, closed sets of words, and the first lanes by name.

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::index::{Lane, Unusable};
use super::schedule::Schedule;
use crate::lanes::Held;
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// Lanes of a shard that are told apart in metrics; the others are one, named `other`.
const LANES_NAMED_MAX: usize = 64;

const APPLIED_LAG: &str = "forebay_timeline_applied_lag";
const LATENESS: &str = "forebay_timeline_lateness_seconds";
const HELD: &str = "forebay_timeline_lanes_held";
const CLOCK_GATED: &str = "forebay_timeline_clock_gated";
const AT_CAPACITY: &str = "forebay_timeline_at_capacity";
const PENDING: &str = "forebay_timeline_lane_pending";
const IN_FLIGHT: &str = "forebay_timeline_lane_in_flight";
const UNRESOLVED: &str = "forebay_timeline_unresolved";
const REBUILDS: &str = "forebay_timeline_rebuilds_total";
const EXPIRED: &str = "forebay_timeline_expired_total";

/// Says what the metrics of this module mean.
pub fn describe() {
    describe_gauge!(APPLIED_LAG, "Changes of messages that a shard has not read yet");
    describe_histogram!(LATENESS, Unit::Seconds, "From when a message could be sent to when it was claimed");
    describe_gauge!(HELD, "Lanes with messages that may not be sent, by reason");
    describe_gauge!(CLOCK_GATED, "1 while a shard's clock is not trusted and nothing is published");
    describe_gauge!(AT_CAPACITY, "1 while a shard has claimed as much as it may, or the store admits nothing");
    describe_gauge!(PENDING, "Messages that wait in a lane, due or not");
    describe_gauge!(IN_FLIGHT, "Messages of a lane between claim and outcome");
    describe_gauge!(UNRESOLVED, "Admitted messages whose outcome could not be recorded yet");
    describe_counter!(REBUILDS, "Indexes that were thrown away and built again from the store, by reason");
    describe_counter!(EXPIRED, "Messages that ended because they were of no more use");
}

/// What is counted about one shard; looked up once.
pub(super) struct Signals {
    shard: String,
    applied_lag: Gauge,
    lateness: Histogram,
    clock_gated: Gauge,
    at_capacity: Gauge,
    unresolved: Gauge,
    expired: Counter,
}

impl Signals {
    pub(super) fn new(shard: ShardId) -> Self {
        let name = || shard.0.to_string();
        Self {
            shard: name(),
            applied_lag: gauge!(APPLIED_LAG, "shard" => name()),
            lateness: histogram!(LATENESS),
            clock_gated: gauge!(CLOCK_GATED, "shard" => name()),
            at_capacity: gauge!(AT_CAPACITY, "shard" => name()),
            unresolved: gauge!(UNRESOLVED, "shard" => name()),
            expired: counter!(EXPIRED),
        }
    }

    /// How far the feed is ahead.
    pub(super) fn applied_lag(&self, changes: u64) {
        self.applied_lag.set(changes as f64);
    }

    /// A message was claimed.
    pub(super) fn claimed(&self, eligible_at: Timestamp, now: Timestamp) {
        self.lateness.record(now.since(eligible_at).as_secs_f64());
    }

    /// Messages expired.
    pub(super) fn expired(&self, messages: u64) {
        self.expired.increment(messages);
    }

    /// Whether the clock is gated.
    pub(super) fn clock_gated(&self, gated: bool) {
        self.clock_gated.set(f64::from(u8::from(gated)));
    }

    /// An index that was of use is built again.
    pub(super) fn rebuilt(&self, reason: Unusable) {
        counter!(REBUILDS, "shard" => self.shard.clone(), "reason" => reason.as_str()).increment(1);
    }

    /// The lanes as they stand.
    pub(super) fn lanes(&self, lanes: &[Lane], schedule: &Schedule) {
        let mut other = (0, 0);
        for (at, (lane, in_flight)) in lanes.iter().zip(schedule.in_flight()).enumerate() {
            if at < LANES_NAMED_MAX {
                let (namespace, destination) = (lane.name.namespace.as_str(), lane.name.destination.as_str());
                self.lane(namespace, destination, lane.pending, in_flight);
            } else {
                other = (other.0 + lane.pending, other.1 + in_flight);
            }
        }
        if lanes.len() > LANES_NAMED_MAX {
            self.lane("other", "other", other.0, other.1);
        }
        for reason in Held::ALL {
            let labels = [("shard", self.shard.clone()), ("reason", reason.as_str().to_owned())];
            gauge!(HELD, &labels).set(schedule.held(reason) as f64);
        }
    }

    /// What concerns the shard as a whole.
    pub(super) fn capacity(&self, at_capacity: bool, unresolved: usize) {
        self.at_capacity.set(f64::from(u8::from(at_capacity)));
        self.unresolved.set(unresolved as f64);
    }

    fn lane(&self, namespace: &str, destination: &str, pending: u64, in_flight: u32) {
        let labels = [
            ("shard", self.shard.clone()),
            ("namespace", namespace.to_owned()),
            ("destination", destination.to_owned()),
        ];
        gauge!(PENDING, &labels).set(pending as f64);
        gauge!(IN_FLIGHT, &labels).set(f64::from(in_flight));
    }
}
