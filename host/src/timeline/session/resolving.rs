//! Attempts that nobody is behind any more: what owners before this one left, and what this one could not record.

use super::work::in_time;
use super::{End, Session};
use crate::lanes::WorkClass;
use crate::store::ShardLease;
use crate::timeline::clock::Interval;
use crate::timeline::recovery;

impl Session {
    /// Settles what a dead owner left in flight. What the index does not know of others' attempts is found out later,
    /// if it `may_differ` from the store.
    pub(in crate::timeline) async fn recover(&mut self, lease: ShardLease, may_differ: bool) -> Result<(), End> {
        if may_differ {
            self.begin_comparing().await?;
        }
        let mut after = None;
        loop {
            let page = self.parts.store.publishing_entries(lease.shard, after, recovery::ROWS_MAX).await;
            let rows = page.map_err(End::Store)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id);
            tracing::info!(shard = lease.shard.0, messages = rows.len(), "attempts were left without an outcome");
            let now = self.trusted_time().await?;
            let (store, destinations) = (&self.parts.store, &self.parts.destinations.now);
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

    /// Ends claims that are with nobody.
    pub(super) async fn resolve(&mut self, lease: ShardLease, now: Interval) -> Result<(), End> {
        let keys = self.claims.unresolved_ids(recovery::ROWS_MAX as usize);
        let ids: Vec<_> = keys.iter().map(|key| key.id).collect();
        let (store, destinations) = (&self.parts.store, &self.parts.destinations.now);
        let concluded = async {
            let rows = store.message_entries(&ids).await?;
            recovery::conclude(store, lease, destinations, rows, now).await
        };
        let rows = in_time(self.parts.work.share(WorkClass::OutcomeAndControl).turn_time, concluded).await;
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
