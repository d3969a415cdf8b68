//! From claimed rows to executions: every row takes its share of the memory for bodies, and what has its share is
//! loaded, many Events with one read.
//!
//! Most bodies are small, and most of the time there is memory for them: so each row takes a share for a small body
//! first, and one read brings the Events of all that got one. What is larger, or found no room, asks how large it is
//! and waits.
//!
//! The rows of a batch ask for their shares in the order of their claim, all at once, so that a later batch does not
//! come between them. A row that waits is held as one that runs: its lease is renewed, and it goes back when the host
//! stops.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::super::reads::Gather;
use super::{Input, Row, Shared};
use crate::env;
use crate::model::event::Event;
use crate::model::ids::{EventId, WorkItemId};
use crate::model::message::DueAction;
use crate::model::pack::FailedHeadPolicy;
use crate::model::work_item::{ClaimedWorkItem, WorkType};
use crate::store::{Disposition, StoreError};

/// A body up to here is loaded without asking for its size: a webhook's is seldom larger.
const SMALL_BODY_BYTES: u32 = 16 * 1_024;
/// How often the store is asked for a batch before its rows go back.
const ASKS_MAX: u32 = 6;
/// The pause before it is asked for the second time; it doubles each time.
const ASK_PAUSE_FIRST: Duration = Duration::from_millis(50);

/// What becomes of a row that asked for its share.
enum Asked {
    /// It has it.
    Shared(Row),
    /// The host stops: the row goes back.
    Stopping(Row),
    /// Its lease was lost while it waited: nothing may be recorded.
    Lost,
}

/// Why the store's answer is missing.
enum Missing {
    /// The store does not give it, or reading it panicked: another time, perhaps.
    Unavailable,
    /// There is a row that nobody can read.
    Unreadable,
}

impl Shared {
    /// Starts an execution for each row, as memory for its body becomes free.
    pub(super) async fn start(self: Arc<Self>, rows: Vec<Row>) {
        let rows = self.start_small(rows).await;
        if rows.is_empty() {
            return;
        }
        let (events, actions) = (event_ids(&rows), action_ids(&rows));
        let store = &self.parts.store;
        let sizes = self.ask(|| async { Ok((store.event_sizes(&events).await?, store.action_sizes(&actions).await?)) });
        let Ok((events, actions)) = sizes.await else {
            return self.give_back(rows).await;
        };
        let count = rows.len();
        let size = |row: &Row| {
            let action = actions.get(&row.item.id).copied().unwrap_or(0);
            events.get(&row.item.event_id).copied().unwrap_or(0) + action
        };
        let shares: FuturesUnordered<_> = rows.into_iter().map(|row| self.ask_for_share(size(&row), row)).collect();
        let mut answers = shares.ready_chunks(count);
        while let Some(answered) = answers.next().await {
            self.begin(answered).await;
        }
    }

    /// Starts executions of small bodies for which there is memory now. Returns the other rows.
    async fn start_small(self: &Arc<Self>, rows: Vec<Row>) -> Vec<Row> {
        let (mut with_share, mut others) = (Vec::new(), Vec::new());
        for row in rows {
            // An action has a body beside that of its Event.
            let is_event = row.item.work_type == WorkType::ConnectorEvent;
            match is_event.then(|| self.bodies.share_now(u64::from(SMALL_BODY_BYTES))).flatten() {
                Some(share) => with_share.push(Row { share: Some(share), ..row }),
                None => others.push(row),
            }
        }
        if with_share.is_empty() {
            return others;
        }
        let ids = event_ids(&with_share);
        let loading = AssertUnwindSafe(self.parts.store.load_small_events(&ids, SMALL_BODY_BYTES));
        // What cannot be had so, or not now, is asked for again.
        let events = loading.catch_unwind().await.ok().and_then(Result::ok).unwrap_or_default();
        let events: HashMap<EventId, Event> = events.into_iter().map(|event| (event.id, event)).collect();
        let (small, large): (Vec<Row>, Vec<Row>) =
            with_share.into_iter().partition(|row| events.contains_key(&row.item.event_id));
        let keep = |mut row: Row| {
            let bytes = events.get(&row.item.event_id).map_or(0, |event| event.body.len() as u64);
            row.share = row.share.map(|share| self.bodies.keep(share, bytes));
            row
        };
        let small = small.into_iter().map(keep).collect();
        self.execute_all(small, Inputs { events, actions: HashMap::new() });
        large.into_iter().map(|row| Row { share: None, ..row }).chain(others).collect()
    }

    async fn ask_for_share(&self, bytes: u64, row: Row) -> Asked {
        if let Some(share) = self.bodies.share_now(bytes) {
            return Asked::Shared(Row { share: Some(share), ..row });
        }
        self.signals.bodies_waited.increment(1);
        let share = tokio::select! {
            biased;
            () = row.held.lost() => return Asked::Lost,
            () = self.release.cancelled() => return Asked::Stopping(row),
            share = self.bodies.share(bytes) => share,
        };
        Asked::Shared(Row { share: Some(share), ..row })
    }

    /// Goes on with the rows whose wait is over.
    async fn begin(self: &Arc<Self>, answered: Vec<Asked>) {
        let (mut with_share, mut stopping) = (Vec::new(), Vec::new());
        for asked in answered {
            match asked {
                Asked::Shared(row) => with_share.push(row),
                Asked::Stopping(row) => stopping.push(row),
                Asked::Lost => {}
            }
        }
        self.give_back(stopping).await;
        if !with_share.is_empty() {
            self.load(with_share).await;
        }
    }

    /// Loads the rows' Events, with one read if all of them can be read, and starts their executions.
    async fn load(self: &Arc<Self>, rows: Vec<Row>) {
        match self.inputs(&rows).await {
            Ok(inputs) => self.execute_all(rows, inputs),
            Err(Missing::Unavailable) => self.give_back(rows).await,
            Err(Missing::Unreadable) => {
                for row in rows {
                    self.load_alone(row).await;
                }
            }
        }
    }

    /// Loads one row's Event: what is wrong with it is not its neighbours' trouble.
    async fn load_alone(self: &Arc<Self>, row: Row) {
        match self.inputs(std::slice::from_ref(&row)).await {
            Ok(inputs) => self.execute_all(vec![row], inputs),
            Err(Missing::Unavailable) => self.give_back(vec![row]).await,
            Err(Missing::Unreadable) => {
                let shared = Arc::clone(self);
                let failing = shared.fail_without_input(row, "the event's row cannot be read");
                drop(env::spawn_on(&self.parts.runtime, "executor", failing));
            }
        }
    }

    /// Starts the executions of a batch, whose reads are made together.
    fn execute_all(self: &Arc<Self>, rows: Vec<Row>, mut inputs: Inputs) {
        let runtime = &self.parts.runtime;
        let (mut ready, mut missing) = (Vec::new(), Vec::new());
        for row in rows {
            match inputs.take(&row.item) {
                Ok(input) => ready.push((row, input)),
                Err(reason) => missing.push((row, reason)),
            }
        }
        let seats = Gather::seats(&self.reads, runtime, ready.len());
        for ((row, input), seat) in ready.into_iter().zip(seats) {
            drop(env::spawn_on(runtime, "executor", Arc::clone(self).execute(row, input, seat)));
        }
        for (row, reason) in missing {
            drop(env::spawn_on(runtime, "executor", Arc::clone(self).fail_without_input(row, reason)));
        }
    }

    /// Releases rows that were not executed.
    async fn give_back(&self, rows: Vec<Row>) {
        self.signals.released.increment(rows.len() as u64);
        join_all(rows.into_iter().map(|row| self.record(row, Disposition::Release, FailedHeadPolicy::DEFAULT))).await;
    }

    async fn inputs(&self, rows: &[Row]) -> Result<Inputs, Missing> {
        let (events, actions) = (event_ids(rows), action_ids(rows));
        let store = &self.parts.store;
        let loaded =
            self.ask(|| async { Ok((store.load_events(&events).await?, store.load_actions(&actions).await?)) });
        let (events, actions) = loaded.await?;
        Ok(Inputs { events: events.into_iter().map(|event| (event.id, event)).collect(), actions })
    }

    /// Asks the store until it answers, a bounded number of times.
    async fn ask<T, F>(&self, question: impl Fn() -> F) -> Result<T, Missing>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = ASK_PAUSE_FIRST;
        for _ in 0..ASKS_MAX {
            let pack = &self.parts.pack;
            match AssertUnwindSafe(question()).catch_unwind().await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(StoreError::Unusable(reason))) => {
                    tracing::error!(%pack, reason, "an Event cannot be read");
                    return Err(Missing::Unreadable);
                }
                Ok(Err(error)) => tracing::warn!(%pack, %error, "Events could not be loaded"),
                Err(_) => return Err(Missing::Unavailable),
            }
            env::sleep(pause).await;
            pause *= 2;
        }
        Err(Missing::Unavailable)
    }
}

/// What was loaded for the rows of a batch.
struct Inputs {
    events: HashMap<EventId, Event>,
    actions: HashMap<WorkItemId, DueAction>,
}

impl Inputs {
    /// What a row is executed with; or why it has none.
    fn take(&mut self, item: &ClaimedWorkItem) -> Result<Input, &'static str> {
        // Several actions may have come from one Event.
        let event = self.events.get(&item.event_id).ok_or("the store has no such Event")?.clone();
        let action = match item.work_type {
            WorkType::ConnectorEvent => None,
            WorkType::WorkflowActionApply => Some(self.actions.remove(&item.id).ok_or("the store has no such action")?),
        };
        Ok(Input { event, action })
    }
}

fn event_ids(rows: &[Row]) -> Vec<EventId> {
    let mut ids: Vec<EventId> = rows.iter().map(|row| row.item.event_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn action_ids(rows: &[Row]) -> Vec<WorkItemId> {
    let applies = |row: &&Row| row.item.work_type == WorkType::WorkflowActionApply;
    rows.iter().filter(applies).map(|row| row.item.id).collect()
}
