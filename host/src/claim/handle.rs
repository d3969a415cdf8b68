//! The handle of a scheduler: what others tell it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::pressure::{HostPressure, Probe};
use super::wanted::{Wanted, WantedAnswer};
use crate::model::ids::WorkItemId;
use crate::model::queue::QueueClass;

/// Work items that an operator asked for and that have not had their turn: more are refused.
pub const WANTED_MAX: usize = 16;

/// Wakes a scheduler, tells it how the host is, and asks it for single work items; clones share it.
#[derive(Clone, Default)]
pub struct SchedulerHandle {
    pub(super) woken: Arc<Notify>,
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    host: HostPressure,
    wanted: VecDeque<Wanted>,
}

impl SchedulerHandle {
    /// Something changed that enqueues do not tell of: a generation was loaded, or it is time to reconcile.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// The host was measured. Wakes the scheduler if something presses less than before.
    pub fn measured(&self, host: HostPressure) {
        let mut told = self.told();
        let before = std::mem::replace(&mut told.host, host);
        let eased = (before.probe == Probe::Failed && host.probe == Probe::Answered)
            || before.pool > host.pool
            || before.memory > host.memory
            || before.disk > host.disk;
        drop(told);
        if eased {
            self.woken.notify_one();
        }
    }

    /// The store's readiness probe was answered, or failed.
    pub fn probed(&self, probe: Probe) {
        let host = HostPressure { probe, ..self.host() };
        self.measured(host);
    }

    /// How the host was when it was last measured.
    pub fn host(&self) -> HostPressure {
        self.told().host
    }

    /// Asks for one work item, before all others. What became of it is answered when it has had its turn; `None` if
    /// [`WANTED_MAX`] others have not had theirs.
    pub fn want(&self, id: WorkItemId, class: QueueClass) -> Option<oneshot::Receiver<WantedAnswer>> {
        let (answer, answered) = oneshot::channel();
        let mut told = self.told();
        // Nobody waits for the answer any more: it was asked for by somebody who went away.
        told.wanted.retain(|wanted| !wanted.answer.is_closed());
        if told.wanted.len() >= WANTED_MAX {
            return None;
        }
        told.wanted.push_back(Wanted { id, class, answer });
        drop(told);
        self.woken.notify_one();
        Some(answered)
    }

    /// The first that is wanted, of a class that `serves` takes.
    pub(super) fn next_wanted(&self, serves: impl Fn(QueueClass) -> bool) -> Option<Wanted> {
        let mut told = self.told();
        told.wanted.retain(|wanted| !wanted.answer.is_closed());
        let position = told.wanted.iter().position(|wanted| serves(wanted.class))?;
        told.wanted.remove(position)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
