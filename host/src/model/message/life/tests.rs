//! Every order in which a message's life can go: two owners of its shard of which one is deposed, crashes, attempts
//! that the destination takes or not with answers that are lost, records that are repeated, an operator's commands, and
//! time. The decisions are the store's own; what runtimes do around them is modelled as the timeline does it.
//!
//! That the exploration would find something is shown by taking away, one by one, what the store and the timeline rely
//! on.

use std::collections::HashSet;

use super::*;
use crate::model::ids::MessageId;
use crate::model::message::{Outcome, UncertainPolicy, after_attempt};
use crate::model::retry::RetryPolicy;

mod world;

use self::world::{Command, Flaw, OWNERS, Plan, Step, World};

/// Worlds that a search looks at, at most; none of them comes near.
const WORLDS_MAX: usize = 4_000_000;

/// What an exploration saw.
#[derive(Debug, Default)]
struct Seen {
    worlds: usize,
    ends: HashSet<MessageState>,
    /// Worlds in which time and the operator are through, an owner works, and the message is not settled.
    stuck: usize,
}

fn explore(plan: Plan) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut known = HashSet::from([World::new(plan)]);
    let mut open: Vec<World> = known.iter().cloned().collect();
    while let Some(world) = open.pop() {
        seen.worlds += 1;
        assert!(seen.worlds < WORLDS_MAX, "the plan is too large");
        if world.is_settled() {
            seen.ends.insert(world.life.state);
        }
        let steps = world.steps(plan);
        if !world.is_settled() && steps.iter().all(|step| matches!(step, Step::Crash(_))) {
            let has_owner = (0..OWNERS).any(|owner| world.owns(owner));
            seen.stuck += usize::from(has_owner && world.is_eligible());
        }
        for step in steps {
            let next = world.after(step, plan).map_err(|what| format!("{what}: {step:?} in {world:?}"))?;
            if known.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen)
}

const POLICIES: [UncertainPolicy; 3] = [UncertainPolicy::Retry, UncertainPolicy::Hold, UncertainPolicy::End];
const COMMANDS: [&[Command]; 5] = [
    &[],
    &[Command::Cancel, Command::Reschedule],
    &[Command::Reschedule, Command::Redrive],
    &[Command::Resolve(Resolution::Retry), Command::Cancel],
    &[Command::Resolve(Resolution::Dead), Command::Redrive],
];

// TL-4, TL-5, TL-6, TL-7
#[test]
fn no_order_of_claims_admissions_outcomes_commands_and_crashes_breaks_a_promise() {
    let mut ends = HashSet::new();
    for uncertain in POLICIES {
        for commands in COMMANDS {
            // An expiry and two commands at once are more worlds, and no more cases.
            for expires in [false, true].into_iter().take(if commands.is_empty() { 2 } else { 1 }) {
                let plan = Plan { uncertain, commands, expires, flaw: None };
                let seen = explore(plan).unwrap_or_else(|what| panic!("{uncertain:?}, {commands:?}: {what}"));
                assert_eq!(seen.stuck, 0, "{uncertain:?}, {commands:?}");
                assert!(seen.worlds > 1_000, "{uncertain:?}, {commands:?}: {} worlds", seen.worlds);
                ends.extend(seen.ends);
            }
        }
    }
    let all = MessageState::ALL.into_iter();
    let reachable = all.filter(|state| state.is_terminal() && *state != MessageState::HandedOff);
    assert_eq!(ends, reachable.chain([MessageState::Uncertain]).collect(), "every end was reached");
}

// TL-4, TL-5, TL-6, TL-7
#[test]
fn the_exploration_finds_what_each_safeguard_is_for() {
    let flaws = [
        Flaw::SentBeforeAdmission,
        Flaw::AdmissionNotFenced,
        Flaw::GenerationNotCompared,
        Flaw::AttemptNotCompared,
        Flaw::SentAfterLease,
        Flaw::UncertaintyForgotten,
        Flaw::RecoveredAsNotSent,
    ];
    for flaw in flaws {
        let mut plans = COMMANDS.into_iter().map(|commands| Plan {
            uncertain: UncertainPolicy::Retry,
            commands,
            expires: false,
            flaw: Some(flaw),
        });
        assert!(plans.any(|plan| explore(plan).is_err()), "{flaw:?} does no harm");
    }
}

// TL-5, TL-6
#[test]
fn a_command_comes_in_time_only_to_what_certainly_has_not_arrived() {
    for state in MessageState::ALL {
        let waits = matches!(state, MessageState::Scheduled | MessageState::RetryWait);
        let expected = if waits { Ok(()) } else { Err(TooLate::Stands(state)) };
        assert_eq!(in_time(state, 0), expected);
        let uncertain = if waits { TooLate::MayHaveArrived(state) } else { TooLate::Stands(state) };
        assert_eq!(in_time(state, 1), Err(uncertain));
        assert_eq!(is_unsettled(state, 0), state == MessageState::Uncertain);
        assert_eq!(is_unsettled(state, 1), waits || state == MessageState::Uncertain);
    }
}
