//! Access to a database: connections, statements written once for both engines, values, rows, and the schema.
//!
//! The rules of WorkItems, messages and shards are elsewhere: the other folders build on this one, and it on none of
//! them.

pub(super) mod codes;
pub(super) mod connection;
pub(super) mod dialect;
pub(super) mod row;
pub(super) mod statement;
pub(super) mod values;

mod headers;

pub(super) mod behaviour;
pub(super) mod file_identity;
pub(super) mod patience;
pub(super) mod readers;
pub(super) mod schema;
pub(super) mod sequences;
pub(super) mod server;
