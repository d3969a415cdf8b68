//! Answers that get lost, for tests: a transaction ends as if the machine had failed around its commit.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::{Store, StoreError};

/// When the answer of a transaction gets lost. Its caller cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Before the commit, which does not happen.
    BeforeCommit,
    /// After it.
    AfterCommit,
    /// An assertion does not hold.
    Panic,
}

impl Loss {
    /// Those that are nobody's mistake.
    pub(crate) const ALL: [Loss; 2] = [Loss::BeforeCommit, Loss::AfterCommit];

    /// Loses the answer if this is when.
    pub(in crate::store) fn strike(planned: Option<Loss>, when: Loss) -> Result<(), StoreError> {
        assert!(planned != Some(Loss::Panic), "a test wants it so");
        if planned == Some(when) { Err(StoreError::Unknown("a test lost the answer".to_owned())) } else { Ok(()) }
    }
}

/// What is to happen to the next transactions; clones share it.
#[derive(Clone, Default)]
pub(in crate::store) struct Losses(Arc<Plan>);

#[derive(Default)]
struct Plan {
    next: Mutex<Option<Loss>>,
    /// Held by a test as long as nothing shall become durable.
    disk: tokio::sync::Mutex<()>,
    sync_fails: AtomicBool,
    /// Transactions that were begun, and those that lost against another one.
    attempts: AtomicU64,
    conflicts: AtomicU64,
}

impl Losses {
    /// What is planned for this transaction.
    pub(in crate::store) fn next(&self) -> Option<Loss> {
        self.0.attempts.fetch_add(1, Ordering::Relaxed);
        self.0.next.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A transaction lost against another one.
    pub(in crate::store) fn conflict(&self) {
        self.0.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits as long as a test holds the disk.
    pub(in crate::store) async fn syncing(&self) {
        drop(self.0.disk.lock().await);
    }

    /// The error of a disk, if one is planned.
    pub(in crate::store) fn sync_fails(&self) -> Option<io::Error> {
        self.0.sync_fails.swap(false, Ordering::Relaxed).then(|| io::Error::other("a test broke the disk"))
    }
}

impl Store {
    /// The answers of the next transaction get lost.
    pub(crate) fn lose_answer(&self, loss: Loss) {
        *self.plan().next.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
    }

    /// How many transactions were begun, and how many of them lost against another one.
    pub(crate) fn attempts_and_conflicts(&self) -> (u64, u64) {
        let plan = self.plan();
        (plan.attempts.load(Ordering::Relaxed), plan.conflicts.load(Ordering::Relaxed))
    }

    /// Nothing becomes durable as long as what this returns is held.
    pub(crate) async fn hold_disk(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.plan().disk.lock().await
    }

    /// The next sync fails.
    pub(crate) fn fail_sync(&self) {
        self.plan().sync_fails.store(true, Ordering::Relaxed);
    }

    fn plan(&self) -> &Plan {
        &self.writer.losses.0
    }
}
