//! Attempts without a known outcome: those that earlier owners left, and those that this one could not record.

use super::work::in_time;
use super::{End, Session};
use crate::lanes::WorkClass;
use crate::store::ShardLease;
use crate::timeline::clock::Interval;
use crate::timeline::recovery;

impl Session<'_> {
    /// Settles attempts that a dead owner left in flight. If the index `may_differ` from the store, its lines are
    /// compared with their rows later.
    pub(in crate::timeline) async fn recover(&mut self, lease: ShardLease, may_differ: bool) -> Result<(), End> {
        if may_differ {
            self.begin_comparing().await?;
        }
        let mut after = None;
        loop {
            let page = self.around.store.publishing_entries(lease.shard, after, recovery::ROWS_MAX).await;
            let rows = page.map_err(End::Store)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id);
            tracing::info!(shard = lease.shard.0, messages = rows.len(), "attempts were left without an outcome");
            let now = self.trusted_time().await?;
            let (store, destinations) = (&self.around.store, &self.following.destinations);
            let rows = recovery::conclude(store, lease, destinations, rows, now).await;
            self.apply(&rows.map_err(End::Store)?, None)?;
        }
        while self.claims.unresolved() > 0 {
            let before = self.claims.unresolved();
            let now = self.trusted_time().await?;
            self.resolve(lease, now).await?;
            if self.claims.unresolved() == before {
                break;
            }
        }
        Ok(())
    }

    /// Ends claims whose outcome is not known, by their rows.
    pub(super) async fn resolve(&mut self, lease: ShardLease, now: Interval) -> Result<(), End> {
        let keys = self.claims.unresolved_ids(recovery::ROWS_MAX as usize);
        let ids: Vec<_> = keys.iter().map(|key| key.id).collect();
        let (store, destinations) = (&self.around.store, &self.following.destinations);
        let concluded = async {
            let rows = store.message_entries(&ids).await?;
            recovery::conclude(store, lease, destinations, rows, now).await
        };
        let rows = in_time(self.around.work.share(WorkClass::OutcomeAndControl).turn_time, concluded).await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "attempts without an outcome cannot be settled now");
                return Ok(());
            }
        };
        let now = self.now();
        let mut step = self.index.begin();
        self.claims.resolve(&mut step, &mut self.schedule, &keys, &rows);
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }
}
