//! Counters against the rows themselves.

use std::collections::BTreeSet;

use metrics_exporter_prometheus::PrometheusBuilder;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::model::message::AfterAttempt;
use crate::model::pack::Coalescing;
use crate::store::engine::values::values;

const WORK_TYPES: [WorkType; 2] = [WorkType::ConnectorEvent, WorkType::WorkflowActionApply];

/// A history that a seed decides, of everything that moves a row from one state to another.
struct History {
    fixture: Fixture,
    random: StdRng,
    held: Vec<ClaimedWorkItem>,
    dead: Vec<WorkItemId>,
    messages: Vec<MessageId>,
    runtime: RuntimeId,
    leases: Vec<ShardLease>,
    /// The states that some row was found in.
    seen: (BTreeSet<WorkState>, BTreeSet<MessageState>),
}

impl History {
    async fn begin(seed: u64) -> Self {
        let fixture = start().await;
        let runtime = fixture.runtime();
        let random = StdRng::seed_from_u64(seed);
        let seen = Default::default();
        let (held, dead, messages, leases) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut history = Self { fixture, random, held, dead, messages, runtime, leases, seen };
        history.acquire_shards().await;
        history
    }

    /// Has all shards from here on.
    async fn acquire_shards(&mut self) {
        self.leases.clear();
        let (store, now) = (&self.fixture.store, self.fixture.now());
        for shard in 0..store.shard_count() {
            let lease = store.acquire_shard(ShardId(shard), self.runtime, LEASE * 1_000, now).await;
            self.leases.push(lease.unwrap().unwrap());
        }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..11) {
            0 | 1 => self.deliver().await,
            2 => {
                let rows_max = self.random.random_range(1..8);
                let request = ClaimRequest { work_types: WORK_TYPES.to_vec(), ..self.fixture.request(rows_max) };
                self.held.extend(self.fixture.store.claim(request).await.unwrap());
            }
            3 | 4 => self.finish().await,
            5..8 => self.publish().await,
            8 => self.command().await,
            9 => self.disturb().await,
            _ => self.pass_time().await,
        }
    }

    async fn deliver(&mut self) {
        let events = (0..self.random.random_range(1..5))
            .map(|_| {
                let key = self.random.random_range(0..200).to_string();
                let source = self.random.random_range(0..6);
                let source = (source < 4).then(|| format!("repo-{source}"));
                self.fixture.event(&key, source.as_deref(), "{}")
            })
            .collect();
        let mut delivery = self.fixture.delivery(events);
        if self.random.random_range(0..3) == 0 {
            // A route of its own: it has another delivery lane, and shares the lanes of the sources.
            delivery.route = "strict".parse().unwrap();
            delivery.ordering = Ordering::Delivery;
        } else if self.random.random_range(0..3) == 0 {
            delivery.route = "latest".parse().unwrap();
            delivery.coalescing = Coalescing::LatestBySource;
        } else if self.random.random_range(0..3) == 0 {
            delivery.route = "projected".parse().unwrap();
            (delivery.ordering, delivery.coalescing) = (Ordering::None, Coalescing::SourceProjection);
        }
        self.fixture.store.enqueue(delivery).await.unwrap();
    }

    async fn finish(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let item = self.held.swap_remove(self.random.random_range(0..self.held.len()));
        let run_after = self.fixture.now() + Duration::from_secs(self.random.random_range(0..20));
        let leaves_lane = self.random.random();
        let disposition = match self.random.random_range(0..6) {
            0 => Disposition::Release,
            1 => Disposition::Retry { failure: failure(), run_after, leaves_lane },
            2 => Disposition::Dead { failure: failure(), leaves_lane },
            _ => {
                let destination = ["sink", "audit", "mail"].choose(&mut self.random).unwrap();
                let mut message = match self.random.random_range(0..2) {
                    0 => self.fixture.action("later", run_after),
                    _ => self.fixture.message(destination, run_after),
                };
                message.expire_at = self.random.random::<bool>().then_some(run_after + LEASE);
                self.messages.push(message.id);
                done(vec![message])
            }
        };
        let dead = matches!(disposition, Disposition::Dead { .. });
        self.fixture.finish(&item, disposition).await;
        self.dead.extend(dead.then_some(item.id));
    }

    async fn publish(&mut self) {
        let now = self.fixture.now();
        let Some(id) = self.messages.choose(&mut self.random).copied() else { return };
        let Some(entry) = self.fixture.store.message_entries(&[id]).await.unwrap().pop() else { return };
        for lease in self.leases.clone() {
            let request = AdmissionRequest { id, generation: entry.generation };
            self.fixture.store.expire(lease, vec![request], now).await.unwrap();
            let admitted = self.fixture.store.admit(lease, vec![request], now).await.unwrap();
            let (Admission::Admitted { attempt }, true) = (admitted[0], self.random.random()) else { continue };
            let afters = [
                AfterAttempt::Published,
                AfterAttempt::RetryAt(now),
                AfterAttempt::Uncertain,
                AfterAttempt::Dead,
                AfterAttempt::Expired,
            ];
            let after = match *afters.choose(&mut self.random).unwrap() {
                // Nobody doubts what became of an action.
                AfterAttempt::Published | AfterAttempt::Uncertain | AfterAttempt::Dead
                    if entry.destination.is_flow() =>
                {
                    AfterAttempt::HandedOff
                }
                after => after,
            };
            let generation = entry.generation;
            let outcome = OutcomeRecord {
                id,
                generation,
                attempt,
                after,
                uncertain: false,
                spared: false,
                status: None,
                error: None,
            };
            self.fixture.store.record_outcomes(lease, vec![outcome], now).await.unwrap();
        }
    }

    async fn command(&mut self) {
        let now = self.fixture.now();
        if let Some(id) = self.messages.choose(&mut self.random) {
            if self.random.random() {
                self.fixture.store.cancel(*id, now).await.unwrap();
            } else {
                self.fixture.store.reschedule(*id, now + LEASE).await.unwrap();
            }
        }
        if let Some(id) = self.dead.choose(&mut self.random) {
            if self.random.random() {
                self.fixture.store.skip_dead(*id).await.unwrap();
            } else {
                self.fixture.replay(*id).await;
            }
        }
    }

    async fn pass_time(&mut self) {
        self.fixture.advance(Duration::from_secs(self.random.random_range(1..20)));
    }

    /// The answer of the next transaction gets lost, or the process ends and begins anew: what it held is left to its
    /// leases.
    async fn disturb(&mut self) {
        match self.random.random_range(0..6) {
            0..=3 => {
                let loss = Loss::ALL[self.random.random_range(0..2)];
                let (events, item) = (self.random.random_range(1..4), self.held.pop());
                let key = self.random.random_range(200..1_000);
                let event = |n: u32| self.fixture.event(&format!("{key}-{n}"), Some("repo-0"), "{}");
                let delivery = self.fixture.delivery((0..events).map(event).collect());
                self.fixture.store.lose_answer(loss);
                if let Some(item) = item.filter(|_| self.random.random()) {
                    let _ = self.fixture.store.finish(self.fixture.ending(&item, done(vec![]))).await;
                } else if self.random.random() {
                    let _ = self.fixture.store.enqueue(delivery).await;
                } else {
                    let _ = self.fixture.store.claim(self.fixture.request(4)).await;
                }
            }
            _ => {
                self.fixture.store.close().await;
                self.fixture.open_again().await;
                self.held.clear();
                self.acquire_shards().await;
            }
        }
    }

    /// The counters say what the rows say, and in every lane there is one head if anybody is in it.
    async fn check(&mut self, step: usize) {
        let store = &self.fixture.store;
        let stats = store.stats().await.unwrap();
        assert_eq!(store.miscounts().await.unwrap(), [], "step {step}");
        assert_eq!(stats, store.count_rows().await.unwrap(), "step {step}");
        let exact = store.exact_stats(self.fixture.now()).await.unwrap();
        assert_eq!((&exact.rows, &exact.counters), (&stats, &stats), "step {step}");
        assert_eq!(exact.uncovered, 0, "step {step}");
        let looked = PeekRequest { rows_max: PEEK_ROWS_MAX, work_types: WORK_TYPES.to_vec(), ..self.fixture.look() };
        let peeked = store.peek(&looked).await.unwrap();
        let claimable = peeked.next.iter().filter(|item| item.is_claimable()).count();
        assert_eq!(claimable as u64, exact.claimable.total(), "step {step}");
        assert_eq!(peeked.blocked, stats.work_items[&WorkState::Blocked], "step {step}");
        self.seen.0.extend(stats.work_items.iter().filter(|(_, count)| **count > 0).map(|(state, _)| *state));
        self.seen.1.extend(stats.messages.iter().filter(|(_, count)| **count > 0).map(|(state, _)| *state));
        let mut tampering = Tampering::with(&self.fixture).await;
        for lane_id in ["source_lane_id", "delivery_lane_id"] {
            let kinds = if lane_id == "source_lane_id" { "1, 3" } else { "2" };
            let lost = format!(
                "SELECT count(*) FROM lane LEFT JOIN work_item AS head ON head.ordinal = lane.head \
                 WHERE lane.kind IN ({kinds}) AND (\
                 (lane.head IS NULL AND EXISTS (SELECT 1 FROM work_item WHERE {lane_id} = lane.id AND state < 4)) OR \
                 (lane.head IS NOT NULL AND (head.{lane_id} IS NULL OR head.{lane_id} <> lane.id OR head.state = 4)) OR \
                 EXISTS (SELECT 1 FROM work_item WHERE {lane_id} = lane.id AND state < 4 \
                 AND lane_ordinal < head.lane_ordinal))"
            );
            assert_eq!(tampering.count(&lost).await, 0, "step {step}: {lane_id}");
        }
        assert_eq!(tampering.count(MISCOUNTED).await, 0, "step {step}");
        assert_eq!(tampering.count(MISACTIVATED).await, 0, "step {step}");
        assert_eq!(tampering.count(QUEUED).await, i64::try_from(exact.queued).unwrap(), "step {step}");
        let further = "SELECT count(*) FROM work_item WHERE replay_of IS NOT NULL OR action IS NOT NULL";
        let further = tampering.count(further).await;
        let events = tampering.count("SELECT count(*) FROM event").await;
        let rows = stats.work_items.values().sum::<u64>();
        assert_eq!(i64::try_from(rows).unwrap(), events + further, "step {step}: each Event is spoken for once");
        tampering.close().await;
    }
}

/// Rows whose blockers are not the lanes of which they are not the head, and rows that are blocked by nobody or free
/// though somebody blocks them.
const MISCOUNTED: &str = "\
    SELECT count(*) FROM work_item WHERE state < 4 AND (blockers <> (SELECT count(*) FROM lane \
    WHERE lane.id IN (work_item.source_lane_id, work_item.delivery_lane_id) AND lane.head <> work_item.ordinal) \
    OR (state = 0) <> (blockers > 0))";

/// Generations of projections that are active and may not be, or are not and should be; and lines in which more than
/// one is queued.
const MISACTIVATED: &str = "\
    SELECT (SELECT count(*) FROM work_item WHERE projection_key IS NOT NULL \
    AND (projection_active_key IS NOT NULL) <> (state IN (1, 2, 3) OR (state = 5 AND source_lane_id IS NOT NULL))) \
    + (SELECT count(*) FROM (SELECT waiting_source FROM work_item WHERE waiting_source IS NOT NULL \
    AND projection_key IS NOT NULL GROUP BY waiting_source HAVING count(*) > 1) AS crowded)";

/// Who is queued in a projection.
const QUEUED: &str = "\
    SELECT count(*) FROM work_item JOIN lane ON lane.id = work_item.waiting_source AND lane.kind = 3 \
    WHERE work_item.projection_key IS NOT NULL";

// STA-1, STA-2
#[tokio::test]
async fn the_counters_say_what_the_rows_say_whatever_happened() {
    let mut seen = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..3 {
        let mut history = History::begin(seed).await;
        for step in 0..500 {
            history.step().await;
            if step % 20 == 19 {
                history.check(step).await;
            }
        }
        seen.0.append(&mut history.seen.0);
        seen.1.append(&mut history.seen.1);
    }
    let every = (BTreeSet::from(WorkState::ALL), BTreeSet::from(MessageState::ALL));
    assert_eq!(seen, every, "the histories have to come by everywhere");
}

/// What every Event says, in one number each.
async fn events(tampering: &mut Tampering) -> Vec<(i64, String)> {
    let mut connection = tampering.connection();
    let digest = connection.engine().pick(
        "SELECT ordinal, hex(id) || hex(payload_digest) || hex(body) || delivery_key || coalesce(source_key, '') || receipt || route FROM event \
         ORDER BY ordinal",
        "SELECT ordinal, CONCAT_WS('/', HEX(id), HEX(payload_digest), HEX(body), delivery_key, source_key, receipt, route) FROM event \
         ORDER BY ordinal",
    );
    connection.read_all(digest, values![]).await.unwrap()
}

// COA-4: whatever happens to its work, replays and supersession too. The database itself refuses to change an Event
// here, so that whoever tried would have been told.
#[tokio::test]
async fn no_event_is_written_after_it_was_stored() {
    let mut history = History::begin(7).await;
    let mut tampering = Tampering::with(&history.fixture).await;
    for (name, write) in [("event_updated", "UPDATE"), ("event_deleted", "DELETE")] {
        let refusal = tampering.connection().engine().pick(
            "BEGIN SELECT RAISE(ABORT, 'an Event is written'); END",
            "FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'an Event is written'",
        );
        tampering.execute(&format!("CREATE TRIGGER {name} BEFORE {write} ON event {refusal}")).await;
    }
    let mut before: Vec<(i64, String)> = Vec::new();
    for step in 0..400 {
        history.step().await;
        if step % 100 == 99 {
            let after = events(&mut tampering).await;
            assert!(after.len() > before.len(), "step {step}: something was delivered");
            let kept: Vec<_> =
                after.iter().filter(|(ordinal, _)| before.iter().any(|(old, _)| old == ordinal)).collect();
            assert!(kept.into_iter().eq(&before), "step {step}");
            before = after;
        }
    }
    for state in [WorkState::Done, WorkState::Dead] {
        assert!(history.fixture.store.stats().await.unwrap().work_items[&state] > 0, "{state:?}");
    }
    tampering.close().await;
}

// STA-1: what a snapshot may say for a moment that holds a claim and lacks the delivery that it had waited for. If it
// stays so, it is no secret: it is counted, and told by those who compare.
#[tokio::test]
async fn a_count_that_is_below_zero_keeps_nobody_from_working_and_is_told() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    assert!(!recorder.handle().render().contains("below_zero"), "nothing was below zero");
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE work_item_counter SET count = -1").await;
    let stats = fixture.store.stats().await.unwrap();
    assert!(stats.work_items.values().all(|count| *count == 0), "{stats:?}");
    assert!(fixture.store.list_generations(None).await.unwrap().iter().all(|status| status.unfinished.is_empty()));
    let rows = fixture.store.processing_rows(&pack(), fixture.now()).await.unwrap();
    assert_eq!((rows.rows, rows.stale), (0, 0));
    fixture.store.queue_mark(&pack()).await.unwrap();
    assert_eq!(fixture.claim(1).await.len(), 1, "nor does it keep anybody from working");
    let rendered = recorder.handle().render();
    let told = rendered.lines().find_map(|line| line.strip_prefix("forebay_store_sums_below_zero_total "));
    assert!(told.unwrap().parse::<u64>().unwrap() > 0, "{rendered}");
    let miscounts = fixture.store.miscounts().await.unwrap();
    let told: Vec<_> =
        miscounts.iter().map(|miscount| (miscount.of.as_str(), miscount.counted, miscount.rows)).collect();
    assert_eq!(told, [("ready work items (connector_event) of generation 1 of pack `github`", -2, 0)]);
}

// STA-1: what is booked on the wrong generation, or too much in one state and too little in another.
#[tokio::test]
async fn counters_are_compared_scope_by_scope() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    assert_eq!(fixture.store.miscounts().await.unwrap(), []);
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE work_item_counter SET generation = 2").await;
    tampering.close().await;
    assert_eq!(fixture.store.stats().await.unwrap(), fixture.store.count_rows().await.unwrap());
    assert_eq!(fixture.store.miscounts().await.unwrap().len(), 2);
}

// STA-2: an Event without a WorkItem speaks for itself, one with a WorkItem does not, and neither is counted twice.
#[tokio::test]
async fn an_event_is_counted_once_with_its_work_item_or_without() {
    let fixture = start().await;
    let (_, lost) = fixture.deliver("d-1", None).await;
    let (_, ended) = fixture.deliver("d-2", None).await;
    let exact = fixture.store.exact_stats(fixture.now()).await.unwrap();
    assert_eq!((exact.rows.work_items[&WorkState::Ready], exact.uncovered), (2, 0));
    let item = fixture.claim(10).await.into_iter().find(|item| item.id == ended).unwrap();
    fixture.finish(&item, done(vec![])).await;
    fixture.replay_first(ended).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("DELETE FROM work_item WHERE state = 3").await;
    tampering.execute("UPDATE work_item_counter SET count = 0 WHERE state = 3").await;
    tampering.close().await;
    assert!(fixture.store.work_item(lost).await.unwrap().is_none());
    let exact = fixture.store.exact_stats(fixture.now()).await.unwrap();
    let counts = [WorkState::Ready, WorkState::Processing, WorkState::Done].map(|state| exact.rows.work_items[&state]);
    assert_eq!(
        (counts, exact.uncovered),
        ([1, 0, 1], 1),
        "the replay, nobody, the one that ended; and the one that has none"
    );
    assert_eq!(exact.rows.work_items, exact.counters.work_items);
}

// STA-1: what claims do not see is not counted, and what they would take is.
#[tokio::test]
async fn statistics_are_of_the_work_types_that_claims_know() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering
        .execute(
            "INSERT INTO work_item (ordinal, id, event_id, work_type, namespace, pack, generation, state, turn, lane_ordinal, \
             run_after, epoch, attempt, failures, created_at, ignored, blockers) SELECT ordinal + 2, \
             X'000102030405060708090A0B0C0D0E0F', event_id, 3, namespace, pack, generation, state, turn, lane_ordinal, run_after, \
             epoch, attempt, failures, created_at, ignored, blockers FROM work_item",
        )
        .await;
    tampering
        .execute(
            "INSERT INTO work_item_counter (pack, work_type, generation, state, stripe, count) \
             VALUES ('github', 3, 1, 1, 0, 1)",
        )
        .await;
    tampering.close().await;
    let exact = fixture.store.exact_stats(fixture.now()).await.unwrap();
    assert_eq!((exact.rows.work_items[&WorkState::Ready], exact.claimable.ready), (1, 1));
    assert_eq!(exact.rows, exact.counters);
    assert_eq!(fixture.store.stats().await.unwrap(), exact.counters);
    fixture.assert_counted().await;
    assert_eq!(fixture.claim(10).await.len(), 1);
}

// STA-2: a database that cannot be asked is no empty one.
#[tokio::test]
async fn statistics_fail_with_the_database() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("ALTER TABLE work_item_counter RENAME TO elsewhere").await;
    assert!(fixture.store.stats().await.is_err());
    assert!(fixture.store.exact_stats(fixture.now()).await.is_err());
    tampering.execute("ALTER TABLE elsewhere RENAME TO work_item_counter").await;
    tampering.close().await;
    assert_eq!(fixture.store.stats().await.unwrap().work_items[&WorkState::Ready], 1);
}

#[tokio::test]
async fn an_empty_store_has_every_state_at_zero() {
    let stats = start().await.store.stats().await.unwrap();
    assert_eq!(stats.work_items.len(), WorkState::ALL.len());
    assert_eq!(stats.messages.len(), MessageState::ALL.len());
    assert!(stats.work_items.values().chain(stats.messages.values()).all(|count| *count == 0));
}

// OBS-1
#[tokio::test]
async fn the_oldest_message_that_an_operator_is_asked_about_is_told() {
    let fixture = start().await;
    assert_eq!(fixture.store.oldest_uncertain().await.unwrap(), None);
    let (first, lease) = super::publishing::scheduled(&fixture).await;
    super::publishing::admit(&fixture, lease, first, 1).await;
    super::publishing::record(&fixture, lease, first, 1, AfterAttempt::Uncertain).await;
    let admitted_at = fixture.now();
    fixture.advance(Duration::from_secs(5));
    let second = fixture.message("sink", fixture.now());
    fixture.emit(vec![second.clone()]).await;
    super::publishing::admit(&fixture, lease, second.id, 1).await;
    assert_eq!(fixture.store.oldest_uncertain().await.unwrap(), Some(admitted_at), "one that is published is none");
    super::publishing::record(&fixture, lease, second.id, 1, AfterAttempt::Uncertain).await;
    assert_eq!(fixture.store.oldest_uncertain().await.unwrap(), Some(admitted_at));
    fixture.store.resolve(first, Resolution::Published, fixture.now()).await.unwrap();
    assert_eq!(fixture.store.oldest_uncertain().await.unwrap(), Some(fixture.now()));
}
