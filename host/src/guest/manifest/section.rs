//! Reading TOML with errors for people: each names its line, what was found, and what to write instead.
//!
//! Invariant: a table is opened with the keys that it may have, and no other key gets by.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::guest::LoadError;

/// How alike two keys must be for the one to be taken for a misspelling of the other (Jaro-Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.75;

/// A table whose keys are all known.
pub(super) struct Section<'t> {
    text: &'t str,
    title: String,
    span_start: usize,
    table: DeTable<'t>,
}

/// A value, and where it stands.
pub(super) struct Value<'t> {
    text: &'t str,
    key: String,
    span_start: usize,
    value: DeValue<'t>,
}

impl<'t> Section<'t> {
    /// The whole of `text`.
    pub(super) fn document(text: &'t str, keys: &[&str]) -> Result<Self, LoadError> {
        let table = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            error_at(text, start, error.message())
        })?;
        Self::open(text, String::new(), 0, table.into_inner(), keys)
    }

    fn open(
        text: &'t str,
        title: String,
        span_start: usize,
        table: DeTable<'t>,
        keys: &[&str],
    ) -> Result<Self, LoadError> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !keys.contains(&name) {
                let place = if title.is_empty() { String::new() } else { format!(" in `{title}`") };
                let message = format!("unknown key `{name}`{place}{}", nearest(name, keys));
                return Err(error_at(text, key.span().start, &message));
            }
        }
        Ok(Self { text, title, span_start, table })
    }

    /// The value of `key`, if it is there.
    pub(super) fn optional(&mut self, key: &str) -> Option<Value<'t>> {
        let value = self.table.remove(key)?;
        let key = if self.title.is_empty() { key.to_owned() } else { format!("{}.{key}", self.title) };
        Some(Value::new(self.text, key, value))
    }

    /// The value of `key`, which must be there; `example` shows one.
    pub(super) fn required(&mut self, key: &str, example: &str) -> Result<Value<'t>, LoadError> {
        match self.optional(key) {
            Some(value) => Ok(value),
            None => Err(self.error(&format!("`{key}` is missing: add for example `{key} = {example}`"))),
        }
    }

    /// An error about this table as a whole.
    pub(super) fn error(&self, message: &str) -> LoadError {
        error_at(self.text, self.span_start, message)
    }
}

impl<'t> Value<'t> {
    fn new(text: &'t str, key: String, value: Spanned<DeValue<'t>>) -> Self {
        let span_start = value.span().start;
        Self { text, key, span_start, value: value.into_inner() }
    }

    /// An error about this value.
    pub(super) fn error(&self, message: &str) -> LoadError {
        error_at(self.text, self.span_start, &format!("`{}` {message}", self.key))
    }

    fn expected(&self, what: &str) -> LoadError {
        self.error(&format!("must be {what}, not {} {}", article(self.value.type_str()), self.value.type_str()))
    }

    /// Whether it is text, where a table would do as well.
    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    /// Text.
    pub(super) fn text(&self) -> Result<&str, LoadError> {
        self.value.as_str().ok_or_else(|| self.expected("text in quotes"))
    }

    /// Text in the form of a `T`.
    pub(super) fn parse<T: FromStr<Err: Display>>(&self) -> Result<T, LoadError> {
        self.text()?.parse().map_err(|error: T::Err| self.error(&format!("is wrong: {error}")))
    }

    /// One of these words, and what it stands for.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, LoadError> {
        let text = self.text()?;
        match choices.iter().find(|(word, _)| *word == text) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                Err(self.error(&format!("cannot be `{text}`{}", nearest(text, &words))))
            }
        }
    }

    /// A whole number of `unit` within `range`.
    pub(super) fn integer(&self, range: RangeInclusive<u64>, unit: &str) -> Result<u64, LoadError> {
        let integer = self.value.as_integer().ok_or_else(|| self.expected("a whole number"))?;
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => {
                let (low, high) = range.into_inner();
                Err(self.error(&format!("is {integer}: it must be from {low} to {high}{unit}")))
            }
        }
    }

    /// A list of at most `count_max` values.
    pub(super) fn list(self, count_max: usize) -> Result<Vec<Value<'t>>, LoadError> {
        if !self.value.is_array() {
            return Err(self.expected("a list in brackets"));
        }
        let (text, key) = (self.text, self.key.clone());
        let found = self.value.as_array().map_or(0, |array| array.len());
        if found > count_max {
            return Err(self.error(&format!("has {found} entries: at most {count_max} are allowed")));
        }
        match self.value {
            DeValue::Array(array) => Ok(array.into_iter().map(|value| Value::new(text, key.clone(), value)).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// A table with these keys.
    pub(super) fn section(self, keys: &[&str]) -> Result<Section<'t>, LoadError> {
        match self.value {
            DeValue::Table(table) => Section::open(self.text, self.key, self.span_start, table, keys),
            _ => Err(self.expected("a table")),
        }
    }

    /// A table of text by keys that the author chooses.
    pub(super) fn text_by_key(self, count_max: usize) -> Result<Vec<(String, String)>, LoadError> {
        self.by_key(count_max, |value| value.text().map(str::to_owned))
    }

    /// A table of values by keys that the author chooses.
    pub(super) fn by_key<T>(
        self,
        count_max: usize,
        read: impl Fn(&Value<'_>) -> Result<T, LoadError>,
    ) -> Result<Vec<(String, T)>, LoadError> {
        let table = self.value.as_table().ok_or_else(|| self.expected("a table"))?;
        if table.len() > count_max {
            return Err(self.error(&format!("has {} entries: at most {count_max} are allowed", table.len())));
        }
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'t>>)| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            let place = Value::new(self.text, format!("{}.{key}", self.key), value.clone());
            Ok((key.to_string(), read(&place)?))
        };
        table.iter().map(entry).collect()
    }
}

fn error_at(text: &str, offset: usize, message: &str) -> LoadError {
    let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
    LoadError(format!("pack.toml line {line}: {message}"))
}

/// What may have been meant, or all there is.
fn nearest(found: &str, known: &[&str]) -> String {
    let likeness = |candidate: &str| strsim::jaro_winkler(&found.to_ascii_lowercase(), candidate);
    match known.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right))) {
        Some(best) if likeness(best) >= LIKENESS_MIN => format!(": did you mean `{best}`?"),
        Some(_) => format!(": it is one of {}", quoted(known)),
        None => String::new(),
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
