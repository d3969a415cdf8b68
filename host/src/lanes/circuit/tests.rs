use super::*;

const POLICY: CircuitPolicy = CircuitPolicy {
    failures_to_open: 3,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(5),
    probes_max: 2,
    successes_to_close: 2,
    ramp_messages: 4,
};

fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(secs * 1_000)
}

fn after(circuit: Circuit, verdicts: &[Verdict], now: Timestamp) -> Circuit {
    verdicts.iter().fold(circuit, |circuit, verdict| circuit.end(&POLICY, Attempt::Ordinary, *verdict, now))
}

fn probe(circuit: Circuit, verdict: Verdict, now: Timestamp) -> Circuit {
    let (circuit, attempt) = circuit.begin(&POLICY, now).unwrap();
    assert_eq!(attempt, Attempt::Probe);
    circuit.end(&POLICY, attempt, verdict, now)
}

// LAN-3
#[test]
fn only_a_run_of_failures_opens_it() {
    let mixed = [Verdict::Failed, Verdict::Failed, Verdict::Healthy, Verdict::Failed, Verdict::NotCalled];
    let circuit = after(Circuit::CLOSED, &mixed, at(0));
    assert_eq!(circuit, Circuit::Closed { failures: 1 });
    let circuit = after(circuit, &[Verdict::Failed, Verdict::Failed], at(0));
    assert_eq!(circuit, Circuit::Open { until: at(1), openings: 1 });
    assert_eq!(circuit.begin(&POLICY, at(0)), Err(Refused::Until(at(1))));
}

// LAN-3
#[test]
fn probes_are_bounded_and_after_enough_of_them_it_ramps() {
    let open = Circuit::Open { until: at(1), openings: 1 };
    let (circuit, _) = open.begin(&POLICY, at(1)).unwrap();
    let (circuit, _) = circuit.begin(&POLICY, at(1)).unwrap();
    assert_eq!(circuit.begin(&POLICY, at(1)), Err(Refused::Probing));
    let circuit = circuit.end(&POLICY, Attempt::Probe, Verdict::Healthy, at(2));
    assert_eq!(circuit, Circuit::HalfOpen { probing: 1, successes: 1, openings: 1 });
    let circuit = circuit.end(&POLICY, Attempt::Probe, Verdict::Healthy, at(2));
    assert_eq!(circuit, Circuit::Ramping { room: 2, openings: 1 });
}

// LAN-3
#[test]
fn each_success_of_a_ramp_makes_room_for_one_more_and_a_failure_opens_it_for_longer() {
    let ramping = Circuit::Ramping { room: 2, openings: 1 };
    let circuit = after(ramping, &[Verdict::Healthy, Verdict::NotCalled], at(0));
    assert_eq!(circuit, Circuit::Ramping { room: 3, openings: 1 });
    assert_eq!(after(circuit, &[Verdict::Healthy], at(0)), Circuit::CLOSED);
    assert_eq!(after(circuit, &[Verdict::Failed], at(0)), Circuit::Open { until: at(2), openings: 2 });
}

// LAN-3
#[test]
fn a_failed_probe_opens_it_for_longer_up_to_a_cap() {
    let mut circuit = after(Circuit::CLOSED, &[Verdict::Failed; 3], at(0));
    for (opening, seconds) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
        let Circuit::Open { until, openings } = circuit else { panic!("{circuit:?}") };
        assert_eq!((openings, until), (opening, at(100 * (i64::from(opening) - 1) + seconds)));
        circuit = probe(circuit, Verdict::Failed, at(100 * i64::from(opening)));
    }
}

// LAN-3
#[test]
fn a_probe_that_was_not_called_says_nothing_and_frees_its_place() {
    let open = Circuit::Open { until: at(1), openings: 1 };
    let circuit = probe(open, Verdict::NotCalled, at(1));
    assert_eq!(circuit, Circuit::HalfOpen { probing: 0, successes: 0, openings: 1 });
}

// LAN-3
#[test]
fn attempts_from_before_it_opened_say_nothing() {
    let open = Circuit::Open { until: at(1), openings: 1 };
    assert_eq!(after(open, &[Verdict::Failed, Verdict::Healthy, Verdict::Healthy], at(0)), open);
    let half = Circuit::HalfOpen { probing: 1, successes: 1, openings: 1 };
    assert_eq!(after(half, &[Verdict::Failed, Verdict::Healthy], at(1)), half);
}
