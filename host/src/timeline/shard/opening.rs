//! How an owner comes by its shard's index: its own, a checkpoint, or one that is built from the store's rows; and what
//! becomes of one that is of no use.

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Shard;
use crate::store::ShardLease;
use crate::timeline::checkpoint::Refused;
use crate::timeline::database::{Broken, Database};
use crate::timeline::index::{FeedBounds, Index, Owner, Unusable};
use crate::timeline::inquiry::INQUIRIES_MAX;
use crate::timeline::lease::Holding;
use crate::timeline::quarantine;
use crate::timeline::session::{Checkpointing, End, Followed, Parts, Restored, RestoredFrom, Session};
use crate::timeline::signals::Signals;
use crate::timeline::source::{self, Source};

use std::sync::Arc;

/// Checkpoints that are tried, the newest first, before the index is built from the store's rows.
const CHECKPOINTS_TRIED_MAX: usize = 3;

/// Where copies of the index lie, beside it.
const STAGING: &str = "copy";

impl Shard {
    /// A session that knows all there is to know but for the feed, and what reads that.
    pub(super) async fn restore(
        &self,
        lease: ShardLease,
        held: watch::Receiver<Holding>,
        signals: &Arc<Signals>,
        stop: &CancellationToken,
    ) -> Result<(Session, Source, mpsc::Sender<source::Page>), End> {
        let feed_end = self.store.feed_end(self.id).await.map_err(End::Store)?;
        let trimmed = self.store.feed_trimmed(self.id).await.map_err(End::Store)?;
        let feed = FeedBounds { trimmed, end: feed_end };
        // Lanes are told apart, opened and served by the same ones.
        let destinations = Followed::begin(self.destinations.clone());
        let ordering = destinations.now.ordering_fingerprint();
        let owner = Owner { shard: self.id, epoch: lease.epoch, ordering };
        let restored = tokio::select! {
            restored = self.open(lease, owner, feed, signals) => restored?,
            () = stop.cancelled() => return Err(End::Stopped),
        };
        let from = restored.from;
        let is_known = from == RestoredFrom::Store || restored.index.is_whole();
        let after = restored.index.applied();
        let newest = self.checkpoints.of(self.id).await.map_err(End::Store)?.into_iter().next();
        let checkpointing = Checkpointing::new(
            Arc::clone(&self.checkpoints),
            self.path.with_extension(STAGING),
            newest,
            self.env.clock.monotonic(),
            self.remains.tasks.clone(),
        );
        let (pages_in, pages) = mpsc::channel(source::PAGES_MAX);
        let (ask, inquiries) = mpsc::channel(INQUIRIES_MAX);
        let parts = self.parts(destinations, signals);
        let mut session = Session::new(parts, held, restored, checkpointing, pages, inquiries, self.wake.clone())?;
        self.inquiries.send_replace(Some(ask));
        // It waits for a clock that can be trusted.
        tokio::select! {
            recovered = session.recover(lease, !is_known) => recovered?,
            () = stop.cancelled() => return Err(End::Stopped),
        }
        session.own(lease)?;
        let rebuild_through = if from == RestoredFrom::Store { feed_end } else { 0 };
        let source = Source { store: self.store.clone(), shard: self.id, after, rebuild_through, poll: self.poll };
        Ok((session, source, pages_in))
    }

    fn parts(&self, destinations: Followed, signals: &Arc<Signals>) -> Parts {
        Parts {
            shard: self.id,
            destinations,
            gates: self.gates.clone(),
            store: self.store.clone(),
            publisher: self.publisher.clone(),
            env: self.env.clone(),
            signals: signals.clone(),
            active: self.active.clone(),
            claimed_max: self.claimed_max,
            weights: self.weights.clone(),
            work: self.work,
            supply: self.supply.clone(),
            time: self.time.clone(),
            clock_uncertainty_max: self.clock_uncertainty_max,
            poll: self.poll,
            remains: self.remains.clone(),
        }
    }

    async fn open(
        &self,
        lease: ShardLease,
        owner: Owner,
        feed: FeedBounds,
        signals: &Signals,
    ) -> Result<Restored, End> {
        let found = || Index::open(&self.path, &self.memory, owner, feed);
        // How far the index is that is let go for a checkpoint.
        let mut kept = None;
        let reason = match found() {
            Ok(index) => {
                if self.is_newest(&index, owner).await? {
                    return Ok(Restored { index, from: RestoredFrom::Here });
                }
                kept = Some(index.applied());
                Unusable::OtherOwner
            }
            Err(reason) => reason,
        };
        if reason == Unusable::Torn {
            self.set_aside(lease, signals).await;
        }
        // The very first start finds no index and no messages either: there is nothing to restore.
        if feed.end > 0 {
            signals.rebuilt(reason);
            let reason = reason.as_str();
            tracing::warn!(shard = self.id.0, reason, feed_end = feed.end, "a shard's index must be restored");
            if let Some(index) = self.open_checkpoint(owner, feed, signals).await? {
                signals.restored(RestoredFrom::Checkpoint);
                return Ok(Restored { index, from: RestoredFrom::Checkpoint });
            }
            // What was found, and is older than a checkpoint that cannot be had, is better than none.
            if kept.is_some()
                && let Ok(index) = found()
                && Some(index.applied()) == kept
            {
                return Ok(Restored { index, from: RestoredFrom::Here });
            }
            signals.restored(RestoredFrom::Store);
        }
        let index = Index::create(&self.path, &self.memory, owner)?;
        Ok(Restored { index, from: RestoredFrom::Store })
    }

    /// Whether no checkpoint has more than an index that was found. Only one that others made could.
    async fn is_newest(&self, index: &Index, owner: Owner) -> Result<bool, End> {
        if index.is_of_owner_before(owner.epoch) {
            return Ok(true);
        }
        let newest = self.checkpoints.of(self.id).await.map_err(End::Store)?.into_iter().next();
        Ok(newest.is_none_or(|row| row.applied <= index.applied()))
    }

    /// The newest checkpoint that can be gone on from.
    async fn open_checkpoint(&self, owner: Owner, feed: FeedBounds, signals: &Signals) -> Result<Option<Index>, End> {
        let rows = self.checkpoints.of(self.id).await.map_err(End::Store)?;
        for row in rows.iter().take(CHECKPOINTS_TRIED_MAX) {
            let fetched = if row.applied < feed.trimmed {
                // It is not worth being fetched.
                Err(Refused::Trimmed)
            } else {
                self.checkpoints.fetch(row, owner.ordering, &self.path).await
            };
            let refused = match fetched {
                Ok(()) => match Index::open(&self.path, &self.memory, owner, feed) {
                    Ok(index) if index.applied() >= row.applied => {
                        let applied = index.applied();
                        tracing::info!(shard = self.id.0, applied, bytes = row.bytes, "a checkpoint was restored");
                        return Ok(Some(index));
                    }
                    Ok(_less_than_it_says) => Refused::Torn.as_str(),
                    Err(unusable) => unusable.as_str(),
                },
                Err(refused) => refused.as_str(),
            };
            signals.checkpoint_refused(refused);
            let (epoch, number) = (row.epoch, row.number);
            tracing::error!(shard = self.id.0, epoch, number, reason = refused, "a checkpoint of a shard is not used");
        }
        Ok(None)
    }

    /// What becomes of an index that broke.
    pub(super) async fn discard(&self, lease: ShardLease, broken: &Broken, signals: &Signals) {
        if broken.is_torn() {
            return self.set_aside(lease, signals).await;
        }
        if let Err(error) = Database::destroy(&self.path) {
            tracing::error!(shard = self.id.0, %error, "a broken index cannot be removed");
        }
    }

    /// Sets a torn index aside. Checkpoints may have been made of what is torn in it: none of them counts any more, and
    /// the index is built from the store's rows.
    async fn set_aside(&self, lease: ShardLease, signals: &Signals) {
        match quarantine::set_aside(self.id, &self.path, lease.epoch) {
            Ok(None) => return,
            Ok(Some(path)) => {
                signals.quarantined();
                let path = path.display();
                tracing::error!(shard = self.id.0, %path, "a shard's index is torn, and was set aside");
            }
            Err(error) => tracing::error!(shard = self.id.0, %error, "a torn index cannot be set aside"),
        }
        if let Err(error) = self.store.forget_checkpoints(lease).await {
            tracing::warn!(shard = self.id.0, %error, "checkpoints of a torn index cannot be forgotten now");
        }
    }
}
