//! What a store must do, on any engine. Each engine has a file next to this folder that includes the suite and says how
//! a store of that engine is started (`start`, `start_with`).

use super::*;

mod actions;
mod checkpoints;
mod claiming;
mod classes;
mod coalescing;
mod confirming;
mod costs;
mod covering;
mod destination_lanes;
mod destinations;
mod finishing;
mod generations;
mod lanes;
mod listing;
mod materializing;
mod peeking;
mod projecting;
mod publishing;
mod replaying;
mod retiring;
mod runtimes;
mod stats;
mod sweeping;
mod unstorable;
