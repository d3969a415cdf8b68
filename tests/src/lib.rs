//! The harness of the suites: a host as its operator runs it, providers that deliver to it, receivers that it sends to.
//!
//! - The host is the real binary, with a folder and ports of its own; it can be killed and started again.
//! - Waiting is polling with a bound ([`wait`]): a signal where there is one, never a sleep that hopes.
//! - What is checked is what can be seen from outside: answers, the admin API, and what arrives at the sink.

pub mod admin;
pub mod audit;
pub mod browser;
pub mod canceller;
pub mod cases;
pub mod fixture;
pub mod hubspot;
pub mod paths;
pub mod provider;
pub mod received;
pub mod tls;
pub mod unfinished;
pub mod wait;
pub mod world;
