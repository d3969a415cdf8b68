//! What a session tells: answers to inquiries, and gauges.

use std::time::Duration;

use super::{End, Session};
use crate::lanes::{Circuit, Held, WorkClass};
use crate::model::message::{MessageEntry, MessageState};
use crate::timeline::database::Broken;
use crate::timeline::inquiry::{INQUIRIES_MAX, Inquiry, LaneView, ShardView, WorkWait};
use crate::timeline::keys::LaneNumber;

/// Gauges are set this often, at the most.
const REPORT_EVERY: Duration = Duration::from_secs(1);

impl Session {
    /// Answers those who have asked since the last time. Returns how many.
    pub(super) fn answer(&mut self) -> Result<usize, End> {
        let mut answers = 0;
        while answers < INQUIRIES_MAX
            && let Some(inquiry) = self.inquiry.take().or_else(|| self.inquiries.try_recv().ok())
        {
            answers += 1;
            // Whoever no longer listens does not need the answer.
            match inquiry {
                Inquiry::Look(reply) => drop(reply.send((self.view(), self.lane_views()))),
                Inquiry::Checkpoint(reply) => self.checkpointing.ask(reply),
                Inquiry::Why(message, reply) => drop(reply.send(self.why(&message)?)),
            }
        }
        Ok(answers)
    }

    /// Sets gauges, now and then.
    pub(super) fn report(&mut self) {
        let monotonic = self.parts.env.clock.monotonic();
        if monotonic < self.report_from {
            return;
        }
        self.report_from = monotonic + REPORT_EVERY;
        let now = self.now();
        let oldest = self.claims.oldest_unresolved().map_or(Duration::ZERO, |since| now.since(since));
        let signals = &self.parts.signals;
        signals.clock_gated(self.held == Some(Held::ClockGated));
        signals.capacity(self.held == Some(Held::Capacity), self.claims.unresolved(), oldest);
        signals.pressing(&self.pressing.supply, &self.pressing.figures);
        let newest = self.checkpointing.newest.as_ref();
        signals.newest_checkpoint(newest.map(|row| (self.parts.env.now().since(row.created_at), row.bytes)));
        signals.lanes(self.index.lanes(), &self.schedule, self.held, now);
    }

    fn view(&self) -> ShardView {
        let lanes = self.index.lanes();
        ShardView {
            shard: self.parts.shard,
            applied: self.index.applied(),
            lag: self.behind,
            pending: lanes.iter().map(|lane| lane.pending()).sum(),
            in_flight: self.claims.with_publisher() as u64 + self.claims.unresolved() as u64,
            lanes: lanes.iter().filter(|lane| !lane.is_vacant).count() as u64,
            held: self.held,
            pressing: self.pressing.supply.pressing().collect(),
            restored: self.restored,
            rows_read: self.rows_read,
            waits: WorkClass::ALL.map(|class| WorkWait {
                class,
                longest: self.work.longest_wait(class),
                bound: self.work.plan().bound(class),
            }),
        }
    }

    fn lane_views(&mut self) -> Vec<LaneView> {
        let now = self.now();
        let lanes = (0..).map(LaneNumber).zip(self.index.lanes()).zip(self.schedule.lanes());
        let views = lanes.filter(|((_, lane), _)| !lane.is_vacant).map(|((number, lane), destination)| {
            let circuit = self.schedule.circuit(number);
            LaneView {
                name: lane.name.clone(),
                shard: self.parts.shard,
                gate: destination.gate(),
                circuit: circuit.as_str(),
                circuit_until: match circuit {
                    Circuit::Open { until, .. } => Some(until),
                    Circuit::Closed { .. } | Circuit::HalfOpen { .. } | Circuit::Ramping { .. } => None,
                },
                throttled_until: self.schedule.throttled_until(number, now),
                pending: lane.pending(),
                in_flight_messages: destination.in_flight_messages(),
                in_flight_bytes: destination.in_flight_bytes(),
                eligible_from: lane.eligible_from().filter(|_| !lane.waits_for_its_head()),
                held: [
                    self.schedule.held(number, now),
                    lane.waits_for_its_head().then_some(Held::OrderingHead),
                    self.held,
                ]
                .into_iter()
                .flatten()
                .min(),
            }
        });
        views.collect()
    }

    /// The first reason that holds against a message.
    fn why(&mut self, message: &MessageEntry) -> Result<Held, Broken> {
        let now = self.now();
        let known = match self.index.entry(message.id)? {
            // The feed has not told of it yet.
            None => return Ok(self.held.unwrap_or(Held::Recovering)),
            Some(known) => known,
        };
        let lane = self.schedule.held(known.lane, now);
        let is_behind = known.order.is_some() && self.head_of(known.lane)? != Some(message.id);
        let backs_off = message.state == MessageState::RetryWait && message.eligible_at > now;
        let reasons = [
            lane,
            is_behind.then_some(Held::OrderingHead),
            self.held,
            backs_off.then_some(Held::RetryBackoff),
            Some(Held::Fairness),
        ];
        Ok(reasons.into_iter().flatten().min().expect("the last one always holds"))
    }

    fn head_of(&mut self, lane: LaneNumber) -> Result<Option<crate::model::ids::MessageId>, Broken> {
        Ok(self.index.head(lane)?.map(|head| head.id))
    }
}
