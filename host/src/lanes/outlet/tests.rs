use std::time::Duration;

use super::*;

const POLICY: CircuitPolicy = CircuitPolicy {
    failures_to_open: 2,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(60),
    probes_max: 1,
    successes_to_close: 1,
    ramp_messages: 4,
};
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn attempt(outlet: &mut Outlet, verdict: Verdict, now: Timestamp) {
    let under = outlet.begin(now).unwrap();
    outlet.end(&under, verdict, now);
}

// LAN-3
#[test]
fn attempts_from_before_an_opening_end_it_no_ramp_and_open_nothing_again() {
    let mut outlet = Outlet::new(POLICY);
    let slow: Vec<Under> = (0..4).map(|_| outlet.begin(NOW).unwrap()).collect();
    attempt(&mut outlet, Verdict::Failed, NOW);
    attempt(&mut outlet, Verdict::Failed, NOW);
    let until = NOW + Duration::from_secs(1);
    assert_eq!(outlet.circuit(), Circuit::Open { until, openings: 1 });
    outlet.end(&slow[0], Verdict::Failed, NOW);
    attempt(&mut outlet, Verdict::Healthy, until);
    let ramping = Circuit::Ramping { room: 1, openings: 1 };
    assert_eq!(outlet.circuit(), ramping);
    // They time out while it is being trusted again.
    for (under, verdict) in slow[1..].iter().zip([Verdict::Failed, Verdict::Healthy, Verdict::NotCalled]) {
        outlet.end(under, verdict, until);
        assert_eq!(outlet.circuit(), ramping, "{verdict:?}");
    }
    assert_eq!(outlet.in_flight, 0);
    attempt(&mut outlet, Verdict::Failed, until);
    assert_eq!(
        outlet.circuit(),
        Circuit::Open { until: until + Duration::from_secs(2), openings: 2 },
        "a new one does"
    );
}

// LAN-3
#[test]
fn room_is_what_the_circuit_leaves() {
    let mut outlet = Outlet::new(POLICY);
    assert_eq!(outlet.room(NOW), u32::MAX);
    attempt(&mut outlet, Verdict::Failed, NOW);
    attempt(&mut outlet, Verdict::Failed, NOW);
    let until = NOW + Duration::from_secs(1);
    assert_eq!((outlet.room(NOW), outlet.room(until)), (0, 1));
    let probe = outlet.begin(until).unwrap();
    assert_eq!((outlet.room(until), outlet.held(until), outlet.reopens_at(until)), (0, Some(Held::CircuitOpen), None));
    outlet.end(&probe, Verdict::Healthy, until);
    assert_eq!(outlet.room(until), 1);
    let first = outlet.begin(until).unwrap();
    assert_eq!((outlet.room(until), outlet.held(until)), (0, Some(Held::LaneFull)));
    outlet.end(&first, Verdict::Healthy, until);
    assert_eq!(outlet.room(until), 2);
    outlet.back_off(until + Duration::from_secs(5));
    assert_eq!((outlet.room(until), outlet.held(until)), (0, Some(Held::Throttled)));
}

// LAN-3
#[test]
fn an_answer_that_says_nothing_about_whether_it_works_neither_closes_nor_widens() {
    let mut outlet = Outlet::new(POLICY);
    outlet.set_circuit(Circuit::Open { until: NOW, openings: 1 });
    attempt(&mut outlet, Verdict::Busy, NOW);
    assert_eq!(outlet.circuit(), Circuit::HalfOpen { probing: 0, successes: 0, openings: 1 });
    outlet.set_circuit(Circuit::Ramping { room: 2, openings: 1 });
    attempt(&mut outlet, Verdict::Busy, NOW);
    assert_eq!(outlet.circuit(), Circuit::Ramping { room: 2, openings: 1 });
    outlet.set_circuit(Circuit::Closed { failures: 1 });
    attempt(&mut outlet, Verdict::Busy, NOW);
    assert_eq!(outlet.circuit(), Circuit::Closed { failures: 1 });
}

// LAN-5
#[test]
fn what_was_learned_where_the_destination_was_says_nothing_about_where_it_is() {
    let mut outlet = Outlet::new(POLICY);
    let before: Vec<Under> = (0..3).map(|_| outlet.begin(NOW).unwrap()).collect();
    for _ in 0..2 {
        attempt(&mut outlet, Verdict::Failed, NOW);
    }
    outlet.back_off(NOW + Duration::from_secs(60));
    assert_eq!(outlet.held(NOW), Some(Held::CircuitOpen));
    outlet.begin_anew();
    assert_eq!((outlet.held(NOW), outlet.circuit()), (None, Circuit::CLOSED));
    for under in &before {
        outlet.end(under, Verdict::Failed, NOW);
    }
    assert_eq!((outlet.circuit(), outlet.in_flight), (Circuit::CLOSED, 0));
}
