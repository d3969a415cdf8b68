//! The receiving end: remembers what arrived, and answers as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::receiver::{Received, Receiver, Reply};

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
            memory.reply.clone()
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

    /// What arrived under this `webhook-id`, in order of arrival.
    pub fn attempts(&self, id: &str) -> Vec<Received> {
        lock(&self.memory).received.iter().filter(|received| received.id == id).cloned().collect()
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
