//! A session's answers to inquiries, and its gauges.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{End, Session};
use crate::lanes::{Circuit, Held, WorkClass};
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState};
use crate::model::time::Timestamp;
use crate::timeline::database::Broken;
use crate::timeline::index::Lane;
use crate::timeline::inquiry::{INQUIRIES_MAX, Inquiry, LaneView, ShardView, WorkWait};
use crate::timeline::keys::LaneNumber;
use crate::timeline::signals::LaneSums;

/// The pause between two reports to the gauges.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Lanes and answers in one turn.
pub(super) const TOLD_MAX: usize = 1_024;

/// Answers and sums that are being made, over several turns if there are many lanes.
#[derive(Default)]
pub(super) struct Telling {
    /// Inquiries that wait for the views of all lanes.
    looks: Vec<oneshot::Sender<(ShardView, Vec<LaneView>)>>,
    /// The views so far, for all of `looks`.
    views: Vec<LaneView>,
    /// The lane to view next.
    looked_at: LaneNumber,
    /// The sums so far, for the gauges.
    sums: Option<LaneSums>,
    /// The lane to sum next.
    summed: LaneNumber,
    /// The monotonic time before which the gauges are not reported again.
    report_from: Duration,
}

impl Session<'_> {
    /// Whether there is something to tell, apart from new inquiries.
    pub(super) fn has_to_tell(&self, monotonic: Duration) -> bool {
        !self.telling.looks.is_empty() || self.telling.sums.is_some() || monotonic >= self.telling.report_from
    }

    /// Answers new inquiries, and goes on with answers and gauges that are of all lanes. Returns how many answers and
    /// lanes that are.
    pub(super) fn tell(&mut self) -> Result<usize, End> {
        let mut told = self.answer()?;
        told += self.look_on(TOLD_MAX - told);
        Ok(told + self.sum_on(TOLD_MAX - told))
    }

    fn answer(&mut self) -> Result<usize, End> {
        let mut answers = 0;
        while answers < INQUIRIES_MAX
            && let Some(inquiry) = self.inbox.take_inquiry()
        {
            answers += 1;
            // The asker may have given up waiting.
            match inquiry {
                Inquiry::Look(reply) if self.telling.looked_at == LaneNumber(0) => self.telling.looks.push(reply),
                // Earlier inquiries have seen a part of the lanes already. This one is taken after them.
                Inquiry::Look(reply) => {
                    self.inbox.put_back(Inquiry::Look(reply));
                    break;
                }
                Inquiry::Checkpoint(reply) => self.checkpointing.ask(reply),
                Inquiry::Why(message, reply) => drop(reply.send(self.why(&message)?)),
            }
        }
        Ok(answers)
    }

    /// Views more lanes, `lanes_max` at the most, for inquiries about all of them.
    fn look_on(&mut self, lanes_max: usize) -> usize {
        if self.telling.looks.is_empty() {
            return 0;
        }
        let now = self.now();
        let mut views = std::mem::take(&mut self.telling.views);
        let (looked, next) = self.each_lane(self.telling.looked_at, lanes_max, |session, number, lane| {
            views.push(session.lane_view(number, lane, now));
        });
        self.telling.looked_at = next.unwrap_or(LaneNumber(0));
        if next.is_some() {
            self.telling.views = views;
            return looked;
        }
        for reply in std::mem::take(&mut self.telling.looks) {
            // The asker may have given up waiting.
            let _ = reply.send((self.view(), views.clone()));
        }
        looked
    }

    /// Sums up more lanes, `lanes_max` at the most, and shows the sums when they are of all.
    fn sum_on(&mut self, lanes_max: usize) -> usize {
        let monotonic = self.monotonic();
        if self.telling.sums.is_none() && monotonic < self.telling.report_from {
            return 0;
        }
        let now = self.now();
        let mut sums = self.telling.sums.take().unwrap_or_default();
        let (looked, next) = self.each_lane(self.telling.summed, lanes_max, |session, number, lane| {
            sums.add(number, lane, &session.schedule, session.held, now);
        });
        self.telling.summed = next.unwrap_or(LaneNumber(0));
        if next.is_some() {
            self.telling.sums = Some(sums);
        } else {
            self.telling.report_from = monotonic + REPORT_EVERY;
            if let Some(lease) = self.tenure.lease() {
                self.around.publisher.recall_late(lease);
            }
            self.shard.signals.lanes(sums);
            self.report(now);
        }
        looked
    }

    /// Reports the gauges of the shard as a whole.
    fn report(&self, now: Timestamp) {
        let oldest = self.claims.oldest_unresolved().map_or(Duration::ZERO, |since| now.since(since));
        let signals = &self.shard.signals;
        signals.clock_gated(self.held == Some(Held::ClockGated));
        signals.capacity(self.held == Some(Held::Capacity), self.claims.unresolved(), oldest);
        signals.pressing(&self.pressing.supply, &self.pressing.figures);
        let newest = self.checkpointing.newest.as_ref();
        signals.newest_checkpoint(newest.map(|row| (self.around.env.now().since(row.created_at), row.bytes)));
    }

    /// Calls `look` with each lane in use, of `lanes_max` from number `from` on. Returns how many lanes that are, and
    /// the next one, if there are more.
    fn each_lane(
        &self,
        from: LaneNumber,
        lanes_max: usize,
        mut look: impl FnMut(&Self, LaneNumber, &Lane),
    ) -> (usize, Option<LaneNumber>) {
        let mut looked = 0;
        for number in self.index.lane_numbers_from(from) {
            if looked == lanes_max {
                return (looked, Some(number));
            }
            looked += 1;
            let lane = self.index.lane(number);
            if !lane.is_vacant {
                look(self, number, lane);
            }
        }
        (looked, None)
    }

    fn view(&self) -> ShardView {
        let lanes = self.index.lanes();
        ShardView {
            shard: self.shard.id,
            applied: self.index.applied(),
            lag: self.catching_up.behind,
            pending: lanes.iter().map(|lane| lane.pending()).sum(),
            in_flight: self.claims.with_publisher() as u64 + self.claims.unresolved() as u64,
            lanes: lanes.iter().filter(|lane| !lane.is_vacant).count() as u64,
            held: self.held,
            pressing: self.pressing.supply.pressing().collect(),
            restored: self.catching_up.restored,
            rows_read: self.catching_up.rows_read,
            waits: WorkClass::ALL.map(|class| WorkWait {
                class,
                longest: self.work.longest_wait(class),
                bound: self.work.plan().bound(class),
            }),
        }
    }

    fn lane_view(&self, number: LaneNumber, lane: &Lane, now: Timestamp) -> LaneView {
        let (destination, circuit) = (self.schedule.lane(number), self.schedule.circuit(number));
        let behind_head = lane.waits_for_its_head().then_some(Held::OrderingHead);
        LaneView {
            name: lane.name.clone(),
            shard: self.shard.id,
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
            held: [self.schedule.held(number, now), behind_head, self.held].into_iter().flatten().min(),
        }
    }

    /// The first reason that holds a message back.
    fn why(&mut self, message: &MessageEntry) -> Result<Held, Broken> {
        let now = self.now();
        let known = match self.index.entry(message.id)? {
            // The feed has not told of it yet.
            None => return Ok(self.held.unwrap_or(Held::Recovering)),
            Some(known) => known,
        };
        if self.claims.has(&known.claim_key()) {
            // The message waits for its admission, or for the store's answer about it, and for no other message.
            return Ok(self.held.unwrap_or(Held::Capacity));
        }
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

    fn head_of(&mut self, lane: LaneNumber) -> Result<Option<MessageId>, Broken> {
        Ok(self.index.head(lane)?.map(|head| head.id))
    }
}
