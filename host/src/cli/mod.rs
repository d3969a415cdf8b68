//! The command line: one file a verb.

pub mod bench;
pub mod rig;
