//! Fair sharing and admission, as pure decisions: who is served next, and whether a Destination Lane may send.
//!
//! [`Drr`] shares service between keys by weight, [`TwoLevelDrr`] between groups of keys and within each, and
//! [`ThreeLevelDrr`] between families of keys as well. [`Places`] says how much may be in flight, and which shard takes
//! the next place; [`Queue`] in whose turn it is at a destination that has what it may. [`DestinationLane`] says
//! whether a destination may be called now, and why not if not; [`Outlet`] is what a destination's lanes share.
//! [`Layout`] says which executors serve which queue classes, [`place`] which runtime looks after which shard,
//! [`WorkRound`] what a shard does next, [`Supply`] how much of it while something that it needs is short. None knows
//! what time it is, what a message is or where it is kept.
//!
//! Invariants:
//! - No I/O crate is imported here, no clock is read, and nothing is random: the same calls give the same decisions.
//! - No decision's cost depends on how many lanes there are, but that of where a ring begins and of where a shard's
//!   place is.

mod bounds;
mod capacity;
mod circuit;
mod drr;
mod held;
mod lane;
mod outlet;
mod placement;
mod places;
mod queue;
mod rivals;
mod shape;
mod three_level;
mod turn;
mod two_level;
mod work;

pub use bounds::{Share, work_until};
pub use capacity::{DESCRIPTORS_FLOOR, DISK_FLOOR, Level, RESOURCES, Resource, Supply, evidence_level};
pub use circuit::{Attempt, Circuit, CircuitPolicy, Refused, Verdict};
pub use drr::{Beginning, Drr, DrrOptions, WEIGHT_MAX};
pub use held::Held;
pub use lane::{DestinationLane, Permit};
pub use outlet::Outlet;
pub use placement::place;
pub use places::{NoPlace, Places, PlacesMax};
pub use queue::Queue;
pub use shape::{Layout, Profile, Rotation, Shape};
pub use three_level::ThreeLevelDrr;
pub use turn::{Charge, MESSAGE_COST_MAX, MESSAGES, Turn, TurnLimits, message_cost};
pub use work::{Amount, CLASSES, UnfitPlan, WorkClass, WorkPlan, WorkRound, WorkShare};
