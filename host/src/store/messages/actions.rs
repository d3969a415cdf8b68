//! Actions: messages to a pack's own flow. One that comes due is handed off, and is a WorkItem from then on.
//!
//! Invariants:
//! - The message's end and its WorkItem are one transaction: no crash leaves one without the other, and a message that
//!   has not ended has no WorkItem. So handing off is never uncertain, and may be tried again at any time.
//! - An action has one WorkItem. The message's compare-and-swap decides that; a unique key says it again.
//! - It is executed by the generation that emitted it, unless an operator drained that one.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::DueAction;
use crate::model::names::Namespace;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkType;
use crate::store::engine::codes::sql;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::work::lane::Lanes;
use crate::store::work::materialize::{PlannedWorkItem, store_work_items};
use crate::store::work::replay;
use crate::store::writer::unit::{Scope, Unit, all_written};
use crate::store::{Store, StoreError};

/// A message that was handed off.
pub(in crate::store) struct HandedOff {
    /// The ordinal of the message.
    pub(in crate::store) message: i64,
    /// The time of the handoff.
    pub(in crate::store) at: Timestamp,
}

/// The origin of a WorkItem of type `workflow_action_apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Applies {
    /// The ordinal of the action's message.
    pub(in crate::store) message: i64,
    /// The ordinal of the Event that the action came from.
    pub(in crate::store) event: Option<i64>,
}

/// An action as its WorkItem needs it.
struct Stored {
    ordinal: i64,
    id: MessageId,
    generation: u32,
    event_id: EventId,
    namespace: Namespace,
    scope: Scope,
    event: Option<i64>,
    queue_class: QueueClass,
}

/// The WorkItem has the class of the one whose execution emitted the action. Actions of earlier versions do not say
/// which; then the row does, or it is `default`.
static STORED: Statement = Statement::select(
    "(ordinal)",
    sql!(
        "SELECT message.ordinal, message.id, message.generation, message.event_id, message.namespace, message.action_pack, \
     message.action_generation, event.ordinal, coalesce(message.queue_class, emitter.queue_class, {default}) FROM wanted \
     CROSS JOIN message ON message.ordinal = wanted.ordinal LEFT JOIN event ON event.id = message.event_id \
     LEFT JOIN work_item AS emitter ON emitter.id = message.work_item_id"
    ),
);

static INPUTS: Statement = Statement::select(
    "(id)",
    "SELECT work_item.id, message.id, message.action, payload.body, message.due_at FROM wanted \
     CROSS JOIN work_item ON work_item.id = wanted.id CROSS JOIN message ON message.ordinal = work_item.action \
     CROSS JOIN message_payload AS payload ON payload.ordinal = message.ordinal",
);

static SIZES: Statement = Statement::select(
    "(id)",
    "SELECT work_item.id, message.bytes FROM wanted CROSS JOIN work_item ON work_item.id = wanted.id \
     CROSS JOIN message ON message.ordinal = work_item.action",
);

impl Store {
    /// The actions that WorkItems apply; those that do not exist are left out.
    pub async fn load_actions(&self, ids: &[WorkItemId]) -> Result<HashMap<WorkItemId, DueAction>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut reader = self.reader().await?;
        let actions = INPUTS.fetch(&mut reader.connection(), ids.to_vec(), Values::only, due_action).await?;
        Ok(actions.into_iter().collect())
    }

    /// The sizes of the actions that WorkItems apply; an action that does not exist has no entry. Reads no body.
    pub async fn action_sizes(&self, ids: &[WorkItemId]) -> Result<HashMap<WorkItemId, u64>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut reader = self.reader().await?;
        let sizes = SIZES.fetch(&mut reader.connection(), ids.to_vec(), Values::only, FromColumns::read).await?;
        Ok(sizes.into_iter().collect())
    }
}

/// Makes WorkItems of messages that have just been handed off.
pub(in crate::store) async fn hand_off(unit: &mut Unit<'_>, messages: Vec<HandedOff>) -> Result<(), sqlx::Error> {
    if messages.is_empty() {
        return Ok(());
    }
    let ended_at: HashMap<i64, Timestamp> = messages.into_iter().map(|handed| (handed.message, handed.at)).collect();
    let mut ordinals: Vec<i64> = ended_at.keys().copied().collect();
    ordinals.sort_unstable();
    let expected = ordinals.len();
    let mut actions = STORED.fetch(&mut unit.connection, ordinals, Values::only, Stored::read).await?;
    all_written(actions.len() as u64, expected)?;
    actions.sort_unstable_by_key(|action| action.ordinal);
    let planned = |action: Stored| {
        let at = ended_at[&action.ordinal];
        action.planned(unit.sequences.replay(), at)
    };
    let items = actions.into_iter().map(planned).collect();
    store_work_items(unit, Lanes::default(), items).await
}

impl Stored {
    fn planned(self, number: i64, at: Timestamp) -> PlannedWorkItem {
        PlannedWorkItem {
            ordinal: replay::ordinal(number, WorkType::WorkflowActionApply),
            id: self.work_item_id(at),
            event_id: self.event_id,
            namespace: self.namespace,
            scope: self.scope,
            source_key: None,
            delivery_lane: None,
            queue_class: self.queue_class,
            coalesces: None,
            projection: None,
            created_at: at,
            replays: None,
            action: Some(Applies { message: self.ordinal, event: self.event }),
        }
    }

    /// The same id however often the transaction is repeated.
    fn work_item_id(&self, at: Timestamp) -> WorkItemId {
        let digest =
            Sha256::new().chain_update(self.id.as_bytes()).chain_update(self.generation.to_be_bytes()).finalize();
        let mut entropy = [0; 10];
        entropy.copy_from_slice(&digest[..10]);
        WorkItemId::new(at, entropy)
    }
}

impl FromColumns for Stored {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            ordinal: columns.next()?,
            id: columns.next()?,
            generation: columns.next()?,
            event_id: columns.next()?,
            namespace: columns.next()?,
            scope: Scope {
                pack: columns.next()?,
                work_type: WorkType::WorkflowActionApply,
                generation: columns.next()?,
            },
            event: columns.next()?,
            queue_class: columns.next()?,
        })
    }
}

fn due_action(columns: &mut Columns<'_>) -> Result<(WorkItemId, DueAction), sqlx::Error> {
    let work_item_id = columns.next()?;
    let (id, name, body, due_at) = columns.next()?;
    Ok((work_item_id, DueAction { id, name, body, due_at }))
}
