//! What `forebay doctor` and `forebay migrate` check and repair: the schema, counters, and Events without WorkItems.
//!
//! A host that runs confirms its coverage here too (`confirm`).

pub(super) mod confirm;
pub(super) mod counters;
pub(super) mod coverage;
pub(super) mod examine;
pub(super) mod transaction;
