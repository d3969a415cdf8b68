//! Connections to the admin listener, in two shares that do not take from each other: admitted peers, and strangers,
//! which include the probes.
//!
//! ```text
//!  accepted ─> waiting ─a request─> asking ─the gate admits it─> known: may send more, and be idle in between
//!                 │                    └─anything else─> one answer, then the connection is closed
//!                 └─timeout, or the newest needs the place─> ended
//! ```
//!
//! Invariants:
//! - A stranger without a request blocks no other: if all places are taken, the one that has waited longest makes room.
//! - A stranger with a request is answered, if it reads the answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections of admitted peers.
const KNOWN_MAX: usize = 64;
/// Connections of strangers.
pub(super) const STRANGERS_MAX: usize = 64;

/// All connections of the listener.
pub(super) struct Visitors {
    strangers: Mutex<Strangers>,
    known: Arc<Semaphore>,
    /// Signals that a stranger has gone.
    room: Notify,
}

#[derive(Default)]
struct Strangers {
    /// Strangers by rising number: the first has waited longest.
    waiting: BTreeMap<u64, CancellationToken>,
    asking: usize,
    next: u64,
}

impl Visitors {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { strangers: Mutex::default(), known: Arc::new(Semaphore::new(KNOWN_MAX)), room: Notify::new() })
    }

    /// Gives an accepted connection its place. Waits only while every stranger is being answered.
    pub(super) async fn receive(self: &Arc<Self>) -> Arc<Visitor> {
        loop {
            let room = self.room.notified();
            if let Some(visitor) = self.try_receive() {
                return visitor;
            }
            room.await;
        }
    }

    fn try_receive(self: &Arc<Self>) -> Option<Arc<Visitor>> {
        let mut strangers = self.strangers();
        if strangers.waiting.len() + strangers.asking >= STRANGERS_MAX {
            let (_, longest) = strangers.waiting.pop_first()?;
            longest.cancel();
        }
        let number = strangers.next;
        strangers.next += 1;
        let ended = CancellationToken::new();
        strangers.waiting.insert(number, ended.clone());
        Some(Arc::new(Visitor { all: self.clone(), number, ended, standing: Mutex::new(Standing::Waiting) }))
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer of a connection, dropped with it.
pub(super) struct Visitor {
    all: Arc<Visitors>,
    number: u64,
    ended: CancellationToken,
    standing: Mutex<Standing>,
}

enum Standing {
    /// No request has arrived.
    Waiting,
    /// A request has arrived and is not admitted yet.
    Asking,
    /// The peer is admitted.
    Known { _permit: OwnedSemaphorePermit },
}

impl Visitor {
    /// Notes that the head of a request has arrived.
    pub(super) fn ask(&self) {
        let mut standing = self.standing();
        if matches!(*standing, Standing::Waiting) {
            let mut strangers = self.all.strangers();
            strangers.waiting.remove(&self.number);
            // This includes one that has just been asked to make room: the excess ends with its answer.
            strangers.asking += 1;
            *standing = Standing::Asking;
        }
    }

    /// Admits it; `false` if too many are admitted.
    pub(super) fn let_in(&self) -> bool {
        let mut standing = self.standing();
        match *standing {
            Standing::Known { .. } => true,
            Standing::Waiting | Standing::Asking => match self.all.known.clone().try_acquire_owned() {
                Ok(permit) => {
                    self.leave(&standing);
                    *standing = Standing::Known { _permit: permit };
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// Whether it is admitted.
    pub(super) fn is_known(&self) -> bool {
        matches!(*self.standing(), Standing::Known { .. })
    }

    /// Whether no request has arrived.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.standing(), Standing::Waiting)
    }

    /// Waits until it must make room.
    pub(super) async fn must_go(&self) {
        self.ended.cancelled().await;
    }

    /// Frees the place of a stranger.
    fn leave(&self, standing: &Standing) {
        let mut strangers = self.all.strangers();
        match standing {
            Standing::Waiting => drop(strangers.waiting.remove(&self.number)),
            Standing::Asking => strangers.asking -= 1,
            Standing::Known { .. } => {}
        }
        drop(strangers);
        self.all.room.notify_one();
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.leave(&self.standing());
    }
}
