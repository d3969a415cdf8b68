//! `forebay bench drr`: what one decision of the fair sharing costs, at so many lanes; with `--check`, whether its
//! bounds hold over random configurations, for as long as is wanted (`check`).
//!
//! Every lane is backlogged with messages of one size; a decision is one look at whose turn it is and one charge. No
//! host is started and nothing is stored.

mod check;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::env::Env;
use crate::lanes::{Beginning, Charge, MESSAGES, ThreeLevelDrr, TurnLimits};

/// Lanes are measured at these numbers.
const LANES: [u32; 3] = [10, 1_000, 100_000];
/// Tenants that the lanes are spread over.
const NAMESPACES: u32 = 10;
/// The most destinations that the lanes are of, over all tenants: with more lanes, each has several.
const DESTINATIONS_MAX: u32 = 1_000;
/// Decisions that are made before the clock is read again.
const BATCH: u64 = 10_000;

/// `forebay bench drr`.
#[derive(Debug, Clone, Args)]
pub(super) struct Arguments {
    /// Size of a message in bytes
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=4_194_304))]
    bytes: u64,
    /// Seconds at each number of lanes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Instead, check the bounds with random tenants, lanes, weights, sizes and arrivals for --seconds
    #[arg(long)]
    check: bool,
    /// With --check: the seed of the first configuration; by default another one each time
    #[arg(long, value_name = "N", requires = "check")]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Measured {
    lanes: u32,
    decisions: u64,
    nanoseconds_each: f64,
}

pub(super) fn run(arguments: &Arguments, env: &Env) -> anyhow::Result<()> {
    if arguments.check {
        let entropy = env.id_entropy();
        let drawn = u64::from_be_bytes(*entropy.first_chunk().expect("ten bytes hold eight"));
        let time = Duration::from_secs(arguments.seconds);
        return check::run(arguments.seed.unwrap_or(drawn), time, arguments.json, env);
    }
    let measured = LANES.map(|lanes| measure(lanes, arguments, env));
    if arguments.json {
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    println!(
        "messages of {} bytes; {NAMESPACES} namespaces, up to {DESTINATIONS_MAX} destinations; every lane backlogged",
        arguments.bytes
    );
    for Measured { lanes, decisions, nanoseconds_each } in measured {
        println!("{lanes:>7} lanes  {nanoseconds_each:>8.1} ns a decision  ({decisions} decisions)");
    }
    Ok(())
}

fn measure(lanes: u32, arguments: &Arguments, env: &Env) -> Measured {
    let limits = TurnLimits { items_max: 256, cost_max: 16 << 20, visits_max: 1_024 };
    let mut drr = ThreeLevelDrr::new(MESSAGES, Beginning::FirstPass);
    for lane in 0..lanes {
        let destination = lane % DESTINATIONS_MAX;
        let namespace = destination % NAMESPACES;
        drr.set_group_weight(namespace, 1);
        drr.set_family_weight(&namespace, destination, 1 + destination % 8);
        drr.add(destination, lane);
        drr.activate(lane);
    }
    let mut turn = limits.begin();
    let mut decisions = 0;
    let began = env.clock.monotonic();
    let mut took = Duration::ZERO;
    while took < Duration::from_secs(arguments.seconds) {
        for _ in 0..BATCH {
            let served = drr.next(&mut turn).map(|_| drr.charge(&mut turn, arguments.bytes));
            if !matches!(served, Some(Charge::Served | Charge::VisitOver)) {
                turn = limits.begin();
            }
        }
        decisions += BATCH;
        took = env.clock.monotonic() - began;
    }
    Measured { lanes, decisions, nanoseconds_each: took.as_secs_f64() * 1e9 / decisions as f64 }
}
