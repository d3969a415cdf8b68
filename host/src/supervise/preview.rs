//! Preview: what a generation would do with the events of the past, beside what another one does with them.
//!
//! Invariants:
//! - Nothing comes of it: nothing is stored, sent or logged by a guest. A guest is a pure function, so it can be run
//!   again.
//! - What a flow reads is what was read when the event was run; no provider is called.
//! - It is bounded in events, in time, in differences that are kept, and runs few flows at once; one preview at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::Supervisor;
use super::generations::{Key, NotLoaded};
use super::rollout::{RolloutError, UploadPermit, read};
use crate::env;
use crate::guest::{LoadedGeneration, Outcome};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::EventId;
use crate::model::names::{PackName, RouteName};
use crate::model::pack::GenerationNumber;
use crate::model::reading::RecordedReads;
use crate::store::{EventFilter, PageRequest, WorkItemDetail};

/// The most events that one preview looks at.
pub const PREVIEW_EVENTS_MAX: u32 = 10_000;
/// Differences that are kept; further ones are counted.
pub const DIFFERENCES_KEPT_MAX: usize = 100;
/// How long a preview may take; what it has seen by then is its result.
pub(super) const TIME_MAX: Duration = Duration::from_secs(240);
/// Events that are in memory at once.
pub(super) const PAGE_EVENTS: u32 = 50;
/// Flows that run at once: the events of now come first.
pub(super) const FLOWS_AT_ONCE: usize = 2;
/// Generations that the events are compared with, at most.
const BASELINES_MAX: usize = 8;

/// What the outcomes are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// What the active generation does.
    Active,
    /// What the generation does that admitted each event.
    Recorded,
    /// What this generation does.
    Generation(GenerationNumber),
}

/// Fuel and time of one side, over all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Units of fuel.
    pub fuel: u64,
    /// Wall time.
    pub time: Duration,
    /// Flows that failed.
    pub failures: u64,
}

/// An event on which the two sides differ.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The event.
    pub event: EventId,
    /// Its route.
    pub route: RouteName,
    /// What the baseline makes of it.
    pub before: Outcome,
    /// What the previewed generation makes of it.
    pub after: Outcome,
}

/// What a preview saw.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The pack.
    pub pack: PackName,
    /// Events that were looked at.
    pub events: u64,
    /// Those on which the two sides differ.
    pub changed: u64,
    /// The newest of those.
    pub differences: Vec<Difference>,
    /// The baseline's cost.
    pub before: Cost,
    /// The previewed generation's cost.
    pub after: Cost,
    /// Whether it ran out of time before it had looked at as many events as there are, or as were asked for.
    pub out_of_time: bool,
}

impl Supervisor {
    /// Previews an installed generation.
    pub async fn preview_generation(
        &self,
        pack: &PackName,
        number: GenerationNumber,
        against: Against,
        last: u32,
        leave: &UploadPermit,
    ) -> Result<Preview, RolloutError> {
        self.find(pack, number).await?;
        let candidate = self.callable(&(pack.clone(), number)).await?;
        self.preview(candidate, against, last, leave).await
    }

    /// Previews a pack file that is not installed.
    pub async fn preview_file(
        &self,
        bytes: bytes::Bytes,
        against: Against,
        last: u32,
        leave: &UploadPermit,
    ) -> Result<Preview, RolloutError> {
        let file = read(bytes).await?;
        let candidate = self.shared.parts.guests.load(GenerationNumber(0), Arc::new(file.manifest), file.component);
        self.preview(candidate.await?, against, last, leave).await
    }

    async fn preview(
        &self,
        candidate: Arc<LoadedGeneration>,
        against: Against,
        last: u32,
        _leave: &UploadPermit,
    ) -> Result<Preview, RolloutError> {
        let pack = candidate.manifest().name.clone();
        let mut baselines = Baselines { supervisor: self, against, loaded: BTreeMap::new(), active: None };
        baselines.settle(&pack).await?;
        let ends = self.monotonic() + TIME_MAX;
        let mut preview = Preview {
            pack: pack.clone(),
            events: 0,
            changed: 0,
            differences: Vec::new(),
            before: Cost::default(),
            after: Cost::default(),
            out_of_time: false,
        };
        let filter = EventFilter { pack: Some(pack), ..EventFilter::default() };
        let mut left = last.clamp(1, PREVIEW_EVENTS_MAX);
        let mut after = None;
        while left > 0 {
            let limit = left.min(PAGE_EVENTS);
            let page = self.shared.parts.store.list_events(&filter, PageRequest { after, limit }).await?;
            let ids: Vec<EventId> = page.items.iter().map(|event| event.id).collect();
            let mut pairs = Vec::with_capacity(ids.len());
            for event in self.shared.parts.store.load_events(&ids).await? {
                pairs.push((baselines.of(&event).await?, event));
            }
            left -= u32::try_from(pairs.len()).unwrap_or(left).min(left);
            self.compare_page(&candidate, pairs, &mut preview).await;
            preview.out_of_time = self.monotonic() > ends;
            after = page.next;
            if after.is_none() || preview.out_of_time {
                break;
            }
        }
        Ok(preview)
    }

    async fn compare_page(
        &self,
        candidate: &Arc<LoadedGeneration>,
        pairs: Vec<(Arc<LoadedGeneration>, Event)>,
        preview: &mut Preview,
    ) {
        let flows = pairs.into_iter().map(|(baseline, event)| {
            let (supervisor, candidate) = (self.clone(), Arc::clone(candidate));
            // Where guests may burn CPU.
            env::spawn_on(&self.shared.parts.guest_runtime, "preview", async move {
                let reads = supervisor.recorded_reads(&event, [&baseline, &candidate]).await;
                let before = supervisor.rehearse(&baseline, &event, &reads).await;
                let after = supervisor.rehearse(&candidate, &event, &reads).await;
                (event, before, after)
            })
        });
        let mut ended = stream::iter(flows).buffered(FLOWS_AT_ONCE);
        while let Some(flow) = ended.next().await {
            // A panic has been logged; the event counts as not looked at.
            if let Ok((event, before, after)) = flow {
                preview.add(&event, before, after);
            }
        }
    }

    /// What was read when the event was last run to its end, if one of these generations reads at all.
    async fn recorded_reads(&self, event: &Event, generations: [&LoadedGeneration; 2]) -> RecordedReads {
        if generations.iter().all(|generation| generation.manifest().readers.is_empty()) {
            return RecordedReads::NONE;
        }
        match self.shared.parts.store.event(event.id).await {
            Ok(Some(detail)) => {
                let executed = |item: &WorkItemDetail| item.output_digest.is_some();
                let last = detail.work_items.into_iter().rfind(executed);
                last.map_or(RecordedReads::NONE, |item| item.reads)
            }
            // What is missing shows as a read that is not on record.
            Ok(None) | Err(_) => RecordedReads::NONE,
        }
    }

    async fn rehearse(&self, generation: &LoadedGeneration, event: &Event, reads: &RecordedReads) -> (Outcome, Cost) {
        if !generation.manifest().routes.iter().any(|route| route.path == event.route) {
            let reason = format!("the pack does not declare the route `{}`", event.route);
            return (
                Outcome::Failed(Failure::new(FailureClass::Host, reason)),
                Cost { failures: 1, ..Cost::default() },
            );
        }
        let limit = generation.manifest().limits.deadline.min(self.shared.options.execute.deadline_max);
        let began = self.monotonic();
        let rehearsal = generation.rehearse(event, 1, reads, env::deadline(limit)).await;
        let failures = u64::from(matches!(rehearsal.outcome, Outcome::Failed(_)));
        let time = self.monotonic().saturating_sub(began);
        (rehearsal.outcome, Cost { fuel: rehearsal.fuel, time, failures })
    }

    /// A generation that is ready to be called: as it is loaded, or loaded for the preview alone.
    pub(super) async fn callable(&self, key: &Key) -> Result<Arc<LoadedGeneration>, RolloutError> {
        self.load_stored(key).await.map_err(|error| match error {
            NotLoaded::Store(error) => error.into(),
            NotLoaded::Refused(reason) => {
                RolloutError::Refused(format!("generation {} of pack `{}` cannot be run: {reason}", key.1, key.0))
            }
        })
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.shared.parts.env.clock.monotonic()
    }
}

impl Preview {
    fn add(&mut self, event: &Event, before: (Outcome, Cost), after: (Outcome, Cost)) {
        self.events += 1;
        self.before.add(before.1);
        self.after.add(after.1);
        let (before, after) = (before.0, after.0);
        if before == after {
            return;
        }
        self.changed += 1;
        if self.differences.len() < DIFFERENCES_KEPT_MAX {
            self.differences.push(Difference { event: event.id, route: event.route.clone(), before, after });
        }
    }
}

impl Cost {
    fn add(&mut self, more: Cost) {
        self.fuel += more.fuel;
        self.time += more.time;
        self.failures += more.failures;
    }
}

/// The generations that outcomes are compared with, loaded as they are met.
struct Baselines<'s> {
    supervisor: &'s Supervisor,
    against: Against,
    active: Option<GenerationNumber>,
    loaded: BTreeMap<GenerationNumber, Arc<LoadedGeneration>>,
}

impl Baselines<'_> {
    /// Finds out which generation is active, if that is what counts.
    async fn settle(&mut self, pack: &PackName) -> Result<(), RolloutError> {
        if self.against != Against::Active {
            return Ok(());
        }
        let serving = self.supervisor.shared.parts.store.serving_generations().await?;
        let active = serving.into_iter().find(|serving| serving.active && serving.pack == *pack);
        let active = active.ok_or_else(|| {
            RolloutError::Conflict(format!(
                "no generation of pack `{pack}` is active: compare with what admitted the events (against recorded)"
            ))
        })?;
        self.active = Some(active.number);
        Ok(())
    }

    async fn of(&mut self, event: &Event) -> Result<Arc<LoadedGeneration>, RolloutError> {
        let number = match self.against {
            Against::Active => self.active.unwrap_or(event.generation),
            Against::Recorded => event.generation,
            Against::Generation(number) => number,
        };
        if let Some(loaded) = self.loaded.get(&number) {
            return Ok(Arc::clone(loaded));
        }
        if self.loaded.len() == BASELINES_MAX {
            self.loaded.pop_first();
        }
        let loaded = self.supervisor.callable(&(event.pack.clone(), number)).await?;
        self.loaded.insert(number, Arc::clone(&loaded));
        Ok(loaded)
    }
}
