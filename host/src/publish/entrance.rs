//! The places in flight, and who gets the next one that is free: the shards that wait for places share them by deficit round
//! robin, so that one with much to send keeps none from another.
//!
//! Whoever takes places is alone with them: it gets all that are free, and so asks the store for many at once; side by side
//! they would be shared out one by one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Gauge;
use tokio::sync::Semaphore;

use super::claim::{Claim, InFlight, Latest};
use crate::lanes::{Beginning, Charge, Drr, MESSAGES, TurnLimits, message_cost};
use crate::store::{ShardId, ShardLease};

/// Messages that are admitted in one call to the store.
const ADMISSIONS_PER_CALL_MAX: u32 = 256;
/// What they may be worth together.
const BYTES_PER_CALL_MAX: u64 = 16 << 20;
const TURN: TurnLimits =
    TurnLimits { items_max: ADMISSIONS_PER_CALL_MAX, cost_max: BYTES_PER_CALL_MAX, visits_max: u32::MAX };
/// Shards share alike.
const SHARD_WEIGHT: u32 = 1;

/// Claims of one lease, in the order that their shard gave them.
pub(super) struct Group<C = Claim> {
    /// Under which they were claimed.
    pub(super) lease: ShardLease,
    /// What was known about the time then.
    pub(super) latest: Latest,
    /// The claims.
    pub(super) claims: VecDeque<C>,
}

/// The places, and the lines before them.
pub(super) struct Entrance {
    places: Arc<Semaphore>,
    in_flight: Gauge,
    /// Held by the one that is taking places.
    taking: tokio::sync::Mutex<()>,
    lines: Mutex<Lines<Claim>>,
}

impl Entrance {
    pub(super) fn new(places: usize, in_flight: Gauge) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            in_flight,
            taking: tokio::sync::Mutex::default(),
            lines: Mutex::new(Lines::new()),
        }
    }

    /// Claims stand in their shard's line.
    pub(super) fn wait(&self, group: Group) {
        self.lines().push(group);
    }

    /// Waits for a place, then takes as many as are free, for the claims of the shard whose turn it is; `None` if no claim
    /// waits.
    pub(super) async fn take(&self) -> Option<Group> {
        let _alone = self.taking.lock().await;
        if self.lines().drr.is_idle() {
            return None;
        }
        let first = Arc::clone(&self.places).acquire_owned().await.expect("the places are never closed");
        let mut first = Some(first);
        let place = || first.take().or_else(|| Arc::clone(&self.places).try_acquire_owned().ok());
        let enter = |claim: &mut Claim, permit| claim.enter(InFlight::new(permit, self.in_flight.clone()));
        self.lines().take(place, enter)
    }

    fn lines(&self) -> MutexGuard<'_, Lines<Claim>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits for a place.
trait Weighed {
    /// Its size.
    fn bytes(&self) -> u32;
}

impl Weighed for Claim {
    fn bytes(&self) -> u32 {
        self.message.bytes
    }
}

/// Groups that wait, by shard. A shard is active as long as it has one; no group is empty.
struct Lines<C> {
    drr: Drr<ShardId>,
    groups: HashMap<ShardId, VecDeque<Group<C>>>,
}

impl<C: Weighed> Lines<C> {
    fn new() -> Self {
        Self { drr: Drr::new(MESSAGES, Beginning::Fresh), groups: HashMap::new() }
    }

    fn push(&mut self, group: Group<C>) {
        if group.claims.is_empty() {
            return;
        }
        let shard = group.lease.shard;
        self.drr.set_weight(shard, SHARD_WEIGHT);
        self.drr.activate(shard);
        self.groups.entry(shard).or_default().push_back(group);
    }

    /// The next claims, as long as `place` gives a place to `enter`; `None` if there is no claim or no place.
    fn take<P>(&mut self, mut place: impl FnMut() -> Option<P>, enter: impl Fn(&mut C, P)) -> Option<Group<C>> {
        let mut turn = TURN.begin();
        let mut spare = place();
        while spare.is_some() {
            let shard = self.drr.next(&mut turn)?;
            let line = self.groups.get_mut(&shard).expect("an active shard has a line");
            let group = line.front_mut().expect("an active shard's line is not empty");
            let mut claims = VecDeque::new();
            while let Some(permit) = spare.take()
                && let Some(claim) = group.claims.front()
            {
                if self.drr.charge(&mut turn, message_cost(claim.bytes())) != Charge::Served {
                    spare = Some(permit);
                    break;
                }
                let mut claim = group.claims.pop_front().expect("it was just looked at");
                enter(&mut claim, permit);
                claims.push_back(claim);
                spare = place();
            }
            let taken = Group { lease: group.lease, latest: group.latest, claims };
            if group.claims.is_empty() {
                line.pop_front();
            }
            if line.is_empty() {
                self.drr.deactivate(shard);
            }
            if !taken.claims.is_empty() {
                return Some(taken);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
