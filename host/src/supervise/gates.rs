//! The gates before a pack's pool: it starts only where the schema, what the database lets this host do, and the
//! coverage of the pack's Events are confirmed; and a gap that is confirmed later stops it. What could not be found out
//! changes nothing.
//!
//! | confirmed | pool that runs | pack without one |
//! |---|---|---|
//! | as it must be | runs on | gets one |
//! | a gap | is stopped | gets none |
//! | nothing yet: a probe failed, or the look is not over | runs on | gets none |

use tokio::time::timeout;

use super::{PROBE_TIMEOUT, Supervisor};
use crate::model::names::PackName;
use crate::store::{CoverageWatch, Gap};

/// Looks over the Events in one turn; what each found is kept, whatever becomes of the next.
const COVERAGE_LOOKS: usize = 5;

/// What is known of the store.
#[derive(Debug, Default)]
pub(super) struct Gates {
    claims: Claims,
    coverage: CoverageWatch,
}

/// Whether claims can be made at all.
#[derive(Debug, Default)]
enum Claims {
    /// Nobody has found out.
    #[default]
    Unknown,
    Possible,
    Impossible(Gap),
}

/// What is to be done with a pack's pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gate {
    /// It may start.
    Open,
    /// It stops, and does not start.
    Closed(Gap),
    /// If it runs, it runs on; it does not start.
    Undecided,
}

impl Gates {
    /// What is known says this of a pack.
    pub(super) fn verdict(&self, pack: &PackName) -> Gate {
        if let Claims::Impossible(gap) = &self.claims {
            return Gate::Closed(gap.clone());
        }
        match (self.coverage.gap(pack), &self.claims) {
            (Some(gap), _) => Gate::Closed(gap),
            (None, Claims::Possible) if self.coverage.is_complete() => Gate::Open,
            (None, _) => Gate::Undecided,
        }
    }

    /// What stands in the way, each thing once.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let claims = match &self.claims {
            Claims::Impossible(gap) => Some(gap.clone()),
            Claims::Unknown | Claims::Possible => None,
        };
        let coverage = self.coverage.gaps().filter_map(|pack| self.coverage.gap(pack));
        claims.into_iter().chain(coverage).collect()
    }

    /// Whether there is more to be looked at, and nothing to wait for.
    pub(super) fn looks_on(&self) -> bool {
        matches!(self.claims, Claims::Possible) && !self.coverage.is_complete()
    }
}

impl Supervisor {
    /// Finds out what can be found out, and opens and closes the gates accordingly.
    pub(super) async fn confirm(&self) {
        let store = &self.shared.parts.store;
        match timeout(PROBE_TIMEOUT, store.confirm_claims()).await {
            Ok(Ok(None)) => self.state().gates.claims = Claims::Possible,
            Ok(Ok(Some(gap))) => self.state().gates.claims = Claims::Impossible(gap),
            Ok(Err(error)) => tracing::debug!(%error, "whether claims can be made is not known"),
            Err(_) => tracing::debug!("whether claims can be made was not answered in time"),
        }
        for _ in 0..COVERAGE_LOOKS {
            let watch = self.state().gates.coverage.clone();
            match timeout(PROBE_TIMEOUT, store.confirm_coverage(&watch)).await {
                Ok(Ok(watch)) => self.state().gates.coverage = watch,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "whether events lack their work items is not known");
                    break;
                }
                Err(_) => {
                    tracing::debug!("whether events lack their work items was not answered in time");
                    self.state().gates.coverage.look_less_far();
                    break;
                }
            }
            if self.state().gates.coverage.is_complete() {
                break;
            }
        }
        self.obey_gates();
        if self.state().gates.looks_on() {
            self.shared.look.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::GapKind;
    use crate::store::testing::{Fixture, pack};

    // RDY-1, RDY-2: what is not known opens nothing, and stops nothing.
    #[tokio::test]
    async fn a_gate_opens_when_all_is_confirmed_and_closes_when_something_is_confirmed_to_be_missing() {
        let fixture = Fixture::new().await;
        let mut gates = Gates::default();
        assert_eq!(gates.verdict(&pack()), Gate::Undecided);
        gates.claims = Claims::Possible;
        assert_eq!(gates.verdict(&pack()), Gate::Undecided, "the Events have not been looked at");
        assert!(gates.looks_on());
        gates.coverage = fixture.store.confirm_coverage(&gates.coverage).await.unwrap();
        assert_eq!(gates.verdict(&pack()), Gate::Open);
        assert_eq!((gates.looks_on(), gates.gaps()), (false, vec![]));
        gates.claims = Claims::Unknown;
        assert_eq!(gates.verdict(&pack()), Gate::Undecided);
        let gap = Gap { kind: GapKind::Schema, seen: "a column is gone".to_owned() };
        gates.claims = Claims::Impossible(gap.clone());
        assert_eq!(gates.verdict(&pack()), Gate::Closed(gap.clone()));
        assert_eq!(gates.gaps(), [gap]);
    }
}
