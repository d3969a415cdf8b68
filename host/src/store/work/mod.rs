//! WorkItems, from the delivery that brings them to their end: enqueue, claim, finish, replay, sweep.
//!
//! Each request has a file for what callers see (`enqueue`, `claim`, `finish`) and one for what the writer does with a
//! batch of them (`materialize`, `claiming`, `finalize`).

pub(super) mod enqueue;
pub(super) mod materialize;

pub(super) mod claim;
pub(super) mod claiming;

pub(super) mod finalize;
pub(super) mod finish;
pub(super) mod records;

pub(super) mod handoff;
pub(super) mod lane;
pub(super) mod projection;
pub(super) mod supersede;

pub(super) mod draining;
pub(super) mod replay;
pub(super) mod sweep;
