//! `docs/metrics.md` has a row for every metric of the host, and none for any other.

use std::collections::BTreeSet;
use std::fs;

use super::source::{files, nothing_found, root};

const DOCUMENT: &str = "docs/metrics.md";
/// The first part of every metric's name.
const PREFIX: &str = "forebay_";

// OBS-1
#[test]
fn every_metric_is_documented_and_no_other() {
    let document = fs::read_to_string(root().join(DOCUMENT)).expect("there is a document about metrics");
    let rows = document.lines().filter(|line| line.starts_with('|'));
    let documented: BTreeSet<String> =
        rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| names(cell, '`')).collect();
    let sources = files("rs").into_iter().filter(|file| file.path.starts_with("host/src/") && !file.is_test());
    let recorded: BTreeSet<String> = sources.flat_map(|file| names(file.production(), '"')).collect();
    let missing = recorded.difference(&documented).map(|name| format!("{name} is missing"));
    let unknown = documented.difference(&recorded).map(|name| format!("{name} is not recorded anywhere"));
    nothing_found(missing.chain(unknown).collect(), "bring docs/metrics.md in line with the host:");
}

/// The names of metrics between two of these quotes.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
    text.split(quote).filter(|part| part.starts_with(PREFIX) && part.chars().all(is_part)).map(str::to_owned).collect()
}
