//! Statements say words for states and kinds (`sql!`): their codes are in one table, `host/src/store/engine/codes.rs`.

use super::source::{files, nothing_found};

/// Columns that hold codes.
const COLUMNS: [&str; 4] = ["state", "work_type", "queue_class", "kind"];
/// What a statement compares them by, or sets them with.
const OPERATORS: [&str; 4] = [" = ", " < ", " <> ", " IN ("];

#[test]
fn statements_say_words_and_not_codes() {
    let mut findings = Vec::new();
    for file in files("rs").iter().filter(|file| file.path.starts_with("host/src/store/") && !file.is_test()) {
        for (at, line) in file.production().lines().enumerate() {
            if !line.trim_start().starts_with("//") && says_a_code(line) {
                findings.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    nothing_found(findings, "say these codes by their words, in `sql!`:");
}

fn says_a_code(line: &str) -> bool {
    let compared = COLUMNS.iter().flat_map(|column| OPERATORS.map(|operator| format!("{column}{operator}")));
    compared.into_iter().any(|compared| {
        line.match_indices(&compared)
            .any(|(start, _)| line[start + compared.len()..].starts_with(|next: char| next.is_ascii_digit()))
    })
}
