//! Reads for people and for figures. They decide nothing and write nothing.

pub(super) mod exact;
pub(super) mod inspect;
pub(super) mod listing;
pub(super) mod peek;
pub(super) mod queue_mark;
pub(super) mod stats;
