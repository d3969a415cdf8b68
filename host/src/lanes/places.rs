//! Places: what may be between claim and outcome at once, over all shards of a runtime, and who may take the next one.
//!
//! A place is for one message and its bytes, and is taken with the claim: what has none waits in its line, where a
//! pause, its expiry and the turns of its lane find it.
//!
//! - One destination has at most half of all, of messages and of bytes, whatever its lanes may have.
//! - One part in [`RESERVE_PART`] of all is the *reserve*: only a destination that has nothing in flight takes of it,
//!   one message. So however many destinations hang and hold what they have got, one that works gets a place, and
//!   another one when that comes back. Of what is not the reserve nobody has a part by itself: there the turns decide
//!   that lanes take, by their weights.
//! - Shards that are refused take turns by bytes ([`Rivals`]), before all places and before those of one destination.
//!
//! A message for whose bytes there is no room holds up nobody but its own destination: nothing more goes there until it
//! has gone, with what comes free, or with the reserve once nothing is in flight there any more. Of the reserve what
//! the first of these needs is kept for it. Both hold for [`WAITS_FOR`] after its shard has asked for it, and anew each
//! time that it asks: a shard that may not claim any more keeps nothing from others. One that is larger than all counts
//! as all, and goes alone.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::rivals::{PATIENCE, Rivals};
use super::turn::message_cost;
use crate::model::destination::{DESTINATION_PART, RESERVE_PART};

/// How long a destination, and bytes of the reserve, wait for a shard that was refused. Shards ask for what they want
/// as often as rivals do; one that comes a little late has not given up.
const WAITS_FOR: Duration = PATIENCE.saturating_mul(2);

/// How much may be in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacesMax {
    /// Messages.
    pub messages: usize,
    /// Their bodies and headers.
    pub bytes: u64,
}

/// Why there is no place for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// Its destination has what it may have, or it is another shard's turn to send to it.
    Destination,
    /// There are places, but not for so many bytes.
    Bytes,
    /// There is none, or it is another shard's turn.
    All,
}

/// What is in flight.
#[derive(Debug)]
pub struct Places<S, D> {
    max: PlacesMax,
    messages: usize,
    bytes: u64,
    there: HashMap<D, There<S>>,
    rivals: Rivals<S>,
    /// A shard that waits for bytes to a destination that has nothing in flight, and for how many: of the reserve
    /// nobody else takes these.
    kept: Option<(Wait<S>, u64)>,
}

/// A shard that others wait for.
#[derive(Debug, Clone, Copy)]
struct Wait<S> {
    shard: S,
    /// When it asked last.
    asked: Duration,
}

impl<S: Copy + Eq> Wait<S> {
    /// What is left of a wait at `now`.
    fn at(wait: Option<Self>, now: Duration) -> Option<Self> {
        wait.filter(|wait| now.saturating_sub(wait.asked) < WAITS_FOR)
    }

    /// A wait that `shard` asks for at `now`: it is another one's as long as that lasts.
    fn asked(wait: Option<Self>, shard: S, now: Duration) -> Self {
        match Self::at(wait, now) {
            Some(wait) if wait.shard != shard => wait,
            Some(_) | None => Wait { shard, asked: now },
        }
    }

    /// A wait, unless it is this shard's.
    fn but_of(wait: Option<Self>, shard: S) -> Option<Self> {
        wait.filter(|wait| wait.shard != shard)
    }
}

/// What is in flight to one destination.
#[derive(Debug)]
struct There<S> {
    messages: usize,
    bytes: u64,
    rivals: Rivals<S>,
    /// The shard whose message waits for bytes.
    waits: Option<Wait<S>>,
}

impl<S> Default for There<S> {
    fn default() -> Self {
        Self { messages: 0, bytes: 0, rivals: Rivals::default(), waits: None }
    }
}

impl<S: Copy + Ord> There<S> {
    /// Whether nothing is in flight there, and nobody wants anything.
    fn is_forgotten(&self) -> bool {
        self.messages == 0 && self.waits.is_none() && self.rivals.all().next().is_none()
    }
}

impl<S: Copy + Ord, D: Clone + Eq + Hash> Places<S, D> {
    /// None taken.
    ///
    /// # Panics
    /// If there is not even one.
    pub fn new(max: PlacesMax) -> Self {
        assert!(max.messages > 0 && max.bytes > 0, "with no place in flight nothing is ever published");
        Self { max, messages: 0, bytes: 0, there: HashMap::new(), rivals: Rivals::default(), kept: None }
    }

    /// Takes a place for a message of a shard. `waited` says that it was refused for its bytes before. Others whose
    /// turn it is now are added to `called`.
    pub fn take(
        &mut self,
        shard: S,
        destination: &D,
        bytes: u32,
        waited: bool,
        now: Duration,
        called: &mut Vec<S>,
    ) -> Result<(), NoPlace> {
        let counted = self.counted(bytes);
        let half = self.half();
        let (kept, reserve) = (self.kept_from(shard, now), self.reserve());
        if !self.there.contains_key(destination) {
            self.there.insert(destination.clone(), There::default());
        }
        let there = self.there.get_mut(destination).expect("it was just put there");
        let is_first = there.messages == 0;
        let fits_there = is_first || (there.messages < half.messages && there.bytes + counted <= half.bytes);
        there.waits = Wait::at(there.waits, now);
        let is_waited_for = there.waits.is_some_and(|wait| wait.shard != shard || !waited);
        if !fits_there || is_waited_for || !there.rivals.may(shard, now) {
            there.rivals.refused(shard, now);
            return Err(NoPlace::Destination);
        }
        let of_messages = if is_first { 0 } else { reserve.messages };
        let of_bytes = if is_first { kept } else { reserve.bytes };
        let has_messages = self.messages < self.max.messages - of_messages;
        let has_bytes = self.bytes == 0 || self.bytes + counted <= self.max.bytes - of_bytes;
        if has_messages && !has_bytes {
            there.waits = Some(Wait::asked(there.waits, shard, now));
            if is_first {
                self.keep(shard, counted.min(reserve.bytes), now);
            }
            self.rivals.refused(shard, now);
            return Err(NoPlace::Bytes);
        }
        if !has_messages || (!is_first && !self.rivals.may(shard, now)) {
            self.rivals.refused(shard, now);
            return Err(NoPlace::All);
        }
        let cost = message_cost(bytes);
        there.messages += 1;
        there.bytes += counted;
        if there.rivals.took(shard, cost, now) {
            called.extend(there.rivals.all().filter(|rival| *rival != shard));
        }
        if self.rivals.took(shard, cost, now) {
            called.extend(self.rivals.all().filter(|rival| *rival != shard));
        }
        self.messages += 1;
        self.bytes += counted;
        if waited {
            there.waits = None;
            self.kept = self.kept.filter(|(wait, _)| wait.shard != shard || !is_first);
        }
        Ok(())
    }

    /// A place is free again. Whoever may want it is added to `called`.
    pub fn give_back(&mut self, destination: &D, bytes: u32, called: &mut Vec<S>) {
        let counted = self.counted(bytes);
        let there = self.there.get_mut(destination).expect("something is in flight to it");
        there.messages -= 1;
        there.bytes -= counted;
        self.messages -= 1;
        self.bytes -= counted;
        called.extend(there.rivals.all());
        called.extend(self.rivals.all());
        if there.is_forgotten() {
            self.there.remove(destination);
        }
    }

    /// How many more messages a shard may send to a destination, as far as that one is concerned.
    pub fn room_there(&mut self, shard: S, destination: &D, now: Duration) -> usize {
        let half = self.half();
        let Some(there) = self.there.get_mut(destination) else { return half.messages };
        if there.messages > 0 && there.bytes >= half.bytes {
            return 0;
        }
        if there.rivals.may(shard, now) { half.messages.saturating_sub(there.messages) } else { 0 }
    }

    /// Whether a destination that has nothing in flight would get a place.
    pub fn has_reserve(&self) -> bool {
        self.messages < self.max.messages
    }

    /// A shard wants no more places than it has, but for what waits for bytes or a destination. Others whose turn it is
    /// then are added to `called`.
    pub fn rest(&mut self, shard: S, called: &mut Vec<S>) {
        self.rivals.leave(shard);
        called.extend(self.rivals.all());
    }

    /// What a shard had wait for bytes to a destination is not to be sent any more.
    pub fn wait_no_longer(&mut self, shard: S, destination: &D) {
        if let Some(there) = self.there.get_mut(destination) {
            there.waits = Wait::but_of(there.waits, shard);
        }
        self.kept = self.kept.filter(|(wait, _)| wait.shard != shard);
    }

    /// A shard wants nothing more. What it has in flight counts until it is given back.
    pub fn leave(&mut self, shard: S, called: &mut Vec<S>) {
        self.rest(shard, called);
        self.kept = self.kept.filter(|(wait, _)| wait.shard != shard);
        self.there.retain(|_, there| {
            there.waits = Wait::but_of(there.waits, shard);
            there.rivals.leave(shard);
            called.extend(there.rivals.all());
            !there.is_forgotten()
        });
    }

    /// Messages that have a place.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.messages
    }

    /// The most of one destination.
    fn half(&self) -> PlacesMax {
        let PlacesMax { messages, bytes } = self.max;
        PlacesMax { messages: (messages / DESTINATION_PART).max(1), bytes: (bytes / DESTINATION_PART as u64).max(1) }
    }

    /// What only those who have nothing in flight take of.
    fn reserve(&self) -> PlacesMax {
        let PlacesMax { messages, bytes } = self.max;
        PlacesMax { messages: messages / RESERVE_PART, bytes: bytes / RESERVE_PART as u64 }
    }

    /// Bytes that are kept for another shard.
    fn kept_from(&self, shard: S, now: Duration) -> u64 {
        let Some((wait, bytes)) = self.kept else { return 0 };
        Wait::but_of(Wait::at(Some(wait), now), shard).map_or(0, |_| bytes)
    }

    /// Keeps so many bytes for a shard, unless some are kept for another one.
    fn keep(&mut self, shard: S, bytes: u64, now: Duration) {
        let (before, of_before) = self.kept.map_or((None, 0), |(wait, bytes)| (Wait::at(Some(wait), now), bytes));
        let wait = Wait::asked(before, shard, now);
        // What it asked for first stays what it is kept.
        let bytes = if before.is_some() { of_before } else { bytes };
        self.kept = Some((wait, bytes));
    }

    fn counted(&self, bytes: u32) -> u64 {
        u64::from(bytes).min(self.max.bytes)
    }
}

#[cfg(test)]
mod tests;
