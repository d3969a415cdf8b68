//! What is counted about publishing. Labels are destinations, which the operator has configured, and closed sets of
//! words.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::verdict::Verdict;
use crate::model::message::Outcome;

const ATTEMPTS: &str = "forebay_publish_attempts_total";
const SECONDS: &str = "forebay_publish_seconds";
const DENIED: &str = "forebay_publish_denied_total";
/// What all packs' flows are called in labels: packs come while hosts serve.
pub(super) const FLOW: &str = "flow";
const ADMISSION_WAIT: &str = "forebay_publish_admission_wait_seconds";
const IN_FLIGHT: &str = "forebay_publish_in_flight";

/// Says what the metrics of this module mean.
pub fn describe() {
    describe_counter!(ATTEMPTS, "Publish attempts, by destination and outcome");
    describe_histogram!(SECONDS, metrics::Unit::Seconds, "Time of a publish attempt from call to verdict");
    describe_counter!(DENIED, "Publish attempts that the guard against forged destinations refused");
    describe_gauge!(IN_FLIGHT, "Messages between claim and outcome");
    describe_histogram!(ADMISSION_WAIT, metrics::Unit::Seconds, "From a claim to its publish admission");
}

/// Messages between claim and outcome.
pub(super) fn admission_wait() -> Histogram {
    histogram!(ADMISSION_WAIT)
}

/// Messages between claim and outcome.
pub(super) fn in_flight() -> Gauge {
    gauge!(IN_FLIGHT)
}

/// What is counted about one destination; looked up once, because it is used for every message.
pub(super) struct DestinationMetrics {
    published: Counter,
    handed_off: Counter,
    retriable: Counter,
    permanent: Counter,
    unknown: Counter,
    denied: Counter,
    seconds: Histogram,
}

impl DestinationMetrics {
    /// For the destination of this name.
    pub(super) fn new(name: &str) -> Self {
        let destination = || name.to_string();
        let attempts = |outcome: &'static str| counter!(ATTEMPTS, "destination" => destination(), "outcome" => outcome);
        Self {
            published: attempts("published"),
            handed_off: attempts("handed_off"),
            retriable: attempts("retriable"),
            permanent: attempts("permanent"),
            unknown: attempts("unknown"),
            denied: counter!(DENIED, "destination" => destination()),
            seconds: histogram!(SECONDS, "destination" => destination()),
        }
    }

    /// An attempt ended.
    pub(super) fn attempted(&self, verdict: &Verdict, took: Duration) {
        let outcome = match verdict.outcome() {
            Outcome::Published => &self.published,
            Outcome::HandedOff => &self.handed_off,
            Outcome::Retriable { .. } => &self.retriable,
            Outcome::Permanent => &self.permanent,
            Outcome::Unknown => &self.unknown,
        };
        outcome.increment(1);
        if matches!(verdict, Verdict::Denied(_)) {
            self.denied.increment(1);
        }
        self.seconds.record(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    // OBS-1, OBS-3
    #[test]
    fn attempts_are_counted_by_destination_and_outcome_and_by_nothing_else() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let rendered = metrics::with_local_recorder(&recorder, || {
            let sink = DestinationMetrics::new("sink");
            let texts =
                [Verdict::unanswered("private"), Verdict::not_made("private"), Verdict::Denied("private".to_owned())];
            texts.iter().for_each(|verdict| sink.attempted(verdict, Duration::from_millis(5)));
            recorder.handle().render()
        });
        for line in [
            "forebay_publish_attempts_total{destination=\"sink\",outcome=\"unknown\"} 1",
            "forebay_publish_attempts_total{destination=\"sink\",outcome=\"retriable\"} 1",
            "forebay_publish_attempts_total{destination=\"sink\",outcome=\"permanent\"} 1",
            "forebay_publish_attempts_total{destination=\"sink\",outcome=\"published\"} 0",
            "forebay_publish_denied_total{destination=\"sink\"} 1",
            "forebay_publish_seconds_count{destination=\"sink\"} 3",
        ] {
            assert!(rendered.contains(line), "{line}\n{rendered}");
        }
        assert!(!rendered.contains("private"), "what went wrong is for one message's record, and no label");
    }
}
