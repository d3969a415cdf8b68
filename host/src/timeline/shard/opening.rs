//! Opening a shard's index: the one on this disk, a checkpoint, or a new one that is built from the store's rows; and
//! getting rid of an index that cannot be used.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Shard;
use crate::model::destination::Destinations;
use crate::store::ShardLease;
use crate::timeline::checkpoint::Refused;
use crate::timeline::database::{Broken, Database};
use crate::timeline::index::{FeedBounds, Index, Owner, Unusable};
use crate::timeline::lease::Holding;
use crate::timeline::quarantine;
use crate::timeline::session::{Checkpointing, End, Following, Inbox, Restored, RestoredFrom, Session, Tenure};
use crate::timeline::source::{Page, Source};
use crate::timeline::surroundings::Surroundings;

/// Checkpoints that are tried, newest first, before the index is built from the store's rows.
const CHECKPOINTS_TRIED_MAX: usize = 3;

/// The suffix of the directory for copies of the index, beside it.
const STAGING: &str = "copy";

impl Shard {
    /// Opens the index and settles what was left without an outcome. The session that comes of it lacks nothing but the
    /// feed.
    pub(super) async fn restore(
        &self,
        lease: ShardLease,
        held: watch::Receiver<Holding>,
        stop: &CancellationToken,
    ) -> Result<(Session<'_>, Source, mpsc::Sender<Page>), End> {
        let Surroundings { store, checkpoints, options, env, .. } = &*self.around;
        let feed_end = store.feed_end(self.id).await.map_err(End::Store)?;
        let trimmed = store.feed_trimmed(self.id).await.map_err(End::Store)?;
        let feed = FeedBounds { trimmed, end: feed_end };
        // The same destinations tell lanes apart, open them, and serve them.
        let following = Following::begin(self.watched.clone());
        let destinations = &following.destinations;
        let owner = Owner { shard: self.id, epoch: lease.epoch };
        let restored = tokio::select! {
            restored = self.open(lease, owner, destinations, feed) => restored?,
            () = stop.cancelled() => return Err(End::Stopped),
        };
        let from = restored.from;
        let is_known = from == RestoredFrom::Store || restored.index.is_whole();
        let after = restored.index.applied();
        let newest = checkpoints.of(self.id).await.map_err(End::Store)?.into_iter().next();
        let checkpointing = Checkpointing::new(
            Arc::clone(checkpoints),
            self.path.with_extension(STAGING),
            newest,
            env.clock.monotonic(),
            self.remains.tasks.clone(),
        );
        let (inbox, pages, inquiries) = Inbox::open(options.claimed_max);
        let mut session = Session::new(self, Tenure::begin(held), following, restored, checkpointing, inbox)?;
        self.status.set_inquiries(Some(inquiries));
        // The session waits here for a clock that can be trusted.
        tokio::select! {
            recovered = session.recover(lease, !is_known) => recovered?,
            () = stop.cancelled() => return Err(End::Stopped),
        }
        session.own(lease)?;
        let rebuild_through = if from == RestoredFrom::Store { feed_end } else { 0 };
        let source = Source { store: store.clone(), shard: self.id, after, rebuild_through, poll: options.poll };
        Ok((session, source, pages))
    }

    async fn open(
        &self,
        lease: ShardLease,
        owner: Owner,
        destinations: &Destinations,
        feed: FeedBounds,
    ) -> Result<Restored, End> {
        let found = || self.open_in_order(owner, destinations, feed);
        // The last change in an index that is passed over for a checkpoint.
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
            self.set_aside(lease).await;
        }
        // The very first start finds no index and no messages either: there is nothing to restore.
        if feed.end > 0 {
            self.signals.rebuilt(reason);
            let reason = reason.as_str();
            tracing::warn!(shard = self.id.0, reason, feed_end = feed.end, "a shard's index must be restored");
            if let Some(index) = self.open_checkpoint(owner, destinations, feed).await? {
                self.signals.restored(RestoredFrom::Checkpoint);
                return Ok(Restored { index, from: RestoredFrom::Checkpoint });
            }
            // An index that is older than a checkpoint which cannot be opened is better than none.
            if kept.is_some()
                && let Ok(index) = found()
                && Some(index.applied()) == kept
            {
                return Ok(Restored { index, from: RestoredFrom::Here });
            }
            self.signals.restored(RestoredFrom::Store);
        }
        let index = Index::create(&self.path, &self.around.memory, owner)?;
        Ok(Restored { index, from: RestoredFrom::Store })
    }

    /// Opens the index in which messages stand in the lanes that they belong in.
    fn open_in_order(&self, owner: Owner, destinations: &Destinations, feed: FeedBounds) -> Result<Index, Unusable> {
        let index = Index::open(&self.path, &self.around.memory, owner, feed)?;
        if index.is_reordered(destinations)? { Err(Unusable::OtherOrdering) } else { Ok(index) }
    }

    /// Whether no checkpoint has more than an index that was found. Only other owners' checkpoints could.
    async fn is_newest(&self, index: &Index, owner: Owner) -> Result<bool, End> {
        if index.is_of_owner_before(owner.epoch) {
            return Ok(true);
        }
        let newest = self.around.checkpoints.of(self.id).await.map_err(End::Store)?.into_iter().next();
        Ok(newest.is_none_or(|row| row.applied <= index.applied()))
    }

    /// Opens the newest checkpoint that can be used.
    async fn open_checkpoint(
        &self,
        owner: Owner,
        destinations: &Destinations,
        feed: FeedBounds,
    ) -> Result<Option<Index>, End> {
        let rows = self.around.checkpoints.of(self.id).await.map_err(End::Store)?;
        for row in rows.iter().take(CHECKPOINTS_TRIED_MAX) {
            let fetched = if row.applied < feed.trimmed {
                // It is not worth being fetched.
                Err(Refused::Trimmed)
            } else {
                self.around.checkpoints.fetch(row, &self.path).await
            };
            let refused = match fetched {
                Ok(()) => match self.open_in_order(owner, destinations, feed) {
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
            self.signals.checkpoint_refused(refused);
            let (epoch, number) = (row.epoch, row.number);
            tracing::error!(shard = self.id.0, epoch, number, reason = refused, "a checkpoint of a shard is not used");
        }
        Ok(None)
    }

    /// Removes an index that broke, or sets it aside if it is torn.
    pub(super) async fn discard(&self, lease: ShardLease, broken: &Broken) {
        if broken.is_torn() {
            return self.set_aside(lease).await;
        }
        if let Err(error) = Database::destroy(&self.path) {
            tracing::error!(shard = self.id.0, %error, "a broken index cannot be removed");
        }
    }

    /// Sets a torn index aside and forgets the shard's checkpoints, which may be copies of the torn part. The next
    /// index is built from the store's rows.
    async fn set_aside(&self, lease: ShardLease) {
        match quarantine::set_aside(self.id, &self.path, lease.epoch) {
            Ok(None) => return,
            Ok(Some(path)) => {
                self.signals.quarantined();
                let path = path.display();
                tracing::error!(shard = self.id.0, %path, "a shard's index is torn, and was set aside");
            }
            Err(error) => tracing::error!(shard = self.id.0, %error, "a torn index cannot be set aside"),
        }
        if let Err(error) = self.around.store.forget_checkpoints(lease).await {
            tracing::warn!(shard = self.id.0, %error, "checkpoints of a torn index cannot be forgotten now");
        }
    }
}
