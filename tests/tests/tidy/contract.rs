//! `docs/contract.md` numbers what the project promises, and `docs/contract-tests.md` lists the tests that prove each
//! line. The list is generated from the comments of tests, such as `// CLM-5` or `// ADM-4, ADM-5`, directly above the
//! test. Run with `FOREBAY_BLESS=1` to write it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::source::{Source, files, nothing_found, root};

const CONTRACT: &str = "docs/contract.md";
const LIST: &str = "docs/contract-tests.md";

const HEAD: &str = "\
# The tests of the contract

<!-- Generated from the comments of the tests by `FOREBAY_BLESS=1 make tidy`. Do not edit. -->

Each line of [the contract](contract.md), and the tests that prove it.
";

/// Tests by the contract line that they prove.
type Proofs = BTreeMap<String, Vec<String>>;

#[test]
fn every_contract_line_is_listed_with_its_tests() {
    let path = root().join(LIST);
    let expected = list(&contract(), &proofs());
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        fs::write(&path, expected).expect("it can be written");
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "{LIST} is out of date: run FOREBAY_BLESS=1 make tidy");
}

#[test]
fn tests_name_lines_that_exist() {
    let contract = contract();
    let known: Vec<&str> = contract.lines().filter_map(line_id).collect();
    let findings = proofs()
        .into_iter()
        .filter(|(id, _)| !known.contains(&id.as_str()))
        .map(|(id, tests)| format!("{id}: {tests:?}"));
    nothing_found(findings.collect(), "the contract has no such lines:");
}

fn contract() -> String {
    fs::read_to_string(root().join(CONTRACT)).expect("there is a contract")
}

/// The generated list, in the order of the contract.
fn list(contract: &str, proofs: &Proofs) -> String {
    let mut list = HEAD.to_owned();
    let mut section = None;
    for line in contract.lines() {
        section = line.strip_prefix("## ").or(section);
        if let Some(id) = line_id(line) {
            if let Some(section) = section.take() {
                let _ = write!(list, "\n## {section}\n");
            }
            let _ = write!(list, "\n### {id}\n\n");
            match proofs.get(id) {
                None => list.push_str("No test yet.\n"),
                Some(tests) => tests.iter().for_each(|test| {
                    let _ = writeln!(list, "- `{test}`");
                }),
            }
        }
    }
    list
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
