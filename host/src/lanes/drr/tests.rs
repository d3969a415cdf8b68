//! The service bounds are the oracle: random weights, sizes and activity, under a seed that is printed and can be given
//! again as `FOREBAY_TEST_SEED`.

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::*;

const QUANTUM: u64 = 64 << 10;
const UNCAPPED: DrrOptions = DrrOptions {
    quantum: QUANTUM,
    cost_max: 1 << 20,
    turn_items_max: u32::MAX,
    turn_cost_max: u64::MAX,
    turn_visits_max: u32::MAX,
};

/// One service: who, and for how much.
type Service = (usize, u64);

/// Serves `services` times in turns of `drr`'s size; `head` gives each key's next cost, which stays until it is served.
fn serve(drr: &mut Drr<usize>, services: usize, mut head: impl FnMut(usize) -> u64) -> Vec<Service> {
    let mut heads: HashMap<usize, u64> = HashMap::new();
    let mut served = Vec::new();
    let mut turn = drr.turn();
    while served.len() < services {
        let Some(key) = drr.next(&mut turn) else {
            assert!(!drr.is_idle(), "work conservation: somebody is backlogged");
            turn = drr.turn();
            continue;
        };
        let cost = *heads.entry(key).or_insert_with(|| head(key));
        match drr.charge(&mut turn, cost) {
            Charge::Served => {
                served.push((key, cost));
                heads.remove(&key);
            }
            Charge::VisitOver => {}
            Charge::TurnOver => turn = drr.turn(),
        }
    }
    served
}

fn backlogged(options: DrrOptions, weights: &[u32]) -> Drr<usize> {
    let mut drr = Drr::new(options);
    for (key, weight) in weights.iter().enumerate() {
        drr.set_weight(key, *weight);
        drr.activate(key);
    }
    drr
}

fn total(served: &[Service], key: usize) -> u64 {
    served.iter().filter(|(served, _)| *served == key).map(|(_, cost)| cost).sum()
}

fn seed() -> u64 {
    let given = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| SysRng.try_next_u64().unwrap());
    println!("FOREBAY_TEST_SEED={seed}");
    seed
}

// DRR-2
#[test]
fn eight_to_one_is_eight_to_one_whatever_the_size() {
    for size in [256, 1 << 10, 64 << 10] {
        let per_round = 9 * QUANTUM / size;
        let served = serve(&mut backlogged(UNCAPPED, &[8, 1]), 20 * usize::try_from(per_round).unwrap(), |_| size);
        assert_eq!(total(&served, 0), 8 * total(&served, 1), "{size}");
    }
}

/// A random configuration: weights, and the largest cost of each key.
struct Configuration {
    options: DrrOptions,
    weights: Vec<u32>,
    largest: Vec<u64>,
}

impl Configuration {
    fn random(random: &mut StdRng) -> Self {
        let lanes = random.random_range(2..=12);
        let cost_max = random.random_range(1..=2_000);
        Self {
            options: DrrOptions {
                quantum: random.random_range(1..=500),
                cost_max,
                turn_items_max: random.random_range(1..=20),
                turn_cost_max: cost_max + random.random_range(0..=2_000),
                turn_visits_max: random.random_range(1..=20),
            },
            weights: (0..lanes).map(|_| random.random_range(1..=8)).collect(),
            largest: (0..lanes).map(|_| random.random_range(1..=cost_max)).collect(),
        }
    }

    fn quantum(&self, key: usize) -> u64 {
        u64::from(self.weights[key]) * self.options.quantum
    }

    /// `psi` without `x` itself: the most that others receive while `key` receives `x`.
    fn others_at_most(&self, key: usize, x: u64) -> u64 {
        let visits = (x + self.largest[key] - 1) / self.quantum(key) + 1;
        let others = (0..self.weights.len()).filter(|other| *other != key);
        others.map(|other| visits * self.quantum(other) + self.largest[other] - 1).sum()
    }
}

// DRR-4
#[test]
fn no_key_waits_for_more_work_than_the_bound_says() {
    const CONFIGURATIONS: u64 = 250;
    const SERVICES: usize = 4_000;
    let seed = seed();
    for round in 0..CONFIGURATIONS {
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(round));
        let configuration = Configuration::random(&mut random);
        let mut drr = backlogged(configuration.options, &configuration.weights);
        // A tenth of the heads are as large as they can be: the worst case for whoever waits behind them.
        let served = serve(&mut drr, SERVICES, |key| match random.random_range(0..10) {
            0 => configuration.largest[key],
            _ => random.random_range(1..=configuration.largest[key]),
        });
        for key in 0..configuration.weights.len() {
            check_waits(&configuration, &served, key, &mut random);
        }
    }
}

/// Over intervals that begin anywhere and end when `key` is served: what others received stays within the bound.
fn check_waits(configuration: &Configuration, served: &[Service], key: usize, random: &mut StdRng) {
    let mut work = vec![0];
    let mut mine = vec![0];
    for (served, cost) in served {
        work.push(work[work.len() - 1] + cost);
        mine.push(mine[mine.len() - 1] + if *served == key { *cost } else { 0 });
    }
    for _ in 0..50 {
        let from = random.random_range(0..served.len());
        let until = random.random_range(from..served.len());
        let Some(end) = (until..served.len()).find(|at| served[*at].0 == key) else { continue };
        // The bound counts from the moment before the key's last service, for what it had received by then.
        let received = mine[end] - mine[from];
        let others = (work[end] - work[from]) - received;
        let bound = configuration.others_at_most(key, received + served[end].1);
        assert!(others <= bound, "key {key} from {from} to {end}: others received {others}, at most {bound}");
    }
}

// DRR-4
#[test]
fn service_stays_within_the_bound_over_every_run_of_visits() {
    let seed = seed();
    for round in 0..250 {
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(round));
        let configuration = Configuration::random(&mut random);
        let mut drr = backlogged(configuration.options, &configuration.weights);
        let keys = configuration.weights.len();
        let (mut received, mut visits) = (vec![0i128; keys], vec![0i128; keys]);
        // Over all intervals at once: the spread of `service - visits x quantum` at the visits' ends.
        let (mut low, mut high) = (vec![0i128; keys], vec![0i128; keys]);
        let mut heads: Vec<u64> = configuration.largest.clone();
        let mut turn = drr.turn();
        for _ in 0..8_000 {
            let Some(key) = drr.next(&mut turn) else {
                turn = drr.turn();
                continue;
            };
            match drr.charge(&mut turn, heads[key]) {
                Charge::Served => {
                    received[key] += i128::from(heads[key]);
                    heads[key] = random.random_range(1..=configuration.largest[key]);
                }
                Charge::VisitOver => {
                    visits[key] += 1;
                    let lead = received[key] - visits[key] * i128::from(configuration.quantum(key));
                    low[key] = low[key].min(lead);
                    high[key] = high[key].max(lead);
                }
                Charge::TurnOver => turn = drr.turn(),
            }
        }
        for key in 0..keys {
            let spread = high[key] - low[key];
            assert!(spread < i128::from(configuration.largest[key]), "round {round}, key {key}: {spread}");
        }
    }
}

// DRR-2
#[test]
fn short_turns_serve_in_the_same_order_as_long_ones() {
    let seed = seed();
    for round in 0..100 {
        let configuration = Configuration::random(&mut StdRng::seed_from_u64(seed.wrapping_add(round)));
        let capless = DrrOptions {
            turn_items_max: u32::MAX,
            turn_cost_max: u64::MAX,
            turn_visits_max: u32::MAX,
            ..configuration.options
        };
        let run = |options| {
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(round));
            let mut drr = backlogged(options, &configuration.weights);
            serve(&mut drr, 500, |key| random.random_range(1..=configuration.largest[key]))
        };
        assert_eq!(run(configuration.options), run(capless), "round {round}");
    }
}

// DRR-1, DRR-3
#[test]
fn keys_that_come_and_go_leave_the_others_within_their_bound() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let options = DrrOptions { quantum: 100, cost_max: 100, turn_items_max: 7, turn_cost_max: 300, turn_visits_max: 5 };
    let keys = 50;
    let mut drr = backlogged(options, &vec![1; keys]);
    let mut waited = vec![0; keys];
    let mut active = vec![true; keys];
    let mut turn = drr.turn();
    for _ in 0..100_000 {
        let other = random.random_range(1..keys);
        if active[other] {
            drr.deactivate(other)
        } else {
            drr.activate(other)
        }
        active[other] = !active[other];
        waited[other] = 0;
        let Some(key) = drr.next(&mut turn) else {
            assert!(!drr.is_idle(), "key 0 is never idle");
            turn = drr.turn();
            continue;
        };
        assert!(active[key], "a key that left is not visited");
        match drr.charge(&mut turn, 100) {
            Charge::Served => {
                waited.iter_mut().for_each(|waited| *waited += 1);
                waited[key] = 0;
                // One quantum is one service here: between two of its own, each other key is served at most twice,
                // for it may leave once it was served and join again behind.
                assert!(waited[0] <= 2 * keys, "key 0 waited for {} services", waited[0]);
            }
            Charge::VisitOver => {}
            Charge::TurnOver => turn = drr.turn(),
        }
    }
}

// DRR-2
#[test]
fn activation_is_idempotent_and_leaving_forfeits_the_deficit() {
    let mut drr = backlogged(UNCAPPED, &[1, 1]);
    for _ in 0..10 {
        drr.activate(0);
    }
    let served = serve(&mut drr, 200, |_| 1 << 10);
    assert!(total(&served, 0).abs_diff(total(&served, 1)) <= QUANTUM);

    let mut drr = backlogged(UNCAPPED, &[1]);
    let mut turn = drr.turn();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::VisitOver);
    drr.deactivate(0);
    drr.activate(0);
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::VisitOver, "the first visit's grant is gone");
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::Served, "two grants in a row cover it");
}

// DRR-2
#[test]
fn weight_zero_pauses_and_a_weight_brings_back() {
    let mut drr = backlogged(UNCAPPED, &[1, 1]);
    drr.set_weight(0, 0);
    drr.activate(0);
    assert!(serve(&mut drr, 100, |_| 1 << 10).iter().all(|(key, _)| *key == 1));
    drr.set_weight(0, 3);
    let served = serve(&mut drr, 4 * 64 * 10, |_| 1 << 10);
    assert!(total(&served, 0).abs_diff(3 * total(&served, 1)) <= 3 * QUANTUM);
    drr.set_weight(1, 0);
    drr.deactivate(1);
    drr.set_weight(1, 1);
    assert!(serve(&mut drr, 100, |_| 1 << 10).iter().all(|(key, _)| *key == 0), "what is idle stays idle");
}

// DRR-2
#[test]
fn a_new_weight_counts_from_the_next_visit_and_clamps_what_was_gathered() {
    let mut drr = backlogged(UNCAPPED, &[8]);
    let mut turn = drr.turn();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 1 << 20), Charge::VisitOver);
    drr.set_weight(0, 1);
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 3 * QUANTUM), Charge::VisitOver, "two quanta at the most");
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 3 * QUANTUM), Charge::Served);
}

#[test]
fn removed_keys_leave_the_ring_whole() {
    let mut drr = backlogged(UNCAPPED, &[1, 1, 1]);
    drr.remove(1);
    drr.remove(1);
    let served = serve(&mut drr, 300, |_| 1 << 10);
    assert_eq!((total(&served, 1), total(&served, 0) > 0, total(&served, 2) > 0), (0, true, true));
    drr.remove(0);
    drr.remove(2);
    assert!(drr.is_idle());
    drr.set_weight(7, 1);
    drr.activate(7);
    assert_eq!(drr.next(&mut drr.turn()), Some(7));
}
