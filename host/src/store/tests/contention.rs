//! Eight runtimes that are in one another's way: over the same lanes, in overlapping batches, with every kind of
//! transaction that moves work. Whatever the database undoes is done again, and nobody who asked is told of it.
//!
//! `FOREBAY_CONTENTION_SECONDS` has them go on for so long, instead of a few rounds.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use super::shared::begin;
use super::*;

const WRITERS: u32 = 8;
/// Rounds of each, unless they are told for how long.
const ROUNDS: u32 = 12;
/// Rounds between two looks at who waits for nobody.
const SWEEP_ROUNDS: u32 = 4;
/// Entries of a feed that are read at once.
const FOLLOWED_ROWS: u32 = 64;
/// Sources whose lanes they share.
const SOURCES: u32 = 9;

/// What one runtime did, by kind, and how it went.
#[derive(Default)]
struct Tally {
    operations: BTreeMap<&'static str, u64>,
    failed: Vec<String>,
    stored: usize,
    /// WorkItems that ended, or were stored as replays.
    ended: usize,
    replays: usize,
}

impl Tally {
    fn count<T>(&mut self, operation: &'static str, answer: Result<T, StoreError>) -> Option<T> {
        *self.operations.entry(operation).or_default() += 1;
        answer.map_err(|error| self.failed.push(format!("{operation}: {error}"))).ok()
    }

    fn add(&mut self, other: Tally) {
        for (operation, count) in other.operations {
            *self.operations.entry(operation).or_default() += count;
        }
        self.failed.extend(other.failed);
        self.stored += other.stored;
        self.ended += other.ended;
        self.replays += other.replays;
    }
}

/// When they stop.
enum Until {
    Rounds(u32),
    /// On the monotonic clock.
    Time(Duration),
}

/// One runtime's share.
struct Work {
    runtime: Arc<Fixture>,
    writer: u32,
    random: StdRng,
    tally: Tally,
    dead: Vec<WorkItemId>,
}

impl Work {
    fn new(runtime: Arc<Fixture>, writer: u32) -> Self {
        let random = StdRng::seed_from_u64(u64::from(writer));
        Self { runtime, writer, random, tally: Tally::default(), dead: Vec::new() }
    }

    async fn run(mut self, until: &Until) -> Tally {
        let clock = Env::system().clock;
        for round in 0.. {
            match until {
                Until::Rounds(rounds) if round == *rounds => break,
                Until::Time(end) if clock.monotonic() >= *end => break,
                Until::Rounds(_) | Until::Time(_) => self.round(round).await,
            }
        }
        self.tally
    }

    async fn round(&mut self, round: u32) {
        let store = self.runtime.store.clone();
        let claim = store.claim(self.runtime.request(16));
        let (stored, strict, claimed) =
            tokio::join!(store.enqueue(self.delivery(round)), store.enqueue(self.strict(round)), claim);
        for (stored, events) in [(stored, 12), (strict, 2)] {
            if let Some(Enqueued::Stored { .. }) = self.tally.count("delivery", stored) {
                self.tally.stored += events;
            }
        }
        let items = self.tally.count("claim", claimed).unwrap_or_default();
        let rows = items.iter().map(|item| (item.id, item.lease, item.epoch)).collect();
        let renewal = Renewal { rows, lease_duration: LEASE, now: self.runtime.now() };
        let renewed = store.renew(renewal).await;
        if let Some(kept) = self.tally.count("renewal", renewed) {
            assert_eq!(kept.len(), items.len(), "nobody's lease ran out");
        }
        let finishes: Vec<Finish> = items.iter().map(|item| self.finish(item)).collect();
        let answers = join_all(finishes.iter().map(|finish| store.finish(finish.clone()))).await;
        for (finish, answer) in finishes.into_iter().zip(answers) {
            if let Some(finished) = self.tally.count("finish", answer) {
                assert_eq!(finished, Finished::Applied, "it was held");
                self.tally.ended += usize::from(is_end(&finish.disposition));
                self.dead.extend(matches!(finish.disposition, Disposition::Dead { .. }).then_some(finish.work_item_id));
            }
        }
        self.help_the_dead().await;
        if round.is_multiple_of(SWEEP_ROUNDS) {
            let swept = store.sweep_lanes(SweepCursor::default()).await;
            if let Some(sweep) = self.tally.count("sweep", swept) {
                assert_eq!(sweep.repaired, 0, "no promotion is lost");
            }
        }
    }

    /// Twelve events of sources that all have in common.
    fn delivery(&self, round: u32) -> Delivery {
        let events = (0..12).map(|n| {
            let source = format!("repo-{}", (n * 5 + self.writer + round) % SOURCES);
            self.runtime.event(&format!("d-{}-{round}-{n}", self.writer), Some(&source), "body")
        });
        self.runtime.delivery(events.collect())
    }

    /// Two events that stand in the delivery lane of one route, and in lanes of sources too.
    fn strict(&self, round: u32) -> Delivery {
        let event = |n: u32| {
            let source = format!("repo-{}", (round + n) % SOURCES);
            self.runtime.event(&format!("s-{}-{round}-{n}", self.writer), Some(&source), "body")
        };
        let delivery = self.runtime.delivery(vec![event(0), event(1)]);
        Delivery { route: "strict".parse().unwrap(), ordering: Ordering::Delivery, ..delivery }
    }

    fn finish(&mut self, item: &ClaimedWorkItem) -> Finish {
        let leaves_lane = self.random.random();
        let disposition = match self.random.random_range(0..10) {
            0 => Disposition::Release,
            1 => Disposition::Retry { failure: failure(), run_after: START, leaves_lane },
            2 => Disposition::Dead { failure: failure(), leaves_lane },
            sink => done(vec![self.runtime.message(&format!("sink-{}", sink % 3), START)]),
        };
        self.runtime.ending(item, disposition)
    }

    /// Replays what died, and lets its lanes go on.
    async fn help_the_dead(&mut self) {
        let store = self.runtime.store.clone();
        for id in std::mem::take(&mut self.dead) {
            let child = WorkItemId::new(self.runtime.now(), self.runtime.entropy());
            let (skipped, replayed) = tokio::join!(store.skip_dead(id), store.replay(id, child, self.runtime.now()));
            self.tally.count("skip", skipped);
            let replayed = self.tally.count("replay", replayed);
            self.tally.replays += usize::from(matches!(replayed, Some(Replayed::Replayed(_))));
        }
    }
}

fn is_end(disposition: &Disposition) -> bool {
    matches!(disposition, Disposition::Done { .. } | Disposition::Dead { .. })
}

/// Follows a shard's feed while it grows, and what others are told of it; then to its end.
async fn follow(runtime: &Fixture, shard: ShardId, others: &CancellationToken) -> BTreeSet<MessageId> {
    let mut seen = BTreeSet::new();
    let mut after = 0;
    loop {
        let have_ended = others.is_cancelled();
        let page = runtime.store.feed(shard, after, false, FOLLOWED_ROWS).await.unwrap();
        let is_full = page.entries.len() as u64 == u64::from(FOLLOWED_ROWS);
        after = page.entries.last().filter(|_| is_full).map_or(page.end, |entry| entry.seq);
        seen.extend(page.entries.iter().map(|entry| entry.id));
        runtime.store.stats().await.unwrap();
        runtime.store.list_generations(None).await.unwrap();
        if have_ended && after == page.end {
            return seen;
        }
    }
}

/// What the process has counted of transactions that were done again.
fn conflicts() -> u64 {
    let rendered = crate::telemetry::metrics().unwrap().render();
    let line = rendered.lines().find_map(|line| line.strip_prefix("forebay_store_conflicts_total "));
    line.map_or(0, |count| count.parse().unwrap())
}

// MAT-3, CLM-1, CLM-3, TL-2: overlapping lanes and batches; no operation fails, and no reader passes over a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_over_the_same_lanes_do_not_fail_one_another() {
    let first = Arc::new(begin(LeaseTime::Runtime).await);
    let mut runtimes = vec![Arc::clone(&first)];
    for n in 1..WRITERS {
        runtimes.push(Arc::new(first.beside(i64::from(n) * 1_000).await));
    }
    let until = match std::env::var("FOREBAY_CONTENTION_SECONDS") {
        Err(_) => Until::Rounds(ROUNDS),
        Ok(seconds) => {
            let seconds = Duration::from_secs(seconds.parse().expect("a number of seconds"));
            Until::Time(Env::system().clock.monotonic() + seconds)
        }
    };
    let before = conflicts();
    let all = runtimes.iter().zip(0..).map(|(runtime, n)| Work::new(Arc::clone(runtime), n).run(&until));
    let ended = CancellationToken::new();
    let writers = async {
        let shares = join_all(all).await;
        ended.cancel();
        shares
    };
    let shards = (0..first.store.shard_count()).map(ShardId);
    let followers = join_all(shards.map(|shard| follow(&first, shard, &ended)));
    let (shares, followed) = tokio::join!(writers, followers);
    let mut tally = Tally::default();
    shares.into_iter().for_each(|share| tally.add(share));
    let again = conflicts() - before;
    println!("{:?}, {} of them failed; {again} transactions were done again", tally.operations, tally.failed.len());
    assert_eq!(tally.failed, Vec::<String>::new());
    if let Until::Time(_) = until {
        assert!(again > 0, "they were not in one another's way");
    }

    let scheduled = first.store.stats().await.unwrap().messages[&MessageState::Scheduled];
    let followed: usize = followed.iter().map(BTreeSet::len).sum();
    assert_eq!(followed as u64, scheduled, "no message was passed over by those who followed the feeds");

    let drained = first.drain().await.len();
    assert_eq!(tally.ended + drained, tally.stored + tally.replays, "each WorkItem ended once");
    let stats = first.store.stats().await.unwrap();
    first.assert_counted().await;
    let ended = stats.work_items[&WorkState::Done] + stats.work_items[&WorkState::Dead];
    assert_eq!(stats.work_items.values().sum::<u64>(), ended, "no lane was left without a head");
    for runtime in &runtimes {
        runtime.store.close().await;
    }
}
