//! What the demonstration, the benchmarks and the suites share: a host in a process of its own, somebody who delivers
//! to it, and somebody who receives from it.
//!
//! It knows the host from outside only: its command line, its HTTP interfaces and its signatures, each written here a
//! second time and on purpose, so that a mistake in the host does not agree with itself.

pub mod github;
pub mod http;
pub mod mariadb;
pub mod optional;
pub mod process;
pub mod providers;
pub mod receiver;
pub mod sink;
pub mod site;
