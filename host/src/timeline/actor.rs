//! A shard's actor on its thread: begun, and begun again after it has panicked.
//!
//! ```text
//!   running ──(panic)──> cleared away ──(pause)──> running
//!      │                      └─(too often)─> left to another host, or down until this host is started again
//!      └─(stop)─> done
//! ```
//!
//! A panic is a mistake in this host that the shard's content has brought to light. The cause may have passed by the
//! next try, so there is one; it may also be met again at once, so tries are few, and further and further apart.
//!
//! Invariant: one actor a shard. The next actor begins on the same thread, after the stack of the panicked one is
//! unwound, its tasks have ended, and its claims have settled. So its index is closed, and nothing acts under its epoch
//! while the next owner does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

#[cfg(test)]
use super::fuse;
use super::session::DRAIN_MAX;
use super::shard::Shard;
use super::surroundings::Surroundings;
use crate::env;
use crate::model::failure;
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::publish::Settlement;
use crate::store::{ShardId, ShardLease};

/// The retries of a shard whose actor panicked.
pub const AFTER_PANIC: RetryPolicy =
    RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), failures_max: 8 };
/// The life of an actor after which earlier panics do not count any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The pause between two looks at whether all claims have settled.
const SETTLED_LOOK: Duration = Duration::from_millis(10);

/// A shard whose actor panicked on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardTrouble {
    /// The shard.
    pub shard: ShardId,
    /// Panics in a row.
    pub panics: u32,
    /// The text of the last panic.
    pub reason: String,
    /// The next step.
    pub next: AfterTrouble,
}

/// The next step for a shard whose actor panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTrouble {
    /// The shard is opened again at this time.
    OpenedAt(Timestamp),
    /// The shard was opened again.
    Opened,
    /// The shard is left to another host.
    LeftToOthers,
    /// The shard waits until this host is started again.
    Down,
}

/// The remains of a panicked actor: its successor waits until they are cleared away.
#[derive(Default)]
pub(super) struct Remains {
    /// Tasks that the actor started.
    pub tasks: TaskTracker,
    /// The channel that the actor's claims settle on; each claim holds a sender.
    settle: Mutex<Option<mpsc::WeakSender<Settlement>>>,
    /// The last lease of the actor.
    lease: Mutex<Option<ShardLease>>,
}

impl Remains {
    /// Records the channel that claims settle on.
    pub(super) fn settling(&self, settle: &mpsc::Sender<Settlement>) {
        *lock(&self.settle) = Some(settle.downgrade());
    }

    /// Records the lease that the actor holds.
    pub(super) fn owning(&self, lease: ShardLease) {
        *lock(&self.lease) = Some(lease);
    }

    fn lease(&self) -> Option<ShardLease> {
        *lock(&self.lease)
    }

    /// Returns once the actor's tasks have ended and its claims have settled. Attempts that take longer than the drain
    /// of a session are left to the next owner.
    async fn cleared_away(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
        let settle = lock(&self.settle).take();
        let is_over = env::deadline(DRAIN_MAX);
        while settle.as_ref().is_some_and(|settle| settle.strong_count() > 0) && !env::has_passed(is_over) {
            env::sleep(SETTLED_LOOK).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a shard on a thread of its own. The receiver closes when the thread ends, however it does.
pub(super) fn start(shard: Shard) -> std::io::Result<watch::Receiver<()>> {
    let (ending, done) = watch::channel(());
    let runtime = Handle::current();
    std::thread::Builder::new().name(format!("shard-{}", shard.id.0)).spawn(move || {
        let _ending = ending;
        Actor { shard, runtime, panics: 0 }.live();
    })?;
    Ok(done)
}

struct Actor {
    shard: Shard,
    runtime: Handle,
    /// Panics in a row.
    panics: u32,
}

impl Actor {
    fn live(mut self) {
        let clock = Arc::clone(&self.shard.around.env.clock);
        loop {
            let began = clock.monotonic();
            let lived = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.shard.run())));
            self.shard.status.set_active(false);
            let Err(panic) = lived else { return };
            #[cfg(test)]
            if panic.is::<fuse::Crash>() {
                return;
            }
            if clock.monotonic().saturating_sub(began) >= FORGOTTEN_AFTER {
                self.panics = 0;
            }
            self.panics += 1;
            self.shard.signals.ended("panic");
            self.shard.signals.gone();
            let goes_on = self.runtime.clone().block_on(self.after_panic(reason(&*panic)));
            if !goes_on {
                return;
            }
        }
    }

    /// Clears away the remains of an actor that panicked, and waits for the time to begin it again; `false` if it is
    /// not begun again.
    async fn after_panic(&mut self, reason: String) -> bool {
        let (shard, panics) = (&self.shard, self.panics);
        let Surroundings { options, env, publisher, stop, .. } = &*shard.around;
        shard.status.set_elsewhere(false);
        shard.status.set_inquiries(None);
        let number = shard.id.0;
        tracing::error!(shard = number, panics, reason, "a shard's actor panicked");
        let pause = options.after_panic.delay_after(panics, &number.to_be_bytes());
        let at = env.now() + pause.unwrap_or_default();
        self.tell(&reason, if pause.is_some() { AfterTrouble::OpenedAt(at) } else { AfterTrouble::Down });
        if let Some(lease) = shard.remains.lease() {
            // Claims without a place in flight are not waited for.
            publisher.recall(lease, |_| true);
        }
        // A stop waits for this as well: it promises that the index is closed.
        shard.remains.cleared_away().await;
        let Some(pause) = pause else { return self.give_up(reason).await };
        tokio::select! {
            () = env::sleep(pause) => {}
            () = stop.cancelled() => {}
        }
        if stop.is_cancelled() {
            self.release().await;
            return false;
        }
        self.tell(&reason, AfterTrouble::Opened);
        true
    }

    /// Leaves the shard to another host, where there may be one; `false` if there is none.
    async fn give_up(&mut self, reason: String) -> bool {
        let shard = &self.shard;
        if shard.around.placement.is_shared() && !shard.around.stop.is_cancelled() {
            self.tell(&reason, AfterTrouble::LeftToOthers);
            let said = format!("its actor panicked {} times: {reason}", self.panics);
            if shard.withdraw(shard.remains.lease(), &said).await {
                self.panics = 0;
                return !self.shard.around.stop.is_cancelled();
            }
            self.tell(&reason, AfterTrouble::Down);
        }
        tracing::error!(
            shard = self.shard.id.0,
            panics = self.panics,
            "a shard's actor panics time after time; its messages wait until the host is started again"
        );
        self.release().await;
        false
    }

    async fn release(&self) {
        if let Some(lease) = self.shard.remains.lease() {
            self.shard.release(lease).await;
        }
    }

    fn tell(&self, reason: &str, next: AfterTrouble) {
        let (shard, panics, reason) = (self.shard.id, self.panics, reason.to_owned());
        self.shard.status.set_trouble(ShardTrouble { shard, panics, reason, next });
    }
}

/// The text of a panic.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref().cloned());
    failure::cut(text.unwrap_or_else(|| "it said nothing".to_owned()))
}
