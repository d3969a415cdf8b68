//! What is counted about the timeline. Labels are shards, closed sets of words, and the first lanes by name.

mod sums;

pub(super) use sums::LaneSums;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use self::sums::Waiting;
use super::claims::Picked;
use super::figures::IndexFigures;
use super::index::Unusable;
use super::session::RestoredFrom;
use crate::lanes::{RESOURCES, Resource, Supply, WorkClass};
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// Destinations of a tenant that are told apart in metrics, over all their ordering domains; the others are one,
/// `other`.
const LANES_NAMED_MAX: usize = 64;

const APPLIED_LAG: &str = "forebay_timeline_applied_lag";
const LATENESS: &str = "forebay_timeline_lateness_seconds";
const HELD: &str = "forebay_timeline_due_not_admitted";
const HELD_MESSAGES: &str = "forebay_timeline_held_messages";
const DISCOVERY: &str = "forebay_timeline_discovery_seconds";
const SERVICE_GAP: &str = "forebay_timeline_service_gap_seconds";
const CIRCUITS: &str = "forebay_timeline_circuits";
const OLDEST_RETRY: &str = "forebay_timeline_oldest_retry_seconds";
const OLDEST_UNRESOLVED: &str = "forebay_timeline_oldest_unresolved_seconds";
const CLOCK_GATED: &str = "forebay_timeline_clock_gated";
const AT_CAPACITY: &str = "forebay_timeline_at_capacity";
const PENDING: &str = "forebay_timeline_lane_pending";
const IN_FLIGHT: &str = "forebay_timeline_lane_in_flight";
const UNRESOLVED: &str = "forebay_timeline_unresolved";
const REBUILDS: &str = "forebay_timeline_rebuilds_total";
const RESTORES: &str = "forebay_timeline_restores_total";
const CHECKPOINTS: &str = "forebay_timeline_checkpoints_total";
const CHECKPOINT_AGE: &str = "forebay_timeline_checkpoint_age_seconds";
const CHECKPOINT_BYTES: &str = "forebay_timeline_checkpoint_bytes";
const CHECKPOINT_UPLOADED: &str = "forebay_timeline_checkpoint_uploaded_bytes_total";
const CHECKPOINTS_REFUSED: &str = "forebay_timeline_checkpoints_refused_total";
const QUARANTINED: &str = "forebay_timeline_quarantined_total";
const WITHDRAWALS: &str = "forebay_timeline_withdrawals_total";
const OVERRUNS: &str = "forebay_timeline_turn_overruns_total";
const PRESSURE: &str = "forebay_timeline_pressure";
const LEVEL0_FILES: &str = "forebay_timeline_index_level0_files";
const MEMTABLES: &str = "forebay_timeline_index_memtables";
const PENDING_COMPACTION: &str = "forebay_timeline_index_pending_compaction_bytes";
const WRITES_STALLED: &str = "forebay_timeline_index_writes_stalled";
const ENDS: &str = "forebay_timeline_actor_ends_total";
const EXPIRED: &str = "forebay_timeline_expired_total";

/// Says what the metrics of this module mean.
pub fn describe() {
    super::capacity::describe();
    super::checkpoint::describe();
    describe_gauge!(APPLIED_LAG, "Changes of messages that a shard has not read yet");
    describe_histogram!(LATENESS, Unit::Seconds, "From when a message could be sent to when it was claimed");
    describe_gauge!(
        HELD,
        "Lanes whose head is due, or waits for its next attempt, and is not admitted, by the first reason"
    );
    describe_gauge!(
        HELD_MESSAGES,
        "Messages in the lines of the lanes that forebay_timeline_due_not_admitted counts, due or not, by the same reason"
    );
    describe_histogram!(DISCOVERY, Unit::Seconds, "From when a lane was ready to when that was found");
    describe_histogram!(SERVICE_GAP, Unit::Seconds, "How long a lane that is ready waits to be served");
    describe_gauge!(CIRCUITS, "Lanes by the state of their circuit");
    describe_gauge!(
        OLDEST_UNRESOLVED,
        Unit::Seconds,
        "Age of the oldest admission whose outcome could not be recorded yet"
    );
    describe_gauge!(
        OLDEST_RETRY,
        Unit::Seconds,
        "For how long the lane has had nothing but failures that has had them for the longest"
    );
    describe_gauge!(CLOCK_GATED, "1 while a shard's clock is not trusted and nothing is published");
    describe_gauge!(AT_CAPACITY, "1 while a shard has claimed as much as it may, or the store admits nothing");
    describe_gauge!(PENDING, "Messages that wait in a lane, due or not");
    describe_gauge!(IN_FLIGHT, "Messages of a lane between claim and outcome");
    describe_gauge!(UNRESOLVED, "Admitted messages whose outcome could not be recorded yet");
    describe_counter!(REBUILDS, "Indexes that were found and not used, by reason");
    describe_counter!(RESTORES, "Indexes that were restored from a checkpoint, or built from the rows of the store");
    describe_counter!(CHECKPOINTS, "Checkpoints that were made, or could not be");
    describe_gauge!(CHECKPOINT_AGE, Unit::Seconds, "Age of the newest checkpoint of a shard; -1 if there is none");
    describe_gauge!(CHECKPOINT_BYTES, Unit::Bytes, "Size of the newest checkpoint of a shard");
    describe_counter!(CHECKPOINT_UPLOADED, Unit::Bytes, "Bytes that checkpoints had to upload");
    describe_counter!(CHECKPOINTS_REFUSED, "Checkpoints that an owner wanted and did not use, by reason");
    describe_counter!(QUARANTINED, "Indexes that were not as they were written, and were set aside");
    describe_counter!(WITHDRAWALS, "Shards that this runtime could not open, and left to others");
    describe_counter!(
        OVERRUNS,
        "Turns of a shard's work classes that took longer, or did more, than their class is given, by class"
    );
    describe_gauge!(PRESSURE, "How hard a resource presses on what a shard sends: 0 not, 1 tight, 2 exhausted");
    describe_gauge!(LEVEL0_FILES, "Files of an index that wait to be sorted in, of the column family that has most");
    describe_gauge!(MEMTABLES, "Write buffers of an index that wait to be flushed, of the column family that has most");
    describe_gauge!(
        PENDING_COMPACTION,
        Unit::Bytes,
        "What of an index waits to be compacted, of the column family that has most"
    );
    describe_gauge!(WRITES_STALLED, "Whether RocksDB slows (1) or stops (2) the writer of an index");
    describe_counter!(ENDS, "How often a shard's actor ended, by reason: it began again, unless it was stopped");
    describe_counter!(EXPIRED, "Messages that ended because their expiry passed");
}

/// What is counted about one shard; looked up once.
pub(super) struct Signals {
    shard: String,
    /// The lanes by name that something is shown of.
    named: Mutex<BTreeSet<(String, String)>>,
    applied_lag: Gauge,
    lateness: Histogram,
    discovery: Histogram,
    service_gap: Histogram,
    oldest_retry: Gauge,
    oldest_unresolved: Gauge,
    clock_gated: Gauge,
    checkpoint_age: Gauge,
    checkpoint_bytes: Gauge,
    at_capacity: Gauge,
    unresolved: Gauge,
    pressure: [Gauge; RESOURCES],
    level0_files: Gauge,
    memtables: Gauge,
    pending_compaction: Gauge,
    writes_stalled: Gauge,
    expired: Counter,
    /// Why the index that is built next has to be.
    broken: Mutex<Option<Unusable>>,
}

impl Signals {
    pub(super) fn new(shard: ShardId) -> Self {
        let name = || shard.0.to_string();
        Self {
            shard: name(),
            named: Mutex::default(),
            applied_lag: gauge!(APPLIED_LAG, "shard" => name()),
            lateness: histogram!(LATENESS),
            discovery: histogram!(DISCOVERY),
            service_gap: histogram!(SERVICE_GAP),
            oldest_retry: gauge!(OLDEST_RETRY, "shard" => name()),
            oldest_unresolved: gauge!(OLDEST_UNRESOLVED, "shard" => name()),
            clock_gated: gauge!(CLOCK_GATED, "shard" => name()),
            checkpoint_age: gauge!(CHECKPOINT_AGE, "shard" => name()),
            checkpoint_bytes: gauge!(CHECKPOINT_BYTES, "shard" => name()),
            at_capacity: gauge!(AT_CAPACITY, "shard" => name()),
            unresolved: gauge!(UNRESOLVED, "shard" => name()),
            pressure: Resource::ALL
                .map(|resource| gauge!(PRESSURE, "shard" => name(), "resource" => resource.as_str())),
            level0_files: gauge!(LEVEL0_FILES, "shard" => name()),
            memtables: gauge!(MEMTABLES, "shard" => name()),
            pending_compaction: gauge!(PENDING_COMPACTION, "shard" => name()),
            writes_stalled: gauge!(WRITES_STALLED, "shard" => name()),
            expired: counter!(EXPIRED),
            broken: Mutex::default(),
        }
    }

    /// How far the feed is ahead.
    pub(super) fn applied_lag(&self, changes: u64) {
        self.applied_lag.set(changes as f64);
    }

    /// A message was claimed.
    pub(super) fn claimed(&self, picked: &Picked, now: Timestamp) {
        self.lateness.record(now.since(picked.eligible_at()).as_secs_f64());
        if !picked.service_gap().is_zero() {
            self.service_gap.record(picked.service_gap().as_secs_f64());
        }
    }

    /// A lane that was ready was found, so long after.
    pub(super) fn discovered(&self, after: Duration) {
        self.discovery.record(after.as_secs_f64());
    }

    /// Messages expired.
    pub(super) fn expired(&self, messages: u64) {
        self.expired.increment(messages);
    }

    /// A turn took longer, or did more, than its class is given.
    pub(super) fn overran(&self, class: WorkClass) {
        counter!(OVERRUNS, "shard" => self.shard.clone(), "class" => class.as_str()).increment(1);
    }

    /// Whether the clock is gated.
    pub(super) fn clock_gated(&self, gated: bool) {
        self.clock_gated.set(f64::from(u8::from(gated)));
    }

    /// An index that was of use is built again.
    pub(super) fn rebuilt(&self, reason: Unusable) {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = if reason == Unusable::Missing { broken.unwrap_or(reason) } else { reason };
        counter!(REBUILDS, "shard" => self.shard.clone(), "reason" => reason.as_str()).increment(1);
    }

    /// The index that was in use broke, and is had anew at the next opening.
    pub(super) fn broke(&self, reason: Unusable) {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// An ownership of the shard, or its actor, ended.
    pub(super) fn ended(&self, reason: &'static str) {
        counter!(ENDS, "shard" => self.shard.clone(), "reason" => reason).increment(1);
    }

    /// Where an index was had from.
    pub(super) fn restored(&self, from: RestoredFrom) {
        counter!(RESTORES, "shard" => self.shard.clone(), "from" => from.as_str()).increment(1);
    }

    /// A checkpoint was made; so much had to be uploaded for it.
    pub(super) fn checkpoint_made(&self, uploaded_bytes: u64) {
        counter!(CHECKPOINTS, "shard" => self.shard.clone(), "result" => "made").increment(1);
        counter!(CHECKPOINT_UPLOADED).increment(uploaded_bytes);
    }

    /// A checkpoint could not be made.
    pub(super) fn checkpoint_failed(&self) {
        counter!(CHECKPOINTS, "shard" => self.shard.clone(), "result" => "failed").increment(1);
    }

    /// The age and the size of the newest checkpoint, if there is one.
    pub(super) fn newest_checkpoint(&self, newest: Option<(Duration, u64)>) {
        self.checkpoint_age.set(newest.map_or(-1.0, |(age, _)| age.as_secs_f64()));
        self.checkpoint_bytes.set(newest.map_or(0.0, |(_, bytes)| bytes as f64));
    }

    /// What presses on the shard, and how its index keeps up.
    pub(super) fn pressing(&self, supply: &Supply, figures: &IndexFigures) {
        for (gauge, resource) in self.pressure.iter().zip(Resource::ALL) {
            gauge.set(supply.level(resource).code());
        }
        self.level0_files.set(figures.level0_files as f64);
        self.memtables.set(figures.memtables as f64);
        self.pending_compaction.set(figures.pending_bytes as f64);
        let stalled = if figures.is_stopped { 2 } else { u32::from(figures.is_delayed) };
        self.writes_stalled.set(stalled);
    }

    /// A checkpoint was not used.
    pub(super) fn checkpoint_refused(&self, reason: &'static str) {
        counter!(CHECKPOINTS_REFUSED, "shard" => self.shard.clone(), "reason" => reason).increment(1);
    }

    /// An index was set aside.
    pub(super) fn quarantined(&self) {
        counter!(QUARANTINED, "shard" => self.shard.clone()).increment(1);
    }

    /// The shard is left to others.
    pub(super) fn withdrawn(&self) {
        counter!(WITHDRAWALS, "shard" => self.shard.clone()).increment(1);
    }

    /// The lanes as they stand.
    pub(super) fn lanes(&self, sums: LaneSums) {
        self.oldest_retry.set(sums.failing_for().as_secs_f64());
        self.show_lanes(&sums.waiting());
        self.show_counts(&sums);
    }

    /// The shard is not this runtime's any more: what was shown of it is another one's to show.
    pub(super) fn gone(&self) {
        self.applied_lag.set(0.0);
        self.clock_gated(false);
        self.capacity(false, 0, Duration::ZERO);
        self.newest_checkpoint(None);
        self.pressing(&Supply::default(), &IndexFigures::default());
        self.lanes(LaneSums::default());
    }

    /// Shows these lanes, and nothing any more of those that were shown before and are not among them.
    fn show_lanes(&self, lanes: &BTreeMap<(&str, &str), Waiting>) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|(namespace, destination)| {
            let stays = lanes.contains_key(&(namespace.as_str(), destination.as_str()));
            if !stays {
                self.lane(namespace, destination, Waiting::default());
            }
            stays
        });
        for ((namespace, destination), waiting) in lanes {
            self.lane(namespace, destination, *waiting);
            named.insert(((*namespace).to_owned(), (*destination).to_owned()));
        }
    }

    fn show_counts(&self, sums: &LaneSums) {
        for (reason, held) in &sums.reasons {
            let labels = [("shard", self.shard.clone()), ("reason", reason.as_str().to_owned())];
            gauge!(HELD, &labels).set(f64::from(held.lanes));
            gauge!(HELD_MESSAGES, &labels).set(held.messages as f64);
        }
        for (circuit, count) in &sums.circuits {
            let labels = [("shard", self.shard.clone()), ("state", (*circuit).to_owned())];
            gauge!(CIRCUITS, &labels).set(f64::from(*count));
        }
    }

    /// What concerns the shard as a whole.
    pub(super) fn capacity(&self, at_capacity: bool, unresolved: usize, oldest: Duration) {
        self.oldest_unresolved.set(oldest.as_secs_f64());
        self.at_capacity.set(f64::from(u8::from(at_capacity)));
        self.unresolved.set(unresolved as f64);
    }

    fn lane(&self, namespace: &str, destination: &str, Waiting { pending, in_flight }: Waiting) {
        let labels = [
            ("shard", self.shard.clone()),
            ("namespace", namespace.to_owned()),
            ("destination", destination.to_owned()),
        ];
        gauge!(PENDING, &labels).set(pending as f64);
        gauge!(IN_FLIGHT, &labels).set(f64::from(in_flight));
    }
}
