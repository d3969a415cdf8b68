//! `docs/contract.md` names the tests that hold each of its lines. That part of it is generated: from the comments that
//! tests carry, such as `// CLM-5` or `// ADM-4, ADM-5`, directly above the test. Run with `FOREBAY_BLESS=1` to write
//! it.

use std::collections::BTreeMap;
use std::fs;

use super::source::{Source, files, nothing_found, root};

const DOCUMENT: &str = "docs/contract.md";
/// What a generated line begins with.
const GENERATED: &str = "> ";
const NOT_HELD: &str = "> Not yet held by a test.";

/// Tests by the contract line that they prove.
type Proofs = BTreeMap<String, Vec<String>>;

#[test]
fn the_contract_names_the_tests_that_hold_it() {
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).expect("there is a contract");
    let expected = with_proofs(&document, &proofs());
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        fs::write(&path, expected).expect("it can be written");
        return;
    }
    assert!(document == expected, "{DOCUMENT} is out of date: run FOREBAY_BLESS=1 make tidy");
}

#[test]
fn tests_name_lines_that_exist() {
    let document = fs::read_to_string(root().join(DOCUMENT)).expect("there is a contract");
    let known: Vec<&str> = document.lines().filter_map(line_id).collect();
    let findings = proofs()
        .into_iter()
        .filter(|(id, _)| !known.contains(&id.as_str()))
        .map(|(id, tests)| format!("{id}: {tests:?}"));
    nothing_found(findings.collect(), "the contract has no such lines:");
}

/// The document with the generated line of each entry made anew. An entry is `**ADM-1** text` up to the next blank
/// line.
fn with_proofs(document: &str, proofs: &Proofs) -> String {
    let mut written = String::new();
    let mut current = None;
    for line in document.lines().chain([""]) {
        if line.starts_with(GENERATED) {
            continue;
        }
        if line.is_empty()
            && let Some(id) = current.take()
        {
            written.push_str(&proof_line(proofs.get(id)));
        }
        if let Some(id) = line_id(line) {
            current = Some(id);
        }
        written.push_str(line);
        written.push('\n');
    }
    written.trim_end().to_owned() + "\n"
}

fn proof_line(tests: Option<&Vec<String>>) -> String {
    match tests {
        None => format!("{NOT_HELD}\n"),
        Some(tests) => tests.iter().map(|test| format!("{GENERATED}`{test}`  \n")).collect(),
    }
}

/// The id of the entry that begins on this line of the document.
fn line_id(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("**")?.split_once("**")?;
    is_id(id).then_some(id)
}

fn is_id(text: &str) -> bool {
    let Some((letters, number)) = text.split_once('-') else { return false };
    (2..=3).contains(&letters.len())
        && letters.bytes().all(|byte| byte.is_ascii_uppercase())
        && number.parse::<u8>().is_ok()
}

fn proofs() -> Proofs {
    let mut proofs = Proofs::new();
    for file in files("rs") {
        for (ids, test) in proving_tests(&file) {
            for id in ids {
                proofs.entry(id.to_owned()).or_default().push(test.clone());
            }
        }
    }
    proofs.values_mut().for_each(|tests| tests.sort());
    proofs
}

/// Each test of the file that names contract lines, with the lines that it names.
fn proving_tests(file: &Source) -> Vec<(Vec<&str>, String)> {
    let mut found = Vec::new();
    let mut lines = file.text.lines();
    while let Some(line) = lines.next() {
        let ids = named_ids(line);
        if ids.is_empty() {
            continue;
        }
        // Attributes and further comments stand between the comment and the test's name.
        let signature = lines.by_ref().find(|line| !is_above_a_function(line)).unwrap_or_default();
        if let Some(name) = signature.split("fn ").nth(1).and_then(|rest| rest.split('(').next()) {
            found.push((ids, format!("{}::{name}", module_path(&file.path))));
        }
    }
    found
}

fn is_above_a_function(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[") || line.starts_with("//") || line.starts_with(')') || line.is_empty()
}

/// The ids of a comment that consists of nothing else, but for a remark after a colon.
fn named_ids(line: &str) -> Vec<&str> {
    let Some(comment) = line.trim_start().strip_prefix("// ") else { return Vec::new() };
    let list = comment.split(':').next().unwrap_or(comment).trim_end_matches('.');
    let ids: Vec<&str> = list.split(',').map(str::trim).collect();
    if ids.iter().all(|id| is_id(id)) { ids } else { Vec::new() }
}

/// `host/src/store/claim.rs` is `forebay::store::claim`.
fn module_path(path: &str) -> String {
    let below = path.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/main");
    below.replace("host/src/", "forebay/").replace("tests/tests/", "").replace("sdk/src/", "sdk/").replace('/', "::")
}
