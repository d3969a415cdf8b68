//! For tests: an actor that panics at a batch of its index, before it is written or after. Either its host is gone with
//! it, or its thread finds out.

use std::collections::BTreeMap;
use std::panic::panic_any;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// On which side of a batch an actor panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// What a panic says that stands for the end of the whole host: nobody finds out.
pub(super) struct Crash;

#[derive(Debug, Clone, Copy)]
struct Fuse {
    /// How many batches are still written.
    batches: usize,
    side: Side,
    /// How often its actor panics; `None` for a crash.
    panics: Option<u32>,
}

/// The fuses that are laid, by the directory of the index.
static FUSES: Mutex<BTreeMap<PathBuf, Fuse>> = Mutex::new(BTreeMap::new());

/// The host whose index is in `path` crashes at the batch after so many others.
pub(super) fn lay(path: &Path, batches: usize, side: Side) {
    insert(path, Fuse { batches, side, panics: None });
}

/// The actor whose index is in `path` panics at its next batch, and at the first one of each of its next lives, so many
/// times in all.
pub(super) fn lay_panics(path: &Path, side: Side, panics: u32) {
    insert(path, Fuse { batches: 0, side, panics: Some(panics) });
}

fn insert(path: &Path, fuse: Fuse) {
    FUSES.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), fuse);
}

/// Takes a fuse away. Returns whether it was still there.
pub(super) fn remove(path: &Path) -> bool {
    FUSES.lock().unwrap_or_else(PoisonError::into_inner).remove(path).is_some()
}

/// A batch is on this side of being written.
pub(super) fn burn(path: &Path, side: Side) {
    let mut fuses = FUSES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(fuse) = fuses.get_mut(path) else { return };
    if fuse.batches == 0 && fuse.side == side {
        let panics = fuse.panics;
        match &mut fuse.panics {
            Some(panics) if *panics > 1 => *panics -= 1,
            Some(_) | None => drop(fuses.remove(path)),
        }
        drop(fuses);
        if panics.is_none() {
            panic_any(Crash);
        }
        panic!("the test has this actor panic here");
    }
    if side == Side::After {
        fuse.batches = fuse.batches.saturating_sub(1);
    }
}
