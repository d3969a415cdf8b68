use proptest::prelude::*;

use super::*;

const PROFILES: [Profile; 2] = [Profile::Reserved, Profile::DefaultHeavy];

fn layout(profile: Profile, executors: u32) -> [u32; Shape::COUNT] {
    let layout = Layout::new(profile, executors, QueueClasses::ALL);
    Shape::ALL.map(|shape| layout.count(shape))
}

// QCL-6
#[test]
fn a_profile_divides_executors_in_quarters() {
    // latency, bulk, bulk first, shared
    assert_eq!(layout(Profile::DefaultHeavy, 16), [4, 0, 4, 8]);
    assert_eq!(layout(Profile::Reserved, 16), [4, 4, 0, 8]);
    assert_eq!(layout(Profile::DefaultHeavy, 64), [16, 0, 16, 32]);
    assert_eq!(layout(Profile::Reserved, 64), [16, 16, 0, 32]);
    assert_eq!(layout(Profile::DefaultHeavy, 7), [1, 0, 1, 5]);
    for profile in PROFILES {
        assert_eq!(layout(profile, 1), [0, 0, 0, 1], "{profile:?}");
    }
    assert_eq!(layout(Profile::DefaultHeavy, 2), [1, 0, 1, 0]);
    assert_eq!(layout(Profile::Reserved, 2), [1, 0, 0, 1]);
    assert_eq!(layout(Profile::DefaultHeavy, 3), [1, 0, 1, 1]);
    assert_eq!(layout(Profile::Reserved, 3), [1, 1, 0, 1]);
}

// QCL-4: what is set aside for a class that cannot come would be idle for ever.
#[test]
fn a_pack_without_bulk_beside_other_work_shares_all_its_executors() {
    for classes in [QueueClasses::NONE, LATENCY_CLASSES, BULK_CLASSES, QueueClasses::of(&[QueueClass::Default])] {
        for profile in PROFILES {
            assert_eq!(Layout::new(profile, 16, classes), Layout::plain(16), "{profile:?} {classes:?}");
        }
    }
    let uneven = QueueClasses::of(&[QueueClass::Bulk, QueueClass::Interactive]);
    assert_ne!(Layout::new(Profile::Reserved, 16, uneven), Layout::plain(16));
}

#[test]
fn turns_go_round_and_pass_over_whoever_cannot_claim() {
    let mut rotation = Rotation::default();
    let mut served = Vec::new();
    for _ in 0..6 {
        let shape = rotation.turn(|shape| shape != Shape::BulkFirst).unwrap();
        rotation.served(shape);
        served.push(shape);
    }
    let round = [Shape::Latency, Shape::Bulk, Shape::Shared];
    assert_eq!(served, [round, round].concat());
    assert_eq!(rotation.turn(|_| false), None);
}

/// A pack's queue and executors, in steps of time. Rows are told by when they came.
struct Model {
    layout: Layout,
    rotation: Rotation,
    budget: u32,
    now: u64,
    waiting: Vec<(QueueClass, u64)>,
    /// The shape of each busy executor, and when it is free.
    busy: Vec<(Shape, u64)>,
    served: Vec<(QueueClass, u64)>,
}

impl Model {
    fn new(profile: Profile, executors: u32, budget: u32) -> Self {
        let layout = Layout::new(profile, executors, QueueClasses::ALL);
        let rotation = Rotation::default();
        Self { layout, rotation, budget, now: 0, waiting: Vec::new(), busy: Vec::new(), served: Vec::new() }
    }

    fn enqueue(&mut self, class: QueueClass, rows: usize) {
        self.waiting.extend(std::iter::repeat_n((class, self.now), rows));
    }

    fn free(&self, shape: Shape) -> usize {
        let busy = self.busy.iter().filter(|(other, _)| *other == shape).count();
        self.layout.count(shape) as usize - busy
    }

    /// The place of the row that `shape` would claim, by the order of claims.
    fn candidate(&self, shape: Shape) -> Option<usize> {
        let visible = self.waiting.iter().enumerate().filter(|(_, (class, _))| shape.classes().contains(*class));
        visible.min_by_key(|(place, (class, _))| (!shape.preference().contains(*class), *place)).map(|(place, _)| place)
    }

    /// Claims as the scheduler does, shape by shape, until no executor that may work is idle.
    fn claim(&mut self, duration: u64) {
        let may = |model: &Self, shape| model.free(shape) > 0 && model.candidate(shape).is_some();
        while let Some(shape) = self.rotation.turn(|shape| may(self, shape)) {
            let room = self.budget as usize - self.busy.len();
            if room == 0 {
                return;
            }
            self.rotation.served(shape);
            for _ in 0..self.free(shape).min(room) {
                let Some(place) = self.candidate(shape) else { break };
                let row = self.waiting.remove(place);
                self.served.push(row);
                self.busy.push((shape, self.now + duration));
            }
        }
    }

    fn step(&mut self, duration: u64) {
        self.now += 1;
        let now = self.now;
        self.busy.retain(|(_, until)| *until > now);
        self.claim(duration);
    }

    fn served(&self, class: QueueClass) -> usize {
        self.served.iter().filter(|(served, _)| *served == class).count()
    }
}

fn classes() -> impl Strategy<Value = QueueClass> {
    prop::sample::select(QueueClass::ALL.to_vec())
}

proptest! {
    // The model looks at every waiting row for every claim.
    #![proptest_config(ProptestConfig::with_cases(24))]

    // QCL-4
    #[test]
    fn no_executor_is_idle_beside_work_that_it_may_do(
        profile in prop::sample::select(PROFILES.to_vec()),
        executors in 1_u32..40,
        steps in prop::collection::vec((classes(), 0_usize..12, 1_u64..6), 1..60),
    ) {
        let mut model = Model::new(profile, executors, executors);
        for (class, rows, duration) in steps {
            model.enqueue(class, rows);
            model.step(duration);
            for shape in Shape::ALL {
                prop_assert!(model.free(shape) == 0 || model.candidate(shape).is_none(), "{shape:?} is idle");
            }
        }
    }

    // QCL-6
    #[test]
    fn neither_old_bulk_nor_fresh_interactive_work_starves_the_other(
        profile in prop::sample::select(PROFILES.to_vec()),
        executors in 2_u32..20,
        budget in 1_u32..20,
        duration in 1_u64..5,
    ) {
        const STEPS: usize = 48;
        let mut model = Model::new(profile, executors, budget);
        let flood = executors as usize;
        model.enqueue(QueueClass::Bulk, flood * STEPS);
        for _ in 0..STEPS {
            model.enqueue(QueueClass::Interactive, flood);
            model.step(duration);
        }
        // Both had a share of all turns, whatever the other one had waiting.
        let rounds = STEPS / usize::try_from(duration).unwrap();
        let share = rounds / (2 * Shape::COUNT);
        for class in [QueueClass::Interactive, QueueClass::Bulk] {
            prop_assert!(model.served(class) >= share, "{class:?}: {} of {share}", model.served(class));
        }
    }

    // QCL-6: one executor, or a bulk backlog alone, is worked off in the order of arrival.
    #[test]
    fn a_single_executor_takes_the_oldest(arrivals in prop::collection::vec(classes(), 1..40)) {
        let mut model = Model::new(Profile::Reserved, 1, 1);
        for class in &arrivals {
            model.enqueue(*class, 1);
        }
        for _ in &arrivals {
            model.step(1);
        }
        let served: Vec<QueueClass> = model.served.iter().map(|(class, _)| *class).collect();
        prop_assert_eq!(served, arrivals);
    }
}
