//! The life of a generation, once it is installed.
//!
//! ```text
//!  staged ──activate──> active ──another is activated──> draining ──nothing refers to it──> retired
//!                         ▲                                  │                                 │
//!                         └────────────rollback──────────────┴─────────────────────────────────┘
//! ```
//!
//! A stage is not stored: it follows from which generation is active, whether this one ever was, and whether unfinished
//! work refers to it. So it cannot disagree with them.

/// Where a generation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationStage {
    /// Installed, and never active yet.
    Staged,
    /// New events are admitted under it.
    Active,
    /// No longer active; unfinished work still runs on it.
    Draining,
    /// No longer active, and nothing refers to it: it takes no memory. It can be activated again.
    Retired,
}

impl GenerationStage {
    /// The stage that these facts make.
    pub fn of(active: bool, was_active: bool, unfinished: u64) -> Self {
        match (active, unfinished, was_active) {
            (true, _, _) => GenerationStage::Active,
            (false, 1.., _) => GenerationStage::Draining,
            (false, 0, true) => GenerationStage::Retired,
            (false, 0, false) => GenerationStage::Staged,
        }
    }

    /// Its name, on the wire and for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            GenerationStage::Staged => "staged",
            GenerationStage::Active => "active",
            GenerationStage::Draining => "draining",
            GenerationStage::Retired => "retired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // GST-6
    #[test]
    fn a_generation_retires_when_it_is_not_active_and_nothing_refers_to_it() {
        let words = |active, was_active, unfinished| GenerationStage::of(active, was_active, unfinished).as_str();
        assert_eq!(words(false, false, 0), "staged");
        assert_eq!(words(true, true, 0), "active");
        assert_eq!(words(true, true, 9), "active");
        assert_eq!(words(false, true, 1), "draining");
        assert_eq!(words(false, true, 0), "retired");
        // Work that was moved to a generation that never was active.
        assert_eq!(words(false, false, 1), "draining");
    }
}
