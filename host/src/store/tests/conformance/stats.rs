//! Counters against the rows themselves.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::model::message::AfterAttempt;

/// A history that a seed decides, of everything that moves a row from one state to another.
struct History {
    fixture: Fixture,
    random: StdRng,
    held: Vec<ClaimedWorkItem>,
    dead: Vec<WorkItemId>,
    messages: Vec<MessageId>,
    leases: Vec<ShardLease>,
    /// The states that some row was found in.
    seen: (BTreeSet<WorkState>, BTreeSet<MessageState>),
}

impl History {
    async fn begin(seed: u64) -> Self {
        let fixture = start().await;
        let mut leases = Vec::new();
        for shard in 0..fixture.store.shard_count() {
            let lease = fixture.store.acquire_shard(ShardId(shard), fixture.runtime(), LEASE * 1_000, START);
            leases.push(lease.await.unwrap().unwrap());
        }
        let random = StdRng::seed_from_u64(seed);
        let seen = Default::default();
        Self { fixture, random, held: Vec::new(), dead: Vec::new(), messages: Vec::new(), leases, seen }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..10) {
            0 | 1 => self.deliver().await,
            2 => {
                let rows_max = self.random.random_range(1..8);
                self.held.extend(self.fixture.claim(rows_max).await);
            }
            3 | 4 => self.finish().await,
            5..8 => self.publish().await,
            8 => self.command().await,
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
                let mut message = match self.random.random_range(0..4) {
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
                AfterAttempt::Published if entry.destination.is_flow() => AfterAttempt::HandedOff,
                after => after,
            };
            let generation = entry.generation;
            let outcome = OutcomeRecord { id, generation, attempt, after, uncertain: false, status: None, error: None };
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

    /// The counters say what the rows say, and in every lane there is one head if anybody is in it.
    async fn check(&mut self, step: usize) {
        let store = &self.fixture.store;
        let stats = store.stats().await.unwrap();
        assert_eq!(stats, store.count_rows().await.unwrap(), "step {step}");
        let exact = store.exact_stats(self.fixture.now()).await.unwrap();
        assert_eq!((&exact.rows, &exact.counters), (&stats, &stats), "step {step}");
        let looked = PeekRequest { rows_max: PEEK_ROWS_MAX, ..self.fixture.look() };
        let peeked = store.peek(&looked).await.unwrap();
        let claimable = peeked.next.iter().filter(|item| item.is_claimable()).count();
        assert_eq!(claimable as u64, exact.claimable.total(), "step {step}");
        assert_eq!(peeked.blocked, stats.work_items[&WorkState::Blocked], "step {step}");
        self.seen.0.extend(stats.work_items.iter().filter(|(_, count)| **count > 0).map(|(state, _)| *state));
        self.seen.1.extend(stats.messages.iter().filter(|(_, count)| **count > 0).map(|(state, _)| *state));
        let mut tampering = Tampering::with(&self.fixture).await;
        for lane_id in ["source_lane_id", "delivery_lane_id"] {
            let kind = if lane_id == "source_lane_id" { 1 } else { 2 };
            let lost = format!(
                "SELECT count(*) FROM lane LEFT JOIN work_item AS head ON head.ordinal = lane.head \
                 WHERE lane.kind = {kind} AND (\
                 (lane.head IS NULL AND EXISTS (SELECT 1 FROM work_item WHERE {lane_id} = lane.id AND state < 4)) OR \
                 (lane.head IS NOT NULL AND (head.{lane_id} IS NULL OR head.{lane_id} <> lane.id OR head.state = 4)) OR \
                 EXISTS (SELECT 1 FROM work_item WHERE {lane_id} = lane.id AND state < 4 \
                 AND lane_ordinal < head.lane_ordinal))"
            );
            assert_eq!(tampering.count(&lost).await, 0, "step {step}: {lane_id}");
        }
        assert_eq!(tampering.count(MISCOUNTED).await, 0, "step {step}");
        tampering.close().await;
    }
}

/// Rows whose blockers are not the lanes of which they are not the head, and rows that are blocked by nobody or free though
/// somebody blocks them.
const MISCOUNTED: &str = "\
    SELECT count(*) FROM work_item WHERE state < 4 AND (blockers <> (SELECT count(*) FROM lane \
    WHERE lane.id IN (work_item.source_lane_id, work_item.delivery_lane_id) AND lane.head <> work_item.ordinal) \
    OR (state = 0) <> (blockers > 0))";

// STA-1
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
