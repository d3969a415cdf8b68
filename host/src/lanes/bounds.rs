//! What deficit round robin owes to a key that always has something to be served: the bounds that the tests and
//! `forebay bench drr --check` hold it against.
//!
//! Costs are integers. A key has a quantum `Q`, a largest cost `L`, and `d = L - 1`; `F` is the sum of all quanta. Over
//! several levels the bound of each is applied to that of the one below.

/// What a key is entitled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its weight.
    pub weight: u32,
    /// What one visit grants it.
    pub quantum: u64,
    /// The largest cost that it ever has.
    pub largest: u64,
}

impl Share {
    /// `d`.
    pub(super) fn rest(&self) -> u64 {
        self.largest - 1
    }
}

/// `psi`: how much is served in all, at the most, until the key `of` has received `x` more.
pub fn work_until(shares: &[Share], of: usize, x: u64) -> u64 {
    let visits = (x + shares[of].rest()) / shares[of].quantum + 1;
    let others = (0..shares.len()).filter(|other| *other != of);
    x + others.map(|other| visits * shares[other].quantum + shares[other].rest()).sum::<u64>()
}
