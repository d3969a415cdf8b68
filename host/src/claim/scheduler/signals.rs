//! What a scheduler reports.

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::super::limiter::Admission;
use crate::lanes::Shape;
use crate::model::names::PackName;

/// Says what the metrics of claims mean.
pub(in crate::claim) fn describe() {
    describe_counter!("forebay_claims_total", "Claims that were made of a pack's queue");
    describe_counter!("forebay_claimed_rows_total", "Work items that claims took");
    describe_counter!("forebay_reclaimed_rows_total", "Of those, the ones whose former lease had run out");
    describe_counter!("forebay_claim_failures_total", "Claims that the store could not make");
    describe_counter!("forebay_claim_decisions_total", "What the limiter decided before a claim, by reason");
    describe_histogram!("forebay_claim_seconds", Unit::Seconds, "Time of a claim");
    describe_gauge!("forebay_processing_rows", "Work items of a pack that this host is processing");
}

/// Metric handles of one pack, looked up once.
pub(in crate::claim) struct ClaimSignals {
    pack: PackName,
    pub(super) claims: Counter,
    pub(super) rows: Counter,
    pub(super) reclaimed: Counter,
    pub(super) failures: Counter,
    pub(super) seconds: Histogram,
    pub(super) processing: Gauge,
    last: (&'static str, &'static str),
}

impl ClaimSignals {
    pub(super) fn new(pack: &PackName) -> Self {
        let name = || pack.to_string();
        Self {
            claims: counter!("forebay_claims_total", "pack" => name()),
            rows: counter!("forebay_claimed_rows_total", "pack" => name()),
            reclaimed: counter!("forebay_reclaimed_rows_total", "pack" => name()),
            failures: counter!("forebay_claim_failures_total", "pack" => name()),
            seconds: histogram!("forebay_claim_seconds", "pack" => name()),
            processing: gauge!("forebay_processing_rows", "pack" => name()),
            last: ("", ""),
            pack: pack.clone(),
        }
    }

    /// Counts every decision of the limiter and logs changes only: a busy pack decides thousands of times a second.
    pub(in crate::claim) fn admitted(&mut self, shape: Option<Shape>, admission: Admission) {
        let (decision, reason) = (admission.as_str(), admission.reason());
        let shape = shape.map_or("none", Shape::as_str);
        let labels = [
            ("pack", self.pack.to_string()),
            ("shape", shape.to_owned()),
            ("decision", decision.to_owned()),
            ("reason", reason.to_owned()),
        ];
        counter!("forebay_claim_decisions_total", &labels).increment(1);
        if (decision, reason) != self.last {
            tracing::debug!(pack = %self.pack, decision, reason, "the claim limiter decides otherwise");
            self.last = (decision, reason);
        }
    }
}
