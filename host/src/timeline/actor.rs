//! A shard's actor on its thread: begun, and begun again after it has panicked.
//!
//! ```text
//!   running ──(panic)──> cleared away ──(pause)──> running
//!      │                      └─(too often)─> left to another runtime, or down until the host is started again
//!      └─(stop)─> done
//! ```
//!
//! A panic is a mistake in this host that something in the shard has brought to light. What it was may have gone by at
//! the next try, so there is one; it may also be met again at once, so tries are further and further apart, and few.
//!
//! Invariant: one actor a shard. The next one begins on the same thread, after the stack of the one before is unwound,
//! nothing that it started runs any more, and what it had given to the publisher has settled. So its index is closed,
//! and nobody acts under its epoch beside the next owner's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

#[cfg(test)]
use super::fuse;
use super::session::DRAIN_MAX;
use super::shard::Shard;
use super::signals::Signals;
use crate::env;
use crate::model::failure;
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::publish::Settlement;
use crate::store::{ShardId, ShardLease};

/// How often, and when, a shard is opened again whose actor panics.
pub const AFTER_PANIC: RetryPolicy =
    RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), failures_max: 8 };
/// An actor that lives as long as this has nothing to do with what was before.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Between two looks at whether everything that the publisher has has settled.
const SETTLED_LOOK: Duration = Duration::from_millis(10);

/// A shard whose actor panicked, here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardTrouble {
    /// Which one.
    pub shard: ShardId,
    /// How often in a row.
    pub panics: u32,
    /// What the last panic said.
    pub reason: String,
    /// What comes next.
    pub next: AfterTrouble,
}

/// What becomes of a shard whose actor panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTrouble {
    /// It is opened again at this time.
    OpenedAt(Timestamp),
    /// It has been opened again.
    Opened,
    /// It is left to another runtime.
    LeftToOthers,
    /// Nothing, before the host is started again.
    Down,
}

/// What of an actor may outlive it: what the next one waits for.
#[derive(Clone, Default)]
pub(super) struct Remains {
    /// Tasks that it started.
    pub tasks: TaskTracker,
    /// Its claims hold the other ends.
    settle: Arc<Mutex<Option<mpsc::WeakSender<Settlement>>>>,
    lease: Arc<Mutex<Option<ShardLease>>>,
}

impl Remains {
    /// What was claimed settles there.
    pub(super) fn settling(&self, settle: &mpsc::Sender<Settlement>) {
        *lock(&self.settle) = Some(settle.downgrade());
    }

    /// It holds this lease.
    pub(super) fn owning(&self, lease: ShardLease) {
        *lock(&self.lease) = Some(lease);
    }

    fn lease(&self) -> Option<ShardLease> {
        *lock(&self.lease)
    }

    /// Returns once nothing runs any more that it started, and what it gave to the publisher has settled; attempts that
    /// take longer than a session that ends would wait for are the next owner's to settle.
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
pub(super) fn start(
    shard: Shard,
    after_panic: RetryPolicy,
    trouble: watch::Sender<Option<ShardTrouble>>,
) -> std::io::Result<watch::Receiver<()>> {
    let (ending, done) = watch::channel(());
    let runtime = Handle::current();
    std::thread::Builder::new().name(format!("shard-{}", shard.id.0)).spawn(move || {
        let _ending = ending;
        Actor { shard, after_panic, trouble, runtime, panics: 0 }.live();
    })?;
    Ok(done)
}

struct Actor {
    shard: Shard,
    after_panic: RetryPolicy,
    trouble: watch::Sender<Option<ShardTrouble>>,
    runtime: Handle,
    /// How often it panicked in a row.
    panics: u32,
}

impl Actor {
    fn live(mut self) {
        let signals = Arc::new(Signals::new(self.shard.id));
        loop {
            let began = self.shard.env.clock.monotonic();
            let lived = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.shard.run(&signals))));
            self.shard.active.store(false, Ordering::Release);
            let Err(panic) = lived else { return };
            #[cfg(test)]
            if panic.is::<fuse::Crash>() {
                return;
            }
            if self.shard.env.clock.monotonic().saturating_sub(began) >= FORGOTTEN_AFTER {
                self.panics = 0;
            }
            self.panics += 1;
            signals.ended("panic");
            signals.gone();
            let goes_on = self.runtime.clone().block_on(self.after_panic(reason(&*panic), &signals));
            if !goes_on {
                return;
            }
        }
    }

    /// Clears away what is left of an actor that panicked, and waits until it may be begun again; `false` if it is not.
    async fn after_panic(&mut self, reason: String, signals: &Signals) -> bool {
        let (shard, panics) = (&self.shard, self.panics);
        let stop = shard.stop.clone();
        shard.elsewhere.store(false, Ordering::Release);
        shard.inquiries.send_replace(None);
        let number = shard.id.0;
        tracing::error!(shard = number, panics, reason, "a shard's actor panicked");
        let pause = self.after_panic.delay_after(panics, &number.to_be_bytes());
        let at = shard.env.now() + pause.unwrap_or_default();
        self.tell(&reason, if pause.is_some() { AfterTrouble::OpenedAt(at) } else { AfterTrouble::Down });
        if let Some(lease) = shard.remains.lease() {
            // What has no place in flight yet is not waited for.
            shard.publisher.recall(lease, |_| true);
        }
        // Not even a stop goes on before that: whoever waits for it believes the index closed.
        shard.remains.cleared_away().await;
        let Some(pause) = pause else { return self.give_up(reason, signals).await };
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

    /// Leaves the shard to another runtime, where there may be one; `false` if there is none.
    async fn give_up(&mut self, reason: String, signals: &Signals) -> bool {
        let shard = &self.shard;
        if shard.keeper.placement.is_shared() && !shard.stop.is_cancelled() {
            self.tell(&reason, AfterTrouble::LeftToOthers);
            let said = format!("its actor panicked {} times: {reason}", self.panics);
            if shard.withdraw(shard.remains.lease(), &said, signals).await {
                self.panics = 0;
                return !self.shard.stop.is_cancelled();
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
        self.trouble.send_replace(Some(ShardTrouble { shard, panics, reason, next }));
    }
}

/// What a panic said.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref().cloned());
    failure::cut(text.unwrap_or_else(|| "it said nothing".to_owned()))
}
