//! Reading settings from a file, from the environment and from flags, and knowing afterwards where each came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::FlagSetting;
use super::keys::{self, KEYS, OTHER_VARIABLES, VARIABLE_PREFIX};

/// How alike two names must be (0 to 1) for one to be offered for the other.
const LIKENESS_MIN: f64 = 0.7;

/// Merged settings, each of its key's kind, and what was wrong with others.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) values: toml::Table,
    pub(super) problems: Vec<String>,
    pub(super) origins: Origins,
}

/// Where settings came from, by path.
pub(super) type Origins = BTreeMap<String, Origin>;

/// Where a setting came from.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    File { name: String, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { name, line } => write!(f, "{name} line {line}"),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Settings {
    /// Notes that the setting of `path` cannot be used.
    pub(super) fn refuse(&mut self, path: &str, reason: impl fmt::Display) {
        self.problems.push(problem(&self.origins, path, reason));
    }

    /// Takes over the settings of a TOML file.
    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let mut refuse = |offset: Option<usize>, problem: &str| {
            self.problems.push(format!("{name} line {}: {problem}", offset.map_or(1, line_at)));
        };
        let spans = match DeTable::parse(text) {
            Ok(spans) => spans,
            Err(error) => return refuse(error.span().map(|span| span.start), error.message()),
        };
        let mut offsets = BTreeMap::new();
        let mut too_large = Vec::new();
        collect_offsets(spans.get_ref(), "", &mut offsets, &mut too_large);
        let values = match text.parse::<toml::Table>() {
            Ok(values) => values,
            // The library's words for such a number name neither key nor bound.
            Err(_) if !too_large.is_empty() => {
                return too_large.iter().for_each(|path| {
                    let problem = format!("`{path}` is a number beyond those from {} to {}", i64::MIN, i64::MAX);
                    refuse(offsets.get(path).copied(), &problem);
                });
            }
            Err(error) => return refuse(error.span().map(|span| span.start), error.message()),
        };
        let mut leaves = Vec::new();
        collect_leaves(values, "", &mut leaves);
        leaves.sort_by_key(|(path, _)| offsets.get(path).copied());
        for (path, value) in leaves {
            let line = offsets.get(&path).map_or(1, |offset| line_at(*offset));
            let origin = Origin::File { name: name.to_owned(), line };
            if let Some(key) = keys::find(&path) {
                self.set(path, origin, key.kind.accept(&value).map(|()| value));
            } else if is_section(&path) {
                let section = value.is_table().then_some(value).ok_or_else(|| "must be a table of keys".to_owned());
                self.set(path, origin, section);
            } else {
                self.problems.push(format!("{origin}: {}", unknown_key(&path)));
            }
        }
    }

    /// Takes over the settings of the environment. A variable that is set to nothing counts as not set.
    pub(super) fn add_environment(&mut self, environment: &[(OsString, OsString)]) {
        for (name, value) in environment {
            let name = name.to_string_lossy();
            if !name.starts_with(VARIABLE_PREFIX) || value.is_empty() {
                continue;
            }
            if OTHER_VARIABLES.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let origin = Origin::Variable(name.clone().into_owned());
            match KEYS.iter().find(|key| key.variable().as_deref() == Some(&*name)) {
                Some(key) => {
                    let read = value.to_str().ok_or_else(|| "must be UTF-8".to_owned());
                    self.set(key.path.to_owned(), origin, read.and_then(|text| key.kind.read(text)));
                }
                None => self.problems.push(format!("{origin} {}", unknown_variable(&name))),
            }
        }
    }

    /// Takes over flags that stand for keys.
    pub(super) fn add_flags(&mut self, flags: &[FlagSetting]) {
        for setting in flags {
            let key = keys::find(setting.key).expect("a flag stands for a known key");
            self.set(setting.key.to_owned(), Origin::Flag(setting.flag), key.kind.read(&setting.value));
        }
    }

    /// Takes over a setting that its caller has from elsewhere.
    pub(super) fn add_value(&mut self, path: &str, value: Value) {
        match keys::find(path).map(|key| key.kind.accept(&value)) {
            Some(Ok(())) => insert(&mut self.values, path, value),
            Some(Err(reason)) => self.refuse(path, reason),
            None => self.problems.push(unknown_key(path)),
        }
    }

    fn set(&mut self, path: String, origin: Origin, value: Result<Value, String>) {
        self.origins.insert(path.clone(), origin);
        match value {
            Ok(value) => insert(&mut self.values, &path, value),
            Err(reason) => self.refuse(&path, reason),
        }
    }
}

/// What is wrong with the setting of `path`, with the place where it was made.
pub(super) fn problem(origins: &Origins, path: &str, reason: impl fmt::Display) -> String {
    let place = origins.get(path).map(|origin| format!("{origin}: ")).unwrap_or_default();
    format!("{place}`{path}` {reason}")
}

/// Puts a value where its path says.
fn insert(table: &mut toml::Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(toml::Table::new()));
            let inner = inner.as_table_mut().expect("a section of the key table holds keys");
            insert(inner, rest, value);
        }
    }
}

/// Every value that is not a section, under its full path. A section with nothing in it counts as a value: an empty
/// destination is still one.
fn collect_leaves(table: toml::Table, prefix: &str, leaves: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let path = join(prefix, &name);
        match value {
            Value::Table(inner) if !inner.is_empty() && is_section(&path) => collect_leaves(inner, &path, leaves),
            other => leaves.push((path, other)),
        }
    }
}

/// Where in the text each path is first written, and the paths of numbers that are too large for any key.
fn collect_offsets(
    table: &DeTable<'_>,
    prefix: &str,
    offsets: &mut BTreeMap<String, usize>,
    too_large: &mut Vec<String>,
) {
    for (name, value) in table {
        let path = join(prefix, name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect_offsets(inner, &path, offsets, too_large),
            DeValue::Integer(number) if i64::from_str_radix(number.as_str(), number.radix()).is_err() => {
                too_large.push(path.clone());
            }
            _ => {}
        }
        offsets.insert(path, name.span().start);
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Whether keys stand below `path`.
fn is_section(path: &str) -> bool {
    sections_like(path).any(|section| section == path)
}

/// Every section, with the names of `path` where a section leaves them open.
fn sections_like(path: &str) -> impl Iterator<Item = String> {
    KEYS.iter()
        .filter_map(move |key| {
            let (section, _) = key.path.rsplit_once('.')?;
            Some(named_like(section, path))
        })
        // These hold no key themselves, only sections.
        .chain(["destinations", "readers"].map(str::to_owned))
}

/// `pattern` with the names that `path` has in its open places.
fn named_like(pattern: &str, path: &str) -> String {
    let mut theirs = path.split('.');
    let parts = pattern.split('.').map(|part| match theirs.next() {
        Some(name) if part == keys::NAME_PART => name,
        _ => part,
    });
    parts.collect::<Vec<_>>().join(".")
}

fn unknown_key(path: &str) -> String {
    let known = KEYS.iter().map(|key| named_like(key.path, path)).chain(sections_like(path));
    format!("`{path}` is not a known key{}", offer(known, |known| likeness(path, known)))
}

fn unknown_variable(name: &str) -> String {
    if name.starts_with("FOREBAY_DESTINATIONS_") {
        return "is not known: destinations are set in the configuration file".to_owned();
    }
    let others = OTHER_VARIABLES.iter().map(|(other, _)| (*other).to_owned());
    let known = KEYS.iter().filter_map(keys::Key::variable).chain(others);
    // Every variable begins the same way: compared whole, any two short ones would seem alike.
    let alike = |known: &str| likeness(&name[VARIABLE_PREFIX.len()..], &known[VARIABLE_PREFIX.len()..]);
    format!("is not known{}", offer(known, alike))
}

/// How alike two names are, from 0 to 1.
fn likeness(one: &str, other: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(one, other)
}

/// The known name that is most like the wrong one, as the end of a sentence.
fn offer(known: impl Iterator<Item = String>, alike: impl Fn(&str) -> f64) -> String {
    known
        .map(|name| (alike(&name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}
