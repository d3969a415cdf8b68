//! What must hold of everything that a sink received.

use std::collections::BTreeMap;

use forebay::rig::receiver::Received;
use forebay::rig::sink::Sink;
use forebay::rig::site::DESTINATION_SECRET;

/// Everything that arrived, by `webhook-id`. Fails if anything was not signed as it should be, or if two attempts of
/// one message differ in their bodies.
pub fn messages(sink: &Sink) -> BTreeMap<String, Vec<Received>> {
    let mut messages: BTreeMap<String, Vec<Received>> = BTreeMap::new();
    for received in sink.received() {
        assert!(received.is_signed_with(DESTINATION_SECRET), "{} is not signed", received.id);
        let attempts = messages.entry(received.id.clone()).or_default();
        assert!(attempts.iter().all(|attempt| attempt.body == received.body), "{} has two bodies", received.id);
        attempts.push(received);
    }
    messages
}
