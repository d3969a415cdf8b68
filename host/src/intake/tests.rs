//! Intake over real HTTP on loopback, in front of a real store.

mod admission;
mod client;
mod doubt;
pub(super) mod fixture;
mod handshake;
mod overload;
mod sockets;
mod splitting;
