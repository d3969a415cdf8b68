//! Readiness: whether the host does its work, for a load balancer and for people.

use std::time::Duration;

use crate::model::names::PackName;

/// Whether a host is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it is.
    pub ready: bool,
    /// Why it is not; empty if it is.
    pub reasons: Vec<String>,
}

/// How a pool is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) scheduler_alive: bool,
    pub(super) keeper_alive: bool,
    /// When it last showed that its queue drains, on the monotonic clock.
    pub(super) drained_at: Duration,
}

impl Readiness {
    pub(super) fn from_reasons(reasons: Vec<String>) -> Self {
        Self { ready: reasons.is_empty(), reasons }
    }
}

/// What is wrong with a pool, if anything is.
///
/// An idle pool shows that its queue drains whenever it finds it empty, at least once a poll interval; so silence means
/// that work waits and nobody does it, or that nobody can even look.
pub(super) fn complaint(pack: &PackName, condition: Condition, now: Duration, stall: Duration) -> Option<String> {
    if !condition.scheduler_alive {
        return Some(format!("the scheduler of pack `{pack}` is dead"));
    }
    if !condition.keeper_alive {
        return Some(format!("the lease keeper of pack `{pack}` is dead"));
    }
    let silence = now.saturating_sub(condition.drained_at);
    if silence > stall {
        return Some(format!("nothing of pack `{pack}` has drained for {} s", silence.as_secs()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(60);
    const HEALTHY: Condition =
        Condition { scheduler_alive: true, keeper_alive: true, drained_at: Duration::from_secs(100) };

    fn complain(condition: Condition, now_secs: u64) -> Option<String> {
        complaint(&"github".parse().unwrap(), condition, Duration::from_secs(now_secs), STALL)
    }

    #[test]
    fn a_pool_in_which_nothing_drains_is_not_ready() {
        assert_eq!(complain(HEALTHY, 160), None);
        assert_eq!(complain(HEALTHY, 161).unwrap(), "nothing of pack `github` has drained for 61 s");
    }

    #[test]
    fn a_pool_without_its_tasks_is_not_ready() {
        let reason = complain(Condition { scheduler_alive: false, ..HEALTHY }, 100);
        assert_eq!(reason.unwrap(), "the scheduler of pack `github` is dead");
        let reason = complain(Condition { keeper_alive: false, ..HEALTHY }, 100);
        assert_eq!(reason.unwrap(), "the lease keeper of pack `github` is dead");
    }
}
