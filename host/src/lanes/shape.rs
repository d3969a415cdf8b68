//! Executor shapes: which queue classes an executor serves, how a profile divides a pack's executors into shapes, and
//! whose turn it is to claim.
//!
//! | shape | serves | prefers |
//! |---|---|---|
//! | latency | interactive, default | |
//! | shared | all | |
//! | bulk | bulk | |
//! | bulk first | all | bulk |
//!
//! Invariants:
//! - Every layout has an executor that serves all classes: whatever is ready is somebody's.
//! - A shape is passed over in favour of another one at most once by each ([`Rotation`]).

use crate::model::queue::{QueueClass, QueueClasses};

const LATENCY_CLASSES: QueueClasses = QueueClasses::of(&[QueueClass::Interactive, QueueClass::Default]);
const BULK_CLASSES: QueueClasses = QueueClasses::of(&[QueueClass::Bulk]);

/// What is set aside for one purpose: one executor in so many.
const RESERVED_PART: u32 = 4;

/// What an executor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Interactive and default work only: it is free for them however much bulk there is.
    Latency,
    /// Bulk only: it is free for it however much else there is.
    Bulk,
    /// All classes, and bulk before the others.
    BulkFirst,
    /// All classes alike, the oldest first.
    Shared,
}

impl Shape {
    /// How many shapes there are.
    pub const COUNT: usize = 4;

    /// Every shape, in the order of their turns.
    pub const ALL: [Shape; Shape::COUNT] = [Shape::Latency, Shape::Bulk, Shape::BulkFirst, Shape::Shared];

    /// The classes that it serves; others are invisible to it.
    pub const fn classes(self) -> QueueClasses {
        match self {
            Shape::Latency => LATENCY_CLASSES,
            Shape::Bulk => BULK_CLASSES,
            Shape::BulkFirst | Shape::Shared => QueueClasses::ALL,
        }
    }

    /// The classes that it would rather have.
    pub const fn preference(self) -> QueueClasses {
        match self {
            Shape::BulkFirst => BULK_CLASSES,
            Shape::Latency | Shape::Bulk | Shape::Shared => QueueClasses::NONE,
        }
    }

    /// Its place in [`Shape::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Shape::Latency => "latency",
            Shape::Bulk => "bulk",
            Shape::BulkFirst => "bulk_first",
            Shape::Shared => "shared",
        }
    }
}

/// How executors are divided (`inbound.queue_profile`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// A quarter for latency, a quarter for bulk, and the rest shared.
    #[default]
    Reserved,
    /// A quarter for latency, a quarter that serves bulk first, and the rest shared: only the first ever leaves work
    /// alone.
    DefaultHeavy,
}

/// How many executors of a pack have each shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout([u32; Shape::COUNT]);

impl Layout {
    /// All of them shared.
    pub const fn plain(executors: u32) -> Self {
        let mut counts = [0; Shape::COUNT];
        counts[Shape::Shared.index()] = executors;
        Layout(counts)
    }

    /// `executors` divided by `profile`, for a pack that admits events of these classes.
    ///
    /// Without bulk work beside other work there is nothing to protect from anything, and all are shared. A few
    /// executors are divided as far as they go: one is shared, for two the latency reservation comes first.
    pub fn new(profile: Profile, executors: u32, admitted: QueueClasses) -> Self {
        let mixed = admitted.contains(QueueClass::Bulk) && !BULK_CLASSES.covers(admitted);
        if !mixed || executors < 2 {
            return Self::plain(executors);
        }
        let part = (executors / RESERVED_PART).max(1);
        let (bulk_shape, bulk_part) = match profile {
            // Somebody must be left who serves all.
            Profile::Reserved if executors < 3 => (Shape::Bulk, 0),
            Profile::Reserved => (Shape::Bulk, part),
            Profile::DefaultHeavy => (Shape::BulkFirst, part),
        };
        let mut counts = [0; Shape::COUNT];
        counts[Shape::Latency.index()] = part;
        counts[bulk_shape.index()] = bulk_part;
        counts[Shape::Shared.index()] = executors - part - bulk_part;
        Layout(counts)
    }

    /// How many executors have this shape.
    pub const fn count(&self, shape: Shape) -> u32 {
        self.0[shape.index()]
    }
}

/// Whose turn it is: shapes claim one after another, so that none has all of a scarce budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotation {
    next: usize,
}

impl Rotation {
    /// The first shape from the one whose turn it is on that `may` claim.
    pub fn turn(&self, may: impl Fn(Shape) -> bool) -> Option<Shape> {
        let in_turn = Shape::ALL.into_iter().cycle().skip(self.next).take(Shape::COUNT);
        in_turn.into_iter().find(|shape| may(*shape))
    }

    /// `shape` has had its turn.
    pub fn served(&mut self, shape: Shape) {
        self.next = (shape.index() + 1) % Shape::COUNT;
    }
}

#[cfg(test)]
mod tests;
