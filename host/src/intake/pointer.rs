//! JSON pointers (RFC 6901) into a body, without building the document.
//!
//! One pass over the text descends only where a pointer leads and skips the rest. Numbers keep their exact text: `1e21`
//! and 2^53 + 1 come out as they went in, which no float in between would do.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The body is not one JSON document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// The strings and numbers at these places; `None` where there is neither. Of keys that an object has twice, the last
/// counts, as it does for the parsers that guests use. Asked for no place at all, it does not look at the document.
pub(super) fn find<const N: usize>(
    document: &[u8],
    pointers: [Option<&str>; N],
) -> Result<[Option<String>; N], NotJson> {
    let mut found = [const { None }; N];
    let targets: Vec<Target<'_>> = pointers
        .into_iter()
        .enumerate()
        .filter_map(|(slot, pointer)| pointer.map(|rest| Target { slot, rest }))
        .collect();
    if targets.is_empty() {
        return Ok(found);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(without_byte_order_mark(document));
    Walk { targets: &targets, found: &mut found }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|_| NotJson)?;
    Ok(found)
}

/// A document's text, which some senders put a mark before.
pub(super) fn without_byte_order_mark(document: &[u8]) -> &[u8] {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(document)
}

/// What is left of a pointer at some place of the document: empty at the place itself.
#[derive(Clone, Copy)]
pub(super) struct Target<'pointer> {
    slot: usize,
    rest: &'pointer str,
}

impl<'pointer> Target<'pointer> {
    /// A pointer at the document as a whole.
    pub(super) fn whole(pointer: &'pointer str) -> Self {
        Self { slot: 0, rest: pointer }
    }

    /// Whether it leads no further.
    pub(super) fn is_here(self) -> bool {
        self.rest.is_empty()
    }

    /// The first token, still escaped, and what is left behind it.
    fn split(self) -> Option<(&'pointer str, Self)> {
        let tokens = self.rest.strip_prefix('/')?;
        let end = tokens.find('/').unwrap_or(tokens.len());
        Some((&tokens[..end], Self { rest: &tokens[end..], ..self }))
    }

    /// The target below the member of this name, if the pointer leads there.
    pub(super) fn below_member(self, name: &str) -> Option<Self> {
        let (token, below) = self.split()?;
        let leads_there =
            if token.contains('~') { token.replace("~1", "/").replace("~0", "~") == name } else { token == name };
        leads_there.then_some(below)
    }

    /// The target below the element at this position. A position has one spelling: no sign, no leading zero.
    pub(super) fn below_element(self, position: usize) -> Option<Self> {
        let (token, below) = self.split()?;
        let canonical = token == "0" || !token.starts_with(['0', '+']);
        (canonical && token.parse() == Ok(position)).then_some(below)
    }
}

/// One value of the document, and the targets at or below it.
struct Walk<'walk, 'pointer> {
    targets: &'walk [Target<'pointer>],
    found: &'walk mut [Option<String>],
}

impl<'pointer> Walk<'_, 'pointer> {
    /// Looks below a part of this value, where `below` says which targets lead.
    fn descend(&mut self, below: impl Fn(Target<'pointer>) -> Option<Target<'pointer>>) -> Vec<Target<'pointer>> {
        let targets: Vec<_> = self.targets.iter().filter_map(|&target| below(target)).collect();
        for target in &targets {
            // An earlier member of the same name counts no more.
            self.found[target.slot] = None;
        }
        targets
    }

    /// This value is where a target ends, so its text decides.
    fn take(self, raw: &RawValue) -> serde_json::Result<()> {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => {
                let string: String = serde_json::from_str(text)?;
                self.put(&string);
            }
            Some(b'-' | b'0'..=b'9') => self.put(text),
            Some(b'{' | b'[') => {
                let deeper: Vec<_> = self.targets.iter().copied().filter(|target| !target.rest.is_empty()).collect();
                if !deeper.is_empty() {
                    let walk = Walk { targets: &deeper, found: self.found };
                    walk.deserialize(&mut serde_json::Deserializer::from_str(text))?;
                }
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn put(self, value: &str) {
        for target in self.targets.iter().filter(|target| target.rest.is_empty()) {
            self.found[target.slot] = Some(value.to_owned());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.targets.iter().any(|target| target.rest.is_empty()) {
            let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
            self.take(raw).map_err(D::Error::custom)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(targets) = map.next_key_seed(Member { walk: &mut self })? {
            if targets.is_empty() {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(Walk { targets: &targets, found: self.found })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<(), A::Error> {
        for position in 0.. {
            let targets = self.descend(|target| target.below_element(position));
            let more = if targets.is_empty() {
                sequence.next_element::<IgnoredAny>()?.is_some()
            } else {
                sequence.next_element_seed(Walk { targets: &targets, found: self.found })?.is_some()
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    // The pointers lead further down, and there is nothing below these.

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A member's name, which becomes the targets below the member.
struct Member<'member, 'walk, 'pointer> {
    walk: &'member mut Walk<'walk, 'pointer>,
}

impl<'de, 'pointer> DeserializeSeed<'de> for Member<'_, '_, 'pointer> {
    type Value = Vec<Target<'pointer>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'pointer> Visitor<'_> for Member<'_, '_, 'pointer> {
    type Value = Vec<Target<'pointer>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.walk.descend(|target| target.below_member(name)))
    }
}

#[cfg(test)]
mod tests;
