//! Verification: what was done is done again, on the same generation with the same reads, and the outputs are compared
//! by their hashes.
//!
//! Invariants:
//! - Nothing comes of it: nothing is stored, sent, read or logged by a guest.
//! - What cannot be compared is said to be so, with the reason; it never counts as the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::Supervisor;
use super::generations::Key;
use super::preview::{FLOWS_AT_ONCE, PAGE_EVENTS, PREVIEW_EVENTS_MAX, TIME_MAX};
use super::rollout::{RolloutError, UploadPermit};
use crate::env;
use crate::guest::{LoadedGeneration, Outcome};
use crate::model::event::Event;
use crate::model::failure::FailureClass;
use crate::model::ids::{EventId, WorkItemId};
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::reading::RecordedReads;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::{EventDetail, EventFilter, PageRequest, WorkItemDetail};

/// Runs that are named one by one; further ones are counted.
const NAMED_MAX: usize = 100;
/// Generations that are kept loaded for one verification.
const GENERATIONS_KEPT_MAX: usize = 8;

/// What running it again came to.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The same output.
    Same,
    /// Another one.
    Differs {
        /// What the output hashed to.
        recorded: [u8; 32],
        /// What the flow came to now.
        now: Outcome,
    },
    /// There is nothing to compare.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// One run, verified.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The event.
    pub event: EventId,
    /// The WorkItem whose run it was.
    pub work_item: WorkItemId,
    /// The generation that ran it.
    pub generation: GenerationNumber,
    /// What came of it.
    pub verdict: Verdict,
}

/// What a verification saw.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// Runs that came out the same.
    pub same: u64,
    /// Runs that came out otherwise.
    pub differing: u64,
    /// Runs that could not be compared.
    pub unknown: u64,
    /// Whether time ran out before all were looked at.
    pub out_of_time: bool,
    /// The newest that are not the same; of a single event, all.
    pub named: Vec<Verified>,
}

/// Generations, loaded as they are met.
#[derive(Default)]
struct Loaded(BTreeMap<Key, Result<Arc<LoadedGeneration>, String>>);

impl Supervisor {
    /// Verifies the runs of one event; none if there is no such event.
    pub async fn verify_event(&self, id: EventId) -> Result<Option<Verification>, RolloutError> {
        let Some(detail) = self.shared.parts.store.event(id).await? else { return Ok(None) };
        let mut verification = Verification::default();
        for verified in self.verify_detail(detail, &mut Loaded::default()).await {
            verification.add(verified, true);
        }
        Ok(Some(verification))
    }

    /// Verifies the runs of the newest events, of one pack or of all.
    pub async fn verify_last(
        &self,
        pack: Option<PackName>,
        last: u32,
        _leave: &UploadPermit,
    ) -> Result<Verification, RolloutError> {
        let filter = EventFilter { pack, ..EventFilter::default() };
        let ends = self.monotonic() + TIME_MAX;
        let (mut verification, mut loaded) = (Verification::default(), Loaded::default());
        let mut left = last.clamp(1, PREVIEW_EVENTS_MAX);
        let mut after = None;
        while left > 0 {
            let limit = left.min(PAGE_EVENTS);
            let page = self.shared.parts.store.list_events(&filter, PageRequest { after, limit }).await?;
            for event in &page.items {
                let Some(detail) = self.shared.parts.store.event(event.id).await? else { continue };
                for verified in self.verify_detail(detail, &mut loaded).await {
                    verification.add(verified, false);
                }
            }
            left -= u32::try_from(page.items.len()).unwrap_or(left).min(left);
            verification.out_of_time = self.monotonic() > ends;
            after = page.next;
            if after.is_none() || verification.out_of_time {
                break;
            }
        }
        Ok(verification)
    }

    async fn verify_detail(&self, detail: EventDetail, loaded: &mut Loaded) -> Vec<Verified> {
        let EventDetail { event, work_items, .. } = detail;
        let event = Arc::new(event);
        let mut runs = Vec::new();
        for item in work_items.into_iter().filter(|item| item.work_type == WorkType::ConnectorEvent) {
            let flow = match comparable(&item) {
                Ok(recorded) => {
                    loaded.get(self, (item.pack.clone(), item.generation)).await.map(|flow| (flow, recorded))
                }
                Err(reason) => Err(reason),
            };
            let (supervisor, event) = (self.clone(), Arc::clone(&event));
            // Where guests may burn CPU.
            runs.push(async move {
                let verified = |verdict| Verified {
                    event: item.event_id,
                    work_item: item.id,
                    generation: item.generation,
                    verdict,
                };
                let (flow, recorded) = match flow {
                    Ok(run) => run,
                    Err(reason) => return verified(Verdict::Unknown { reason }),
                };
                let (attempt, reads) = (item.attempt, item.reads.clone());
                let runtime = &supervisor.shared.parts.guest_runtime;
                let again = supervisor.clone();
                let running = env::spawn_on(runtime, "verify", async move {
                    again.run_again(&flow, &event, attempt, &reads, recorded).await
                });
                let panicked = |_| Verdict::Unknown { reason: "the host panicked while it ran it again".to_owned() };
                verified(running.await.unwrap_or_else(panicked))
            });
        }
        stream::iter(runs).buffered(FLOWS_AT_ONCE).collect().await
    }

    async fn run_again(
        &self,
        flow: &LoadedGeneration,
        event: &Event,
        attempt: u32,
        reads: &RecordedReads,
        recorded: [u8; 32],
    ) -> Verdict {
        let limit = flow.manifest().limits.deadline.min(self.shared.options.execute.deadline_max);
        let outcome = flow.rehearse(event, attempt, reads, env::deadline(limit)).await.outcome;
        if let Outcome::Failed(failure) = &outcome
            && matches!(failure.class, FailureClass::NotRun | FailureClass::Deadline | FailureClass::Host)
        {
            return Verdict::Unknown { reason: format!("it could not be run to its end again: {failure}") };
        }
        if outcome.digest() == Some(recorded) { Verdict::Same } else { Verdict::Differs { recorded, now: outcome } }
    }
}

/// The hash to compare with, or why there is nothing to compare.
fn comparable(item: &WorkItemDetail) -> Result<[u8; 32], String> {
    if item.state != WorkState::Done {
        return Err(format!("it is {}: only a finished run has an output", item.state.as_str()));
    }
    let recorded = item.output_digest.ok_or_else(|| {
        "its output was not hashed: a later event superseded it, or an older version of the host ran it".to_owned()
    })?;
    match item.reads {
        RecordedReads::Kept(_) => Ok(recorded),
        RecordedReads::TooLarge { count, bytes } => {
            Err(format!("its {count} reads were not recorded: their {bytes} bytes are too many"))
        }
    }
}

impl Loaded {
    async fn get(&mut self, supervisor: &Supervisor, key: Key) -> Result<Arc<LoadedGeneration>, String> {
        if !self.0.contains_key(&key) {
            if self.0.len() == GENERATIONS_KEPT_MAX {
                self.0.pop_first();
            }
            let loaded = supervisor.callable(&key).await.map_err(|error| error.to_string());
            self.0.insert(key.clone(), loaded);
        }
        self.0[&key].clone()
    }
}

impl Verification {
    fn add(&mut self, verified: Verified, all_named: bool) {
        let same = match &verified.verdict {
            Verdict::Same => {
                self.same += 1;
                true
            }
            Verdict::Differs { .. } => {
                self.differing += 1;
                false
            }
            Verdict::Unknown { .. } => {
                self.unknown += 1;
                false
            }
        };
        if self.named.len() < NAMED_MAX && (all_named || !same) {
            self.named.push(verified);
        }
    }
}
