//! Dependencies that cost minutes to build or that hold state of their own are there once.

use super::source::{files, nothing_found};

/// Crates of which two versions would be a mistake.
const ONCE: [&str; 11] = [
    "axum",
    "hyper",
    "librocksdb-sys",
    "libsqlite3-sys",
    "rocksdb",
    "rustls",
    "serde",
    "sqlx",
    "tokio",
    "tracing",
    "wasmtime",
];

#[test]
fn big_dependencies_are_there_once() {
    let mut findings = Vec::new();
    for lock in files("lock") {
        for name in ONCE {
            let versions = lock.text.matches(&format!("\nname = \"{name}\"\n")).count();
            if versions > 1 {
                findings.push(format!("{}: {versions} versions of `{name}`", lock.path));
            }
        }
    }
    nothing_found(findings, "bring these down to one version:");
}
