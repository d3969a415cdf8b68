//! Epochs: the clock that interrupts wasm. One thread ticks while a call is running, and is parked while none is, so
//! that an idle host uses no processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use wasmtime::Engine;

use super::LoadError;

/// How long a guest computes before others get their turn, and how exactly a deadline is kept.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// The ticking thread; it ends when this is dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    running: AtomicUsize,
    stopped: AtomicBool,
}

/// A call that is running: epochs advance while one exists.
pub(super) struct Running(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    pub(super) fn start(engine: &Engine) -> Result<Self, LoadError> {
        let shared = Arc::new(Shared::default());
        let engine = engine.clone();
        let ticking = Arc::clone(&shared);
        let handle = std::thread::Builder::new()
            .name("guest-epochs".to_owned())
            .spawn(move || tick(&engine, &ticking))
            .map_err(|error| LoadError(format!("the thread that interrupts guests does not start: {error}")))?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    /// A call begins.
    pub(super) fn enter(&self) -> Running {
        if self.shared.running.fetch_add(1, Ordering::SeqCst) == 0 {
            self.thread.unpark();
        }
        Running(Arc::clone(&self.shared))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tick(engine: &Engine, shared: &Shared) {
    while !shared.stopped.load(Ordering::SeqCst) {
        if shared.running.load(Ordering::SeqCst) == 0 {
            // An `unpark` that came since the load makes this return at once.
            std::thread::park();
        } else {
            std::thread::sleep(TICK);
            engine.increment_epoch();
        }
    }
}
