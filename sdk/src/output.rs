//! The result of a flow: messages to send, and actions for later.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::read_json;
use crate::{Failure, Header, Timestamp};

/// The result of a flow: messages to send, and actions for later. The host stores all of it in one transaction with the
/// event's completion: once, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// A short note for operators.
    pub note: Option<String>,
    /// Messages to send.
    pub messages: Vec<Message>,
    /// Actions for later.
    pub actions: Vec<Action>,
}

impl Output {
    /// An output without messages and actions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Adds a message.
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Adds an action.
    pub fn action(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }
}

/// The time at which a message or an action is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Due {
    /// As soon as it is stored.
    #[default]
    Now,
    /// This long after it is stored.
    After(Duration),
    /// At this time, or as soon as it is stored if that is later.
    At(Timestamp),
}

/// A message to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Name of the destination, declared in the manifest.
    pub destination: String,
    /// The body.
    pub body: Vec<u8>,
    /// The body's `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<Header>,
    /// Messages to one destination with the same ordering key are sent in order, if the destination is ordered.
    pub ordering_key: Option<String>,
    /// The key by which the *receiver* recognizes duplicates, sent as the header `webhook-id`; by default the message's
    /// id. The host itself sends every message, unlike with [`Action::idempotency_key`].
    pub idempotency_key: Option<String>,
    /// Due time.
    pub due: Due,
    /// Expiry: the message is not sent at or after this time.
    pub expire_at: Option<Timestamp>,
}

impl Message {
    /// A message with this body, due now.
    pub fn new(destination: impl Into<String>, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            destination: destination.into(),
            body: body.into(),
            content_type: content_type.into(),
            headers: Vec::new(),
            ordering_key: None,
            idempotency_key: None,
            due: Due::Now,
            expire_at: None,
        }
    }

    /// A message with this value as its JSON body, due now.
    pub fn json(destination: impl Into<String>, value: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(destination, "application/json", serde_json::to_vec(value)?))
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }

    /// Sets the ordering key.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the key by which the receiver recognizes duplicates.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Makes it due this long after it is stored.
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Makes it due at this time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Sets the expiry.
    pub fn expire_at(mut self, time: Timestamp) -> Self {
        self.expire_at = Some(time);
        self
    }
}

/// Work that the pack does later: the host calls [`Connector::apply`](crate::Connector::apply) with it when it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The pack's name for the action.
    pub name: String,
    /// The data of the action.
    pub body: Vec<u8>,
    /// The key by which the *host* drops duplicates: an action with the namespace, pack and key of a stored one is not
    /// stored. The key of a [`Message`] is for its receiver instead.
    pub idempotency_key: Option<String>,
    /// Due time.
    pub due: Due,
}

impl Action {
    /// An action with this body, due now.
    pub fn new(name: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), body: body.into(), idempotency_key: None, due: Due::Now }
    }

    /// An action with this value as its JSON body, due now. [`DueAction::json`] reads it.
    pub fn json(name: impl Into<String>, value: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(name, serde_json::to_vec(value)?))
    }

    /// Sets the key by which the host drops duplicates.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Makes it due this long after it is stored.
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Makes it due at this time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }
}

/// An action that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAction {
    /// Its id.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The event whose flow emitted it.
    pub event_id: String,
    /// The pack's name for the action.
    pub name: String,
    /// The data of the action.
    pub body: Vec<u8>,
    /// Due time.
    pub due_at: Timestamp,
    /// Number of this attempt: 1 for the first.
    pub attempt: u32,
}

impl DueAction {
    /// The body as JSON. [`Failure::InvalidInput`] names the place of an error and does not quote the body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read_json("action", &self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_read_as_it_was_written() {
        let action = Action::json("remind", &[1, 2]).unwrap().after(Duration::from_secs(60)).idempotency_key("k");
        assert_eq!((action.due, action.idempotency_key.as_deref()), (Due::After(Duration::from_secs(60)), Some("k")));
        let due = crate::testing::due(&action);
        assert_eq!(due.json::<[u8; 2]>().unwrap(), [1, 2]);
        assert!(matches!(due.json::<String>(), Err(Failure::InvalidInput(_))));
    }
}
