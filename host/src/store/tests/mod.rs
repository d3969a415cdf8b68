//! The store's tests: on real databases, with time that the test moves. What a store must do stands once, in
//! `conformance`, and is tried on each engine; the rest is about one of them.

mod backlog;
mod contention;
mod differential;
mod durability;
mod interleavings;
mod lifecycle;
mod lock_order;
pub(super) mod mariadb;
mod measure;
mod on_mariadb;
mod on_sqlite;
mod plans;
mod rollout;
mod shared;
pub(super) mod tamper;
mod vanished;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use self::tamper::Tampering;
use super::engine::codes::Coded as _;
use super::engine::dialect::Engine;
use super::testing::{Fixture, LEASE, Loss, START, done, env, namespace, options, pack};
use super::upkeep::{counters, coverage};
use super::*;
use crate::env::ManualClock;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, LeaseToken, MessageId, RuntimeId, WorkItemId};
use crate::model::message::MessageState;
use crate::model::names::RouteName;
use crate::model::pack::{GenerationNumber, Ordering};
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};

fn digest(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// Of manifests that say nothing of routes.
fn no_rules(_: &str) -> BTreeMap<RouteName, RouteRules> {
    BTreeMap::new()
}

fn failure() -> Failure {
    Failure::new(FailureClass::Trap, "unreachable")
}

impl Fixture {
    async fn state(&self, id: WorkItemId) -> WorkState {
        self.store.work_item(id).await.unwrap().unwrap().state
    }

    /// Asks for a replay, under an id of its own.
    async fn replay(&self, id: WorkItemId) -> Replayed {
        self.store.replay(id, WorkItemId::new(self.now(), self.entropy()), self.now()).await.unwrap()
    }

    /// Replays a WorkItem that was not replayed before. Returns its child.
    async fn replay_first(&self, id: WorkItemId) -> WorkItemId {
        match self.replay(id).await {
            Replayed::Replayed(child) => child,
            other => panic!("{other:?}"),
        }
    }

    /// Claims the next WorkItem and ends it so.
    async fn end_next(&self, disposition: Disposition) -> ClaimedWorkItem {
        let item = self.claim(1).await.pop().unwrap();
        assert_eq!(self.finish(&item, disposition).await, Finished::Applied);
        item
    }

    /// One event in the delivery lane of `route`, and in the lane of `source` if there is one.
    fn strictly(&self, route: &str, key: &str, source: Option<&str>) -> (WorkItemId, Delivery) {
        let event = self.event(key, source, key);
        let id = event.work_item_id;
        let delivery = self.delivery(vec![event]);
        (id, Delivery { route: route.parse().unwrap(), ordering: Ordering::Delivery, ..delivery })
    }

    /// Delivers [`Fixture::strictly`].
    async fn deliver_strictly(&self, route: &str, key: &str, source: Option<&str>) -> WorkItemId {
        let (id, delivery) = self.strictly(route, key, source);
        assert!(matches!(self.store.enqueue(delivery).await.unwrap(), Enqueued::Stored { .. }));
        id
    }

    /// Ends all that is claimable, one after the other, and returns the order.
    async fn drain(&self) -> Vec<WorkItemId> {
        let mut order = Vec::new();
        while let Some(item) = self.claim(1).await.pop() {
            order.push(item.id);
            assert_eq!(self.finish(&item, done(vec![])).await, Finished::Applied);
        }
        order
    }

    async fn assert_counted(&self) {
        self.store.assert_counted().await;
    }

    async fn message_state(&self, id: MessageId) -> MessageState {
        self.store.message(id).await.unwrap().unwrap().summary.entry.state
    }

    /// Closes the store and opens it again.
    async fn reopen(mut self) -> Self {
        self.store.close().await;
        self.open_again().await;
        self
    }
}

fn ids(items: &[ClaimedWorkItem]) -> Vec<WorkItemId> {
    items.iter().map(|item| item.id).collect()
}
