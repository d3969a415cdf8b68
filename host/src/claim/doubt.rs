//! Claims whose answer got lost. Whether they came about is not known; if they did, their rows are held by a token that
//! nobody works under, and would stand still until the lease runs out. So they are looked for by it, and given back as
//! if they had not been claimed.

use std::collections::VecDeque;
use std::time::Duration;

use super::CentralClaimScheduler;
use crate::store::{ClaimRequest, Disposition, Finish};

/// Lost answers that are remembered; of further ones the oldest are left to their leases.
const DOUBTS_MAX: usize = 8;

/// Claims whose answers got lost, oldest first.
#[derive(Default)]
pub(super) struct Doubts(VecDeque<Doubt>);

struct Doubt {
    request: ClaimRequest,
    /// When the lease is over, at the latest, on the monotonic clock: others take the rows then.
    until: Duration,
}

impl Doubts {
    pub(super) fn add(&mut self, request: ClaimRequest, sent: Duration) {
        if self.0.len() == DOUBTS_MAX {
            self.0.pop_front();
        }
        let until = sent + request.lease_duration;
        self.0.push_back(Doubt { request, until });
    }
}

impl CentralClaimScheduler {
    /// Gives back what lost claims hold. One that holds nothing may still come about, and is asked after again.
    pub(super) async fn settle_doubts(&mut self) {
        let now = self.env.clock.monotonic();
        self.doubts.0.retain(|doubt| now < doubt.until);
        for _ in 0..self.doubts.0.len() {
            let Some(doubt) = self.doubts.0.pop_front() else { return };
            match self.store.claimed_under(&doubt.request).await {
                Ok(rows) if rows.is_empty() => self.doubts.0.push_back(doubt),
                Err(_) => self.doubts.0.push_back(doubt),
                Ok(rows) => {
                    for (work_item_id, epoch) in rows {
                        let (lease, now) = (doubt.request.lease, self.env.now());
                        let disposition = Disposition::Release;
                        let finish = Finish { work_item_id, lease, epoch, disposition, successor: None, now };
                        // What is not given back now comes back with its lease.
                        let _ = self.store.finish(finish).await;
                    }
                }
            }
        }
    }
}
