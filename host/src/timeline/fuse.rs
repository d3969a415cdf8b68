//! For tests: an actor that crashes at a batch of its index, before it is written or after.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// On which side of a batch an actor crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// The fuses that are laid, by the directory of the index: how many batches are still written.
static FUSES: Mutex<BTreeMap<PathBuf, (usize, Side)>> = Mutex::new(BTreeMap::new());

/// The actor whose index is in `path` crashes at the batch after so many others.
pub(super) fn lay(path: &Path, batches: usize, side: Side) {
    FUSES.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (batches, side));
}

/// Takes a fuse away. Returns whether it was still there.
pub(super) fn remove(path: &Path) -> bool {
    FUSES.lock().unwrap_or_else(PoisonError::into_inner).remove(path).is_some()
}

/// A batch is on this side of being written.
pub(super) fn burn(path: &Path, side: Side) {
    let mut fuses = FUSES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((batches, at)) = fuses.get_mut(path) else { return };
    if *batches == 0 && *at == side {
        fuses.remove(path);
        drop(fuses);
        panic!("the test has this actor crash here");
    }
    if side == Side::After {
        *batches -= 1;
    }
}
