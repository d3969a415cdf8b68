//! Tests of what a machine may lack: Node.js, an S3 server. They say that they are left out, and fail instead where
//! everything has to run (`make check TESTS=all`).

use std::io::Write;

/// The variable of the environment that says which tests have to run.
const VARIABLE: &str = "TESTS";
/// Its value if none may be left out.
const ALL: &str = "all";

/// Says that a test is left out because `missing` is not there.
///
/// # Panics
///
/// Where every test has to run.
pub fn left_out(missing: &str) {
    let all = std::env::var_os(VARIABLE).is_some_and(|value| value == ALL);
    assert!(!all, "{VARIABLE}={ALL}, but {missing}");
    // Not by `eprintln!`: what a test that passes prints is not shown.
    let line = format!("\n*** SKIPPED: {missing}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
}
