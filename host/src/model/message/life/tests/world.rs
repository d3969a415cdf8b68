//! A message with the two owners that contend for its shard, and all that can happen to them next.

use super::*;

/// Times are few: one tick is one retry's delay.
const TICK: i64 = 1_000;
const TICKS_MAX: i64 = 3;
pub(super) const OWNERS: usize = 2;

/// What is explored.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) uncertain: UncertainPolicy,
    /// Commands that the operator gives, in any order between everything else.
    pub(super) commands: &'static [Command],
    pub(super) expires: bool,
    pub(super) flaw: Option<Flaw>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Command {
    Cancel,
    Reschedule,
    Redrive,
    Resolve(Resolution),
}

/// Something that a host does not do, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// An owner sends what it claimed, and has it admitted afterwards.
    SentBeforeAdmission,
    /// Admission does not ask whose the shard is.
    AdmissionNotFenced,
    /// Admission does not ask which generation was claimed.
    GenerationNotCompared,
    /// An outcome counts whichever attempt it is of.
    AttemptNotCompared,
    /// An owner relies on its lease for longer than it has it.
    SentAfterLease,
    /// Cancels do not ask whether an attempt may have arrived.
    UncertaintyForgotten,
    /// What a dead owner sent is taken for not sent.
    RecoveredAsNotSent,
}

/// What one owner holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Owner {
    /// It is owner under this epoch, as far as it knows.
    epoch: Option<u8>,
    /// It has settled what the owner before it left.
    has_recovered: bool,
    claim: Option<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Claim {
    generation: u32,
    /// Admitted under this number.
    attempt: Option<u32>,
    sent: Option<Sent>,
    /// Recorded already, by a call whose answer was lost.
    is_recorded: bool,
}

/// What was sent: whether the destination took it, and whether it was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    taken: bool,
    answered: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) life: Life,
    epoch: u8,
    owners: [Owner; OWNERS],
    now: i64,
    /// Commands that were not given yet, by their place in the plan.
    commands: u8,
    /// How often the destination took it, since an operator last said that it shall have it again.
    taken: u8,
    /// The destination has taken it at some time.
    ever_taken: bool,
    /// A cancel was acknowledged.
    cancelled: bool,
    /// An operator said that the destination has it, or that it does not.
    resolved: bool,
    /// Nothing may be sent before this.
    not_before: i64,
    recorded: Vec<(u32, u32)>,
}

/// One thing that can happen next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// An owner takes the shard over, and the one before is deposed.
    TakeOver(usize),
    Recover(usize),
    Claim(usize),
    Admit(usize),
    Send(usize, Sent),
    Record {
        owner: usize,
        answer_is_lost: bool,
    },
    /// It loses all it had in memory.
    Crash(usize),
    Expire(usize),
    Command(usize),
    Tick,
}

fn at(ticks: i64) -> Timestamp {
    Timestamp::from_millis(ticks * TICK)
}

const RETRY: RetryPolicy = RetryPolicy {
    initial: std::time::Duration::from_millis(TICK as u64),
    max: std::time::Duration::from_millis(TICK as u64),
    failures_max: 2,
};

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let due_at = at(1);
        Self {
            life: Life {
                state: MessageState::Scheduled,
                generation: 1,
                attempt: 0,
                uncertain_attempts: 0,
                due_at,
                eligible_at: due_at,
                expire_at: plan.expires.then_some(at(3)),
                admitted_at: None,
                finished_at: None,
            },
            epoch: 0,
            owners: [Owner::default(); OWNERS],
            now: 0,
            commands: (1 << plan.commands.len()) - 1,
            taken: 0,
            ever_taken: false,
            cancelled: false,
            resolved: false,
            not_before: 1,
            recorded: Vec::new(),
        }
    }

    pub(super) fn owns(&self, owner: usize) -> bool {
        self.owners[owner].epoch == Some(self.epoch)
    }

    pub(super) fn steps(&self, plan: Plan) -> Vec<Step> {
        let mut steps = Vec::new();
        for owner in 0..OWNERS {
            self.steps_of(owner, plan, &mut steps);
        }
        let given = |at: &usize| self.commands & 1 << at != 0;
        steps.extend((0..plan.commands.len()).filter(given).map(Step::Command));
        if self.now < TICKS_MAX {
            steps.push(Step::Tick);
        }
        steps
    }

    fn steps_of(&self, owner: usize, plan: Plan, steps: &mut Vec<Step>) {
        let Owner { epoch, has_recovered, claim } = self.owners[owner];
        if !self.owns(owner) && usize::from(self.epoch) < OWNERS {
            steps.push(Step::TakeOver(owner));
        }
        if epoch.is_some() {
            steps.push(Step::Crash(owner));
        }
        if self.owns(owner) && !has_recovered {
            steps.push(Step::Recover(owner));
        }
        // A deposed owner whose guard has not run out yet goes on as if nothing had happened; the store stops it.
        match claim {
            None if has_recovered && self.life.state.waits() && self.is_eligible() => {
                steps.push(Step::Claim(owner));
                steps.push(Step::Expire(owner));
            }
            None => {}
            Some(Claim { attempt: None, sent: None, .. }) if plan.flaw == Some(Flaw::SentBeforeAdmission) => {
                self.sends(owner, steps);
            }
            Some(Claim { attempt: None, .. }) => steps.push(Step::Admit(owner)),
            Some(Claim { sent, is_recorded, .. }) => {
                let may_send = self.owns(owner) || plan.flaw == Some(Flaw::SentAfterLease);
                if sent.is_none() && !is_recorded && may_send {
                    self.sends(owner, steps);
                }
                // If it was not sent after all, the lease ran out, or there was no connection.
                steps.extend([false, true].map(|answer_is_lost| Step::Record { owner, answer_is_lost }));
            }
        }
    }

    fn sends(&self, owner: usize, steps: &mut Vec<Step>) {
        for (taken, answered) in [(true, true), (true, false), (false, true), (false, false)] {
            steps.push(Step::Send(owner, Sent { taken, answered }));
        }
    }

    pub(super) fn is_eligible(&self) -> bool {
        self.life.eligible_at <= at(self.now)
    }

    /// What comes of a step; an error if it breaks a promise.
    pub(super) fn after(&self, step: Step, plan: Plan) -> Result<Self, String> {
        let mut world = self.clone();
        let now = at(self.now);
        match step {
            Step::TakeOver(owner) => {
                world.epoch += 1;
                world.owners[owner] = Owner { epoch: Some(world.epoch), has_recovered: false, claim: None };
            }
            Step::Recover(owner) => {
                world.recover(plan)?;
                world.owners[owner].has_recovered = true;
            }
            Step::Claim(owner) => {
                let generation = self.life.generation;
                let claim = Claim { generation, attempt: None, sent: None, is_recorded: false };
                world.owners[owner].claim = Some(claim);
            }
            Step::Admit(owner) => world.admit(owner, plan),
            Step::Send(owner, sent) => world.send(owner, sent)?,
            Step::Record { owner, answer_is_lost } => world.record(owner, answer_is_lost, plan)?,
            Step::Crash(owner) => world.owners[owner] = Owner::default(),
            Step::Expire(owner) => {
                if self.owns(owner) {
                    world.life.expire(self.life.generation, now);
                }
            }
            Step::Command(command) => {
                world.commands &= !(1 << command);
                world.command(plan.commands[command], plan)?;
            }
            Step::Tick => world.now += 1,
        }
        if self.life.state.is_terminal() && world.life.state != self.life.state && !matches!(step, Step::Command(_)) {
            return Err(format!("{:?} became {:?} by itself", self.life.state, world.life.state));
        }
        Ok(world)
    }

    fn admit(&mut self, owner: usize, plan: Plan) {
        let claim = self.owners[owner].claim.expect("there is a claim");
        let is_fenced = !self.owns(owner) && plan.flaw != Some(Flaw::AdmissionNotFenced);
        let generation =
            if plan.flaw == Some(Flaw::GenerationNotCompared) { self.life.generation } else { claim.generation };
        let attempt = if is_fenced { None } else { self.life.admit(generation, at(self.now)) };
        self.owners[owner].claim = attempt.map(|attempt| Claim { generation, attempt: Some(attempt), ..claim });
    }

    fn send(&mut self, owner: usize, sent: Sent) -> Result<(), String> {
        let claim = self.owners[owner].claim.as_mut().expect("there is a claim");
        claim.sent = Some(sent);
        let on_record = self.life.state == MessageState::Publishing
            && (self.life.generation, Some(self.life.attempt)) == (claim.generation, claim.attempt);
        if !on_record {
            return Err(format!("sent while it is {:?}, and not by the attempt on record", self.life.state));
        }
        if self.cancelled {
            return Err("sent after an acknowledged cancel".to_owned());
        }
        if self.now < self.not_before {
            return Err("sent early".to_owned());
        }
        if sent.taken && self.taken > 0 && self.life.uncertain_attempts == 0 {
            return Err("taken twice, and no attempt is on record as uncertain".to_owned());
        }
        self.taken += u8::from(sent.taken);
        self.ever_taken |= sent.taken;
        Ok(())
    }

    fn record(&mut self, owner: usize, answer_is_lost: bool, plan: Plan) -> Result<(), String> {
        let Claim { generation, attempt, sent, is_recorded } = self.owners[owner].claim.expect("there is a claim");
        let attempt = attempt.unwrap_or(1);
        let outcome = match sent {
            Some(Sent { answered: false, .. }) => Outcome::Unknown,
            Some(Sent { taken: true, .. }) => Outcome::Published,
            Some(Sent { taken: false, .. }) | None => Outcome::Retriable { retry_after: None },
        };
        // What was not sent costs no attempt.
        let end = self.end_of(generation, attempt, &outcome, sent.is_none(), plan);
        let end = match plan.flaw {
            Some(Flaw::AttemptNotCompared) => {
                AttemptEnd { generation: self.life.generation, attempt: self.life.attempt, ..end }
            }
            Some(_) | None => end,
        };
        if self.owns(owner) || plan.flaw == Some(Flaw::AttemptNotCompared) {
            self.conclude(end, is_recorded)?;
        }
        let claim = self.owners[owner].claim.as_mut().expect("there is a claim");
        claim.is_recorded = true;
        if !answer_is_lost || is_recorded {
            self.owners[owner].claim = None;
        }
        Ok(())
    }

    fn end_of(&self, generation: u32, attempt: u32, outcome: &Outcome, spared: bool, plan: Plan) -> AttemptEnd {
        let failures_max = if spared { u32::MAX } else { RETRY.failures_max };
        let retry = RetryPolicy { failures_max, ..RETRY };
        let (id, expire_at) = (MessageId::from_bytes([3; 16]), self.life.expire_at);
        let after = after_attempt(id, attempt, expire_at, outcome, &retry, plan.uncertain, at(self.now));
        AttemptEnd { generation, attempt, after, uncertain: *outcome == Outcome::Unknown, spared }
    }

    fn conclude(&mut self, end: AttemptEnd, is_repeated: bool) -> Result<(), String> {
        let is_over = self.life.state.is_terminal();
        if !self.life.conclude(end, at(self.now)) {
            return Ok(());
        }
        if is_over {
            return Err("an outcome counted after the end".to_owned());
        }
        if is_repeated {
            return Err("a record that was repeated counted twice".to_owned());
        }
        if !end.spared {
            if self.recorded.contains(&(end.generation, end.attempt)) {
                return Err("an attempt has two outcomes".to_owned());
            }
            self.recorded.push((end.generation, end.attempt));
        }
        if end.after == AfterAttempt::Published && self.taken == 0 {
            return Err("published, and the destination never took it".to_owned());
        }
        if let AfterAttempt::RetryAt(_) = end.after {
            self.not_before = self.now + 1;
        }
        Ok(())
    }

    /// What the owner before left without an outcome is uncertain.
    fn recover(&mut self, plan: Plan) -> Result<(), String> {
        if self.life.state != MessageState::Publishing {
            return Ok(());
        }
        let outcome = match plan.flaw {
            Some(Flaw::RecoveredAsNotSent) => Outcome::Retriable { retry_after: None },
            Some(_) | None => Outcome::Unknown,
        };
        let end = self.end_of(self.life.generation, self.life.attempt, &outcome, false, plan);
        self.conclude(end, false)
    }

    fn command(&mut self, command: Command, plan: Plan) -> Result<(), String> {
        let now = at(self.now);
        let life = &mut self.life;
        if plan.flaw == Some(Flaw::UncertaintyForgotten) {
            life.uncertain_attempts = 0;
        }
        match command {
            Command::Cancel => {
                self.cancelled |= life.cancel(now).is_ok();
                if self.cancelled && self.ever_taken && !self.resolved {
                    return Err("cancelled, and the destination has it".to_owned());
                }
            }
            Command::Reschedule => {
                if life.reschedule(at(self.now + 1)).is_ok() {
                    self.not_before = self.now + 1;
                    if self.ever_taken && !self.resolved {
                        return Err("rescheduled, and the destination has it".to_owned());
                    }
                }
            }
            Command::Redrive => {
                if life.redrive(now).is_ok() {
                    (self.taken, self.not_before) = (0, self.now);
                }
            }
            Command::Resolve(resolution) => {
                if life.resolve(resolution, now).is_ok() {
                    (self.resolved, self.not_before) = (true, self.now);
                    if resolution == Resolution::Published {
                        self.taken = self.taken.max(1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether nothing more needs to happen to the message.
    pub(super) fn is_settled(&self) -> bool {
        self.life.state.is_terminal() || self.life.state == MessageState::Uncertain
    }
}
