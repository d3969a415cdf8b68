//! Room: how much there is of something, and how much of it is free.

/// How much there is of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What is free.
    pub free: u64,
    /// All of it.
    pub total: u64,
}
