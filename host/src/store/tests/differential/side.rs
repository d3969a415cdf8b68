//! One engine's side of a history: what its steps came to, and what is seen there.

use super::step::{Attempt, By, Ending, NewPart, Step};
use super::*;
use crate::model::message::AfterAttempt;
use crate::model::pack::Coalescing;
use crate::model::reading::RunRecord;
use crate::model::retention::Keep;

/// How many of the rows that were made last a step chooses from.
const RECENT: usize = 24;

pub(super) struct Side {
    pub(super) fixture: Fixture,
    held: Vec<ClaimedWorkItem>,
    events: Vec<EventId>,
    items: Vec<WorkItemId>,
    messages: Vec<MessageId>,
    leases: Vec<ShardLease>,
    generations: Vec<GenerationNumber>,
    runtimes: Vec<RuntimeId>,
}

/// One of the last few; `None` if there is none.
fn recent<T: Copy>(list: &[T], number: usize) -> Option<T> {
    let recent = &list[list.len().saturating_sub(RECENT)..];
    (!recent.is_empty()).then(|| recent[number % recent.len()])
}

/// How long a history keeps what has ended: so that some of it goes while the history goes on.
const KEEP: Keep =
    Keep { events: Duration::from_secs(60), messages: Duration::from_secs(30), failed: Some(Duration::from_secs(120)) };

/// What was asked for but found nobody to ask about.
const NOBODY: &str = "nobody";

impl Side {
    pub(super) async fn begin(fixture: Fixture) -> Self {
        let mut leases = Vec::new();
        let runtimes = (0..3).map(|_| fixture.runtime()).collect::<Vec<_>>();
        for shard in 0..fixture.store.shard_count() {
            let lease = fixture.store.acquire_shard(ShardId(shard), runtimes[0], LEASE * 1_000, START).await;
            leases.push(lease.unwrap().unwrap());
        }
        Self {
            fixture,
            held: Vec::new(),
            events: Vec::new(),
            items: Vec::new(),
            messages: Vec::new(),
            leases,
            generations: vec![GenerationNumber(1)],
            runtimes,
        }
    }

    fn generation(&self, number: usize) -> GenerationNumber {
        self.generations[number % self.generations.len()]
    }

    /// Takes a step. Returns what it came to.
    pub(super) async fn apply(&mut self, step: &Step) -> String {
        let (store, now) = (self.fixture.store.clone(), self.fixture.now());
        match step {
            Step::Deliver { by, generation, parts } => self.deliver(*by, *generation, parts).await,
            Step::Claim { rows_max, classes, preference, stale_only, generations } => {
                let count = 1 + generations % self.generations.len();
                let request = ClaimRequest {
                    classes: QueueClasses::of(classes),
                    preference: QueueClasses::of(preference),
                    stale_only: *stale_only,
                    generations: self.generations.iter().rev().take(count).copied().collect(),
                    ..self.fixture.request(*rows_max)
                };
                let claimed = store.claim(request).await.unwrap();
                self.held.extend(claimed.iter().cloned());
                format!("{claimed:?}")
            }
            Step::Finish { held, ending, again } => self.finish(*held, ending, *again).await,
            Step::Renew { count } => {
                let rows = self.held.iter().rev().take(*count).map(|item| (item.id, item.lease, item.epoch)).collect();
                let renewal = Renewal { rows, lease_duration: LEASE, now };
                format!("{:?}", store.renew(renewal).await)
            }
            Step::SkipDead { item } => match recent(&self.items, *item) {
                Some(id) => format!("{:?}", store.skip_dead(id).await),
                None => NOBODY.to_owned(),
            },
            Step::Replay { item } => {
                let Some(id) = recent(&self.items, *item) else { return NOBODY.to_owned() };
                let replayed = self.fixture.replay(id).await;
                if let Replayed::Replayed(child) = replayed {
                    self.items.push(child);
                }
                format!("{replayed:?}")
            }
            Step::Sweep => format!("{:?}", store.sweep_lanes(SweepCursor::default()).await),
            Step::Retire => self.retire().await,
            Step::Install { .. } | Step::Activate { .. } | Step::Drain { .. } => self.govern(step).await,
            Step::Shard { .. } | Step::Beat { .. } | Step::Gate { .. } => self.share(step).await,
            Step::List { state, limit } => {
                let filter = MessageFilter { state: *state, ..MessageFilter::default() };
                let (mut pages, mut after) = (Vec::new(), None);
                while pages.len() < 1_000 {
                    let page = store.list_messages(&filter, PageRequest { after, limit: *limit }).await.unwrap();
                    after = page.next;
                    pages.push(page);
                    if after.is_none() {
                        break;
                    }
                }
                format!("{pages:?}")
            }
            Step::Pass { ms } => {
                self.fixture.advance(Duration::from_millis(*ms));
                String::new()
            }
            Step::Publish { .. }
            | Step::Expire { .. }
            | Step::Cancel { .. }
            | Step::Reschedule { .. }
            | Step::Redrive { .. }
            | Step::Resolve { .. } => self.publish(step).await,
        }
    }

    /// Removes what has ended. Nothing that had not is gone, and what is left of an Event is all of it.
    async fn retire(&mut self) -> String {
        let (items, messages) = self.states().await;
        let mut removed = Removed::default();
        for shelf in Shelf::ALL {
            let mut from = None;
            loop {
                let retired = self.fixture.store.retire(shelf, &KEEP, from, self.fixture.now()).await.unwrap();
                removed += retired.removed;
                from = retired.next;
                if from.is_none() {
                    break;
                }
            }
        }
        let (items_left, messages_left) = self.states().await;
        for (id, state) in items {
            assert!(items_left.contains_key(&id) || state.is_terminal(), "{id} was {state:?}");
        }
        for (id, (state, event)) in messages {
            assert!(messages_left.contains_key(&id) || state.is_terminal(), "{id} was {state:?}");
            let has_event = self.fixture.store.event(event).await.unwrap().is_some();
            assert!(has_event || !messages_left.contains_key(&id), "{id} has lost {event}");
        }
        // What follows is about what is there.
        self.items.retain(|id| items_left.contains_key(id));
        self.messages.retain(|id| messages_left.contains_key(id));
        let exact = self.fixture.store.exact_stats(self.fixture.now()).await.unwrap();
        assert_eq!((exact.uncovered, exact.rows), (0, exact.counters));
        format!("Retired {removed:?}")
    }

    /// What stands where of all that this history made, as far as it is there.
    async fn states(&self) -> (BTreeMap<WorkItemId, WorkState>, BTreeMap<MessageId, (MessageState, EventId)>) {
        let store = &self.fixture.store;
        let (mut items, mut messages) = (BTreeMap::new(), BTreeMap::new());
        for id in &self.items {
            items.extend(store.work_item(*id).await.unwrap().map(|item| (*id, item.state)));
        }
        for entry in store.message_entries(&self.messages).await.unwrap() {
            messages.insert(entry.id, (entry.state, entry.event_id));
        }
        (items, messages)
    }

    async fn deliver(&mut self, by: By, generation: usize, parts: &[NewPart]) -> String {
        let events: Vec<NewEvent> = parts
            .iter()
            .map(|part| NewEvent { queue_class: part.class, ..self.fixture.event(&part.key, part.source, part.body) })
            .collect();
        let items: Vec<WorkItemId> = events.iter().map(|event| event.work_item_id).collect();
        let (route, ordering, coalescing) = match by {
            By::Source => ("push", Ordering::Source, Coalescing::None),
            By::Delivery => ("strict", Ordering::Delivery, Coalescing::None),
            By::Nothing => ("loose", Ordering::None, Coalescing::None),
            By::LatestOnly => ("latest", Ordering::Source, Coalescing::LatestBySource),
        };
        let delivery = Delivery {
            route: route.parse().unwrap(),
            ordering,
            coalescing,
            generation: self.generation(generation),
            ..self.fixture.delivery(events)
        };
        let answer = self.fixture.store.enqueue(delivery).await;
        if let Ok(Enqueued::Stored { events }) = &answer {
            self.events.extend(events);
            self.items.extend(items);
        }
        format!("{answer:?}")
    }

    async fn finish(&mut self, held: usize, ending: &Ending, again: bool) -> String {
        if self.held.is_empty() {
            return NOBODY.to_owned();
        }
        let place = held % self.held.len();
        let item = if again { self.held[place].clone() } else { self.held.remove(place) };
        let now = self.fixture.now();
        let disposition = match ending {
            Ending::Release => Disposition::Release,
            Ending::Retry { after_ms, leaves_lane } => Disposition::Retry {
                failure: failure(),
                run_after: now + Duration::from_millis(*after_ms),
                leaves_lane: *leaves_lane,
            },
            Ending::Dead { leaves_lane } => Disposition::Dead { failure: failure(), leaves_lane: *leaves_lane },
            Ending::Done { ignored, destinations, .. } => {
                let messages = destinations.iter().map(|(destination, after_ms, expires)| {
                    let due_at = now + Duration::from_millis(*after_ms);
                    let mut message = self.fixture.message(destination, due_at);
                    message.expire_at = expires.then_some(due_at + LEASE);
                    message
                });
                let messages = messages.collect::<Vec<_>>();
                self.messages.extend(messages.iter().map(|message| message.id));
                Disposition::Done {
                    note: ignored.then(|| "of no interest".to_owned()),
                    ignored: *ignored,
                    messages,
                    record: RunRecord::none(),
                }
            }
        };
        let mut finish = self.fixture.ending(&item, disposition);
        if matches!(ending, Ending::Done { continues: true, .. }) {
            let lease = LeaseToken::new(now, self.fixture.entropy());
            finish.successor = Some(Successor { lease, lease_duration: LEASE });
        }
        let finished = self.fixture.store.finish(finish).await;
        if let Ok(Finished::Continued(successor)) = &finished {
            self.held.push((**successor).clone());
        }
        format!("{finished:?}")
    }

    /// What concerns generations.
    async fn govern(&mut self, step: &Step) -> String {
        let (store, now) = (self.fixture.store.clone(), self.fixture.now());
        match step {
            Step::Install { digest, installing } => {
                let component = bytes::Bytes::from(vec![*digest; 100]);
                let manifest = format!("[pack] # {digest}");
                let installed = store.install_pack(&pack(), [*digest; 32], manifest, component, *installing, now).await;
                if let Ok(Installed { number, new: true }) = installed {
                    self.generations.push(number);
                }
                format!("{installed:?}")
            }
            Step::Activate { number, expected } => {
                let expected = expected.map(|number| self.generation(number));
                format!("{:?}", store.activate(&pack(), Some(self.generation(*number)), expected, now).await)
            }
            Step::Drain { from, to } => {
                let target = match to {
                    Some(to) => DrainTarget::Generation(self.generation(*to)),
                    None => DrainTarget::DeadLetter,
                };
                format!("{:?}", store.drain_generation(&pack(), self.generation(*from), target, now).await)
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// What runtimes tell one another.
    async fn share(&mut self, step: &Step) -> String {
        let (store, now) = (self.fixture.store.clone(), self.fixture.now());
        match step {
            Step::Gate { destination, tenant, gate, by_operator } => {
                let change = GateChange {
                    destination: destination.parse().unwrap(),
                    namespace: tenant.then(namespace),
                    gate: *gate,
                    reason: by_operator.then(|| "asked for".to_owned()),
                    by: if *by_operator { SetBy::Operator } else { SetBy::Destination },
                    now,
                };
                format!("{:?}", store.set_gate(change).await)
            }
            Step::Shard { shard, renews } => {
                let place = usize::from(*shard);
                let lease = if *renews {
                    store.renew_shard(self.leases[place], LEASE * 1_000, now).await
                } else {
                    store.acquire_shard(ShardId(*shard), self.runtimes[0], LEASE * 1_000, now).await
                };
                if let Ok(Some(lease)) = lease {
                    self.leases[place] = lease;
                }
                format!("{lease:?}")
            }
            Step::Beat { runtime, leaves } => {
                let runtime = self.runtimes[*runtime];
                if *leaves {
                    return format!("{:?}", store.leave(runtime, now).await);
                }
                format!("{:?}", store.beat(runtime, LEASE, now).await)
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// What concerns messages.
    async fn publish(&mut self, step: &Step) -> String {
        let (store, now) = (self.fixture.store.clone(), self.fixture.now());
        let chosen = |number: &usize| recent(&self.messages, *number).unwrap_or(MessageId::from_bytes([9; 16]));
        match step {
            Step::Cancel { message } => format!("{:?}", store.cancel(chosen(message), now).await),
            Step::Reschedule { message, after_ms } => {
                let due_at = now + Duration::from_millis(*after_ms);
                format!("{:?}", store.reschedule(chosen(message), due_at).await)
            }
            Step::Redrive { messages } => {
                format!("{:?}", store.redrive(messages.iter().map(chosen).collect(), now).await)
            }
            Step::Resolve { message, resolution } => {
                format!("{:?}", store.resolve(chosen(message), *resolution, now).await)
            }
            Step::Expire { message } => {
                let Some(entry) = store.message_entries(&[chosen(message)]).await.unwrap().pop() else {
                    return NOBODY.to_owned();
                };
                let lease = self.lease_of(&entry);
                let request = AdmissionRequest { id: entry.id, generation: entry.generation };
                format!("{:?}", store.expire(lease, vec![request], now).await)
            }
            Step::Publish { message, attempt, stale } => {
                let Some(entry) = store.message_entries(&[chosen(message)]).await.unwrap().pop() else {
                    return NOBODY.to_owned();
                };
                let mut lease = self.lease_of(&entry);
                if *stale {
                    lease.epoch -= 1;
                }
                let request = AdmissionRequest { id: entry.id, generation: entry.generation };
                let admitted = store.admit(lease, vec![request], now).await;
                let after = match attempt {
                    Attempt::Published => AfterAttempt::Published,
                    Attempt::Retry => AfterAttempt::RetryAt(now + TICK * 3),
                    Attempt::Uncertain => AfterAttempt::Uncertain,
                    Attempt::Dead => AfterAttempt::Dead,
                    Attempt::Open => return format!("{admitted:?}"),
                };
                let outcome = OutcomeRecord {
                    id: entry.id,
                    generation: entry.generation,
                    attempt: entry.attempt + 1,
                    after,
                    uncertain: matches!(after, AfterAttempt::Uncertain),
                    spared: false,
                    status: matches!(after, AfterAttempt::Dead).then_some(410),
                    error: matches!(after, AfterAttempt::Dead).then(|| "gone".to_owned()),
                };
                format!("{admitted:?} {:?}", store.record_outcomes(lease, vec![outcome], now).await)
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn lease_of(&self, entry: &crate::model::message::MessageEntry) -> ShardLease {
        let shard = self.fixture.store.shard_of(&entry.namespace, &entry.destination);
        self.leases[usize::from(shard.0)]
    }

    /// What is seen; `all` of it, or what is looked at most often.
    pub(super) async fn view(&self, all: bool) -> Vec<(&'static str, String)> {
        let (store, now) = (&self.fixture.store, self.fixture.now());
        let look = PeekRequest { rows_max: PEEK_ROWS_MAX, ..self.fixture.look() };
        let first = |limit| PageRequest { after: None, limit };
        let newest_messages =
            store.list_messages(&MessageFilter::default(), PageRequest { after: None, limit: 10 }).await;
        let mut seen = vec![
            ("cheap statistics", format!("{:?}", store.stats().await)),
            ("exact statistics", format!("{:?}", store.exact_stats(now).await)),
            ("who is next", format!("{:?}", store.peek(&look).await)),
            ("when the next is claimable", format!("{:?}", store.next_claimable_at(&pack(), now).await)),
            ("rows in work", format!("{:?}", store.processing_rows(&pack(), now).await)),
            ("the newest events", format!("{:?}", store.list_events(&EventFilter::default(), first(10)).await)),
            ("the newest messages", format!("{newest_messages:?}")),
        ];
        if !all {
            return seen;
        }
        for state in WorkState::ALL {
            let filter = EventFilter { state: Some(state), ..EventFilter::default() };
            seen.push(("events by state", format!("{:?}", store.list_events(&filter, first(PAGE_ROWS_MAX)).await)));
        }
        for id in &self.events {
            seen.push(("an event", format!("{:?}", store.event(*id).await)));
        }
        for id in &self.messages {
            seen.push(("a message", format!("{:?}", store.message(*id).await)));
        }
        for shard in 0..store.shard_count() {
            for open in [false, true] {
                seen.push(("a feed", format!("{:?}", store.feed(ShardId(shard), 0, open, PAGE_ROWS_MAX).await)));
            }
            let publishing = store.publishing_entries(ShardId(shard), None, PAGE_ROWS_MAX).await;
            seen.push(("what is being published", format!("{publishing:?}")));
        }
        seen.push(("shards", format!("{:?}", store.shards().await)));
        seen.push(("gates", format!("{:?}", store.gates().await)));
        seen.push(("generations", format!("{:?}", store.list_generations(None).await)));
        seen.push(("what is served", format!("{:?}", store.serving_generations().await)));
        seen.push(("the queue's mark", format!("{:?}", store.queue_mark(&pack()).await)));
        seen
    }
}
