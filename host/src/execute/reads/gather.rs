//! The events of a batch meet here: what they ask for is read once all of them have said what that is, or once those
//! who have said it have waited long enough.
//!
//! Each event of a batch has a [`Seat`]. It asks with it, or gives it up: by dropping it, whatever the reason.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::SelectAll;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::caller::Caller;
use super::group::{Found, Group, Reads};
use crate::env::{self, Env};
use crate::execute::flow::Flow;
use crate::model::failure::{Failure, FailureClass};
use crate::model::names::{Namespace, ReaderName};
use crate::model::pack::GenerationNumber;
use crate::model::reading::{ReadWish, Reading};
use crate::model::time::Timestamp;

/// How long an event waits for the others of its batch: what one whose `prepare` is slow may cost them.
const GATHER_MAX: Duration = Duration::from_millis(50);

/// Where the events of one batch meet.
pub(in crate::execute) struct Gather {
    reads: Arc<Reads>,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// Events that have not yet said whether they want to read.
    undecided: usize,
    waiting: Vec<Waiting>,
}

/// One event's place.
pub(in crate::execute) struct Seat {
    gather: Arc<Gather>,
    decided: bool,
}

/// What an event asks for.
pub(in crate::execute) struct Wish {
    pub(in crate::execute) flow: Arc<dyn Flow>,
    pub(in crate::execute) generation: GenerationNumber,
    pub(in crate::execute) namespace: Namespace,
    pub(in crate::execute) received_at: Timestamp,
    pub(in crate::execute) reads: Vec<ReadWish>,
    pub(in crate::execute) deadline: Instant,
}

struct Waiting {
    wish: Wish,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Reading>, Failure>;

impl Gather {
    /// Seats for a batch of this many events.
    pub(in crate::execute) fn seats(reads: &Arc<Reads>, runtime: &Handle, count: usize) -> Vec<Seat> {
        let state = Mutex::new(State { undecided: count, waiting: Vec::new() });
        let gather = Arc::new(Self { reads: Arc::clone(reads), runtime: runtime.clone(), state });
        let seat = || Seat { gather: Arc::clone(&gather), decided: false };
        std::iter::repeat_with(seat).take(count).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more has decided, with this wish or with none.
    fn decided(self: &Arc<Self>, waiting: Option<Waiting>) {
        let mut state = self.state();
        state.undecided -= 1;
        let first = state.waiting.is_empty() && waiting.is_some();
        state.waiting.extend(waiting);
        if state.undecided == 0 {
            let all = std::mem::take(&mut state.waiting);
            drop(state);
            self.launch(all);
        } else if first {
            let gather = Arc::clone(self);
            drop(env::spawn_on(&self.runtime, "executor gathering", async move {
                env::sleep(GATHER_MAX).await;
                // Those that are still to come meet again.
                let here = std::mem::take(&mut gather.state().waiting);
                gather.launch(here);
            }));
        }
    }

    fn launch(self: &Arc<Self>, waiting: Vec<Waiting>) {
        if waiting.is_empty() {
            return;
        }
        let reads = Arc::clone(&self.reads);
        drop(env::spawn_on(&self.runtime, "executor reads", async move { read_waiting(&reads, waiting).await }));
    }
}

impl Seat {
    /// Asks, and waits for what is read, no longer than until the wish's deadline.
    pub(in crate::execute) async fn read(mut self, wish: Wish) -> Answer {
        let deadline = wish.deadline;
        let (answer, answered) = oneshot::channel();
        self.decided = true;
        self.gather.decided(Some(Waiting { wish, answer }));
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::new(FailureClass::Host, "the host failed while it read for this event")),
            Err(_) => {
                let text = "the flow's time was over before all was read that it asked for";
                Err(Failure::new(FailureClass::Deadline, text))
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.decided {
            self.gather.decided(None);
        }
    }
}

/// Reads what these events ask for together, as if they were one batch.
pub async fn read_all(
    flow: &Arc<dyn Flow>,
    generation: GenerationNumber,
    events: Vec<(Namespace, Timestamp, Vec<ReadWish>)>,
    caller: Arc<dyn Caller>,
    env: Env,
    deadline: Instant,
) -> Vec<Answer> {
    let reads = Reads::new(&flow.manifest().name, caller, env);
    let mut answers = Vec::with_capacity(events.len());
    let mut waiting = Vec::with_capacity(events.len());
    for (namespace, received_at, wishes) in events {
        let (answer, answered) = oneshot::channel();
        let flow = Arc::clone(flow);
        waiting
            .push(Waiting { wish: Wish { flow, generation, namespace, received_at, reads: wishes, deadline }, answer });
        answers.push(answered);
    }
    read_waiting(&reads, waiting).await;
    let lost = |_| Err(Failure::new(FailureClass::Host, "what was read got lost"));
    join_all(answers).await.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
}

/// Reads for events of any generation and tenant: for those of one of each together.
async fn read_waiting(reads: &Reads, waiting: Vec<Waiting>) {
    let mut parties: BTreeMap<(GenerationNumber, Namespace), Vec<Waiting>> = BTreeMap::new();
    for waiting in waiting {
        let party = (waiting.wish.generation, waiting.wish.namespace.clone());
        parties.entry(party).or_default().push(waiting);
    }
    join_all(parties.into_values().map(|party| read_party(reads, party))).await;
}

/// Reads for events of one generation and tenant. Each is answered as soon as its own keys are known.
async fn read_party(reads: &Reads, party: Vec<Waiting>) {
    let Some(first) = party.first() else { return };
    let (flow, namespace) = (Arc::clone(&first.wish.flow), first.wish.namespace.clone());
    let now = party.iter().map(|waiting| waiting.wish.received_at).max().unwrap_or_default();
    let deadline = party.iter().map(|waiting| waiting.wish.deadline).max().unwrap_or(first.wish.deadline);
    let manifest = Arc::clone(flow.manifest());
    let mut pending = Pending::of(party);
    let mut calls = SelectAll::new();
    for (name, keys) in pending.keys_by_reader(reads) {
        let Some(reader) = manifest.reader(name.as_str()) else {
            let text = format!("the manifest has no reader `{name}`");
            let unknown = |key: String| (key, Err(Failure::new(FailureClass::BadOutput, text.clone())));
            pending.found(&name, keys.into_iter().map(unknown).collect());
            continue;
        };
        for keys in keys.chunks(reader.keys_max.max(1) as usize) {
            let group = Group { flow: flow.as_ref(), namespace: &namespace, reader, now, deadline };
            let name = name.clone();
            calls.push(reads.read(group, keys.to_vec()).map(move |found| (name.clone(), found)).boxed());
        }
    }
    while let Some((reader, found)) = calls.next().await {
        pending.found(&reader, found);
    }
}

/// Events that wait for their keys.
struct Pending {
    events: Vec<PendingEvent>,
    /// Which events want a key.
    wanted: BTreeMap<ReaderName, HashMap<String, Vec<usize>>>,
    known: HashMap<(ReaderName, String), Result<Option<Bytes>, Failure>>,
}

struct PendingEvent {
    waiting: Option<Waiting>,
    missing: usize,
}

impl Pending {
    fn of(party: Vec<Waiting>) -> Self {
        let mut wanted: BTreeMap<ReaderName, HashMap<String, Vec<usize>>> = BTreeMap::new();
        let mut events = Vec::with_capacity(party.len());
        for (index, waiting) in party.into_iter().enumerate() {
            let mut missing = 0;
            for wish in &waiting.wish.reads {
                for key in &wish.keys {
                    missing += 1;
                    wanted.entry(wish.reader.clone()).or_default().entry(key.clone()).or_default().push(index);
                }
            }
            events.push(PendingEvent { waiting: Some(waiting), missing });
        }
        let mut pending = Self { events, wanted, known: HashMap::new() };
        (0..pending.events.len()).for_each(|index| pending.answer_if_complete(index));
        pending
    }

    /// The keys of each reader, each once, in the order of their first asking.
    fn keys_by_reader(&self, reads: &Reads) -> Vec<(ReaderName, Vec<String>)> {
        let mut by_reader: BTreeMap<ReaderName, Vec<String>> = BTreeMap::new();
        let mut asked: BTreeMap<&ReaderName, usize> = BTreeMap::new();
        for (index, event) in self.events.iter().enumerate() {
            let Some(waiting) = &event.waiting else { continue };
            for wish in &waiting.wish.reads {
                *asked.entry(&wish.reader).or_default() += wish.keys.len();
                let own = &self.wanted[&wish.reader];
                let first = wish.keys.iter().filter(|key| own[*key].first() == Some(&index)).cloned();
                by_reader.entry(wish.reader.clone()).or_default().extend(first);
            }
        }
        for (reader, keys) in &by_reader {
            reads.signals.merged(reader, asked[reader] - keys.len());
        }
        by_reader.into_iter().collect()
    }

    /// Takes what was found, and answers the events that have all they asked for.
    fn found(&mut self, reader: &ReaderName, found: Found) {
        for (key, record) in found {
            let wanting = self.wanted.get(reader).and_then(|keys| keys.get(&key)).cloned().unwrap_or_default();
            self.known.insert((reader.clone(), key), record);
            for index in wanting {
                self.events[index].missing -= 1;
                self.answer_if_complete(index);
            }
        }
    }

    fn answer_if_complete(&mut self, index: usize) {
        if self.events[index].missing > 0 {
            return;
        }
        let Some(Waiting { wish, answer }) = self.events[index].waiting.take() else { return };
        let reading = |reader: &ReaderName, key: &String| {
            let value = self.known[&(reader.clone(), key.clone())].clone()?;
            Ok(Reading { reader: reader.clone(), key: key.clone(), value })
        };
        let own = wish.reads.iter().flat_map(|wish| wish.keys.iter().map(|key| reading(&wish.reader, key)));
        // An event whose lease was lost no longer listens.
        let _ = answer.send(own.collect());
    }
}
