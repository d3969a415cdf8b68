//! The keeper: removes what ended long enough ago, for ever, a page at a time.
//!
//! ```text
//!   waiting ──(the clock has gone evenly)──> clearing ──(end of the last shelf)──> resting ──> clearing
//!      ^                                        │                                     │
//!      └────────────────(the clock was set)─────┴─────────────────────────────────────┘
//! ```
//!
//! Each runtime has one. Where they share a database they do the same work, and what one removed the other does not
//! find: the store judges with the rows held.
//!
//! Invariants:
//! - Nothing goes by a clock that was set just now, or at a start before it has gone evenly for a while: a machine that
//!   comes up with a wrong date must not take the database for old.
//! - It gives way: after each page it pauses several times as long as the page took, which is longer the more others
//!   have the store do.
//! - Where it stands is in memory alone. After a restart it begins anew, and finds what is left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use tokio_util::sync::CancellationToken;

use crate::env::{self, Env};
use crate::model::retention::Keep;
use crate::model::time::Timestamp;
use crate::store::{Place, Removed, RetentionStanding, Retired, Shelf, Store, StoreError};

/// The shortest pause after a page, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many times as long as a page took the pause after it is.
const PAUSE_TIMES: u32 = 3;
/// The pause between two passes.
const REST: Duration = Duration::from_secs(600);
/// The pause after the store failed.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// The longest time without a look at the clock.
const LOOK: Duration = Duration::from_secs(30);
/// How far the wall clock may go from the monotonic one between two looks, and was not set.
const STEP_MAX: Duration = Duration::from_secs(5);

const REMOVED: &str = "forebay_retention_removed_total";
const FAILED: &str = "forebay_retention_failures_total";
const OLDEST: &str = "forebay_retention_oldest_seconds";

/// Says what the keeper's metrics mean.
pub(super) fn describe() {
    describe_counter!(REMOVED, "Rows that retention removed, by kind");
    describe_counter!(FAILED, "Pages that retention could not clear because the store failed");
    describe_gauge!(OLDEST, "Since when the oldest has ended that is kept, by kind");
}

/// How long what has ended is kept, and from when on anything goes.
#[derive(Debug, Clone, Copy)]
pub struct RetentionOptions {
    /// How long it is kept.
    pub keep: Keep,
    /// For how long the clock must have gone evenly before anything goes.
    pub start_after: Duration,
}

/// Removes what ended long enough ago; clones share it.
#[derive(Clone)]
pub struct Keeper {
    shared: Arc<Shared>,
}

struct Shared {
    options: RetentionOptions,
    store: Store,
    env: Env,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The clocks, as they were looked at last: the wall's and the monotonic one's.
    clocks: Option<(Timestamp, Duration)>,
    /// Since when the wall clock has gone evenly, by the monotonic one.
    even_since: Duration,
    /// Where on which shelf the pass is; `None` between two passes.
    at: Option<(usize, Option<Place>)>,
    /// The monotonic time at which the next pass begins.
    rest_until: Duration,
    pass: Pass,
    last: Option<PassEnded>,
    removed: Removed,
}

/// What a pass has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pass {
    /// Units that it looked at, each past its time.
    pub looked: u64,
    /// What it removed.
    pub removed: Removed,
}

/// A pass that went through every shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassEnded {
    /// When it did.
    pub at: Timestamp,
    /// What it came to.
    pub pass: Pass,
}

/// What a keeper is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits for the clock to go evenly long enough.
    Waiting,
    /// It is in a pass.
    Clearing,
    /// It waits for the next pass.
    Resting,
}

impl Phase {
    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Clearing => "clearing",
            Phase::Resting => "resting",
        }
    }
}

/// How far a keeper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// What this pass has come to, while there is one.
    pub pass: Pass,
    /// The last whole pass.
    pub last: Option<PassEnded>,
    /// What was removed since this host started.
    pub removed: Removed,
}

impl Keeper {
    /// A keeper that has not begun.
    pub fn new(options: RetentionOptions, store: Store, env: Env) -> Self {
        Self { shared: Arc::new(Shared { options, store, env, state: Mutex::default() }) }
    }

    /// How long what has ended is kept.
    pub fn keep(&self) -> &Keep {
        &self.shared.options.keep
    }

    /// Works until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let pause = tokio::select! {
                () = stop.cancelled() => return,
                pause = self.tick() => pause,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = env::sleep(pause.min(LOOK)) => {}
            }
        }
    }

    /// Clears a page, if it is time for one. Returns how long there is nothing to do.
    pub async fn tick(&self) -> Duration {
        let monotonic = self.shared.env.clock.monotonic();
        let (shelf, from) = match self.begin(monotonic) {
            Ok(place) => place,
            Err(pause) => return pause,
        };
        let now = self.shared.env.now();
        match self.shared.store.retire(Shelf::ALL[shelf], self.keep(), from, now).await {
            Ok(retired) => {
                let took = self.shared.env.clock.monotonic().saturating_sub(monotonic);
                if self.cleared(shelf, &retired) {
                    self.measure().await;
                    return REST;
                }
                (took * PAUSE_TIMES).clamp(PAUSE_MIN, PAUSE_MAX)
            }
            Err(error) => {
                counter!(FAILED).increment(1);
                tracing::warn!(%error, "what has been kept long enough cannot be removed now");
                TRY_AGAIN
            }
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let monotonic = self.shared.env.clock.monotonic();
        let state = self.state();
        let phase = if state.clocks.is_none() || self.uneven_for(&state, monotonic).is_some() {
            Phase::Waiting
        } else if state.at.is_some() {
            Phase::Clearing
        } else {
            Phase::Resting
        };
        Progress { phase, pass: state.pass, last: state.last, removed: state.removed }
    }

    /// How the shelves stand now.
    pub async fn standing(&self) -> Result<RetentionStanding, StoreError> {
        self.shared.store.retention_standing(self.keep(), self.shared.env.now()).await
    }

    /// The page that is next, or how long there is none.
    fn begin(&self, monotonic: Duration) -> Result<(usize, Option<Place>), Duration> {
        let mut state = self.state();
        state.look_at_clocks(self.shared.env.now(), monotonic);
        if let Some(pause) = self.uneven_for(&state, monotonic) {
            return Err(pause);
        }
        if state.at.is_none() && monotonic < state.rest_until {
            return Err(state.rest_until - monotonic);
        }
        if state.at.is_none() {
            state.pass = Pass::default();
        }
        Ok(*state.at.get_or_insert((0, None)))
    }

    /// For how long the clock has yet to go evenly; `None` if it has long enough.
    fn uneven_for(&self, state: &State, monotonic: Duration) -> Option<Duration> {
        let even = monotonic.saturating_sub(state.even_since);
        self.shared.options.start_after.checked_sub(even).filter(|left| !left.is_zero())
    }

    /// Takes in what a page came to. Says whether the pass is over.
    fn cleared(&self, shelf: usize, retired: &Retired) -> bool {
        let Removed { events, work_items, messages } = retired.removed;
        for (kind, rows) in [("events", events), ("work_items", work_items), ("messages", messages)] {
            counter!(REMOVED, "kind" => kind).increment(rows);
        }
        let mut state = self.state();
        state.removed += retired.removed;
        state.pass.looked += retired.looked;
        state.pass.removed += retired.removed;
        let next = if retired.next.is_some() { shelf } else { shelf + 1 };
        state.at = (next < Shelf::ALL.len()).then_some((next, retired.next));
        if state.at.is_some() {
            return false;
        }
        state.rest_until = self.shared.env.clock.monotonic() + REST;
        state.last = Some(PassEnded { at: self.shared.env.now(), pass: state.pass });
        let Pass { looked, removed: Removed { events, work_items, messages } } = state.pass;
        if looked > 0 {
            tracing::info!(looked, events, work_items, messages, "what had been kept long enough was removed");
        }
        true
    }

    /// Says how old the oldest is that is kept.
    async fn measure(&self) {
        let kinds = [
            (Shelf::Messages, "messages"),
            (Shelf::DeadMessages, "dead_messages"),
            (Shelf::Events, "events"),
            (Shelf::DeadEvents, "dead_events"),
        ];
        for (shelf, kind) in kinds {
            // The next pass says it.
            let Ok(oldest) = self.shared.store.oldest_ended(shelf).await else { continue };
            let age = oldest.map_or(Duration::ZERO, |oldest| self.shared.env.now().since(oldest));
            gauge!(OLDEST, "kind" => kind).set(age.as_secs_f64());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Compares how far the clocks have gone since the last look.
    fn look_at_clocks(&mut self, wall: Timestamp, monotonic: Duration) {
        let is_set = self.clocks.is_none_or(|(wall_before, monotonic_before)| {
            let passed = monotonic.saturating_sub(monotonic_before);
            let expected = wall_before + passed;
            wall.since(expected).max(expected.since(wall)) > STEP_MAX
        });
        if is_set {
            if self.clocks.is_some() {
                tracing::warn!("the clock was set: nothing is removed by it for a while");
            }
            self.even_since = monotonic;
        }
        self.clocks = Some((wall, monotonic));
    }
}
