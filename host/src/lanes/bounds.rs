//! What deficit round robin owes to a key that always has something to be served: the bounds that the tests and
//! `forebay bench drr --check` hold it against.
//!
//! Costs are integers. A key has a quantum `Q`, a largest cost `L`, and `d = L - 1`; `F` is the sum of all quanta. Over
//! two levels the outer bound is applied to the inner one's.

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
    fn rest(&self) -> u64 {
        self.largest - 1
    }
}

/// `psi`: how much is served in all, at the most, until the key `of` has received `x` more.
pub fn work_until(shares: &[Share], of: usize, x: u64) -> u64 {
    let visits = (x + shares[of].rest()) / shares[of].quantum + 1;
    let others = (0..shares.len()).filter(|other| *other != of);
    x + others.map(|other| visits * shares[other].quantum + shares[other].rest()).sum::<u64>()
}

/// Whether `received` is what a server of rate `Q / F` and the bound's latency owes of `work`: the rate-latency form,
/// times `F`, in integers.
pub fn is_owed(shares: &[Share], of: usize, work: u64, received: u64) -> bool {
    let all: u64 = shares.iter().map(|share| share.quantum).sum();
    let Share { quantum, .. } = shares[of];
    let rests: u64 = shares.iter().map(Share::rest).sum::<u64>() - shares[of].rest();
    let latency = (all - quantum) * (quantum + shares[of].rest()) + quantum * rests;
    i128::from(all * received) >= i128::from(quantum * work) - i128::from(latency)
}
