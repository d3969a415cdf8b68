//! What intake counts (OBS-1). The handles are taken once: looking one up by its labels costs more than an answer's
//! other bookkeeping together.

use std::time::Duration;

use http::StatusCode;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::answer::{Novelty, Refusal};

const ANSWERS: &str = "forebay_intake_answers_total";
const IN_FLIGHT: &str = "forebay_intake_in_flight";
const BYTES_IN_FLIGHT: &str = "forebay_intake_bytes_in_flight";
const SECONDS: &str = "forebay_intake_seconds";
const HANDSHAKES: &str = "forebay_intake_handshakes_total";
const UNORDERED: &str = "forebay_intake_unordered_total";
const MALFORMED: &str = "forebay_intake_malformed_heads_total";

/// Says what intake's metrics mean, to the recorder that is installed.
pub fn describe() {
    describe_counter!(ANSWERS, "Answers of the intake listener, by status and by the reason behind it");
    describe_gauge!(IN_FLIGHT, "Requests that hold a place of the admission budget");
    describe_gauge!(BYTES_IN_FLIGHT, Unit::Bytes, "Bytes of bodies that hold a part of the admission budget");
    describe_histogram!(SECONDS, Unit::Seconds, "From the end of a request's head to its answer");
    describe_counter!(HANDSHAKES, "Requests by which providers made sure of an address, and that were answered");
    describe_counter!(
        UNORDERED,
        "Deliveries to a route ordered by source that carry no source key, worked off in no order"
    );
    describe_counter!(MALFORMED, "Connections that ended because what came was not HTTP or its head was too large");
}

/// The statuses that nearly all routes answer an accepted delivery with.
const ACCEPTED_USUALLY: [StatusCode; 3] = [StatusCode::OK, StatusCode::ACCEPTED, StatusCode::NO_CONTENT];

/// The handles.
pub(super) struct Meters {
    refused: Vec<Counter>,
    stored: [Counter; ACCEPTED_USUALLY.len()],
    duplicate: [Counter; ACCEPTED_USUALLY.len()],
    pub(super) in_flight: Gauge,
    pub(super) bytes_in_flight: Gauge,
    seconds: Histogram,
    pub(super) unordered: Counter,
    pub(super) handshakes: Counter,
    pub(super) malformed: Counter,
}

impl Meters {
    pub(super) fn new() -> Self {
        let refused = Refusal::ALL.iter().map(|refusal| answers(refusal.status(), refusal.reason())).collect();
        Self {
            refused,
            stored: ACCEPTED_USUALLY.map(|status| answers(status, reason(Novelty::First))),
            duplicate: ACCEPTED_USUALLY.map(|status| answers(status, reason(Novelty::Duplicate))),
            in_flight: gauge!(IN_FLIGHT),
            bytes_in_flight: gauge!(BYTES_IN_FLIGHT),
            seconds: histogram!(SECONDS),
            unordered: counter!(UNORDERED),
            handshakes: counter!(HANDSHAKES),
            malformed: counter!(MALFORMED),
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        // `ALL` is in the order of the enum's numbers.
        self.refused[refusal as usize].increment(1);
    }

    pub(super) fn accepted(&self, novelty: Novelty, status: StatusCode) {
        let handles = match novelty {
            Novelty::First => &self.stored,
            Novelty::Duplicate => &self.duplicate,
        };
        match ACCEPTED_USUALLY.iter().position(|&usual| usual == status) {
            Some(place) => handles[place].increment(1),
            // Some other status that a route demands pays for the lookup.
            None => answers(status, reason(novelty)).increment(1),
        }
    }

    pub(super) fn took(&self, elapsed: Duration) {
        self.seconds.record(elapsed);
    }
}

fn answers(status: StatusCode, reason: &'static str) -> Counter {
    counter!(ANSWERS, "status" => status.as_str().to_owned(), "reason" => reason)
}

fn reason(novelty: Novelty) -> &'static str {
    match novelty {
        Novelty::First => "stored",
        Novelty::Duplicate => "duplicate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusals_number_is_its_place() {
        for (place, &refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(refusal as usize, place);
        }
    }
}
