//! The conformance suite on the embedded database.

use super::*;

#[path = "conformance/mod.rs"]
mod conformance;

async fn start() -> Fixture {
    start_with(|_| {}).await
}

async fn start_with(adjust: impl FnOnce(&mut StoreOptions)) -> Fixture {
    Fixture::with(adjust).await
}
