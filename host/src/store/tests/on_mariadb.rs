//! The conformance suite on a MariaDB server.

#![allow(clippy::duplicate_mod, reason = "one suite, two engines")]

use super::*;

#[path = "conformance/mod.rs"]
mod conformance;

async fn start() -> Fixture {
    start_with(|_| {}).await
}

async fn start_with(adjust: impl FnOnce(&mut StoreOptions)) -> Fixture {
    Fixture::with(|options| {
        options.database_url = Some(mariadb::create_database());
        adjust(options);
    })
    .await
}
