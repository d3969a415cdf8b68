//! One ownership of a shard: from holding its lease to giving it up or losing it.
//!
//! The single writer of the shard's index. [`Session::tick`] looks at the lease and the clock, and then gives one turn
//! to the work class whose turn it is: outcomes, a page of the feed, expiry, due messages, an inquiry. Each turn is one
//! batch of the index and within its own bound. When no class has work, the session waits for a call or for the next
//! time that a message is due.
//!
//! Invariants:
//! - Nothing is claimed while the clock is gated or the lease cannot be relied on. Commands are applied all the same.
//! - The index has a claim before the publisher does, and SQL has an outcome before the index does.

mod catching_up;
mod checkpointing;
mod claiming;
mod draining;
mod expiry;
mod following;
mod inbox;
mod pressing;
mod reconcile;
mod resolving;
mod seating;
mod sweeping;
mod tenure;
mod time;
mod view;
mod work;

pub(super) use checkpointing::{CheckpointReply, Checkpointing};
pub(super) use following::Following;
pub(super) use inbox::Inbox;
pub(super) use tenure::Tenure;
pub(super) use work::plan;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::catching_up::CatchingUp;
use self::pressing::Pressing;
use self::seating::Seating;
use self::sweeping::Sweep;
use self::time::{AskFrom, Awaited};
use self::view::Telling;
use super::backoff::Backoff;
use super::claims::Claims;
use super::clock::{Gated, TrustedClock};
use super::database::Broken;
use super::index::Index;
use super::schedule::Schedule;
use super::shard::Shard;
use super::surroundings::Surroundings;
use crate::env;
use crate::lanes::{Amount, Held, WorkRound};
use crate::model::destination::DESTINATION_PART;
use crate::model::message::MessageEntry;
use crate::store::{ShardLease, StoreError};

/// The pause in claiming after the store could not admit; doubled while it cannot, up to the longest.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The longest that a session that ends waits for claims to settle. The rest is left to the next owner.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(60);
/// The same where the lease is lost: outcomes may not count any more, and the next owner settles what has none.
const FENCED_DRAIN_MAX: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The host stops, or the shard has its place elsewhere.
    Stopped,
    /// Another host owns the shard.
    Fenced,
    /// Messages that wait would stand in other lines by the new destinations: the index is to be built again.
    Reordered,
    /// Messages were removed that the index may still hold: it is to be built again.
    Trimmed,
    /// The index cannot be used any more.
    Broken(Broken),
    /// The store could not answer before the session began.
    Store(StoreError),
    /// A task that the session depends on has ended: the lease keeper, the feed's reader, or a watcher.
    Abandoned,
}

impl End {
    /// The word for it in metrics.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            End::Stopped => "stopped",
            End::Fenced => "fenced",
            End::Reordered => "reordered",
            End::Trimmed => "trimmed",
            End::Broken(_) => "broken",
            End::Store(_) => "store",
            End::Abandoned => "abandoned",
        }
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        End::Broken(broken)
    }
}

/// An index to begin with, and its origin.
pub(super) struct Restored {
    pub index: Index,
    pub from: RestoredFrom,
}

/// How the index was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredFrom {
    /// The index on this host's disk was used.
    Here,
    /// A checkpoint was fetched from the object store.
    Checkpoint,
    /// The index is built from the store's rows.
    Store,
}

impl RestoredFrom {
    /// The word for it in metrics and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            RestoredFrom::Here => "here",
            RestoredFrom::Checkpoint => "checkpoint",
            RestoredFrom::Store => "store",
        }
    }
}

/// An owned shard.
pub(super) struct Session<'s> {
    shard: &'s Shard,
    around: &'s Surroundings,
    tenure: Tenure,
    following: Following,
    inbox: Inbox,
    index: Index,
    schedule: Schedule,
    claims: Claims,
    clock: TrustedClock,
    catching_up: CatchingUp,
    /// Turns of the work classes.
    work: WorkRound,
    seating: Seating,
    pressing: Pressing,
    /// Messages that become due. Put off while the store admits none.
    due: Awaited,
    /// The pause in claiming while the store admits no message.
    refusals: Backoff,
    /// Messages that expire.
    expiry: Awaited,
    ask_from: AskFrom,
    sweep: Sweep,
    checkpointing: Checkpointing,
    telling: Telling,
    /// The reason why the whole shard sends nothing, if there is one.
    held: Option<Held>,
    /// Whether this session has claimed before.
    begun: bool,
}

/// The step after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The next tick follows at once.
    Tick,
    /// There is nothing to do for this long, unless something arrives.
    Wait(Duration),
}

impl<'s> Session<'s> {
    /// A session over an index that is not its own yet, with all lanes and claims that the index knows.
    pub(super) fn new(
        shard: &'s Shard,
        tenure: Tenure,
        following: Following,
        restored: Restored,
        checkpointing: Checkpointing,
        inbox: Inbox,
    ) -> Result<Self, Broken> {
        let around = &*shard.around;
        let options = &around.options;
        shard.remains.settling(inbox.settle());
        let weights = Arc::new(options.namespace_weights.clone());
        let mut session = Self {
            shard,
            around,
            tenure,
            following,
            inbox,
            index: restored.index,
            schedule: Schedule::new(weights, options.claimed_max / DESTINATION_PART),
            claims: Claims::new(options.claimed_max),
            clock: TrustedClock::new(around.time.clone(), options.clock_uncertainty_max),
            catching_up: CatchingUp::begin(restored.from),
            work: WorkRound::new(around.work),
            seating: Seating::new(around.publisher.seat(shard.id)),
            pressing: Pressing::default(),
            due: Awaited::new(),
            refusals: Backoff::new(REFUSED_PAUSE, REFUSED_PAUSE_MAX),
            expiry: Awaited::new(),
            ask_from: AskFrom::default(),
            sweep: Sweep::default(),
            checkpointing,
            telling: Telling::default(),
            held: Some(Held::Recovering),
            begun: false,
        };
        session.adopt_lanes()?;
        session.claims.inherit(&mut session.index, &mut session.schedule)?;
        Ok(session)
    }

    /// From here on the index is this owner's.
    pub(super) fn own(&mut self, lease: ShardLease) -> Result<(), Broken> {
        self.tenure.own(lease);
        self.index.own(lease.epoch)
    }

    /// Works until the session has to end, then waits for its claims to settle.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> End {
        let end = loop {
            if stop.is_cancelled() {
                break End::Stopped;
            }
            match self.tick().await {
                Ok(next) => self.wait(next, stop).await,
                // The watchers end with the stop as well.
                Err(End::Abandoned) if stop.is_cancelled() => break End::Stopped,
                Err(end) => break end,
            }
        };
        let end = match end {
            End::Stopped | End::Reordered => self.wind_down(end).await,
            // An index that has passed over a page of the feed applies no other.
            End::Trimmed | End::Fenced | End::Broken(_) | End::Store(_) | End::Abandoned => end,
        };
        self.shard.status.set_active(false);
        self.drain(end).await
    }

    async fn tick(&mut self) -> Result<Next, End> {
        let held = self.tenure.held()?;
        if !self.tenure.is_kept() || !self.inbox.is_fed() || !self.following.watched.is_kept() {
            return Err(End::Abandoned);
        }
        let monotonic = self.monotonic();
        let time = self.clock.read(&*self.around.env.clock);
        let relied_on = self.monotonic() < held.until;
        self.measure()?;
        self.shard.status.set_active(self.catching_up.is_done && time.is_ok() && relied_on);
        // The gates, and all that the store says of messages, are known before anything is claimed: a later row of the
        // feed may concern a message that goes before those of earlier rows.
        let now = time.ok().filter(|_| relied_on && self.is_up_to_date());
        let next = match (self.next_class(now.is_some()), time) {
            (Some(class), _) => {
                self.turn(class, held.lease, now).await?;
                Next::Tick
            }
            (None, Err(Gated::Stabilizing { until })) => Next::Wait(until.saturating_sub(monotonic)),
            (None, Ok(time)) if now.is_some() => Next::Wait(self.pause(time.earliest)),
            (None, Ok(_) | Err(Gated::Uncertain)) => Next::Wait(self.around.options.poll),
        };
        self.held = match time {
            Err(_) => Some(Held::ClockGated),
            Ok(_) if !(relied_on && self.is_up_to_date()) => Some(Held::Recovering),
            Ok(_) if self.lacks_capacity(monotonic) => Some(Held::Capacity),
            Ok(_) => None,
        };
        Ok(next)
    }

    /// Whether the index has the whole feed, and lanes their gates.
    fn is_up_to_date(&self) -> bool {
        self.catching_up.is_done && self.following.knows_gates
    }

    /// Whether the shard, its host or the store has no room for another claim.
    fn lacks_capacity(&self, monotonic: Duration) -> bool {
        !self.has_room() || self.seating.lacks_places() || self.due.is_put_off(monotonic)
    }

    fn take_settlements(&mut self) -> Result<usize, End> {
        let settlements = self.inbox.take_settlements();
        if settlements.is_empty() {
            return Ok(0);
        }
        let now = self.now();
        let mut step = self.index.begin();
        let sum = self.claims.settle(&mut step, &mut self.schedule, &settlements, now);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        self.recall_shut();
        if sum.moved {
            // Mostly the message was cancelled, and those behind it in its lane need not wait.
            self.ask_from.resolve = Duration::ZERO;
        }
        if sum.refused {
            self.due.put_off(self.monotonic() + self.refusals.fail());
        } else {
            self.refusals.reset();
        }
        if sum.fenced { Err(End::Fenced) } else { Ok(settlements.len()) }
    }

    /// Applies the next page of the feed. Returns how much that is.
    fn take_page(&mut self) -> Result<Amount, End> {
        let Some(page) = self.inbox.take_page() else { return Ok(Amount::default()) };
        if page.has_gap {
            return Err(End::Trimmed);
        }
        let taken = Amount { records: page.rows.len(), bytes: page.bytes() };
        self.shard.signals.applied_lag(page.behind);
        self.catching_up.note(&page);
        self.apply(&page.rows, Some(page.through))?;
        Ok(taken)
    }

    /// Applies rows of the feed, whose last sequence number is `through`, or rows that were read by themselves.
    fn apply(&mut self, rows: &[MessageEntry], through: Option<u64>) -> Result<(), End> {
        let now = self.now();
        let mut step = self.index.begin();
        for row in rows {
            let lane = self.schedule.lane_of(&mut step, row, &self.following.destinations);
            self.claims.apply(&mut step, &mut self.schedule, row, lane)?;
        }
        if let Some(through) = through {
            step.applied(through);
        }
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }

    fn adopt_lanes(&mut self) -> Result<(), Broken> {
        let now = self.now();
        let numbers = self.index.lane_numbers();
        let mut step = self.index.begin();
        for number in numbers {
            self.schedule.adopt(number, &step.lane(number).name, &self.following.destinations);
            step.touch(number);
        }
        self.schedule.refresh(&mut step, now);
        step.commit()
    }

    async fn wait(&mut self, next: Next, stop: &CancellationToken) {
        let Next::Wait(pause) = next else {
            // Tasks on the same tokio runtime may have something for the session.
            return tokio::task::yield_now().await;
        };
        let pause = pause.min(self.around.options.poll);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.tenure.changed() => {}
            () = self.inbox.arrival() => {}
            () = self.following.watched.changed() => {}
            () = self.seating.freed() => {}
            () = env::sleep(pause) => {}
        }
        self.look_again();
    }
}
