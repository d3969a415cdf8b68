//! Nothing grows until nobody can read it.

use super::source::{Source, files, nothing_found};

/// Lines of a file of production code.
const FILE_LINES_MAX: usize = 500;
/// Lines of a file of tests: cases add up, but do not depend on one another.
const TEST_FILE_LINES_MAX: usize = 900;
/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file of the console: a view, a noun, a kind of thing.
const CONSOLE_FILE_LINES_MAX: usize = 300;
/// The extensions of the console's files.
const CONSOLE_EXTENSIONS: [&str; 3] = ["css", "html", "js"];
/// Where they are.
const CONSOLE: &str = "host/console/";
/// Columns of a line of prose. rustfmt bounds code, and leaves comments as they are.
const COMMENT_COLUMNS_MAX: usize = 120;

#[test]
fn files_stay_short() {
    let too_long = |file: &Source| {
        let max = if file.is_test() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        let lines = if file.is_test() { file.text.lines().count() } else { file.production().lines().count() };
        (lines > max).then(|| format!("{}: {lines} lines, {max} at most", file.path))
    };
    nothing_found(files("rs").iter().filter_map(too_long).collect(), "split these files by noun:");
}

#[test]
fn files_of_the_console_stay_short_and_narrow_and_say_what_they_are_for() {
    let mut findings = Vec::new();
    let files = CONSOLE_EXTENSIONS.into_iter().flat_map(files).filter(|file| file.path.starts_with(CONSOLE));
    for file in files {
        let lines = file.text.lines().count();
        if lines > CONSOLE_FILE_LINES_MAX {
            findings.push(format!("{}: {lines} lines, {CONSOLE_FILE_LINES_MAX} at most", file.path));
        }
        let head: Vec<&str> = file.text.lines().take(2).collect();
        if !head.iter().any(|line| ["// ", "/* ", "<!-- "].iter().any(|begin| line.starts_with(begin))) {
            findings.push(format!("{}: begins with no comment that says what it is for", file.path));
        }
        for (line, number) in file.text.lines().zip(1..) {
            // A text for people may be longer: no line break of the source belongs into it.
            let is_text = line.contains(['"', '`']);
            if line.chars().count() > COMMENT_COLUMNS_MAX && !is_text {
                findings.push(format!("{}:{number}: at most {COMMENT_COLUMNS_MAX} columns", file.path));
            }
        }
    }
    nothing_found(findings, "split these by what they show:");
}

#[test]
fn comments_stay_narrow() {
    let too_wide = |file: &Source| {
        let path = file.path.clone();
        let lines = file.text.lines().zip(1..).filter(|(line, _)| is_prose(line));
        let wide = lines.filter(|(line, _)| line.chars().count() > COMMENT_COLUMNS_MAX);
        wide.map(|(_, number)| format!("{path}:{number}: at most {COMMENT_COLUMNS_MAX} columns")).collect::<Vec<_>>()
    };
    nothing_found(files("rs").iter().flat_map(too_wide).collect(), "wrap these comments:");
}

/// Whether a line is a comment that can be wrapped: no table, no drawing, no link, no example.
fn is_prose(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let text = comment.trim_start_matches(['/', '!']).trim_start();
    !text.starts_with(['|', '<']) && !text.contains(['─', '│']) && !text.contains("let ")
}

#[test]
fn functions_stay_short() {
    let findings = files("rs").iter().flat_map(long_functions).collect();
    nothing_found(findings, "split these functions:");
}

fn long_functions(file: &Source) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        // rustfmt puts the brace that closes a function where its signature begins.
        let length = lines[at..].iter().position(|line| is_closing(line, indent)).map_or(1, |last| last + 1);
        if length > FUNCTION_LINES_MAX {
            findings.push(format!(
                "{}:{}: `{name}` has {length} lines, {FUNCTION_LINES_MAX} at most",
                file.path,
                at + 1
            ));
        }
    }
    findings
}

fn is_closing(line: &str, indent: &str) -> bool {
    let Some(rest) = line.strip_prefix(indent) else { return false };
    rest == "}" || (rest.contains("fn ") && (rest.ends_with('}') || rest.ends_with(';')))
}

/// The name of the function whose signature begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (before, after) = line.split_once("fn ")?;
    let is_signature = before.split_whitespace().all(|word| {
        matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub(")
    });
    if !is_signature {
        return None;
    }
    let end = after.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    (end > 0).then(|| &after[..end])
}
