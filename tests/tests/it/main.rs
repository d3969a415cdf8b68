//! The product as its users meet it: the real binary, real guests, real stores, HTTP on loopback.

mod actions;
mod batches;
mod cli;
mod cluster;
mod coalescing;
mod console;
mod crash;
mod destinations;
mod dev;
mod examples;
mod full_disk;
mod https;
mod newcomer;
mod overload;
mod pipeline;
mod queue;
mod reading;
mod retention;
mod rollout;
mod shutdown;
mod startup;
