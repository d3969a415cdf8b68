//! Splitting: a request that carries many events, each as the bytes that the provider wrote.
//!
//! Invariants:
//! - Nothing is parsed and written again: an element is a slice of the body, with its numbers, its order of members and
//!   its white space as they came.
//! - The list is looked for as far as the route bounds it, and what is behind that is not kept.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::answer::Refusal;
use super::pointer::{Target, without_byte_order_mark};
use crate::model::pack::EventList;

/// The elements of the list that a route's events are in, in order: one at least, and no more than the route takes.
pub(super) fn split(body: &Bytes, list: &EventList) -> Result<Vec<Bytes>, Refusal> {
    let mut text: &RawValue =
        serde_json::from_slice(without_byte_order_mark(body)).map_err(|_| Refusal::EventsNotJson)?;
    let mut target = Target::whole(&list.pointer);
    while !target.is_here() {
        let below = Below(target).deserialize(&mut serde_json::Deserializer::from_str(text.get()));
        (text, target) = below.ok().flatten().ok_or(Refusal::EventListMissing)?;
    }
    let events_max = usize::try_from(list.events_max).unwrap_or(usize::MAX);
    let elements = Elements { events_max }.deserialize(&mut serde_json::Deserializer::from_str(text.get()));
    let elements = elements.map_err(|_| Refusal::EventListMissing)?;
    match elements.len() {
        0 => Err(Refusal::EventListMissing),
        length if length > events_max => Err(Refusal::TooManyEvents),
        _ => Ok(elements.into_iter().map(|element| body.slice_ref(element.get().as_bytes())).collect()),
    }
}

/// The part of a value where a pointer goes on, and what is left of the pointer there.
struct Below<'pointer>(Target<'pointer>);

impl<'de, 'pointer> DeserializeSeed<'de> for Below<'pointer> {
    type Value = Option<(&'de RawValue, Target<'pointer>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'pointer> Visitor<'de> for Below<'pointer> {
    type Value = Option<(&'de RawValue, Target<'pointer>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            match self.0.below_member(&name) {
                // Of members of the same name the last counts, as everywhere.
                Some(below) => found = Some((map.next_value()?, below)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for position in 0.. {
            let Some(element) = sequence.next_element()? else { break };
            if let Some(below) = self.0.below_element(position) {
                found = Some((element, below));
            }
        }
        Ok(found)
    }
}

/// The elements of an array: one more than there may be, if there are more.
struct Elements {
    events_max: usize,
}

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while elements.len() <= self.events_max
            && let Some(element) = sequence.next_element::<&RawValue>()?
        {
            elements.push(element);
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(elements)
    }
}

#[cfg(test)]
mod tests;
