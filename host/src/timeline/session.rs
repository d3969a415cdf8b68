//! One ownership of a shard: from holding its lease to giving it up or losing it.
//!
//! The single writer of the shard's index. [`Session::tick`] looks at the lease and the clock, and then gives one turn
//! to the work class whose turn it is: what became of claims, a page of the feed, what has expired, what is due, a
//! question. Each turn is one batch of the index and within its own bound. When no class has work, the session waits
//! for a call or for the next time that something is due.
//!
//! Invariants:
//! - Nothing is claimed while the clock is gated or the lease cannot be relied on. Commands are applied all the same.
//! - The index is written before the publisher is given what was claimed, and after SQL has what became of it.

mod checkpointing;
mod draining;
mod expiry;
mod following;
mod pressing;
mod reconcile;
mod resolving;
mod time;
mod view;
mod work;

pub(super) use checkpointing::{CheckpointReply, Checkpointing};
pub(super) use following::Followed;
pub(super) use work::plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::pressing::Pressing;
use self::view::Telling;
use super::actor::Remains;
use super::claims::Claims;
use super::clock::{Gated, TimeSource, TrustedClock};
use super::database::Broken;
use super::gates::Gates;
use super::index::Index;
use super::inquiry::Inquiry;
use super::keys::LaneNumber;
use super::lease::Holding;
use super::schedule::Schedule;
use super::signals::Signals;
use super::source::Page;
use crate::env::{self, Env};
use crate::lanes::{Held, Supply, WorkPlan, WorkRound};
use crate::model::destination::DESTINATION_PART;
use crate::model::message::MessageEntry;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::publish::{ClaimedMessage, Publisher, Seat, Settlement};
use crate::store::{ShardId, ShardLease, Store, StoreError};

/// Lanes of which the gates are taken up together.
const GATES_MAX: usize = 1_024;
/// Settlements that are taken in together.
const SETTLEMENTS_MAX: usize = 256;
/// Pause in claiming after the store could not admit; doubled while it cannot, up to the longest.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at messages whose outcome could not be recorded, and after an expiry that failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a session that ends waits for what is in flight. What has not settled then is the next owner's to settle.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was asked to.
    Stopped,
    /// The shard is somebody else's.
    Fenced,
    /// Which messages keep their order was changed, and some of them wait: the index is to be built again.
    Reordered,
    /// Messages were removed that the index may still hold: it is to be built again.
    Trimmed,
    /// The index is of no use any more.
    Broken(Broken),
    /// The store could not do what must be done before anything else.
    Store(StoreError),
    /// What renews its lease, reads its feed, or tells it what to go by has ended, which it does not by itself.
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

/// What a session works with.
pub(super) struct Parts {
    pub shard: ShardId,
    pub destinations: Followed,
    /// `None` before they were read.
    pub gates: watch::Receiver<Option<Arc<Gates>>>,
    pub store: Store,
    pub publisher: Publisher,
    pub env: Env,
    pub signals: Arc<Signals>,
    pub active: Arc<AtomicBool>,
    pub claimed_max: usize,
    /// Tenants' shares of service.
    pub weights: Arc<BTreeMap<Namespace, u32>>,
    pub work: WorkPlan,
    /// What presses on every shard of this runtime.
    pub supply: watch::Receiver<Supply>,
    pub time: TimeSource,
    pub clock_uncertainty_max: Duration,
    pub poll: Duration,
    pub remains: Remains,
}

/// An index to begin with.
pub(super) struct Restored {
    pub index: Index,
    pub from: RestoredFrom,
}

/// Where an index was had from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredFrom {
    /// This runtime had it.
    Here,
    /// An object store had a checkpoint.
    Checkpoint,
    /// It is built from the store's rows.
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
pub(super) struct Session {
    parts: Parts,
    holding: watch::Receiver<Holding>,
    /// What attempts go by, until it ends.
    relied_on: Arc<watch::Receiver<Holding>>,
    /// What it claims under; none before the index is its own.
    lease: Option<ShardLease>,
    index: Index,
    restored: RestoredFrom,
    /// Rows of the store that were read until it had caught up, and to compare its lines with.
    rows_read: u64,
    checkpointing: Checkpointing,
    schedule: Schedule,
    claims: Claims,
    /// Where it takes places in flight; whether there was none for whose turn it is, and whether anybody waits for
    /// some.
    seat: Seat,
    lacks_places: bool,
    waits_for_places: bool,
    /// Since when there has been none for whose turn it is.
    stuck_since: Option<Duration>,
    clock: TrustedClock,
    pages: mpsc::Receiver<Page>,
    arrived: Option<Page>,
    inquiries: mpsc::Receiver<Inquiry>,
    inquiry: Option<Inquiry>,
    settlements: Vec<Settlement>,
    settled: mpsc::Receiver<Settlement>,
    settle: mpsc::Sender<Settlement>,
    work: WorkRound,
    pressing: Pressing,
    /// The lane that is looked at next for whether somebody needs it, and when that is.
    vacate_at: LaneNumber,
    vacate_from: Duration,
    /// When there is something due, or expiring, as far as it was looked at.
    due: Look,
    expiry: Look,
    wake: watch::Receiver<u64>,
    caught_up: bool,
    gates_known: bool,
    /// The lane from which on gates that were set are taken up next, while they are.
    gates_from: Option<LaneNumber>,
    /// Whether it has claimed anything yet.
    begun: bool,
    /// How far its feed is ahead, as far as that is known.
    behind: u64,
    /// What stands against all of its messages.
    held: Option<Held>,
    /// Nothing is claimed before this monotonic time, and for how long that was put off.
    refused_until: Duration,
    refused_pause: Duration,
    resolve_from: Duration,
    compare_from: Duration,
    expire_from: Duration,
    report_from: Duration,
    telling: Telling,
}

/// When to look for what time makes ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Something may be ready.
    Now,
    /// Nothing is before this time, unless something arrives.
    At(Option<Timestamp>),
}

/// What to do after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There is more to do.
    Tick,
    /// Nothing to do before this much time has passed, unless something arrives.
    Wait(Duration),
}

impl Session {
    pub(super) fn new(
        parts: Parts,
        holding: watch::Receiver<Holding>,
        restored: Restored,
        checkpointing: Checkpointing,
        pages: mpsc::Receiver<Page>,
        inquiries: mpsc::Receiver<Inquiry>,
        wake: watch::Receiver<u64>,
    ) -> Result<Self, Broken> {
        // Room for all that may be claimed: the publisher never waits to settle.
        let (settle, settled) = mpsc::channel(parts.claimed_max);
        parts.remains.settling(&settle);
        let mut session = Self {
            relied_on: Arc::new(holding.clone()),
            holding,
            lease: None,
            schedule: Schedule::new(Arc::clone(&parts.weights), parts.claimed_max / DESTINATION_PART),
            claims: Claims::new(parts.claimed_max),
            seat: parts.publisher.seat(parts.shard),
            lacks_places: false,
            waits_for_places: false,
            stuck_since: None,
            clock: TrustedClock::new(parts.time.clone(), parts.clock_uncertainty_max),
            pages,
            arrived: None,
            inquiries,
            inquiry: None,
            settlements: Vec::new(),
            settled,
            settle,
            work: WorkRound::new(parts.work),
            pressing: Pressing::default(),
            vacate_at: LaneNumber(0),
            vacate_from: Duration::ZERO,
            due: Look::Now,
            expiry: Look::Now,
            wake,
            caught_up: false,
            gates_known: false,
            gates_from: None,
            begun: false,
            behind: 0,
            held: Some(Held::Recovering),
            refused_until: Duration::ZERO,
            refused_pause: REFUSED_PAUSE,
            resolve_from: Duration::ZERO,
            compare_from: Duration::ZERO,
            expire_from: Duration::ZERO,
            report_from: Duration::ZERO,
            telling: Telling::default(),
            index: restored.index,
            restored: restored.from,
            rows_read: 0,
            checkpointing,
            parts,
        };
        session.adopt_lanes()?;
        // Also what was read before this session began.
        session.parts.gates.mark_changed();
        session.claims.inherit(&mut session.index, &mut session.schedule)?;
        Ok(session)
    }

    /// From here on the index is its own.
    pub(super) fn own(&mut self, lease: ShardLease) -> Result<(), Broken> {
        self.lease = Some(lease);
        self.index.own(lease.epoch)
    }

    /// Works until it has to end, then waits for what it has in flight.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> End {
        let end = loop {
            if stop.is_cancelled() {
                break End::Stopped;
            }
            match self.tick().await {
                Ok(next) => self.wait(next, stop).await,
                // What it goes by ends with the stop as well.
                Err(End::Abandoned) if stop.is_cancelled() => break End::Stopped,
                Err(end) => break end,
            }
        };
        self.parts.active.store(false, Ordering::Release);
        self.drain(end).await
    }

    async fn tick(&mut self) -> Result<Next, End> {
        let Holding::Held { lease, until } = *self.holding.borrow() else { return Err(End::Fenced) };
        let is_watched = self.parts.gates.has_changed().is_ok() && self.parts.supply.has_changed().is_ok();
        if self.holding.has_changed().is_err() || self.pages.is_closed() || !is_watched {
            return Err(End::Abandoned);
        }
        let monotonic = self.parts.env.clock.monotonic();
        let time = self.clock.read(&*self.parts.env.clock);
        let relied_on = self.parts.env.clock.monotonic() < until;
        self.measure()?;
        self.parts.active.store(self.caught_up && time.is_ok() && relied_on, Ordering::Release);
        // What an operator has paused, and all that the store says of messages, is known before anything is claimed:
        // what comes later in the feed may stand before what came earlier.
        let now = time.ok().filter(|_| relied_on && self.gates_known && self.caught_up);
        let next = match (self.next_class(now.is_some()), time) {
            (Some(class), _) => {
                self.turn(class, lease, now).await?;
                Next::Tick
            }
            (None, Err(Gated::Stabilizing { until })) => Next::Wait(until.saturating_sub(monotonic)),
            (None, Ok(time)) if now.is_some() => Next::Wait(self.pause(time.earliest)),
            (None, Ok(_) | Err(Gated::Uncertain)) => Next::Wait(self.parts.poll),
        };
        self.held = match time {
            Err(_) => Some(Held::ClockGated),
            Ok(_) if !(self.caught_up && self.gates_known && relied_on) => Some(Held::Recovering),
            Ok(_) if !self.has_room() || self.lacks_places || monotonic < self.refused_until => Some(Held::Capacity),
            Ok(_) => None,
        };
        Ok(next)
    }

    fn take_settlements(&mut self) -> Result<usize, End> {
        while self.settlements.len() < SETTLEMENTS_MAX {
            let Ok(settlement) = self.settled.try_recv() else { break };
            self.settlements.push(settlement);
        }
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let settlements = std::mem::take(&mut self.settlements);
        let now = self.now();
        let mut step = self.index.begin();
        let sum = self.claims.settle(&mut step, &mut self.schedule, &settlements, now);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        self.recall_shut();
        if sum.moved {
            // Mostly it was cancelled, and those behind it in its lane need not wait.
            self.resolve_from = Duration::ZERO;
        }
        if sum.refused {
            self.refused_until = self.parts.env.clock.monotonic() + self.refused_pause;
            self.refused_pause = (self.refused_pause * 2).min(REFUSED_PAUSE_MAX);
        } else {
            self.refused_pause = REFUSED_PAUSE;
        }
        if sum.fenced { Err(End::Fenced) } else { Ok(settlements.len()) }
    }

    /// Takes up gates that were set, for a part of the lanes. Says how many that are.
    fn take_gates(&mut self) -> Result<usize, End> {
        if self.parts.gates.has_changed().unwrap_or(false)
            && let Some(gates) = self.parts.gates.borrow_and_update().clone()
        {
            self.schedule.set_gates(gates);
            self.gates_from = Some(LaneNumber(0));
        }
        let Some(from) = self.gates_from else { return Ok(0) };
        let now = self.now();
        let mut step = self.index.begin();
        let (looked, next) = self.schedule.take_gates(&mut step, from, GATES_MAX);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        self.gates_from = next;
        self.gates_known |= next.is_none();
        self.recall_shut();
        Ok(looked)
    }

    /// Calls back what is claimed and not being admitted yet of where nothing is to be sent any more.
    fn recall_shut(&mut self) {
        let shut = self.schedule.take_shut();
        if let Some(lease) = self.lease
            && !shut.is_empty()
        {
            let is_of = |message: &ClaimedMessage, (namespace, destination): &(Namespace, DestinationName)| {
                message.destination == *destination && message.namespace == *namespace
            };
            self.parts.publisher.recall(lease, |message| shut.iter().any(|one| is_of(message, one)));
        }
    }

    fn take_page(&mut self) -> Result<usize, End> {
        let Some(page) = self.arrived.take().or_else(|| self.pages.try_recv().ok()) else { return Ok(0) };
        if page.has_gap {
            return Err(End::Trimmed);
        }
        self.parts.signals.applied_lag(page.behind);
        self.behind = page.behind;
        if !self.caught_up {
            self.rows_read += page.rows.len() as u64;
        }
        self.caught_up |= page.behind == 0;
        self.apply(&page.rows, Some(page.through))?;
        Ok(page.rows.len())
    }

    fn apply(&mut self, rows: &[MessageEntry], through: Option<u64>) -> Result<(), End> {
        let now = self.now();
        let mut step = self.index.begin();
        for row in rows {
            let lane = self.schedule.lane_of(&mut step, row, &self.parts.destinations.now);
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
            self.schedule.adopt(number, &step.lane(number).name, &self.parts.destinations.now);
            step.touch(number);
        }
        self.schedule.refresh(&mut step, now);
        step.commit()
    }

    async fn wait(&mut self, next: Next, stop: &CancellationToken) {
        let Next::Wait(pause) = next else {
            // Somebody else on this thread's runtime may have something for us.
            return tokio::task::yield_now().await;
        };
        let pause = pause.min(self.parts.poll);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Ok(()) = self.holding.changed() => self.holding.mark_changed(),
            _ = self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX) => {}
            // One that waits for the index to keep up is not lost over the next.
            Some(page) = self.pages.recv(), if self.arrived.is_none() => self.arrived = Some(page),
            Some(inquiry) = self.inquiries.recv() => self.inquiry = Some(inquiry),
            Ok(()) = self.wake.changed() => {}
            () = self.seat.freed(), if self.waits_for_places => {}
            Ok(()) = self.parts.gates.changed() => self.parts.gates.mark_changed(),
            Ok(()) = self.parts.destinations.changes.changed() => self.parts.destinations.changes.mark_changed(),
            () = env::sleep(pause) => {}
        }
        self.look_again();
    }
}
