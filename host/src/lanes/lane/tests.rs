use std::time::Duration;

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

fn lane(messages: u32, bytes: u64) -> DestinationLane {
    DestinationLane::new(LaneLimits { messages, bytes }, POLICY)
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
    assert_eq!(lane.in_flight_messages(), 0);
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
    lane.back_off(NOW + Duration::from_secs(30));
    lane.back_off(NOW + Duration::from_secs(5));
    let until = NOW + Duration::from_secs(30);
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::Throttled);
    assert_eq!(lane.reopens_at(NOW), Some(until));
    assert_eq!((lane.held(until), lane.reopens_at(until)), (None, None));
}

// LAN-3
#[test]
fn the_gate_comes_before_everything_else_and_loses_nothing() {
    let mut lane = lane(1, 1_000);
    let permit = lane.claim(1, NOW).unwrap();
    lane.set_gate(Gate::Paused);
    assert_eq!(lane.held(NOW), Some(Held::LanePaused));
    lane.set_gate(Gate::Closed);
    assert_eq!((lane.held(NOW), lane.reopens_at(NOW)), (Some(Held::LaneClosed), None));
    lane.settle(permit, Verdict::Healthy, NOW);
    lane.set_gate(Gate::Open);
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
    assert_eq!(lane.reopens_at(NOW), Some(until));
    let probe = lane.claim(1, until).unwrap();
    assert_eq!(lane.claim(1, until).unwrap_err(), Held::CircuitOpen, "one probe at a time");
    lane.settle(probe, Verdict::Healthy, until);
    assert_eq!(lane.circuit(), Circuit::Ramping { room: 1, openings: 1 });
}

// LAN-3
#[test]
fn a_destination_that_is_back_is_called_more_and_more_up_to_the_lanes_limit() {
    let mut lane = lane(8, 1_000);
    lane.circuit = Circuit::Ramping { room: 1, openings: 1 };
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let permits: Vec<Permit> = std::iter::from_fn(|| lane.claim(1, NOW).ok()).collect();
        rounds.push(permits.len());
        permits.into_iter().for_each(|permit| lane.settle(permit, Verdict::Healthy, NOW));
    }
    assert_eq!(rounds, [1, 2, 4, 8, 8]);
    assert_eq!(lane.circuit(), Circuit::CLOSED);
}

// LAN-4
#[test]
fn an_ordered_lane_waits_until_it_is_known_what_became_of_its_head() {
    let mut lane = DestinationLane::ordered(LaneLimits { messages: 8, bytes: 1_000 }, POLICY);
    let head = lane.claim(1, NOW).unwrap();
    assert_eq!(lane.claim(1, NOW).unwrap_err(), Held::OrderingHead);
    lane.settle(head, Verdict::NotCalled, NOW);
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead), "its outcome is not recorded yet");
    lane.conclude();
    assert_eq!(lane.held(NOW), None);
    lane.inherit();
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead));
}

// OBS-4
#[test]
fn of_several_reasons_the_first_counts() {
    let mut lane = DestinationLane::ordered(LaneLimits { messages: 1, bytes: 1_000 }, POLICY);
    lane.back_off(NOW + Duration::from_secs(30));
    assert_eq!(lane.held(NOW), Some(Held::Throttled));
    lane.circuit = Circuit::Open { until: NOW + Duration::from_secs(1), openings: 1 };
    assert_eq!(lane.held(NOW), Some(Held::CircuitOpen));
    lane.capable = false;
    assert_eq!(lane.held(NOW), Some(Held::Capability));
    lane.inherit();
    assert_eq!(lane.held(NOW), Some(Held::OrderingHead));
    lane.set_gate(Gate::Paused);
    assert_eq!(lane.held(NOW), Some(Held::LanePaused));
}
