//! The vocabulary of Forebay: identifiers, time, and the things that move through the host.
//!
//! Everything here is a value or a decision. A decision has the shape `transition(state, input, now) -> next state`;
//! the modules that do I/O carry it out.
//!
//! Invariant: no I/O crate is imported here (no tokio, sqlx, rocksdb, wasmtime, axum, no serde). Stored and wire forms
//! live at their own boundaries and convert into these types.

pub mod destination;
pub mod destination_lane;
pub mod event;
pub mod failure;
pub mod generation;
pub mod handshake;
pub mod hash;
pub mod ids;
pub mod lane;
pub mod message;
pub mod names;
pub mod pack;
pub mod presets;
pub mod queue;
pub mod reading;
pub mod retention;
pub mod retry;
pub mod room;
pub mod time;
pub mod url;
pub mod verification;
pub mod work_item;
