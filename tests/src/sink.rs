//! The receiving end: remembers what arrived, and answers as it is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay::cli::rig::receiver::{Received, Receiver, Reply};
use forebay::cli::rig::site::DESTINATION_SECRET;

/// A receiver that remembers.
pub struct Sink {
    receiver: Receiver,
    memory: Arc<Mutex<Memory>>,
}

struct Memory {
    received: Vec<Received>,
    reply: Reply,
}

impl Sink {
    /// Starts one that answers `200`.
    pub async fn start() -> anyhow::Result<Self> {
        let memory = Arc::new(Mutex::new(Memory { received: Vec::new(), reply: Reply::OK }));
        let remembering = memory.clone();
        let receiver = Receiver::start(move |received| {
            let mut memory = lock(&remembering);
            memory.received.push(received);
            memory.reply
        })
        .await?;
        Ok(Self { receiver, memory })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.receiver.address
    }

    /// From now on it answers like this.
    pub fn reply(&self, reply: Reply) {
        lock(&self.memory).reply = reply;
    }

    /// Everything that arrived, in order of arrival.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.memory).received.clone()
    }

    /// Everything that arrived, by `webhook-id`. Fails if anything was not signed as it should be, or if two attempts of
    /// one message differ in their bodies.
    pub fn messages(&self) -> BTreeMap<String, Vec<Received>> {
        let mut messages: BTreeMap<String, Vec<Received>> = BTreeMap::new();
        for received in self.received() {
            assert!(received.is_signed_with(DESTINATION_SECRET), "{} is not signed", received.id);
            let attempts = messages.entry(received.id.clone()).or_default();
            assert!(attempts.iter().all(|attempt| attempt.body == received.body), "{} has two bodies", received.id);
            attempts.push(received);
        }
        messages
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
