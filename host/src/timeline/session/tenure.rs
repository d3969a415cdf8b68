//! A session's tenure: the lease that it claims under, and how long it may rely on it.

use std::sync::Arc;

use tokio::sync::watch;

use super::End;
use crate::env::Clock;
use crate::publish::Reliance;
use crate::store::ShardLease;
use crate::timeline::lease::{HeldLease, Holding, relied_until};

/// The ownership of the shard. The lease is renewed for as long as this exists.
pub(in crate::timeline) struct Tenure {
    /// The lease as it was renewed last. The channel closes when nothing renews it.
    holding: watch::Receiver<Holding>,
    /// The same, for attempts. They refer to it weakly, so that none relies on it after the session.
    relied_on: Arc<watch::Receiver<Holding>>,
    /// The lease that messages are claimed under; none before the index is this owner's.
    lease: Option<ShardLease>,
}

impl Tenure {
    /// A tenure under which nothing is claimed yet.
    pub(in crate::timeline) fn begin(holding: watch::Receiver<Holding>) -> Self {
        Self { relied_on: Arc::new(holding.clone()), holding, lease: None }
    }

    /// From here on messages are claimed under this lease.
    pub(super) fn own(&mut self, lease: ShardLease) {
        self.lease = Some(lease);
    }

    /// The lease that messages are claimed under.
    pub(super) fn lease(&self) -> Option<ShardLease> {
        self.lease
    }

    /// The lease as it was renewed last.
    pub(super) fn held(&self) -> Result<HeldLease, End> {
        match *self.holding.borrow() {
            Holding::Held(held) => Ok(held),
            Holding::Lost => Err(End::Fenced),
        }
    }

    /// Whether the lease is still being renewed.
    pub(super) fn is_kept(&self) -> bool {
        self.holding.has_changed().is_ok()
    }

    /// Whether the lease was renewed or lost since it was last noted.
    pub(super) fn has_news(&self) -> bool {
        self.holding.has_changed().unwrap_or(false)
    }

    /// Takes note of the lease as it is.
    pub(super) fn note(&mut self) {
        self.holding.mark_unchanged();
    }

    /// Returns once there is news, which stays to be noted.
    pub(super) async fn changed(&mut self) {
        match self.holding.changed().await {
            Ok(()) => self.holding.mark_changed(),
            Err(_closed) => std::future::pending().await,
        }
    }

    /// The time for which attempts may rely on `lease`.
    pub(super) fn reliance(&self, lease: ShardLease, clock: &Arc<dyn Clock>) -> Reliance {
        Reliance::new(relied_until(&self.relied_on, lease), Arc::clone(clock))
    }
}
