//! Queue classes: what a WorkItem is to the executors that may take it. A class is given at admission and never
//! changes.

/// The class of a WorkItem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueClass {
    /// Somebody waits for it.
    Interactive,
    /// What nothing else is said of.
    Default,
    /// May wait behind everything else, but not for ever.
    Bulk,
}

impl QueueClass {
    /// Every class.
    pub const ALL: [QueueClass; 3] = [QueueClass::Interactive, QueueClass::Default, QueueClass::Bulk];

    /// The word for it in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            QueueClass::Interactive => "interactive",
            QueueClass::Default => "default",
            QueueClass::Bulk => "bulk",
        }
    }
}

/// A set of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueClasses(u8);

impl QueueClasses {
    /// No class.
    pub const NONE: QueueClasses = QueueClasses(0);
    /// Every class.
    pub const ALL: QueueClasses = QueueClasses::of(&QueueClass::ALL);

    /// These classes.
    pub const fn of(classes: &[QueueClass]) -> Self {
        let mut set = QueueClasses::NONE;
        let mut index = 0;
        while index < classes.len() {
            set.0 |= bit(classes[index]);
            index += 1;
        }
        set
    }

    /// Whether `class` is one of them.
    pub const fn contains(self, class: QueueClass) -> bool {
        self.0 & bit(class) != 0
    }

    /// Whether all of `others` are among them.
    pub const fn covers(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and `others`.
    pub const fn with(self, others: Self) -> Self {
        QueueClasses(self.0 | others.0)
    }
}

const fn bit(class: QueueClass) -> u8 {
    1 << class as u8
}
