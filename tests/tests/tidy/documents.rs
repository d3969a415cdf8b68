//! What code and documents say of themselves.

use std::fs;
use std::path::Path;

use super::source::{Source, files, nothing_found, root};

/// What no source may hold, and why.
const UNWANTED: [(&str, &str); 6] = [
    (concat!("todo", "!("), "unfinished"),
    (concat!("unimplemented", "!("), "unfinished"),
    (concat!("dbg", "!("), "left from debugging"),
    (concat!("TO", "DO"), "an intention is an issue, not a comment"),
    (concat!("FIX", "ME"), "an intention is an issue, not a comment"),
    (concat!("#[ig", "nore"), "a test runs or is not there"),
];

/// How a lint is told to be silent.
const EXEMPTIONS: [&str; 4] =
    [concat!("#[al", "low("), concat!("#![al", "low("), concat!("#[ex", "pect("), concat!("#![ex", "pect(")];

/// Columns of a document's line. Tables, code and what cannot be broken may be wider.
const COLUMNS_MAX: usize = 100;

/// Modules named after nothing.
const EMPTY_NAMES: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

#[test]
fn every_module_says_what_it_is_for() {
    // A module's unit tests, in a file beside it, are for that module.
    let silent =
        |file: &Source| (!file.text.starts_with("//!") && !file.path.ends_with("/tests.rs")).then(|| file.path.clone());
    nothing_found(
        files("rs").iter().filter_map(silent).collect(),
        "begin these files with `//!`, saying what they are for:",
    );
}

#[test]
fn modules_are_named_after_what_they_hold() {
    let nameless = |file: &Source| {
        let path = Path::new(&file.path);
        let names = [path.file_stem(), path.parent().and_then(Path::file_name)];
        let empty = names.into_iter().flatten().any(|name| EMPTY_NAMES.iter().any(|empty| name == *empty));
        empty.then(|| file.path.clone())
    };
    nothing_found(files("rs").iter().filter_map(nameless).collect(), "name these by what is in them:");
}

#[test]
fn nothing_unfinished_is_left_in_the_source() {
    let mut findings = Vec::new();
    for file in files("rs") {
        for (at, line) in file.text.lines().enumerate() {
            for (text, why) in UNWANTED.iter().filter(|(text, _)| line.contains(text)) {
                findings.push(format!("{}:{}: `{text}`: {why}", file.path, at + 1));
            }
        }
    }
    nothing_found(findings, "finish these, or take them out:");
}

#[test]
fn every_lint_exemption_has_a_reason() {
    let mut findings = Vec::new();
    for file in files("rs") {
        for exemption in EXEMPTIONS {
            for (start, _) in file.text.match_indices(exemption) {
                let attribute = file.text[start..].split(")]").next().unwrap_or_default();
                if !attribute.contains("reason =") {
                    let line = file.text[..start].lines().count();
                    findings.push(format!("{}:{line}: {attribute})]", file.path));
                }
            }
        }
    }
    nothing_found(findings, "say why, with `reason = \"...\"`:");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut findings = Vec::new();
    for document in files("md") {
        let own = root().join(&document.path);
        let folder = own.parent().expect("a file lies in a folder");
        for target in link_targets(&document.text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { own.clone() } else { folder.join(path) };
            let leads_somewhere = heading.is_empty() || fs::read_to_string(&file).is_ok_and(|text| has(&text, heading));
            if !file.exists() || !leads_somewhere {
                findings.push(format!("{}: {target}", document.path));
            }
        }
    }
    nothing_found(findings, "these links lead nowhere:");
}

/// The targets of `[text](target)` within the project.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.match_indices("](").filter_map(move |(start, _)| text[start + 2..].split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Whether a document has a heading with this anchor.
fn has(text: &str, anchor: &str) -> bool {
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor_of(line) == anchor)
}

/// The anchor of a heading: lower case, spaces as hyphens, without punctuation.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[test]
fn documents_stay_narrow() {
    let findings = files("md").into_iter().flat_map(|document| {
        let mut is_code = false;
        let wide = document.text.lines().zip(1..).filter(move |(line, _)| {
            is_code ^= line.starts_with("```");
            let text = line.trim_start().trim_start_matches("- ");
            let is_span = text.starts_with('`') && text.trim_end_matches(['.', ',']).ends_with('`');
            let cannot_break = is_span || text.contains("](") || !text.contains(' ');
            let may_be_wide = is_code || line.starts_with(['|', '#']) || cannot_break;
            !may_be_wide && line.chars().count() > COLUMNS_MAX
        });
        wide.map(|(_, number)| format!("{}:{number}: at most {COLUMNS_MAX} columns", document.path)).collect::<Vec<_>>()
    });
    nothing_found(findings.collect(), "wrap these lines:");
}

#[test]
fn documents_speak_of_the_product_only() {
    let unwanted = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("../sh", "ared/des"), concat!("TO", "DO")];
    let mut findings = Vec::new();
    for document in files("md") {
        for (at, line) in document.text.lines().enumerate() {
            // A folder of that name within the project is no path of a machine.
            let is_path = |at: usize| !line[..at].ends_with(char::is_alphanumeric);
            if unwanted.iter().flat_map(|unwanted| line.match_indices(unwanted)).any(|(at, _)| is_path(at)) {
                findings.push(format!("{}:{}: {line}", document.path, at + 1));
            }
        }
    }
    nothing_found(findings, "these lines speak of a machine or of work to come:");
}

#[test]
fn a_clone_needs_nothing_beside_itself() {
    let outside = [concat!("/wo", "rk/"), concat!("../sh", "ared")];
    let mut texts: Vec<Source> = ["rs", "md", "toml"].into_iter().flat_map(files).collect();
    for path in ["Makefile", ".ci/js-guest", ".ci/run", ".ci/setup"] {
        let text = std::fs::read_to_string(root().join(path)).expect("it is there, and text");
        texts.push(Source { path: path.to_owned(), text });
    }
    let mut findings = Vec::new();
    for file in texts {
        for (at, line) in file.text.lines().enumerate() {
            // What begins with a slash is a path only where nothing goes before it.
            let is_path = |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '.');
            if outside.iter().flat_map(|outside| line.match_indices(outside)).any(|(at, _)| is_path(at)) {
                findings.push(format!("{}:{}: {line}", file.path, at + 1));
            }
        }
    }
    nothing_found(findings, "these lines name a path outside the repository:");
}
