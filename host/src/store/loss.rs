//! Answers that get lost, for tests: a transaction ends as if the machine had failed around its commit.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Store, StoreError};

/// When the answer of a transaction gets lost. Its caller cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Before the commit, which does not happen.
    BeforeCommit,
    /// After it.
    AfterCommit,
}

impl Loss {
    /// Both.
    pub(crate) const ALL: [Loss; 2] = [Loss::BeforeCommit, Loss::AfterCommit];

    /// Loses the answer if this is when.
    pub(super) fn strike(planned: Option<Loss>, when: Loss) -> Result<(), StoreError> {
        if planned == Some(when) { Err(StoreError::Unknown("a test lost the answer".to_owned())) } else { Ok(()) }
    }
}

/// What is to happen to the next transaction; clones share it.
#[derive(Clone, Default)]
pub(super) struct Losses(Arc<Mutex<Option<Loss>>>);

impl Losses {
    /// What is planned for this transaction.
    pub(super) fn next(&self) -> Option<Loss> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Store {
    /// The answers of the next transaction get lost.
    pub(crate) fn lose_answer(&self, loss: Loss) {
        *self.writer.losses.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
    }
}
