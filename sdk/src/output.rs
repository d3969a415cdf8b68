//! What is to happen: messages to send, work for later.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::read_json;
use crate::{Failure, Header, Timestamp};

/// What is to happen. All of it is stored in one transaction with the event's completion: once, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// A short note for people.
    pub note: Option<String>,
    /// Messages to send.
    pub messages: Vec<Message>,
    /// Work for later.
    pub actions: Vec<Action>,
}

impl Output {
    /// Nothing happens.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a note for people.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// With one more message.
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// With one more piece of work for later.
    pub fn action(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }
}

/// When something is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Due {
    /// Once it is stored.
    #[default]
    Now,
    /// So long after it is stored.
    After(Duration),
    /// At this time, or once it is stored if that is later.
    At(Timestamp),
}

/// A message for a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The destination, as in the manifest.
    pub destination: String,
    /// The body.
    pub body: Vec<u8>,
    /// The body's `content-type`.
    pub content_type: String,
    /// Further headers.
    pub headers: Vec<Header>,
    /// Messages of one destination with one ordering key keep their order.
    pub ordering_key: Option<String>,
    /// What the receiver tells duplicates by. Without one, the message's own id.
    pub idempotency_key: Option<String>,
    /// When it is due.
    pub due: Due,
    /// When it is of no more use: from then on it is not sent.
    pub expire_at: Option<Timestamp>,
}

impl Message {
    /// A message with these bytes for a body, due now.
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

    /// A message with this value as JSON for a body, due now.
    pub fn json(destination: impl Into<String>, value: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(destination, "application/json", serde_json::to_vec(value)?))
    }

    /// With one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }

    /// In order with the destination's other messages of this key.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// With what the receiver tells duplicates by.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Due so long after it is stored.
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Due at this time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Of no use from this time on.
    pub fn expire_at(mut self, time: Timestamp) -> Self {
        self.expire_at = Some(time);
        self
    }
}

/// Work of the pack's own, for later: [`Connector::apply`](crate::Connector::apply) is called with it once it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// What to do, in the pack's own words.
    pub name: String,
    /// What it needs to know.
    pub body: Vec<u8>,
    /// What tells it from others: a second action with the same key is not stored.
    pub idempotency_key: Option<String>,
    /// When it is due.
    pub due: Due,
}

impl Action {
    /// An action with these bytes, due now.
    pub fn new(name: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), body: body.into(), idempotency_key: None, due: Due::Now }
    }

    /// An action with this value as JSON, due now. [`DueAction::json`] reads it.
    pub fn json(name: impl Into<String>, value: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(name, serde_json::to_vec(value)?))
    }

    /// With what tells it from others: as long as the host knows an action of this tenant and pack with this key, no
    /// second one is stored.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Due so long after it is stored.
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Due at this time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }
}

/// An action that has come due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAction {
    /// Its identity.
    pub id: String,
    /// The tenant it belongs to.
    pub namespace: String,
    /// The event that it came from.
    pub event_id: String,
    /// What to do.
    pub name: String,
    /// What it needs to know.
    pub body: Vec<u8>,
    /// When it was due.
    pub due_at: Timestamp,
    /// How often it has been tried, this time included.
    pub attempt: u32,
}

impl DueAction {
    /// The body, read as JSON. What does not fit is [`Failure::InvalidInput`], and says where, but quotes nothing.
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
