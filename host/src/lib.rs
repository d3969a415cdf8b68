//! Forebay: a host for connectors.
//!
//! Webhooks come in over HTTP, are verified and made durable, and are worked off by *packs*: connector code compiled to
//! WebAssembly components. What a pack's flows emit goes out on a durable timeline, now or in a month, per destination,
//! fairly. `ARCHITECTURE.md` has the map; imports go down the list below only.

pub mod app;
pub mod cli;
pub mod config;
pub mod rig;

pub mod admin;
pub mod supervise;

pub mod claim;
pub mod execute;
pub mod intake;
pub mod publish;
pub mod timeline;

pub mod outbound;

pub mod guest;
pub mod secrets;
pub mod store;

pub mod env;
pub mod lanes;
pub mod model;
pub mod telemetry;
