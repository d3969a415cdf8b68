//! What a history is made of, and the chance that makes it.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::model::destination_lane::Gate;
use crate::model::message::MessageState;
use crate::model::queue::QueueClass;
use crate::store::{Installing, Resolution};

/// Keys that engines may take for one another: by case, by accents, by what is not seen, by their beginning.
const KEYS: [&str; 12] = ["a", "A", "\u{e1}", "a\u{301}", "a b", " a", "a\t", "a%", "a_", "\u{df}", "ss", "\u{1f600}"];

/// One event of a delivery.
#[derive(Debug, Clone)]
pub(super) struct NewPart {
    pub(super) key: String,
    pub(super) source: Option<&'static str>,
    pub(super) class: QueueClass,
    pub(super) body: &'static str,
}

/// By which route a delivery comes, and under what terms.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Source,
    Delivery,
    Nothing,
    LatestOnly,
}

impl By {
    /// Events of a route that wants the latest only stand in lanes of their own: others there would come between them.
    fn sources(self) -> &'static [&'static str] {
        match self {
            By::LatestOnly => &["latest", "Latest"],
            By::Source | By::Delivery | By::Nothing => &KEYS[..6],
        }
    }

    /// Whoever ends an event of such a route goes on with another of the same class only.
    fn classes(self) -> &'static [QueueClass] {
        match self {
            By::LatestOnly => &[QueueClass::Default],
            By::Source | By::Delivery | By::Nothing => &QueueClass::ALL,
        }
    }
}

/// How an execution ends.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    Done { ignored: bool, destinations: Vec<(&'static str, u64, bool)>, continues: bool },
    Retry { after_ms: u64, leaves_lane: bool },
    Dead { leaves_lane: bool },
    Release,
}

/// What an attempt to publish comes to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    Published,
    Retry,
    Uncertain,
    Dead,
    /// Nobody says.
    Open,
}

/// One step. Numbers choose from what there is, whatever its length.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Deliver {
        by: By,
        generation: usize,
        parts: Vec<NewPart>,
    },
    Claim {
        rows_max: u32,
        classes: Vec<QueueClass>,
        preference: Vec<QueueClass>,
        stale_only: bool,
        generations: usize,
    },
    /// `again`: the row stays in the list, and is finished once more later.
    Finish {
        held: usize,
        ending: Ending,
        again: bool,
    },
    Renew {
        count: usize,
    },
    SkipDead {
        item: usize,
    },
    Replay {
        item: usize,
    },
    Sweep,
    Retire,
    Install {
        digest: u8,
        installing: Installing,
    },
    Activate {
        number: usize,
        expected: Option<usize>,
    },
    Drain {
        from: usize,
        to: Option<usize>,
    },
    Publish {
        message: usize,
        attempt: Attempt,
        stale: bool,
    },
    Expire {
        message: usize,
    },
    Cancel {
        message: usize,
    },
    Reschedule {
        message: usize,
        after_ms: u64,
    },
    Redrive {
        messages: Vec<usize>,
    },
    Resolve {
        message: usize,
        resolution: Resolution,
    },
    Gate {
        destination: &'static str,
        tenant: bool,
        gate: Gate,
        by_operator: bool,
    },
    Shard {
        shard: u16,
        renews: bool,
    },
    Beat {
        runtime: usize,
        leaves: bool,
    },
    List {
        state: Option<MessageState>,
        limit: u32,
    },
    Pass {
        ms: u64,
    },
}

impl Step {
    pub(super) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..100) {
            0..20 => Self::deliver(random),
            20..40 => Self::claim(random),
            40..62 => Self::finish(random),
            62..64 => Step::Renew { count: random.random_range(1..10) },
            64..66 => Step::SkipDead { item: any(random) },
            66..70 => Step::Replay { item: any(random) },
            70 => Step::Sweep,
            71 => Step::Install {
                digest: random.random_range(1..5),
                installing: *[Installing::Staged, Installing::Active].choose(random).unwrap(),
            },
            72 => Step::Activate { number: any(random), expected: random.random::<bool>().then(|| any(random)) },
            73 => Step::Drain { from: any(random), to: (random.random_range(0..8) > 0).then(|| any(random)) },
            74..82 => Step::Publish {
                message: any(random),
                attempt: *[Attempt::Published, Attempt::Retry, Attempt::Uncertain, Attempt::Dead, Attempt::Open]
                    .choose(random)
                    .unwrap(),
                stale: random.random_range(0..8) == 0,
            },
            82 => Step::Expire { message: any(random) },
            83 => Step::Cancel { message: any(random) },
            84 => Step::Reschedule { message: any(random), after_ms: random.random_range(0..20_000) },
            85 => Step::Redrive { messages: (0..random.random_range(1..6)).map(|_| any(random)).collect() },
            86 => Step::Resolve { message: any(random), resolution: *Resolution::ALL.choose(random).unwrap() },
            87 => Step::Gate {
                destination: destination(random),
                tenant: random.random(),
                gate: *[Gate::Open, Gate::Paused, Gate::Closed].choose(random).unwrap(),
                by_operator: random.random(),
            },
            88 => Step::Shard { shard: random.random_range(0..2), renews: random.random() },
            89 => Step::Beat { runtime: random.random_range(0..3), leaves: random.random_range(0..4) == 0 },
            90..92 => Step::List { state: MessageState::ALL.choose(random).copied(), limit: random.random_range(1..5) },
            92..98 => match random.random_range(1..5_000) {
                ms if ms % 5 == 0 => Step::Retire,
                ms => Step::Pass { ms },
            },
            // Longer than a lease.
            _ => Step::Pass { ms: 31_000 },
        }
    }

    fn deliver(random: &mut StdRng) -> Self {
        let by = *[By::Source, By::Delivery, By::Nothing, By::LatestOnly, By::LatestOnly].choose(random).unwrap();
        let parts = (0..random.random_range(1..5))
            .map(|_| NewPart {
                key: format!("{}{}", random.random_range(0..60), KEYS.choose(random).unwrap()),
                source: (random.random_range(0..5) > 0).then(|| *by.sources().choose(random).unwrap()),
                class: *by.classes().choose(random).unwrap(),
                // Seldom another one: the same key with another payload.
                body: if random.random_range(0..12) == 0 { "[]" } else { "{}" },
            })
            .collect();
        // Mostly the first one: who coalesces does so with rows of the same generation.
        let generation = if random.random_range(0..4) == 0 { any(random) } else { 0 };
        Step::Deliver { by, generation, parts }
    }

    fn claim(random: &mut StdRng) -> Self {
        let some = |random: &mut StdRng, least: usize| {
            let mut classes = QueueClass::ALL.to_vec();
            while classes.len() > least && random.random() {
                classes.remove(random.random_range(0..classes.len()));
            }
            classes
        };
        Step::Claim {
            rows_max: random.random_range(1..8),
            classes: some(random, 1),
            preference: some(random, 0),
            stale_only: random.random_range(0..10) == 0,
            generations: any(random),
        }
    }

    fn finish(random: &mut StdRng) -> Self {
        let leaves_lane = random.random();
        let ending = match random.random_range(0..10) {
            0 => Ending::Release,
            1 | 2 => Ending::Retry { after_ms: random.random_range(0..10_000), leaves_lane },
            3 => Ending::Dead { leaves_lane },
            _ => Ending::Done {
                ignored: random.random_range(0..5) == 0,
                destinations: (0..random.random_range(0..3))
                    .map(|_| (destination(random), random.random_range(0..10_000), random.random()))
                    .collect(),
                continues: random.random(),
            },
        };
        Step::Finish { held: any(random), ending, again: random.random_range(0..10) == 0 }
    }
}

fn any(random: &mut StdRng) -> usize {
    random.random_range(0..10_000)
}

fn destination(random: &mut StdRng) -> &'static str {
    ["sink", "audit", "mail"].choose(random).unwrap()
}
