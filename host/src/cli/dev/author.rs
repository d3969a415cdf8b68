//! The decisions of the loop: saved files, ended builds and typed lines lead to builds and fixtures.
//!
//! This module touches no file, clock or process: events come in, actions go out.
//!
//! ```text
//!            source saved            fails: the error is printed, the previous version serves
//!   idle ─────────────────> building ────────────────────────────────────────────────────────> idle
//!    ^                        │  │ source saved: another build follows
//!    └────────────────────────┘<─┘
//!      succeeds: it serves, and the last fixture is sent again
//! ```
//!
//! Invariants:
//! - A pack has one build at a time. Files that are saved during it are built afterwards.
//! - A fixture is sent only to a pack that serves.

/// Index of a pack among the watched ones.
pub(super) type PackIndex = usize;

/// A fixture of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FixtureName {
    pub(super) pack: PackIndex,
    pub(super) name: String,
}

/// An event of the loop.
#[derive(Debug)]
pub(super) enum Happened<'h> {
    /// A source file of the pack was saved.
    SourceSaved(PackIndex),
    /// The request of a fixture was saved.
    FixtureSaved(FixtureName),
    /// A build succeeded, and its pack serves.
    Serves(PackIndex),
    /// A build or its installation failed.
    Failed(PackIndex),
    /// A line was typed; these fixtures exist.
    Typed(&'h str, &'h [FixtureName]),
}

/// An action of the loop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Build and install the pack.
    Build(PackIndex),
    /// Send the fixture.
    Send(FixtureName),
    /// List the fixtures with their numbers.
    List,
    /// Print the help.
    Help,
    /// Print this text.
    Say(String),
    /// Stop.
    Stop,
}

/// State of a pack.
#[derive(Debug, Clone, Copy, Default)]
struct Pack {
    building: bool,
    saved_meanwhile: bool,
    serves: bool,
}

/// State of the loop.
#[derive(Debug)]
pub(super) struct Author {
    packs: Vec<Pack>,
    /// The fixture that is sent again after a build of its pack.
    last: Option<FixtureName>,
}

impl Author {
    /// The beginning, with a number of packs and the first fixture.
    pub(super) fn new(packs: usize, first: Option<FixtureName>) -> Self {
        Self { packs: vec![Pack::default(); packs], last: first }
    }

    /// The first actions.
    pub(super) fn begin(&mut self) -> Vec<Action> {
        (0..self.packs.len()).flat_map(|pack| self.build(pack)).collect()
    }

    /// The actions after an event.
    pub(super) fn then(&mut self, happened: Happened<'_>) -> Vec<Action> {
        match happened {
            Happened::SourceSaved(pack) => self.build(pack),
            Happened::FixtureSaved(fixture) => {
                self.last = Some(fixture.clone());
                let Pack { building, serves, .. } = self.packs[fixture.pack];
                // During a build, the fixture is sent after it.
                if serves && !building { vec![Action::Send(fixture)] } else { Vec::new() }
            }
            Happened::Serves(pack) => {
                self.packs[pack].serves = true;
                let again = self.ended(pack);
                if !again.is_empty() {
                    return again;
                }
                self.last.iter().filter(|last| last.pack == pack).cloned().map(Action::Send).collect()
            }
            Happened::Failed(pack) => self.ended(pack),
            Happened::Typed(line, fixtures) => self.typed(line.trim(), fixtures),
        }
    }

    fn build(&mut self, index: PackIndex) -> Vec<Action> {
        let pack = &mut self.packs[index];
        if pack.building {
            pack.saved_meanwhile = true;
            return Vec::new();
        }
        pack.building = true;
        vec![Action::Build(index)]
    }

    fn ended(&mut self, index: PackIndex) -> Vec<Action> {
        let pack = &mut self.packs[index];
        pack.building = false;
        if std::mem::take(&mut pack.saved_meanwhile) { self.build(index) } else { Vec::new() }
    }

    fn typed(&mut self, line: &str, fixtures: &[FixtureName]) -> Vec<Action> {
        let number = |line: &str| line.parse::<usize>().ok().and_then(|number| fixtures.get(number.checked_sub(1)?));
        let wanted = match line {
            "q" | "quit" => return vec![Action::Stop],
            "l" | "list" => return vec![Action::List],
            "?" | "h" | "help" => return vec![Action::Help],
            "b" | "build" => return (0..self.packs.len()).flat_map(|pack| self.build(pack)).collect(),
            "" => self.last.clone().or_else(|| fixtures.first().cloned()),
            name => fixtures.iter().find(|fixture| fixture.name == name).or_else(|| number(name)).cloned(),
        };
        let Some(fixture) = wanted else {
            return vec![Action::Say(format!("there is no fixture `{line}`")), Action::List];
        };
        self.last = Some(fixture.clone());
        let Pack { building, serves, .. } = self.packs[fixture.pack];
        match (serves, building) {
            (true, _) => vec![Action::Send(fixture)],
            (false, true) => vec![Action::Say(format!("{} is sent when its pack serves", fixture.name))],
            (false, false) => vec![Action::Say("its pack does not serve: it does not build".to_owned())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(pack: PackIndex, name: &str) -> FixtureName {
        FixtureName { pack, name: name.to_owned() }
    }

    #[test]
    fn what_is_saved_is_built_and_the_last_fixture_sent_again() {
        let greeting = fixture(0, "greeting");
        let mut author = Author::new(1, Some(greeting.clone()));
        assert_eq!(author.begin(), [Action::Build(0)]);
        assert_eq!(author.then(Happened::Serves(0)), [Action::Send(greeting.clone())]);
        assert_eq!(author.then(Happened::SourceSaved(0)), [Action::Build(0)]);
        assert_eq!(author.then(Happened::Serves(0)), [Action::Send(greeting)]);
    }

    #[test]
    fn a_build_at_a_time_and_what_was_saved_meanwhile_afterwards() {
        let mut author = Author::new(2, Some(fixture(0, "one")));
        assert_eq!(author.begin(), [Action::Build(0), Action::Build(1)]);
        for _ in 0..3 {
            assert_eq!(author.then(Happened::SourceSaved(0)), []);
        }
        // This build is outdated already: no fixture is sent to it.
        assert_eq!(author.then(Happened::Serves(0)), [Action::Build(0)]);
        assert_eq!(author.then(Happened::Serves(0)), [Action::Send(fixture(0, "one"))]);
        assert_eq!(author.then(Happened::Serves(1)), [], "it is another pack's");
    }

    #[test]
    fn a_build_that_fails_leaves_what_serves() {
        let mut author = Author::new(1, None);
        author.begin();
        let there = [fixture(0, "one")];
        author.then(Happened::Failed(0));
        let refused = author.then(Happened::Typed("one", &there));
        assert!(matches!(&refused[..], [Action::Say(text)] if text.contains("does not build")), "{refused:?}");
        assert_eq!(author.then(Happened::SourceSaved(0)), [Action::Build(0)]);
        author.then(Happened::Serves(0));
        author.then(Happened::SourceSaved(0));
        author.then(Happened::Failed(0));
        assert_eq!(author.then(Happened::Typed("one", &there)), [Action::Send(fixture(0, "one"))]);
    }

    #[test]
    fn a_saved_fixture_is_sent_at_once_or_to_what_is_being_built() {
        let mut author = Author::new(1, None);
        author.begin();
        assert_eq!(author.then(Happened::FixtureSaved(fixture(0, "new"))), []);
        assert_eq!(author.then(Happened::Serves(0)), [Action::Send(fixture(0, "new"))]);
        assert_eq!(author.then(Happened::FixtureSaved(fixture(0, "old"))), [Action::Send(fixture(0, "old"))]);
        assert_eq!(author.then(Happened::Typed("", &[])), [Action::Send(fixture(0, "old"))]);
    }

    #[test]
    fn a_fixture_is_typed_by_name_or_number() {
        let there = [fixture(0, "one"), fixture(1, "two")];
        let mut author = Author::new(2, None);
        author.begin();
        author.then(Happened::Serves(0));
        author.then(Happened::Serves(1));
        let typed = |author: &mut Author, line: &str| author.then(Happened::Typed(line, &there));
        assert_eq!(typed(&mut author, ""), [Action::Send(fixture(0, "one"))]);
        assert_eq!(typed(&mut author, " two "), [Action::Send(fixture(1, "two"))]);
        assert_eq!(typed(&mut author, "1"), [Action::Send(fixture(0, "one"))]);
        for line in ["0", "3", "three", "-1", "99999999999999999999"] {
            assert!(matches!(&typed(&mut author, line)[..], [Action::Say(_), Action::List]), "{line}");
        }
        assert_eq!(typed(&mut author, "q"), [Action::Stop]);
        assert_eq!(typed(&mut author, "?"), [Action::Help]);
        assert_eq!(typed(&mut author, "b"), [Action::Build(0), Action::Build(1)]);
    }
}
