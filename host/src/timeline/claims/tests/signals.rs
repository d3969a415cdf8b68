//! What operators see of lanes, claims and the feed.

use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::lanes::{Held, Level, Resource, Supply, WorkClass};
use crate::timeline::figures::IndexFigures;
use crate::timeline::index::Unusable;
use crate::timeline::signals::LaneSums;

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    /// A message to a destination, which counts as `number`.
    fn emit(&mut self, destination: &str, number: u8, key: Option<&str>) {
        let destination = destination.parse().unwrap();
        let row = row(number, u64::from(number), 1, MessageState::Scheduled);
        self.apply(&[MessageEntry { destination, ordering_key: key.map(str::to_owned), ..row }]);
    }

    /// Claims what may be claimed now, `room` at the most. Returns how many.
    fn serve(&mut self, room: usize, at: Timestamp, signals: &Signals) -> usize {
        self.claims.limit(room);
        self.pick_and_show(at, |picked| signals.claimed(picked, at)).len()
    }

    /// Shows all lanes, as a shard does in turns.
    fn show(&self, signals: &Signals, held: Option<Held>, now: Timestamp) {
        let mut sums = LaneSums::default();
        for (number, lane) in (0..).map(LaneNumber).zip(self.index.lanes()).filter(|(_, lane)| !lane.is_vacant) {
            sums.add(number, lane, &self.schedule, held, now);
        }
        signals.lanes(sums);
    }

    fn number_of(&self, destination: &str) -> LaneNumber {
        let found = self.index.lanes().iter().position(|lane| lane.name.destination.as_str() == destination);
        LaneNumber(u32::try_from(found.unwrap()).unwrap())
    }
}

/// Lanes with something due each, against which each reason stands that a lane can have, and one against which none
/// does.
fn held_by_everything() -> Bench {
    let ordered = Destination { ordering: Ordering::Exact, ..destination("ordered") };
    let full = Destination { limits: LaneLimits { messages: 1, bytes: 1 << 20 }, ..destination("full") };
    let plain = ["closed", "paused", "storm", "busy", "fair"].map(destination);
    let mut bench = Bench::with(plain.into_iter().chain([ordered, full]), 64);
    for number in 1..=10 {
        bench.emit("storm", number, None);
    }
    bench.emit("busy", 11, None);
    bench.emit("full", 12, None);
    bench.emit("full", 13, None);
    bench.emit("ordered", 14, Some("key"));
    bench.emit("ordered", 15, Some("key"));
    assert_eq!(bench.claim().len(), 13, "one of the full lane, and the ordered one's head");
    for number in 1..=10 {
        let (after, lane_until) = (AfterAttempt::RetryAt(NOW), None);
        let failed = Settled::Outcome { after, lane_until, destination: Verdict::Failed, gone: false };
        bench.settle(number, 1, failed);
    }
    let (after, lane_until) = (AfterAttempt::RetryAt(NOW), Some(NOW + 30 * SECOND));
    bench.settle(11, 1, Settled::Outcome { after, lane_until, destination: Verdict::Healthy, gone: false });
    bench.emit("nowhere", 16, None);
    bench.emit("closed", 17, None);
    bench.emit("paused", 18, None);
    bench.emit("fair", 19, None);
    for (destination, gate) in [("closed", Gate::Closed), ("paused", Gate::Paused)] {
        let number = bench.number_of(destination);
        bench.schedule.lane_mut(number).set_gate(gate);
    }
    bench
}

fn rendered(show: impl FnOnce(&Signals)) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        show(&Signals::new(ShardId(7)));
        recorder.handle().render()
    })
}

fn assert_shown(rendered: &str, lines: &[String]) {
    for line in lines {
        assert!(rendered.lines().any(|shown| shown == line), "{line}\n{rendered}");
    }
}

fn held_lines(counts: &[(&str, u32)]) -> Vec<String> {
    let line = |(reason, count): &(&str, u32)| {
        format!("forebay_timeline_due_not_admitted{{shard=\"7\",reason=\"{reason}\"}} {count}")
    };
    counts.iter().map(line).collect()
}

// OBS-1, OBS-4
#[test]
fn what_is_due_and_not_admitted_is_shown_by_the_first_reason_and_every_circuit_by_where_it_stands() {
    let bench = held_by_everything();
    let shown = rendered(|signals| bench.show(signals, None, NOW));
    let of_lanes = [
        "lane_closed",
        "lane_paused",
        "ordering_head",
        "capability",
        "circuit_open",
        "throttled",
        "lane_full",
        "fairness",
    ];
    assert_shown(&shown, &held_lines(&of_lanes.map(|reason| (reason, 1))));
    let messages =
        |reason: &str, count: u32| format!("forebay_timeline_held_messages{{shard=\"7\",reason=\"{reason}\"}} {count}");
    assert_shown(&shown, &[messages("circuit_open", 10), messages("lane_closed", 1), messages("recovering", 0)]);
    let of_shard = ["clock_gated", "recovering", "capacity", "retry_backoff"];
    assert_shown(&shown, &held_lines(&of_shard.map(|reason| (reason, 0))));
    let circuits = [("closed", 7), ("open", 1), ("half_open", 0), ("ramping", 0)];
    let circuits =
        circuits.map(|(state, count)| format!("forebay_timeline_circuits{{shard=\"7\",state=\"{state}\"}} {count}"));
    assert_shown(&shown, &circuits);
    // What stands against the whole shard comes in its place among the reasons of lanes.
    let shown = rendered(|signals| bench.show(signals, Some(Held::ClockGated), NOW));
    let counts = [("lane_closed", 1), ("lane_paused", 1), ("ordering_head", 1), ("clock_gated", 5), ("capability", 0)];
    assert_shown(&shown, &held_lines(&counts));
    let shown = rendered(|signals| bench.show(signals, Some(Held::Capacity), NOW));
    assert_shown(&shown, &held_lines(&[("capability", 1), ("lane_full", 1), ("capacity", 1), ("fairness", 0)]));
}

// OBS-1, OBS-4
#[test]
fn a_line_behind_a_head_that_waits_for_its_next_attempt_is_shown_and_so_is_how_long_it_has_failed() {
    let mut bench = Bench::with([Destination { ordering: Ordering::Exact, ..destination("ordered") }], 64);
    for number in 1..=3 {
        bench.emit("ordered", number, Some("key"));
    }
    assert_eq!(bench.claim().len(), 1);
    let (after, lane_until) = (AfterAttempt::RetryAt(NOW + 3_600 * SECOND), None);
    bench.settle(1, 1, Settled::Outcome { after, lane_until, destination: Verdict::Failed, gone: false });
    let shown = rendered(|signals| bench.show(signals, None, NOW + 60 * SECOND));
    assert_shown(&shown, &held_lines(&[("retry_backoff", 1), ("ordering_head", 0), ("fairness", 0)]));
    let lines = [
        "forebay_timeline_held_messages{shard=\"7\",reason=\"retry_backoff\"} 3",
        "forebay_timeline_lane_pending{shard=\"7\",namespace=\"acme\",destination=\"ordered\"} 3",
        "forebay_timeline_oldest_retry_seconds{shard=\"7\"} 60",
    ];
    assert_shown(&shown, &lines.map(str::to_owned));
    let later = NOW + 3_600 * SECOND;
    let shown = rendered(|signals| bench.show(signals, None, later));
    assert_shown(&shown, &held_lines(&[("retry_backoff", 0), ("fairness", 1)]));
    bench.claim_at(later);
    let (after, lane_until) = (AfterAttempt::Published, None);
    bench.settle(1, 1, Settled::Outcome { after, lane_until, destination: Verdict::Healthy, gone: false });
    let shown = rendered(|signals| bench.show(signals, None, later));
    assert_shown(&shown, &["forebay_timeline_oldest_retry_seconds{shard=\"7\"} 0".to_owned()]);
}

// OBS-1, DRR-3
#[test]
fn how_long_a_ready_lane_waits_to_be_served_is_measured_and_not_how_long_it_has_nothing_to_send() {
    let mut bench = Bench::with([destination("sink")], 64);
    bench.emit("sink", 1, None);
    bench.emit("sink", 2, None);
    let shown = rendered(|signals| {
        bench.schedule.discover(&bench.index, NOW, signals);
        // One is claimed in each turn, and there is none for the fourth.
        for (seconds, count) in [(0, 0), (3, 1), (5, 1), (9, 0)] {
            let room = usize::from(seconds > 0);
            assert_eq!(bench.serve(room, NOW + seconds * SECOND, signals), count, "after {seconds} s");
        }
        // It is ready again, and not since it was served last.
        bench.emit("sink", 3, None);
        bench.emit("sink", 4, None);
        assert_eq!(bench.serve(2, NOW + SECOND, signals), 2);
    });
    // 3 s until the first, 2 s until the second, 1 s once it was ready again; the fourth came in the same visit as the
    // third.
    let lines = ["forebay_timeline_service_gap_seconds_sum 6", "forebay_timeline_service_gap_seconds_count 3"];
    assert_shown(&shown, &lines.map(str::to_owned));
}

// OBS-1, WRK-3
#[test]
fn what_presses_on_a_shard_is_shown_with_what_it_was_measured_by_and_every_end_of_its_actor_is_counted() {
    let figures =
        IndexFigures { level0_files: 16, memtables: 1, pending_bytes: 7, is_delayed: true, is_stopped: false };
    let supply = Supply::default().with(Resource::Index, Level::Tight).with(Resource::Disk, Level::Exhausted);
    let shown = rendered(|signals| {
        signals.pressing(&supply, &figures);
        signals.ended("panic");
        signals.ended("panic");
        signals.ended("fenced");
    });
    let lines = [
        "forebay_timeline_pressure{shard=\"7\",resource=\"disk\"} 2",
        "forebay_timeline_pressure{shard=\"7\",resource=\"index\"} 1",
        "forebay_timeline_pressure{shard=\"7\",resource=\"descriptors\"} 0",
        "forebay_timeline_pressure{shard=\"7\",resource=\"channels\"} 0",
        "forebay_timeline_pressure{shard=\"7\",resource=\"evidence\"} 0",
        "forebay_timeline_index_level0_files{shard=\"7\"} 16",
        "forebay_timeline_index_memtables{shard=\"7\"} 1",
        "forebay_timeline_index_pending_compaction_bytes{shard=\"7\"} 7",
        "forebay_timeline_index_writes_stalled{shard=\"7\"} 1",
        "forebay_timeline_actor_ends_total{shard=\"7\",reason=\"panic\"} 2",
        "forebay_timeline_actor_ends_total{shard=\"7\",reason=\"fenced\"} 1",
    ];
    assert_shown(&shown, &lines.map(str::to_owned));
}

// OBS-1
#[test]
fn nothing_is_shown_any_more_of_a_shard_that_was_given_up() {
    let bench = held_by_everything();
    let shown = rendered(|signals| {
        signals.applied_lag(42);
        signals.capacity(true, 3, 9 * SECOND);
        signals.newest_checkpoint(Some((SECOND, 4_096)));
        bench.show(signals, None, NOW);
        signals.gone();
    });
    assert!(
        shown.contains("forebay_timeline_lane_pending{shard=\"7\",namespace=\"acme\",destination=\"storm\"} 0"),
        "{shown}"
    );
    let gauges = shown.lines().filter(|line| line.contains("shard=\"7\""));
    let (ages, others): (Vec<_>, Vec<_>) = gauges.partition(|line| line.contains("checkpoint_age"));
    assert!(others.len() > 30 && others.iter().all(|line| line.ends_with(" 0")), "{others:?}");
    assert_eq!(ages, ["forebay_timeline_checkpoint_age_seconds{shard=\"7\"} -1"]);
}

// OBS-1
#[test]
fn lateness_discovery_and_service_gaps_are_measured_where_they_come_about() {
    let mut bench = Bench::with([destination("sink")], 1);
    bench.schedule = Schedule::new(Arc::default(), 2);
    bench.emit("sink", 1, None);
    bench.emit("sink", 2, None);
    let shown = rendered(|signals| {
        let claim = |bench: &mut Bench, now| {
            bench.schedule.discover(&bench.index, now, signals);
            bench.pick_and_show(now, |picked| signals.claimed(picked, now)).len()
        };
        // Found three seconds after it was ready, and sent at once.
        assert_eq!(claim(&mut bench, NOW + 3 * SECOND), 1);
        bench.settle(1, 1, PUBLISHED);
        // Its lane has stood in the ring for five seconds since.
        assert_eq!(claim(&mut bench, NOW + 8 * SECOND), 1);
    });
    let lines = [
        "forebay_timeline_discovery_seconds_sum 3",
        "forebay_timeline_lateness_seconds_sum 11",
        "forebay_timeline_lateness_seconds_count 2",
        "forebay_timeline_service_gap_seconds_sum 5",
        "forebay_timeline_service_gap_seconds_count 1",
    ];
    assert_shown(&shown, &lines.map(str::to_owned));
}

// OBS-1
#[test]
fn what_a_shard_is_told_is_shown() {
    let shown = rendered(|signals| {
        signals.applied_lag(42);
        signals.capacity(true, 3, 9 * SECOND);
        signals.broke(Unusable::Torn);
        signals.rebuilt(Unusable::Missing);
        signals.rebuilt(Unusable::Missing);
        signals.overran(WorkClass::Gc);
    });
    let lines = [
        "forebay_timeline_applied_lag{shard=\"7\"} 42",
        "forebay_timeline_at_capacity{shard=\"7\"} 1",
        "forebay_timeline_unresolved{shard=\"7\"} 3",
        "forebay_timeline_oldest_unresolved_seconds{shard=\"7\"} 9",
        "forebay_timeline_rebuilds_total{shard=\"7\",reason=\"torn\"} 1",
        "forebay_timeline_rebuilds_total{shard=\"7\",reason=\"missing\"} 1",
        "forebay_timeline_turn_overruns_total{shard=\"7\",class=\"gc\"} 1",
    ];
    assert_shown(&shown, &lines.map(str::to_owned));
}
