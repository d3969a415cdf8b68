//! `forebay bench drr --check`: the sharing of a shard over random configurations, held against its bounds until the
//! time is over.
//!
//! A configuration has its seed: a violation names it, and `--seed` begins with it again. Arrivals are random too:
//! lanes run dry and come back, and only what a lane is owed while it always has something to send is held against the
//! bound.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::ensure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::env::Env;
use crate::lanes::{Beginning, Charge, DrrOptions, Share, ThreeLevelDrr, TurnLimits, work_until};

/// Services of one configuration that are held against the bounds.
const SERVICES: usize = 4_000;
/// From each service of a lane, the bound is asked for so many of its next ones.
const INTERVALS: usize = 8;
/// Between two reports of how far it is.
const REPORT: Duration = Duration::from_secs(10);

/// What was held against the bounds.
#[derive(Debug, Default, Serialize)]
struct Checked {
    seed: u64,
    configurations: u64,
    services: u64,
    intervals: u64,
    /// Configurations in which a bound did not hold, by their seeds.
    violations: Vec<u64>,
    /// The closest that an interval came to its bound, as a part of it.
    tightest: f64,
    seconds: f64,
}

pub(super) fn run(seed: u64, time: Duration, json: bool, env: &Env) -> anyhow::Result<()> {
    let began = env.clock.monotonic();
    let mut checked = Checked { seed, ..Checked::default() };
    let mut reported = began;
    while env.clock.monotonic() - began < time {
        let seed = checked.seed.wrapping_add(checked.configurations);
        if !Configuration::random(seed).check(&mut checked) {
            checked.violations.push(seed);
        }
        checked.configurations += 1;
        if env.clock.monotonic() - reported >= REPORT {
            eprintln!("  {} configurations, {} violations", checked.configurations, checked.violations.len());
            reported = env.clock.monotonic();
        }
    }
    checked.seconds = (env.clock.monotonic() - began).as_secs_f64();
    if json {
        println!("{}", serde_json::to_string_pretty(&checked)?);
    } else {
        println!(
            "three levels of sharing: {} random configurations of {SERVICES} services, seed {seed}",
            checked.configurations
        );
        println!("  {} intervals, the tightest at {:.4} of its bound", checked.intervals, checked.tightest);
        println!("  {} violations", checked.violations.len());
    }
    let violations = &checked.violations;
    ensure!(
        violations.is_empty(),
        "bounds do not hold in {} configurations: --seed {}",
        violations.len(),
        violations[0]
    );
    Ok(())
}

/// Tenants, their destinations, the lanes of these, and what each is entitled to.
struct Configuration {
    random: StdRng,
    options: DrrOptions,
    limits: TurnLimits,
    tenants: Vec<Share>,
    /// By tenant.
    destinations: Vec<Vec<Share>>,
    /// By tenant and destination: the largest message of each lane.
    largest: Vec<Vec<Vec<u64>>>,
    /// Of each lane, its tenant, and its places there and in the destination.
    places: Vec<(usize, usize, usize)>,
    /// Lanes that now and then have nothing to send.
    fickle: Vec<bool>,
}

impl Configuration {
    fn random(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let cost_max = random.random_range(1..=4_000);
        let options = DrrOptions { quantum: random.random_range(1..=1_000), cost_max };
        let limits = TurnLimits {
            items_max: random.random_range(1..=64),
            cost_max: cost_max + random.random_range(0..=8_000),
            visits_max: random.random_range(1..=64),
        };
        let mut tenants: Vec<Share> = Vec::new();
        let mut destinations: Vec<Vec<Share>> = Vec::new();
        let mut largest: Vec<Vec<Vec<u64>>> = Vec::new();
        for _ in 0..random.random_range(1..=4) {
            let lanes: Vec<Vec<u64>> = (0..random.random_range(1..=4))
                .map(|_| (0..random.random_range(1..=4)).map(|_| random.random_range(1..=cost_max)).collect())
                .collect();
            let shares: Vec<Share> = lanes.iter().map(|lanes| share(&mut random, options, most(lanes))).collect();
            tenants.push(share(&mut random, options, most(lanes.iter().flatten())));
            destinations.push(shares);
            largest.push(lanes);
        }
        let mut places = Vec::new();
        for (tenant, destinations) in largest.iter().enumerate() {
            for (destination, lanes) in destinations.iter().enumerate() {
                places.extend((0..lanes.len()).map(|lane| (tenant, destination, lane)));
            }
        }
        // In half of all configurations none is: those begin with a first pass, which would not end else.
        let part = if random.random() { 0.3 } else { 0.0 };
        let fickle = places.iter().map(|_| random.random_bool(part)).collect();
        Self { random, options, limits, tenants, destinations, largest, places, fickle }
    }

    /// Serves, and holds what was served against the bounds. Whether they held.
    fn check(mut self, checked: &mut Checked) -> bool {
        let served = self.serve();
        checked.services += served.len() as u64;
        let mut work = vec![0_u64];
        served.iter().for_each(|(_, cost)| work.push(work[work.len() - 1] + cost));
        let mut held = true;
        for lane in (0..self.places.len()).filter(|lane| !self.fickle[*lane]) {
            let of_lane: Vec<usize> = (0..served.len()).filter(|at| served[*at].0 == lane).collect();
            for (nth, from) in of_lane.iter().enumerate() {
                let mut received = 0;
                for until in of_lane[nth + 1..].iter().take(INTERVALS) {
                    received += served[*until].1;
                    let bound = self.bound(lane, received);
                    let seen = work[until + 1] - work[from + 1];
                    checked.intervals += 1;
                    checked.tightest = checked.tightest.max(seen as f64 / bound as f64);
                    held &= seen <= bound;
                }
            }
        }
        held
    }

    fn bound(&self, lane: usize, received: u64) -> u64 {
        let (tenant, destination, place) = self.places[lane];
        // The lanes of a destination share alike.
        let alike = |largest: &u64| Share { weight: 1, quantum: self.options.quantum, largest: *largest };
        let lanes: Vec<Share> = self.largest[tenant][destination].iter().map(alike).collect();
        let work = work_until(&lanes, place, received);
        work_until(&self.tenants, tenant, work_until(&self.destinations[tenant], destination, work))
    }

    /// What is served once every lane has been twice, which ends a first pass.
    fn serve(&mut self) -> Vec<(usize, u64)> {
        let beginning = if self.fickle.contains(&true) { Beginning::Fresh } else { Beginning::FirstPass };
        let mut drr = ThreeLevelDrr::new(self.options, beginning);
        for (lane, (tenant, destination, _)) in self.places.iter().enumerate() {
            let family = (*tenant, *destination);
            drr.set_group_weight(*tenant, self.tenants[*tenant].weight);
            drr.set_family_weight(tenant, family, self.destinations[*tenant][*destination].weight);
            drr.add(family, lane);
            drr.activate(lane);
        }
        drr.begin_at(self.random.random());
        let mut heads: HashMap<usize, u64> = HashMap::new();
        let mut served = Vec::with_capacity(SERVICES);
        let mut times = vec![0_u8; self.places.len()];
        let mut unsettled = if beginning == Beginning::Fresh { 0 } else { self.places.len() };
        let mut turn = self.limits.begin();
        while served.len() < SERVICES {
            self.come_and_go(&mut drr);
            let Some(lane) = drr.next(&mut turn) else {
                // Whoever is fickle may be all there is: somebody comes back.
                turn = self.limits.begin();
                continue;
            };
            let (tenant, destination, place) = self.places[lane];
            let largest = self.largest[tenant][destination][place];
            // A tenth are as large as they can be: the worst case for whoever waits behind them.
            let random = &mut self.random;
            let draw = || if random.random_bool(0.1) { largest } else { random.random_range(1..=largest) };
            let cost = *heads.entry(lane).or_insert_with(draw);
            match drr.charge(&mut turn, cost) {
                Charge::Served => {
                    heads.remove(&lane);
                    if unsettled == 0 {
                        served.push((lane, cost));
                        continue;
                    }
                    times[lane] = times[lane].saturating_add(1);
                    unsettled -= usize::from(times[lane] == 2);
                }
                Charge::VisitOver => {}
                Charge::TurnOver => turn = self.limits.begin(),
            }
        }
        served
    }

    /// A fickle lane runs dry, or has something to send again. The others always have.
    fn come_and_go(&mut self, drr: &mut ThreeLevelDrr<usize, (usize, usize), usize>) {
        let lane = self.random.random_range(0..self.places.len());
        if self.fickle[lane] {
            if self.random.random_bool(0.5) { drr.activate(lane) } else { drr.deactivate(lane) }
        }
    }
}

/// The share of a tenant or a destination whose largest message is that.
fn share(random: &mut StdRng, options: DrrOptions, largest: u64) -> Share {
    let weight = random.random_range(1..=16);
    Share { weight, quantum: u64::from(weight) * options.quantum, largest }
}

fn most<'l>(largest: impl IntoIterator<Item = &'l u64>) -> u64 {
    largest.into_iter().copied().max().unwrap_or(1)
}
