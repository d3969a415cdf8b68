//! The only door to time, to chance and to tasks, and to what the operating system says of this process.
//!
//! Everything that decides takes `now` as a parameter; the loops around it ask a [`Clock`]. With a [`ManualClock`] and
//! a [`SeededEntropy`] a test drives any service through any history, the same one every time.

#![allow(clippy::disallowed_methods, reason = "this is the door that the ban points to")]

mod again;
mod figures;

#[cfg(test)]
pub(crate) use again::PANICS_MAX;
pub use again::{AGAIN_AFTER, GivenUp, run_again};
pub use figures::{descriptors, disk};

use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};
use tokio::task::JoinHandle;

use crate::model::time::Timestamp;

/// Time and chance, as one handle.
#[derive(Clone)]
pub struct Env {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What cannot be foreseen.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// The machine's own clock and randomness.
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) }
    }

    /// Now, by the clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The random part of a new identifier.
    pub fn id_entropy(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        self.entropy.fill(&mut bytes);
        bytes
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Wall-clock time, which may jump.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point, which never goes back, and goes on while the machine is suspended: leases do as
    /// well.
    fn monotonic(&self) -> Duration;
}

/// A source of chance.
pub trait Entropy: Send + Sync {
    /// Fills `bytes` with what nobody can foresee.
    fn fill(&self, bytes: &mut [u8]);
}

/// The machine's clock.
pub struct SystemClock {
    origin: Duration,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> Self {
        Self { origin: since_boot() }
    }
}

/// Time since the machine was started, suspended or not. [`std::time::Instant`] stands still while it is suspended.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.origin)
    }
}

/// A clock that a test moves.
pub struct ManualClock {
    wall_millis: AtomicI64,
    monotonic_millis: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { wall_millis: AtomicI64::new(now.as_millis()), monotonic_millis: AtomicI64::new(0) }
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.wall_millis.fetch_add(millis, Ordering::SeqCst);
        self.monotonic_millis.fetch_add(millis, Ordering::SeqCst);
    }

    /// The wall clock is set, as by an operator or NTP; monotonic time is not.
    pub fn jump_to(&self, now: Timestamp) {
        self.wall_millis.store(now.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.monotonic_millis.load(Ordering::SeqCst)).unwrap_or(0))
    }
}

/// The machine's randomness.
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        SysRng.try_fill_bytes(bytes).expect("the operating system gives random bytes");
    }
}

/// Chance that a seed decides. Give each purpose a seed of its own, so that one more draw here moves nothing there.
pub struct SeededEntropy {
    generator: Mutex<StdRng>,
}

impl SeededEntropy {
    /// The sequence that `seed` decides.
    pub fn new(seed: u64) -> Self {
        Self { generator: Mutex::new(StdRng::seed_from_u64(seed)) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.generator.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).fill_bytes(bytes);
    }
}

/// Starts a task on the current runtime. Its panic is logged under `name`, never swallowed, and returned by the handle.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(watch(name, future))
}

/// [`spawn`], on a runtime of one's choice.
pub fn spawn_on<F>(runtime: &tokio::runtime::Handle, name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    runtime.spawn(watch(name, future))
}

/// Runs `future` on a thread and a runtime of its own, which ends with it: whoever must answer soon does not queue
/// behind what keeps the other threads busy. The runtime has timers but no sockets. Its panic is logged under `name`.
pub fn spawn_thread<F>(name: &'static str, future: F) -> std::io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || runtime.block_on(watch(name, future)))?;
    Ok(())
}

async fn watch<F: Future>(name: &'static str, future: F) -> F::Output {
    struct Alarm(&'static str);
    impl Drop for Alarm {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tracing::error!(task = self.0, "a task panicked");
            }
        }
    }
    let _alarm = Alarm(name);
    future.await
}

/// Waits for `duration`, in real time.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The point in real time that lies `after` from now: for `tokio::time::timeout_at`.
pub fn deadline(after: Duration) -> tokio::time::Instant {
    tokio::time::Instant::now() + after
}

/// The point in real time at which so many of so many equal parts of the time until `deadline` are over.
pub fn part_of_time_until(deadline: tokio::time::Instant, parts: u32, of: u32) -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    now + deadline.saturating_duration_since(now) * parts / of.max(1)
}

/// Whether that point in real time has passed.
pub fn has_passed(deadline: tokio::time::Instant) -> bool {
    tokio::time::Instant::now() >= deadline
}
