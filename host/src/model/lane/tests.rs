//! Every order in which transactions over two lanes can be done: two runtimes enqueue, claim, finish, skip and take
//! over what the other one holds, a lock or a read at a time, as the store does it. The decisions are the store's own.
//!
//! That the search would find something is shown by taking away, one by one, what the store relies on.

use std::collections::HashSet;

use super::*;

const RUNTIMES: usize = 2;
const LANES: usize = 2;

/// Claims that one item gets at most; the last one succeeds.
const CLAIMS_MAX: u8 = 2;

/// What is explored: which items there are, and what may become of them.
#[derive(Clone, Copy)]
struct Plan<'a> {
    /// For each item whether it stands in the first lane, and in the second.
    items: &'a [[bool; LANES]],
    /// What an execution may come to, beside success.
    failures: &'a [Ending],
    flaw: Option<Flaw>,
}

/// Something that the store does not do, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// An enqueue believes what it read of the lanes before it held them.
    LanesReadBeforeTheyAreHeld,
    /// Blockers are counted down from what was read without holding the row.
    SuccessorsNotHeld,
    /// A finish takes its lanes in the other order.
    LanesHeldInAnyOrder,
    /// A finish does not compare the epoch.
    EpochNotCompared,
}

/// What an execution comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ending {
    Done,
    Released,
    Retry { leaves: bool },
    Dead { leaves: bool },
}

const ENDINGS: [Ending; 5] = [
    Ending::Released,
    Ending::Retry { leaves: false },
    Ending::Retry { leaves: true },
    Ending::Dead { leaves: false },
    Ending::Dead { leaves: true },
];

impl Ending {
    fn state(self) -> WorkState {
        match self {
            Ending::Done => WorkState::Done,
            Ending::Released => WorkState::Ready,
            Ending::Retry { .. } => WorkState::Delayed,
            Ending::Dead { .. } => WorkState::Dead,
        }
    }

    fn leaves(self) -> bool {
        match self {
            Ending::Done | Ending::Released => false,
            Ending::Retry { leaves } | Ending::Dead { leaves } => leaves,
        }
    }
}

/// A row of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct LaneRow {
    lane: Lane,
    holder: Option<usize>,
}

/// A row of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ItemRow {
    state: WorkState,
    blockers: Blockers,
    lanes: [bool; LANES],
    place: i64,
    epoch: u8,
    holder: Option<usize>,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    Enqueue(usize),
    Finish { item: usize, epoch: u8, ending: Ending },
    Skip(usize),
}

/// What a transaction still has to hold before it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Hold {
    Item(usize),
    Lane(usize),
    /// The first of those who wait in a lane.
    Successor(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Transaction {
    work: Work,
    /// What it still has to hold, the next one last.
    to_hold: Vec<Hold>,
    /// The lanes as they were when it began.
    before: [Lane; LANES],
    successors: Vec<(usize, Successor)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Runtime {
    /// The item that it believes to own, and the epoch that it claimed it under.
    claim: Option<(usize, u8)>,
    transaction: Option<Transaction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    lanes: [LaneRow; LANES],
    items: Vec<Option<ItemRow>>,
    runtimes: [Runtime; RUNTIMES],
    /// Whether a finish counted whose runtime had lost the item.
    usurped: bool,
}

/// One thing that can happen next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Claim(usize, usize),
    Begin(usize, Work),
    GoOn(usize),
    ComesDue(usize),
}

impl World {
    fn empty(plan: Plan<'_>) -> Self {
        Self {
            lanes: Default::default(),
            items: vec![None; plan.items.len()],
            runtimes: Default::default(),
            usurped: false,
        }
    }

    /// Everything that can happen next.
    fn steps(&self, plan: Plan<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        for runtime in 0..RUNTIMES {
            match &self.runtimes[runtime].transaction {
                Some(transaction) => {
                    steps.extend(self.may_go_on(runtime, transaction, plan).then_some(Step::GoOn(runtime)))
                }
                None => steps.extend(self.beginnings(runtime, plan)),
            }
        }
        let delayed =
            |item: &usize| self.items[*item].is_some_and(|row| row.state == WorkState::Delayed && row.holder.is_none());
        steps.extend((0..self.items.len()).filter(delayed).map(Step::ComesDue));
        steps
    }

    fn beginnings(&self, runtime: usize, plan: Plan<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        let begun = |item: usize| {
            let works = self.runtimes.iter().flat_map(|other| &other.transaction).map(|transaction| transaction.work);
            works.into_iter().any(|work| work == Work::Enqueue(item))
        };
        let next = (0..self.items.len()).find(|item| self.items[*item].is_none() && !begun(*item));
        steps.extend(next.map(|item| Step::Begin(runtime, Work::Enqueue(item))));
        if let Some((item, epoch)) = self.runtimes[runtime].claim {
            let endings = if epoch < CLAIMS_MAX { plan.failures } else { &[] };
            for ending in [Ending::Done].iter().chain(endings) {
                steps.push(Step::Begin(runtime, Work::Finish { item, epoch, ending: *ending }));
            }
        }
        for (item, row) in self.items.iter().enumerate() {
            let Some(row) = row else { continue };
            // What is processing may be taken over: its lease may have run out at any time.
            let claimable = matches!(row.state, WorkState::Ready | WorkState::Processing) && row.epoch < CLAIMS_MAX;
            if claimable && row.holder.is_none() && self.runtimes[runtime].claim.is_none() {
                steps.push(Step::Claim(runtime, item));
            }
            if row.state == WorkState::Dead && row.lanes.contains(&true) {
                steps.push(Step::Begin(runtime, Work::Skip(item)));
            }
        }
        steps
    }

    fn may_go_on(&self, runtime: usize, transaction: &Transaction, plan: Plan<'_>) -> bool {
        let free = |holder: Option<usize>| holder.is_none_or(|holder| holder == runtime);
        match transaction.to_hold.last() {
            None => true,
            Some(Hold::Item(item)) => free(self.items[*item].and_then(|row| row.holder)),
            Some(Hold::Lane(lane)) => free(self.lanes[*lane].holder),
            Some(Hold::Successor(lane)) => {
                plan.flaw == Some(Flaw::SuccessorsNotHeld)
                    || self.first_waiting(*lane).is_none_or(|item| free(self.items[item].and_then(|row| row.holder)))
            }
        }
    }

    fn first_waiting(&self, lane: usize) -> Option<usize> {
        let waiting = self.items.iter().enumerate().filter_map(|(item, row)| Some((item, (*row)?)));
        let waiting = waiting.filter(|(_, row)| row.state == WorkState::Blocked && row.lanes[lane]);
        waiting.min_by_key(|(_, row)| row.place).map(|(item, _)| item)
    }

    fn after(&self, step: Step, plan: Plan<'_>) -> Self {
        let mut world = self.clone();
        match step {
            Step::Claim(runtime, item) => {
                let row = world.item(item);
                row.state = WorkState::Processing;
                row.epoch += 1;
                world.runtimes[runtime].claim = Some((item, row.epoch));
            }
            Step::ComesDue(item) => world.item(item).state = WorkState::Ready,
            Step::Begin(runtime, work) => {
                let transaction = self.begin(work, plan);
                world.runtimes[runtime].transaction = Some(transaction);
            }
            Step::GoOn(runtime) => world.go_on(runtime, plan),
        }
        world
    }

    fn item(&mut self, item: usize) -> &mut ItemRow {
        self.items[item].as_mut().expect("it is stored")
    }

    fn begin(&self, work: Work, plan: Plan<'_>) -> Transaction {
        let before = self.lanes.map(|row| row.lane);
        let to_hold = match work {
            Work::Enqueue(_) if plan.flaw == Some(Flaw::LanesReadBeforeTheyAreHeld) => Vec::new(),
            Work::Enqueue(item) => held_lanes(plan.items[item], None),
            Work::Finish { item, .. } | Work::Skip(item) => vec![Hold::Item(item)],
        };
        Transaction { work, to_hold, before, successors: Vec::new() }
    }

    fn go_on(&mut self, runtime: usize, plan: Plan<'_>) {
        let mut transaction = self.runtimes[runtime].transaction.take().expect("it is under way");
        match transaction.to_hold.pop() {
            None => return self.commit(runtime, &transaction, plan),
            Some(Hold::Lane(lane)) => self.lanes[lane].holder = Some(runtime),
            Some(Hold::Successor(lane)) => {
                if let Some(item) = self.first_waiting(lane) {
                    let row = self.item(item);
                    if plan.flaw != Some(Flaw::SuccessorsNotHeld) {
                        row.holder = Some(runtime);
                    }
                    let successor = Successor { item: number(item), blockers: row.blockers };
                    transaction.successors.push((lane, successor));
                }
            }
            Some(Hold::Item(item)) => {
                let row = *self.item(item);
                let goes = match transaction.work {
                    Work::Finish { epoch, ending, .. } => {
                        let held = row.epoch == epoch || plan.flaw == Some(Flaw::EpochNotCompared);
                        (row.state == WorkState::Processing && held)
                            .then_some(lets_go_on(ending.state(), ending.leaves()))
                    }
                    Work::Skip(_) => (row.state == WorkState::Dead && row.lanes.contains(&true)).then_some(true),
                    Work::Enqueue(_) => None,
                };
                // Somebody else's: the transaction changes nothing, and ends.
                let Some(lets_go_on) = goes else { return self.end(runtime, transaction.work) };
                self.item(item).holder = Some(runtime);
                if lets_go_on {
                    transaction.to_hold = held_lanes(row.lanes, Some(plan.flaw));
                }
            }
        }
        self.runtimes[runtime].transaction = Some(transaction);
    }

    fn commit(&mut self, runtime: usize, transaction: &Transaction, plan: Plan<'_>) {
        match transaction.work {
            Work::Enqueue(item) => self.store(item, transaction, plan),
            Work::Finish { item, epoch, ending } => {
                self.usurped |= self.item(item).epoch != epoch;
                let row = self.item(item);
                row.state = ending.state();
                let left = if lets_go_on(row.state, ending.leaves()) { row.lanes } else { [false; LANES] };
                if ending.leaves() {
                    row.lanes = [false; LANES];
                }
                self.advance(left, transaction);
            }
            Work::Skip(item) => {
                let left = std::mem::take(&mut self.item(item).lanes);
                self.advance(left, transaction);
            }
        }
        self.end(runtime, transaction.work);
    }

    fn store(&mut self, item: usize, transaction: &Transaction, plan: Plan<'_>) {
        let stands_in = plan.items[item];
        if plan.flaw == Some(Flaw::LanesReadBeforeTheyAreHeld) {
            for lane in (0..LANES).filter(|lane| stands_in[*lane]) {
                self.lanes[lane].lane = transaction.before[lane];
            }
        }
        let place = 1 + self.lanes.iter().map(|row| row.lane.last).max().unwrap_or(0);
        let mut blockers = Blockers::NONE;
        for lane in (0..LANES).filter(|lane| stands_in[*lane]) {
            blockers += self.lanes[lane].lane.append(number(item), place);
        }
        let row = ItemRow { state: blockers.state(), blockers, lanes: stands_in, place, epoch: 0, holder: None };
        self.items[item] = Some(row);
    }

    fn advance(&mut self, left: [bool; LANES], transaction: &Transaction) {
        for (item, blockers) in promote(transaction.successors.iter().map(|(_, successor)| *successor)).unwrap() {
            let row = self.item(usize::try_from(item).unwrap());
            row.blockers = blockers;
            row.state = blockers.state();
        }
        for lane in (0..LANES).filter(|lane| left[*lane]) {
            let next = transaction.successors.iter().find(|(of, _)| *of == lane);
            self.lanes[lane].lane.head = next.map(|(_, successor)| successor.item);
        }
    }

    fn end(&mut self, runtime: usize, work: Work) {
        if let Work::Finish { .. } = work {
            self.runtimes[runtime].claim = None;
        }
        let holders = self.lanes.iter_mut().map(|row| &mut row.holder);
        for holder in holders.chain(self.items.iter_mut().flatten().map(|row| &mut row.holder)) {
            holder.take_if(|holder| *holder == runtime);
        }
    }

    /// What is wrong, if anything is.
    fn fault(&self, over: bool) -> Option<String> {
        if self.usurped {
            return Some("a finish counted that came too late".to_owned());
        }
        let rows = || self.items.iter().enumerate().filter_map(|(item, row)| Some((item, (*row)?)));
        for lane in 0..LANES {
            let standing = || rows().filter(|(_, row)| row.lanes[lane] && row.state != WorkState::Done);
            let first = standing().min_by_key(|(_, row)| row.place).map(|(item, _)| number(item));
            if self.lanes[lane].lane.head != first {
                return Some(format!("lane {lane}: {first:?} is the first, and not its head"));
            }
            let runs =
                |row: &ItemRow| matches!(row.state, WorkState::Ready | WorkState::Processing | WorkState::Delayed);
            if let Some((item, _)) = standing().find(|(item, row)| runs(row) && Some(number(*item)) != first) {
                return Some(format!("lane {lane}: {item} may run, and is behind {first:?}"));
            }
        }
        for (item, row) in rows() {
            let before =
                (0..LANES).filter(|lane| row.lanes[*lane] && self.lanes[*lane].lane.head != Some(number(item)));
            if row.state == WorkState::Blocked && usize::try_from(row.blockers.0) != Ok(before.count()) {
                return Some(format!("{item} counts {:?}", row.blockers));
            }
            if (row.state == WorkState::Blocked) != (row.blockers != Blockers::NONE) {
                return Some(format!("{item} is {:?}, with {:?}", row.state, row.blockers));
            }
            let ended = row.state == WorkState::Done || (row.state == WorkState::Dead && row.lanes == [false; LANES]);
            if over && !ended {
                return Some(format!("nothing can happen any more, and {item} is {:?}", row.state));
            }
        }
        None
    }
}

/// What has to be held of the lanes that an item stands in; of those that it leaves, also who comes next.
fn held_lanes(lanes: [bool; LANES], leaves: Option<Option<Flaw>>) -> Vec<Hold> {
    let lanes = || (0..LANES).filter(move |lane| lanes[*lane]);
    let mut to_hold: Vec<Hold> = lanes().map(Hold::Lane).collect();
    if leaves == Some(Some(Flaw::LanesHeldInAnyOrder)) {
        to_hold.reverse();
    }
    if leaves.is_some() {
        to_hold.extend(lanes().map(Hold::Successor));
    }
    to_hold.reverse();
    to_hold
}

fn number(item: usize) -> i64 {
    i64::try_from(item).unwrap()
}

/// Goes through every world that can come to be. Returns how many there are, or what happened before one that is wrong.
fn explore(plan: Plan<'_>) -> Result<usize, String> {
    let begin = World::empty(plan);
    let mut seen = HashSet::from([begin.clone()]);
    let mut path = vec![(begin.steps(plan), begin, None)];
    while let Some((steps, world, _)) = path.last_mut() {
        let Some(step) = steps.pop() else {
            path.pop();
            continue;
        };
        let next = world.after(step, plan);
        if !seen.insert(next.clone()) {
            continue;
        }
        let steps = next.steps(plan);
        let fault = next.fault(steps.is_empty());
        path.push((steps, next, Some(step)));
        if let Some(fault) = fault {
            let history: Vec<_> = path.iter().filter_map(|(_, _, step)| *step).collect();
            return Err(format!("{fault}, after {history:?}"));
        }
    }
    Ok(seen.len())
}

const DELIVERY: [bool; LANES] = [true, false];
const SOURCE: [bool; LANES] = [false, true];
const BOTH: [bool; LANES] = [true, true];

// CLM-3, CLM-5, CLM-8: two items, whatever becomes of them.
#[test]
fn two_items_never_pass_or_lose_each_other() {
    for items in [[BOTH, BOTH], [BOTH, SOURCE], [DELIVERY, BOTH], [SOURCE, SOURCE]] {
        let plan = Plan { items: &items, failures: &ENDINGS, flaw: None };
        let worlds = explore(plan).unwrap_or_else(|fault| panic!("{items:?}: {fault}"));
        assert!(worlds > 1_000, "{items:?}: only {worlds} worlds");
    }
}

// CLM-3, CLM-8: three items, of which the one waits for two that stand in different lanes.
#[test]
fn three_items_never_pass_or_lose_each_other() {
    let failures = [Ending::Dead { leaves: false }];
    for items in [[DELIVERY, SOURCE, BOTH], [BOTH, DELIVERY, SOURCE], [SOURCE, BOTH, BOTH], [BOTH, BOTH, BOTH]] {
        let plan = Plan { items: &items, failures: &failures, flaw: None };
        let worlds = explore(plan).unwrap_or_else(|fault| panic!("{items:?}: {fault}"));
        assert!(worlds > 10_000, "{items:?}: only {worlds} worlds");
    }
}

#[test]
fn what_the_store_relies_on_is_needed() {
    let items = [DELIVERY, SOURCE, BOTH];
    for flaw in
        [Flaw::LanesReadBeforeTheyAreHeld, Flaw::SuccessorsNotHeld, Flaw::LanesHeldInAnyOrder, Flaw::EpochNotCompared]
    {
        let items = if flaw == Flaw::LanesHeldInAnyOrder { vec![BOTH, BOTH] } else { items.to_vec() };
        let found = explore(Plan { items: &items, failures: &[], flaw: Some(flaw) });
        assert!(found.is_err(), "{flaw:?} does no harm");
    }
}
