//! The entrance: places in flight, and the way from a claim to its Publish Admission.
//!
//! A shard takes a place for each message that it claims, through its [`Seat`]; who may take is decided by
//! `lanes::Places`. So whoever has been claimed is on its way, and nothing waits here but for the store: claims stand
//! in line until whoever asks it comes back. They can be called back from there, and go back by themselves if that
//! takes too long; neither costs an attempt.
//!
//! The store is asked by two at the most: one call that is being written, and one that is next. What arrives meanwhile
//! goes with the call after these, all together.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::claim::{Claim, Latest};
use super::{ClaimedMessage, Settled};
use crate::env::Clock;
use crate::lanes::{NoPlace, Places, PlacesMax};
use crate::model::names::DestinationName;
use crate::store::{ShardId, ShardLease};

/// Messages that are admitted in one call to the store.
const ADMISSIONS_PER_CALL_MAX: usize = 256;
/// What they may be worth together.
const BYTES_PER_CALL_MAX: u64 = 16 << 20;
/// Calls to the store at once.
const CALLS_MAX: usize = 2;
/// How long a claim waits for the store. After that its message goes back to its line, where it may expire, be
/// cancelled, or be overtaken by a pause.
pub(super) const CLAIM_WAIT_MAX: Duration = Duration::from_secs(5);

/// The places of a runtime; clones share them.
#[derive(Clone)]
pub struct Entrance {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    in_flight: Gauge,
}

struct State {
    places: Places<ShardId, DestinationName>,
    /// How those are told who wait for places.
    freed: BTreeMap<ShardId, Arc<Notify>>,
    /// Filled and emptied by each change of places.
    called: Vec<ShardId>,
}

impl Entrance {
    /// So many places, none of them taken.
    ///
    /// # Panics
    /// If there is not even one.
    pub(crate) fn new(max: PlacesMax, clock: Arc<dyn Clock>, in_flight: Gauge) -> Self {
        let state = State { places: Places::new(max), freed: BTreeMap::new(), called: Vec::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), clock, in_flight }) }
    }

    /// A shard's seat. A shard has one at a time.
    pub(crate) fn seat(&self, shard: ShardId) -> Seat {
        let freed = Arc::new(Notify::new());
        self.shared.state().freed.insert(shard, Arc::clone(&freed));
        Seat { shared: Arc::clone(&self.shared), shard, freed }
    }

    /// Messages that have a place.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.shared.state().places.in_flight()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells those whose turn it may be.
    fn call(&mut self) {
        for shard in self.called.drain(..) {
            if let Some(freed) = self.freed.get(&shard) {
                freed.notify_one();
            }
        }
    }
}

/// Where a shard takes its places.
pub struct Seat {
    shared: Arc<Shared>,
    shard: ShardId,
    freed: Arc<Notify>,
}

impl Seat {
    /// Takes a place. `waited` says that the message was refused one for its bytes before.
    pub fn take(&self, destination: &DestinationName, bytes: u32, waited: bool) -> Result<Place, NoPlace> {
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state();
        let State { places, called, .. } = &mut *state;
        let taken = places.take(self.shard, destination, bytes, waited, now, called);
        state.call();
        drop(state);
        taken.map(|()| {
            self.shared.in_flight.increment(1);
            Place { shared: Arc::clone(&self.shared), destination: destination.clone(), bytes }
        })
    }

    /// How many more messages may go to a destination, as far as that one is concerned.
    pub fn room_there(&self, destination: &DestinationName) -> usize {
        let now = self.shared.clock.monotonic();
        self.shared.state().places.room_there(self.shard, destination, now)
    }

    /// Whether a destination that has nothing in flight would get a place.
    pub fn has_reserve(&self) -> bool {
        self.shared.state().places.has_reserve()
    }

    /// What waited for bytes to a destination is not to be sent any more.
    pub fn wait_no_longer(&self, destination: &DestinationName) {
        self.shared.state().places.wait_no_longer(self.shard, destination);
    }

    /// The shard wants no more places than it has, but for what waits for bytes or a destination.
    pub fn rest(&self) {
        let mut state = self.shared.state();
        let State { places, called, .. } = &mut *state;
        places.rest(self.shard, called);
        state.call();
    }

    /// The shard wants nothing more: nothing is kept for it, and nobody waits for it. Its places stay its own.
    pub fn leave(&self) {
        let mut state = self.shared.state();
        let State { places, called, .. } = &mut *state;
        places.leave(self.shard, called);
        state.call();
    }

    /// Returns once there may be a place for what was refused.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        let mut state = self.shared.state();
        if state.freed.get(&self.shard).is_some_and(|freed| Arc::ptr_eq(freed, &self.freed)) {
            state.freed.remove(&self.shard);
        }
    }
}

/// One of the places between claim and outcome.
pub struct Place {
    shared: Arc<Shared>,
    destination: DestinationName,
    bytes: u32,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Place").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.in_flight.decrement(1);
        let mut state = self.shared.state();
        let State { places, called, .. } = &mut *state;
        places.give_back(&self.destination, self.bytes, called);
        state.call();
    }
}

/// Claims of one lease that are to be admitted together.
pub(super) struct Group {
    /// Under which they were claimed.
    pub(super) lease: ShardLease,
    /// What was known about the time when the last of them was.
    pub(super) latest: Latest,
    /// The claims.
    pub(super) claims: Vec<Claim>,
}

/// Claims that wait for whoever asks the store.
pub(super) struct Line {
    lines: Mutex<Lines>,
    calls: Semaphore,
}

/// By the shard and the epoch that they were claimed under; none is empty. Leases take turns.
#[derive(Default)]
struct Lines {
    lines: HashMap<(ShardId, u64), VecDeque<Waiting>>,
    turns: VecDeque<(ShardId, u64)>,
}

struct Waiting {
    lease: ShardLease,
    latest: Latest,
    claim: Claim,
}

impl Line {
    /// Nobody waits.
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default(), calls: Semaphore::new(CALLS_MAX) }
    }

    /// Asks nothing as long as this is held.
    #[cfg(test)]
    pub(super) async fn hold_calls(&self) -> SemaphorePermit<'_> {
        self.calls.acquire_many(u32::try_from(CALLS_MAX).unwrap()).await.unwrap()
    }

    /// Claims stand in line.
    pub(super) fn wait(&self, lease: ShardLease, latest: Latest, claims: Vec<Claim>) {
        let key = (lease.shard, lease.epoch);
        let mut lines = self.lines();
        let Lines { lines, turns } = &mut *lines;
        if claims.is_empty() {
            return;
        }
        let line = lines.entry(key).or_default();
        if line.is_empty() {
            turns.push_back(key);
        }
        line.extend(claims.into_iter().map(|claim| Waiting { lease, latest, claim }));
    }

    /// The next claims that the store is asked about, with the right to ask; `None` if no claim waits.
    pub(super) async fn next(&self) -> Option<(Group, SemaphorePermit<'_>)> {
        let call = self.calls.acquire().await.expect("calls are never closed");
        let group = self.lines().take()?;
        Some((group, call))
    }

    /// Takes out what waits under a lease and is to be called back. It settles as [`Settled::Recalled`].
    pub(super) fn recall(&self, lease: ShardLease, is_called_back: impl Fn(&ClaimedMessage, Duration) -> bool) {
        let mut recalled = Vec::new();
        {
            let mut lines = self.lines();
            let Lines { lines, turns } = &mut *lines;
            let key = (lease.shard, lease.epoch);
            let Some(line) = lines.get_mut(&key) else { return };
            for waiting in std::mem::take(line) {
                if is_called_back(&waiting.claim.message, waiting.claim.since) {
                    recalled.push(waiting.claim);
                } else {
                    line.push_back(waiting);
                }
            }
            if line.is_empty() {
                lines.remove(&key);
                turns.retain(|turn| *turn != key);
            }
        }
        recalled.into_iter().for_each(|claim| claim.settle(Settled::Recalled));
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// The next claims, all of one lease; `None` if no claim waits.
    fn take(&mut self) -> Option<Group> {
        let key = self.turns.pop_front()?;
        let line = self.lines.get_mut(&key).expect("whose turn it is has somebody in line");
        let (mut claims, mut bytes) = (Vec::new(), 0);
        let (lease, mut latest) = line.front().map(|first| (first.lease, first.latest)).expect("no line is empty");
        while claims.len() < ADMISSIONS_PER_CALL_MAX && (claims.is_empty() || bytes < BYTES_PER_CALL_MAX) {
            let Some(next) = line.pop_front() else { break };
            bytes += u64::from(next.claim.message.bytes);
            latest = next.latest;
            claims.push(next.claim);
        }
        if line.is_empty() {
            self.lines.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some(Group { lease, latest, claims })
    }
}

#[cfg(test)]
mod tests;
