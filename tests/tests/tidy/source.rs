//! The working tree as the checks see it: its files, and the text of each.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold what is built, not what is written.
const SKIPPED: [&str; 4] = ["target", "target-guests", ".git", "node_modules"];

/// One file.
pub(super) struct Source {
    /// Its path from the project's root, with `/`.
    pub(super) path: String,
    /// What is in it.
    pub(super) text: String,
}

impl Source {
    /// The text up to where a module's unit tests begin.
    pub(super) fn production(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// Whether all of it is test code.
    pub(super) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

/// The project's root.
pub(super) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests package lies in the project").to_owned()
}

/// Every file with this extension, in order of path.
pub(super) fn files(extension: &str) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project can be read") {
            let path = entry.expect("its entries can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !SKIPPED.contains(&name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(Source {
                    path: relative(&path, &root),
                    text: fs::read_to_string(&path).expect("it is text"),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn relative(path: &Path, root: &Path) -> String {
    let below = path.strip_prefix(root).expect("it was found below the root");
    below.to_str().expect("paths are UTF-8").replace(std::path::MAIN_SEPARATOR, "/")
}

/// Fails with every finding, one a line.
pub(super) fn nothing_found(findings: Vec<String>, remedy: &str) {
    assert!(findings.is_empty(), "{remedy}\n  {}\n", findings.join("\n  "));
}
