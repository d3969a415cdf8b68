//! One ownership of a shard: from holding its lease to giving it up or losing it.
//!
//! The single writer of the shard's index. [`Session::tick`] takes in what has arrived (outcomes first, then a page of the
//! feed), claims what is due, and ends what has expired, each in one batch of the index and within its own bound; then
//! the session waits for a call or for the next time that something is due.
//!
//! Invariants:
//! - Nothing is claimed while the clock is gated or the lease cannot be relied on. Commands are applied all the same.
//! - The index is written before the publisher is given what was claimed, and after SQL has what became of it.

mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::clock::{Gated, Interval, TimeSource, TrustedClock};
use super::database::Broken;
use super::gates::Gates;
use super::index::Index;
use super::inquiry::Inquiry;
use super::keys::Family;
use super::lease::Holding;
use super::recovery;
use super::schedule::{self, Schedule};
use super::signals::Signals;
use super::source::Page;
use crate::env::{self, Env};
use crate::lanes::Held;
use crate::model::destination::Destinations;
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::publish::{Publisher, Settlement};
use crate::store::{AdmissionRequest, ShardId, ShardLease, Store, StoreError};

/// Settlements that are taken in together.
const SETTLEMENTS_MAX: usize = 256;
/// Messages that are expired together.
const EXPIRED_MAX: usize = 256;
/// Pause in claiming after the store could not admit; doubled while it cannot, up to the longest.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at messages whose outcome could not be recorded, and after an expiry that failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a session that ends waits for what is in flight. What has not settled then is the next owner's to settle.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was asked to.
    Stopped,
    /// The shard is somebody else's.
    Fenced,
    /// The index is of no use any more.
    Broken(Broken),
    /// The store could not do what must be done before anything else.
    Store(StoreError),
    /// What renews its lease or reads its feed has ended, which it does not by itself.
    Abandoned,
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        End::Broken(broken)
    }
}

/// What a session works with.
pub(super) struct Parts {
    pub shard: ShardId,
    pub destinations: Arc<Destinations>,
    /// `None` before they were read.
    pub gates: watch::Receiver<Option<Arc<Gates>>>,
    pub store: Store,
    pub publisher: Publisher,
    pub env: Env,
    pub signals: Arc<Signals>,
    pub active: Arc<AtomicBool>,
    pub claimed_max: usize,
    pub time: TimeSource,
    pub clock_uncertainty_max: Duration,
    pub poll: Duration,
}

/// An owned shard.
pub(super) struct Session {
    parts: Parts,
    holding: watch::Receiver<Holding>,
    index: Index,
    schedule: Schedule,
    claims: Claims,
    clock: TrustedClock,
    pages: mpsc::Receiver<Page>,
    arrived: Option<Page>,
    inquiries: mpsc::Receiver<Inquiry>,
    inquiry: Option<Inquiry>,
    settlements: Vec<Settlement>,
    settled: mpsc::Receiver<Settlement>,
    settle: mpsc::Sender<Settlement>,
    wake: watch::Receiver<u64>,
    caught_up: bool,
    gates_known: bool,
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
    expire_from: Duration,
    report_from: Duration,
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
        index: Index,
        pages: mpsc::Receiver<Page>,
        inquiries: mpsc::Receiver<Inquiry>,
        wake: watch::Receiver<u64>,
    ) -> Result<Self, Broken> {
        // Room for all that may be claimed: the publisher never waits to settle.
        let (settle, settled) = mpsc::channel(parts.claimed_max);
        let mut session = Self {
            holding,
            schedule: Schedule::new(),
            claims: Claims::new(parts.claimed_max),
            clock: TrustedClock::new(parts.time.clone(), parts.clock_uncertainty_max),
            pages,
            arrived: None,
            inquiries,
            inquiry: None,
            settlements: Vec::new(),
            settled,
            settle,
            wake,
            caught_up: false,
            gates_known: false,
            begun: false,
            behind: 0,
            held: Some(Held::Recovering),
            refused_until: Duration::ZERO,
            refused_pause: REFUSED_PAUSE,
            resolve_from: Duration::ZERO,
            expire_from: Duration::ZERO,
            report_from: Duration::ZERO,
            index,
            parts,
        };
        session.adopt_lanes()?;
        // Also what was read before this session began.
        session.parts.gates.mark_changed();
        session.claims.inherit(&mut session.index, &mut session.schedule)?;
        Ok(session)
    }

    /// Settles what a dead owner left in flight.
    pub(super) async fn recover(&mut self, lease: ShardLease) -> Result<(), End> {
        let mut after = None;
        loop {
            let page = self.parts.store.publishing_entries(lease.shard, after, recovery::ROWS_MAX).await;
            let rows = page.map_err(End::Store)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id);
            tracing::info!(shard = lease.shard.0, messages = rows.len(), "attempts were left without an outcome");
            let (store, destinations) = (&self.parts.store, &self.parts.destinations);
            let rows = recovery::conclude(store, lease, destinations, rows, self.parts.env.now()).await;
            self.apply(&rows.map_err(End::Store)?, None)?;
        }
        while self.claims.unresolved() > 0 {
            let before = self.claims.unresolved();
            self.resolve(lease).await?;
            if self.claims.unresolved() == before {
                break;
            }
        }
        Ok(())
    }

    /// Works until it has to end, then waits for what it has in flight.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> End {
        let end = loop {
            if stop.is_cancelled() {
                break End::Stopped;
            }
            match self.tick().await {
                Ok(next) => self.wait(next, stop).await,
                Err(end) => break end,
            }
        };
        self.parts.active.store(false, Ordering::Release);
        self.drain(end).await
    }

    async fn tick(&mut self) -> Result<Next, End> {
        let Holding::Held { lease, until } = *self.holding.borrow_and_update() else { return Err(End::Fenced) };
        if self.holding.has_changed().is_err() || self.pages.is_closed() {
            return Err(End::Abandoned);
        }
        self.take_settlements()?;
        self.take_gates()?;
        self.take_page()?;
        let monotonic = self.parts.env.clock.monotonic();
        if self.claims.unresolved() > 0 && monotonic >= self.resolve_from {
            self.resolve_from = monotonic + TRY_AGAIN;
            self.resolve(lease).await?;
        }
        let time = self.clock.read(&*self.parts.env.clock);
        let relied_on = self.parts.env.clock.monotonic() < until;
        self.parts.active.store(self.caught_up && time.is_ok() && relied_on, Ordering::Release);
        let next = match time {
            // What an operator has paused is known before anything is claimed.
            Ok(now) if relied_on && self.gates_known => self.publish(lease, now).await?,
            Ok(_) | Err(Gated::Uncertain) => Next::Wait(self.parts.poll),
            Err(Gated::Stabilizing { until }) => Next::Wait(until.saturating_sub(monotonic)),
        };
        self.held = match time {
            Err(_) => Some(Held::ClockGated),
            Ok(_) if !(self.caught_up && self.gates_known && relied_on) => Some(Held::Recovering),
            Ok(_) if !self.claims.has_room(0) || monotonic < self.refused_until => Some(Held::Capacity),
            Ok(_) => None,
        };
        self.answer()?;
        self.report();
        Ok(next)
    }

    /// Claims what is due and ends what has expired.
    async fn publish(&mut self, lease: ShardLease, now: Interval) -> Result<Next, End> {
        let monotonic = self.parts.env.clock.monotonic();
        let (ready_at, more) = if monotonic < self.refused_until {
            (Some(now.earliest + (self.refused_until - monotonic)), false)
        } else {
            self.claim(lease, now)?
        };
        let (expiry_at, more_expired) = self.expire(lease, now).await?;
        if more || more_expired {
            return Ok(Next::Tick);
        }
        let next_at = [ready_at, expiry_at].into_iter().flatten().min();
        Ok(Next::Wait(next_at.map_or(self.parts.poll, |at| at.since(now.earliest)).min(self.parts.poll)))
    }

    fn claim(&mut self, lease: ShardLease, now: Interval) -> Result<(Option<Timestamp>, bool), End> {
        let (ready_at, stopped_early) = self.schedule.discover(&self.index, now.earliest, &self.parts.signals)?;
        if self.schedule.drr.is_idle() {
            return Ok((ready_at, stopped_early));
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Owners that come and go shall not always begin with the same lanes.
            self.schedule.drr.begin_at(u64::from(self.parts.env.id_entropy()[0]));
        }
        let clock = &*self.parts.env.clock;
        let turn_end = clock.monotonic() + schedule::TURN_TIME_MAX;
        let mut step = self.index.begin();
        let is_over = || clock.monotonic() >= turn_end;
        let (picked, turn_over) = self.claims.pick(&mut step, &mut self.schedule, now, is_over)?;
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        if !picked.is_empty() {
            picked.iter().for_each(|picked| self.parts.signals.claimed(picked, now.earliest));
            let batch = self.claims.take_up(picked);
            self.parts.publisher.publish(lease, batch, now.latest, self.settle.clone());
        }
        Ok((ready_at, stopped_early || turn_over))
    }

    async fn expire(&mut self, lease: ShardLease, now: Interval) -> Result<(Option<Timestamp>, bool), End> {
        let monotonic = self.parts.env.clock.monotonic();
        if monotonic < self.expire_from {
            return Ok((Some(now.earliest + (self.expire_from - monotonic)), false));
        }
        let found = self.index.expiring(now.earliest, EXPIRED_MAX)?;
        if found.items.is_empty() {
            return Ok((found.next_at, false));
        }
        let mut entries = Vec::with_capacity(found.items.len());
        for (_, id) in found.items {
            let entry = self.index.entry(id)?;
            entries.push(entry.ok_or(Broken::Torn { family: Family::Id })?);
        }
        let requests =
            entries.iter().map(|entry| AdmissionRequest { id: entry.id, generation: entry.generation }).collect();
        let expired = match self.parts.store.expire(lease, requests, now.earliest).await {
            Ok(expired) => expired,
            Err(error) => {
                tracing::warn!(%error, "messages cannot be expired now");
                self.expire_from = monotonic + TRY_AGAIN;
                return Ok((Some(now.earliest + TRY_AGAIN), false));
            }
        };
        self.parts.signals.expired(expired.iter().filter(|expired| **expired).count() as u64);
        // One that did not expire has moved meanwhile; the feed tells where to.
        let mut step = self.index.begin();
        for entry in &entries {
            step.withdraw(entry)?;
        }
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        Ok((found.next_at, found.stopped_early))
    }

    fn take_settlements(&mut self) -> Result<(), End> {
        while self.settlements.len() < SETTLEMENTS_MAX {
            let Ok(settlement) = self.settled.try_recv() else { break };
            self.settlements.push(settlement);
        }
        if self.settlements.is_empty() {
            return Ok(());
        }
        let settlements = std::mem::take(&mut self.settlements);
        let now = self.now();
        let mut step = self.index.begin();
        let sum = self.claims.settle(&mut step, &mut self.schedule, &settlements, now);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        if sum.refused {
            self.refused_until = self.parts.env.clock.monotonic() + self.refused_pause;
            self.refused_pause = (self.refused_pause * 2).min(REFUSED_PAUSE_MAX);
        } else {
            self.refused_pause = REFUSED_PAUSE;
        }
        if sum.fenced { Err(End::Fenced) } else { Ok(()) }
    }

    fn take_gates(&mut self) -> Result<(), End> {
        if !self.parts.gates.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let Some(gates) = self.parts.gates.borrow_and_update().clone() else { return Ok(()) };
        self.gates_known = true;
        let (now, lanes) = (self.now(), self.index.lane_numbers());
        let mut step = self.index.begin();
        self.schedule.set_gates(&mut step, gates, &lanes);
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }

    fn take_page(&mut self) -> Result<(), End> {
        let Some(page) = self.arrived.take().or_else(|| self.pages.try_recv().ok()) else { return Ok(()) };
        self.parts.signals.applied_lag(page.behind);
        self.behind = page.behind;
        self.caught_up |= page.behind == 0;
        self.apply(&page.rows, Some(page.through))
    }

    fn apply(&mut self, rows: &[MessageEntry], through: Option<u64>) -> Result<(), End> {
        let now = self.now();
        let mut step = self.index.begin();
        for row in rows {
            let number = self.schedule.lane_of(&mut step, row, &self.parts.destinations);
            self.claims.apply(&mut step, row, number)?;
        }
        if let Some(through) = through {
            step.applied(through);
        }
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }

    /// Ends claims that are with nobody.
    async fn resolve(&mut self, lease: ShardLease) -> Result<(), End> {
        let keys = self.claims.unresolved_ids(recovery::ROWS_MAX as usize);
        let ids: Vec<_> = keys.iter().map(|key| key.id).collect();
        let (store, destinations) = (&self.parts.store, &self.parts.destinations);
        let now = self.parts.env.now();
        let rows = match store.message_entries(&ids).await {
            Ok(rows) => recovery::conclude(store, lease, destinations, rows, now).await,
            Err(error) => Err(error),
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "attempts without an outcome cannot be settled now");
                return Ok(());
            }
        };
        let now = self.now();
        let mut step = self.index.begin();
        self.claims.resolve(&mut step, &mut self.schedule, &keys, &rows);
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }

    fn adopt_lanes(&mut self) -> Result<(), Broken> {
        let now = self.now();
        let numbers = self.index.lane_numbers();
        let mut step = self.index.begin();
        for number in numbers {
            self.schedule.adopt(number, &step.lane(number).name, &self.parts.destinations);
            step.touch(number);
        }
        self.schedule.refresh(&mut step, now);
        step.commit()
    }

    /// The time by which lanes are judged: trusted if there is any. Nothing is published by it.
    fn now(&mut self) -> Timestamp {
        let time = self.clock.read(&*self.parts.env.clock);
        time.map_or_else(|_| self.parts.env.now(), |interval| interval.earliest)
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
            Ok(()) = self.holding.changed() => {}
            _ = self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX) => {}
            Some(page) = self.pages.recv() => self.arrived = Some(page),
            Some(inquiry) = self.inquiries.recv() => self.inquiry = Some(inquiry),
            Ok(()) = self.wake.changed() => {}
            Ok(()) = self.parts.gates.changed() => self.parts.gates.mark_changed(),
            () = env::sleep(pause) => {}
        }
    }

    /// Waits for what is in flight, so that the next owner has nothing to guess about.
    async fn drain(mut self, mut end: End) -> End {
        let is_over = env::sleep(DRAIN_MAX);
        tokio::pin!(is_over);
        let mut left = self.claims.with_publisher();
        while left > 0 {
            let received = tokio::select! {
                received = self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX) => received,
                () = &mut is_over => break,
            };
            left = left.saturating_sub(received);
            if matches!(end, End::Broken(_)) {
                self.settlements.clear();
            } else if let Err(End::Broken(broken)) = self.take_settlements() {
                end = End::Broken(broken);
            } else {
                left = self.claims.with_publisher();
            }
        }
        if left > 0 {
            tracing::warn!(messages = left, "a shard ends before all of its messages have settled");
        }
        if matches!(end, End::Stopped)
            && let Err(error) = self.index.flush()
        {
            tracing::warn!(%error, "a shard's index cannot be flushed; it will be read from its log");
        }
        end
    }
}
