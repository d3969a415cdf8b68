//! The conformance suite on the embedded database.

use super::*;

#[path = "conformance/actions.rs"]
mod actions;
#[path = "conformance/checkpoints.rs"]
mod checkpoints;
#[path = "conformance/claiming.rs"]
mod claiming;
#[path = "conformance/classes.rs"]
mod classes;
#[path = "conformance/coalescing.rs"]
mod coalescing;
#[path = "conformance/confirming.rs"]
mod confirming;
#[path = "conformance/costs.rs"]
mod costs;
#[path = "conformance/covering.rs"]
mod covering;
#[path = "conformance/destination_lanes.rs"]
mod destination_lanes;
#[path = "conformance/destinations.rs"]
mod destinations;
#[path = "conformance/finishing.rs"]
mod finishing;
#[path = "conformance/generations.rs"]
mod generations;
#[path = "conformance/lanes.rs"]
mod lanes;
#[path = "conformance/listing.rs"]
mod listing;
#[path = "conformance/materializing.rs"]
mod materializing;
#[path = "conformance/peeking.rs"]
mod peeking;
#[path = "conformance/projecting.rs"]
mod projecting;
#[path = "conformance/publishing.rs"]
mod publishing;
#[path = "conformance/replaying.rs"]
mod replaying;
#[path = "conformance/runtimes.rs"]
mod runtimes;
#[path = "conformance/stats.rs"]
mod stats;
#[path = "conformance/sweeping.rs"]
mod sweeping;
#[path = "conformance/unstorable.rs"]
mod unstorable;

async fn start() -> Fixture {
    start_with(|_| {}).await
}

async fn start_with(adjust: impl FnOnce(&mut StoreOptions)) -> Fixture {
    Fixture::with(adjust).await
}
