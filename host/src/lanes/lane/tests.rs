use std::time::Duration;

use super::super::circuit::{Circuit, CircuitPolicy};
use super::*;

const POLICY: CircuitPolicy = CircuitPolicy {
    failures_to_open: 2,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(60),
    probes_max: 1,
    successes_to_close: 1,
    ramp_messages: 8,
};
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A lane that is alone with its outlet.
struct Alone {
    lane: DestinationLane,
    outlet: Outlet,
}

impl Alone {
    fn with(lane: DestinationLane) -> Self {
        Self { lane, outlet: Outlet::new(POLICY) }
    }

    fn claim(&mut self, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        self.lane.claim(&mut self.outlet, bytes, now)
    }

    fn settle(&mut self, permit: Permit, verdict: Verdict, now: Timestamp) {
        self.lane.settle(&mut self.outlet, permit, verdict, now);
    }

    fn held(&self, now: Timestamp) -> Option<Held> {
        self.lane.held(&self.outlet, now)
    }
}

fn lane(messages: u32, bytes: u64) -> Alone {
    Alone::with(DestinationLane::new(LaneLimits { messages, bytes }))
}

// LAN-1
#[test]
fn what_is_in_flight_never_exceeds_the_limits() {
    let mut lane = lane(2, 1_000);
    let first = lane.claim(600, NOW).unwrap();
    assert_eq!(lane.claim(500, NOW).unwrap_err(), Held::LaneFull);
    assert_eq!(lane.held(NOW), Some(Held::LaneFull), "a head that does not fit is not asked about again");
    lane.settle(first, Verdict::Healthy, NOW);
    assert_eq!(lane.held(NOW), None);
    let permits = [lane.claim(1, NOW).unwrap(), lane.claim(1, NOW).unwrap()];
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::LaneFull);
    for permit in permits {
        lane.settle(permit, Verdict::NotCalled, NOW);
    }
    assert_eq!(lane.lane.in_flight_messages(), 0);
}

// LAN-5
#[test]
fn limits_that_change_count_what_is_in_flight_already() {
    let mut lane = lane(2, 1_000);
    let permits = [lane.claim(600, NOW).unwrap(), lane.claim(400, NOW).unwrap()];
    lane.lane.set_limits(Some(LaneLimits { messages: 3, bytes: 2_000 }));
    let third = lane.claim(1_000, NOW).unwrap();
    assert_eq!(lane.held(NOW), Some(Held::LaneFull));
    lane.lane.set_limits(None);
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::Capability);
    lane.lane.set_limits(Some(LaneLimits { messages: 1, bytes: 10 }));
    for permit in permits {
        lane.settle(permit, Verdict::Healthy, NOW);
        assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::LaneFull, "more is in flight than may be");
    }
    lane.settle(third, Verdict::Healthy, NOW);
    assert_eq!((lane.lane.in_flight_messages(), lane.lane.in_flight_bytes()), (0, 0));
    let permit = lane.claim(1_000, NOW).unwrap();
    lane.settle(permit, Verdict::Healthy, NOW);
    let mut ordered = Alone::with(DestinationLane::ordered(LaneLimits { messages: 1, bytes: 1_000 }));
    ordered.lane.set_limits(Some(LaneLimits { messages: 8, bytes: 1_000 }));
    let head = ordered.claim(1, NOW).unwrap();
    assert_eq!(ordered.claim(1, NOW).unwrap_err(), Held::OrderingHead);
    ordered.settle(head, Verdict::Healthy, NOW);
}

// LAN-1
#[test]
fn a_message_larger_than_the_lane_is_sent_alone() {
    let mut lane = lane(8, 1_000);
    let small = lane.claim(1, NOW).unwrap();
    assert_eq!(lane.claim(5_000, NOW).unwrap_err(), Held::LaneFull);
    lane.settle(small, Verdict::Healthy, NOW);
    let large = lane.claim(5_000, NOW).unwrap();
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::LaneFull);
    lane.settle(large, Verdict::Healthy, NOW);
    assert_eq!(lane.held(NOW), None);
}

// LAN-1
#[test]
fn a_destinations_wish_holds_the_lane_and_a_shorter_one_does_not_shorten_it() {
    let mut lane = lane(8, 1_000);
    lane.outlet.back_off(NOW + Duration::from_secs(30));
    lane.outlet.back_off(NOW + Duration::from_secs(5));
    let until = NOW + Duration::from_secs(30);
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::Throttled);
    assert_eq!(lane.outlet.reopens_at(NOW), Some(until));
    assert_eq!((lane.held(until), lane.outlet.reopens_at(until)), (None, None));
}

// LAN-3
#[test]
fn the_gate_comes_before_everything_else_and_loses_nothing() {
    let mut lane = lane(1, 1_000);
    let permit = lane.claim(1, NOW).unwrap();
    lane.lane.set_gate(Gate::Paused);
    assert_eq!(lane.held(NOW), Some(Held::LanePaused));
    lane.lane.set_gate(Gate::Closed);
    assert_eq!((lane.held(NOW), lane.outlet.reopens_at(NOW)), (Some(Held::LaneClosed), None));
    lane.settle(permit, Verdict::Healthy, NOW);
    lane.lane.set_gate(Gate::Open);
    assert_eq!(lane.held(NOW), None);
}

// LAN-3
#[test]
fn an_open_circuit_refuses_without_spending_an_attempt_and_reopens_by_time() {
    let mut lane = lane(8, 1_000);
    for _ in 0..2 {
        let permit = lane.claim(1, NOW).unwrap();
        lane.settle(permit, Verdict::Failed, NOW);
    }
    let until = NOW + Duration::from_secs(1);
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::CircuitOpen);
    assert_eq!(lane.outlet.reopens_at(NOW), Some(until));
    let probe = lane.claim(1, until).unwrap();
    assert_eq!(lane.claim(1, until).unwrap_err(), Held::CircuitOpen, "one probe at a time");
    lane.settle(probe, Verdict::Healthy, until);
    assert_eq!(lane.outlet.circuit(), Circuit::Ramping { room: 1, openings: 1 });
}

// LAN-3
#[test]
fn a_destination_that_is_back_is_called_more_and_more_up_to_the_lanes_limit() {
    let mut lane = lane(8, 1_000);
    lane.outlet.set_circuit(Circuit::Ramping { room: 1, openings: 1 });
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let permits: Vec<Permit> = std::iter::from_fn(|| lane.claim(1, NOW).ok()).collect();
        rounds.push(permits.len());
        permits.into_iter().for_each(|permit| lane.settle(permit, Verdict::Healthy, NOW));
    }
    assert_eq!(rounds, [1, 2, 4, 8, 8]);
    assert_eq!(lane.outlet.circuit(), Circuit::CLOSED);
}

// LAN-4
#[test]
fn an_ordered_lane_waits_until_it_is_known_what_became_of_its_head() {
    let mut lane = Alone::with(DestinationLane::ordered(LaneLimits { messages: 8, bytes: 1_000 }));
    let head = lane.claim(1, NOW).unwrap();
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::OrderingHead);
    lane.settle(head, Verdict::NotCalled, NOW);
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead), "its outcome is not recorded yet");
    lane.lane.conclude();
    assert_eq!(lane.held(NOW), None);
    lane.lane.inherit();
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead));
}

// OBS-4
#[test]
fn of_several_reasons_the_first_counts() {
    let mut lane = Alone::with(DestinationLane::ordered(LaneLimits { messages: 1, bytes: 1_000 }));
    lane.outlet.back_off(NOW + Duration::from_secs(30));
    assert_eq!(lane.held(NOW), Some(Held::Throttled));
    lane.outlet.set_circuit(Circuit::Open { until: NOW + Duration::from_secs(1), openings: 1 });
    assert_eq!(lane.held(NOW), Some(Held::CircuitOpen));
    lane.lane.capable = false;
    assert_eq!(lane.held(NOW), Some(Held::Capability));
    lane.lane.inherit();
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead));
    lane.lane.set_gate(Gate::Paused);
    assert_eq!(lane.held(NOW), Some(Held::LanePaused));
}

// LAN-3
#[test]
fn what_one_lane_finds_out_about_a_destination_spares_the_messages_of_the_others() {
    let mut outlet = Outlet::new(POLICY);
    let mut keys: Vec<_> =
        (0..10).map(|_| DestinationLane::ordered(LaneLimits { messages: 8, bytes: 1_000 })).collect();
    let mut attempts = 0;
    for lane in &mut keys {
        if let Ok(permit) = lane.claim(&mut outlet, 1, NOW) {
            attempts += 1;
            lane.settle(&mut outlet, permit, Verdict::Failed, NOW);
            lane.conclude();
        }
    }
    assert_eq!(attempts, POLICY.failures_to_open, "and not that of each of them");
    assert!(keys.iter().all(|lane| lane.held(&outlet, NOW) == Some(Held::CircuitOpen)));
    let until = NOW + Duration::from_secs(1);
    assert!(keys[0].claim(&mut outlet, 1, until).is_ok());
    assert_eq!(keys[1].held(&outlet, until), Some(Held::CircuitOpen), "one probe for all of them");
}
