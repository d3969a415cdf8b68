//! What a destination's part, its circuit and its gates leave to be claimed.

use super::*;

// LAN-2
#[test]
fn a_destination_has_its_part_of_what_is_claimed_over_all_of_its_lanes_and_holds_up_no_other() {
    const ALL: usize = 64;
    let ordered = Destination { ordering: Ordering::Exact, ..destination("tarpit") };
    let mut bench = Bench::with([ordered, destination("sink")], ALL);
    bench.schedule = Schedule::new(Arc::default(), ALL / 2);
    let rows: Vec<MessageEntry> = (1..=200)
        .map(|number| MessageEntry {
            destination: "tarpit".parse().unwrap(),
            namespace: if number % 2 == 0 { "acme" } else { "globex" }.parse().unwrap(),
            ordering_key: Some(number.to_string()),
            ..row(number, number.into(), 1, MessageState::Scheduled)
        })
        .collect();
    bench.apply(&rows);
    let mut claimed = Vec::new();
    for _ in 0..10 {
        claimed.extend(bench.claim());
    }
    assert_eq!(claimed.len(), ALL / 2);
    assert_eq!(bench.schedule.held(LaneNumber(150), NOW), Some(crate::lanes::Held::Capacity));
    bench.apply(&[row(201, 201, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim(), [(MessageId::from_bytes([201; 16]), 1)], "at once");
    // All of them come to their turn, one for each that has ended.
    while let Some((id, generation)) = claimed.pop() {
        bench.settle_id(id, generation, PUBLISHED);
        let next = bench.claim();
        assert!(next.len() <= 1);
        claimed.extend(next);
    }
    bench.settle(201, 1, PUBLISHED);
    bench.assert_empty();
}

// LAN-3
#[test]
fn an_outage_costs_an_ordered_destination_the_attempts_that_find_it_out_and_no_others() {
    let ordered = Destination { ordering: Ordering::Exact, ..destination("sink") };
    let mut bench = Bench::with([ordered], 256);
    let of_key = |number: u8| MessageEntry {
        ordering_key: Some(number.to_string()),
        ..row(number, number.into(), 1, MessageState::Scheduled)
    };
    bench.apply(&(1..=100).map(of_key).collect::<Vec<_>>());
    let failed = Settled::Outcome {
        after: AfterAttempt::RetryAt(NOW),
        lane_until: None,
        destination: Verdict::Failed,
        gone: false,
    };
    // Eight at once may be in flight to it.
    bench.seat = seat(PlacesMax { messages: 16, bytes: 1 << 20 });
    let mut attempts = 0;
    loop {
        let claimed = bench.claim();
        if claimed.is_empty() {
            break;
        }
        assert_eq!(claimed.len(), 8);
        attempts += claimed.len();
        for (id, generation) in claimed {
            bench.settle_id(id, generation, failed);
        }
    }
    assert_eq!(attempts, 16, "ten that find it out, and those that were in flight when they had");
    // Until it is probed there is no attempt; then there is one.
    assert_eq!(bench.claim(), []);
    let later = NOW + Duration::from_secs(1);
    let probe = bench.claim_at(later);
    assert_eq!(probe.len(), 1);
    assert_eq!(bench.claim_at(later), []);
    // Its failure holds all of them back for longer; once probes succeed, more and more of the keys go.
    bench.settle_id(probe[0].0, 1, failed);
    assert_eq!(bench.claim_at(later), []);
    let mut now = later + Duration::from_secs(2);
    let mut rounds = Vec::new();
    let mut left = 100;
    while left > 0 {
        let claimed = bench.claim_at(now);
        assert!(!claimed.is_empty(), "{left} are left behind");
        rounds.push(claimed.len());
        left -= claimed.len();
        for (id, generation) in claimed {
            bench.settle_id(id, generation, PUBLISHED);
        }
        now = now + Duration::from_millis(1);
    }
    assert_eq!(rounds[..5], [1, 1, 2, 4, 8]);
    bench.assert_empty();
}

// LAN-3
#[test]
fn a_lane_that_stood_ready_when_another_one_opened_the_circuit_is_sent_again_in_time() {
    let ordered = Destination { ordering: Ordering::Exact, ..destination("sink") };
    // One claim at a time: all other keys stand in the ring meanwhile.
    let mut bench = Bench::with([ordered], 1);
    let of_key = |number: u8| MessageEntry {
        ordering_key: Some(number.to_string()),
        ..row(number, number.into(), 1, MessageState::Scheduled)
    };
    bench.apply(&(1..=40).map(of_key).collect::<Vec<_>>());
    let dead =
        Settled::Outcome { after: AfterAttempt::Dead, lane_until: None, destination: Verdict::Failed, gone: false };
    let mut tried = 0;
    while let [(id, generation)] = bench.claim()[..] {
        tried += 1;
        bench.settle_id(id, generation, dead);
    }
    assert_eq!(tried, 10, "these found it out, and nothing of them is left that time could make ready");
    let mut now = NOW;
    for _ in 0..30 {
        now = now + Duration::from_secs(60);
        let claimed = bench.claim_at(now);
        assert_eq!(claimed.len(), 1, "another one is tried when the time has come");
        bench.settle_id(claimed[0].0, 1, PUBLISHED);
    }
    bench.assert_empty();
}

// LAN-3
#[test]
fn a_destination_that_says_it_is_gone_is_left_alone_for_a_while_and_its_gate_is_what_the_store_says() {
    let mut bench = claimed();
    bench.apply(&[row(2, 11, 1, MessageState::Scheduled)]);
    // An operator has resumed it while its outcome was recorded; or its gate could not be set at all.
    let gone = Settled::Outcome {
        after: AfterAttempt::RetryAt(NOW),
        lane_until: None,
        destination: Verdict::Healthy,
        gone: true,
    };
    assert_eq!(bench.claim().len(), 1);
    bench.settle(1, 1, gone);
    bench.settle(2, 1, retry_at(NOW));
    assert_eq!(bench.schedule.lanes()[0].gate(), Gate::Open);
    assert_eq!(bench.claim(), []);
    assert_eq!(bench.claim_at(NOW + GONE_PAUSE).len(), 2, "nobody has to do anything about it");
}

// LAN-3, WRK-1
#[test]
fn gates_that_were_set_are_taken_up_lane_by_lane_and_from_the_beginning_by_lanes_that_are_new() {
    let mut bench = Bench::with(["a", "b", "c"].map(destination), 64);
    let to = |name: &str, number: u8| MessageEntry {
        destination: name.parse().unwrap(),
        ..row(number, number.into(), 1, MessageState::Scheduled)
    };
    bench.apply(&[to("a", 1), to("b", 2)]);
    let shut = |name: &str| GateRow {
        destination: name.parse().unwrap(),
        namespace: None,
        gate: Gate::Paused,
        reason: None,
        changed_at: NOW,
    };
    bench.schedule.set_gates(Arc::new(["a", "b", "c"].map(shut).into_iter().collect()));
    bench.apply(&[to("c", 3)]);
    let gates = |bench: &Bench| bench.schedule.lanes().iter().map(|lane| lane.gate()).collect::<Vec<_>>();
    assert_eq!(gates(&bench), [Gate::Open, Gate::Open, Gate::Paused]);
    let mut step = bench.index.begin();
    assert_eq!(bench.schedule.take_gates(&mut step, LaneNumber(0), 2), (2, Some(LaneNumber(2))));
    assert_eq!(step.touched(), [LaneNumber(0), LaneNumber(1)]);
    bench.schedule.refresh(&mut step, NOW);
    step.commit().unwrap();
    assert_eq!((gates(&bench), bench.claim()), (vec![Gate::Paused; 3], vec![]));
    let mut step = bench.index.begin();
    assert_eq!(bench.schedule.take_gates(&mut step, LaneNumber(2), 2), (1, None));
    assert_eq!(step.touched(), [], "nothing about it has changed");
}
