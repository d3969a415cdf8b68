//! Who has a connection to the admin listener. Two shares, neither of which takes from the other: those who were let
//! in, and strangers, among whom are the probes.
//!
//! ```text
//!  accepted ─> waiting ─a request─> asking ─the gate lets it in─> known: may ask on, and be idle in between
//!                 │                    └─anything else─> one answer, and the connection is closed
//!                 └─too long, or the newest needs the place─> ended
//! ```
//!
//! Invariants:
//! - A stranger that has not asked holds up nobody: if all places are taken, the one that has waited longest makes
//!   room.
//! - A stranger that has asked is answered, if it takes its answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections of those who were let in.
const KNOWN_MAX: usize = 64;
/// Connections of strangers.
pub(super) const STRANGERS_MAX: usize = 64;

/// All connections of the listener.
pub(super) struct Visitors {
    strangers: Mutex<Strangers>,
    known: Arc<Semaphore>,
    /// A stranger has gone.
    room: Notify,
}

#[derive(Default)]
struct Strangers {
    /// By number, which rises: the first has waited longest.
    waiting: BTreeMap<u64, CancellationToken>,
    asking: usize,
    next: u64,
}

impl Visitors {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { strangers: Mutex::default(), known: Arc::new(Semaphore::new(KNOWN_MAX)), room: Notify::new() })
    }

    /// Gives a connection that was accepted its place. Waits only while every stranger is being answered.
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

/// The peer of one connection. Dropped with it.
pub(super) struct Visitor {
    all: Arc<Visitors>,
    number: u64,
    ended: CancellationToken,
    standing: Mutex<Standing>,
}

enum Standing {
    /// It has asked nothing yet.
    Waiting,
    /// It has asked, and is not let in (yet).
    Asking,
    /// It was let in.
    Known { _permit: OwnedSemaphorePermit },
}

impl Visitor {
    /// A request's head has arrived.
    pub(super) fn ask(&self) {
        let mut standing = self.standing();
        if matches!(*standing, Standing::Waiting) {
            let mut strangers = self.all.strangers();
            strangers.waiting.remove(&self.number);
            // Also one that had to make room at this very moment: that it is one too many ends with its answer.
            strangers.asking += 1;
            *standing = Standing::Asking;
        }
    }

    /// Lets it in; `false` if too many are in.
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

    /// Whether it was let in.
    pub(super) fn is_known(&self) -> bool {
        matches!(*self.standing(), Standing::Known { .. })
    }

    /// Whether it has asked nothing yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.standing(), Standing::Waiting)
    }

    /// Waits until it has to make room.
    pub(super) async fn must_go(&self) {
        self.ended.cancelled().await;
    }

    /// Frees the place that a stranger has.
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
