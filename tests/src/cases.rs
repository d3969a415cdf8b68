//! Real webhook bodies. They lie beside the project, or where `FOREBAY_CASES` says; the suites that want them fall back
//! to the github pack's own fixtures, so that a checkout alone can run every test.

use std::path::PathBuf;

use bytes::Bytes;

use crate::paths;

/// One real body.
#[derive(Debug, Clone)]
pub struct Case {
    /// What `X-GitHub-Event` said.
    pub event: String,
    /// The body, byte for byte.
    pub body: Bytes,
}

/// Every GitHub body at hand, in order of name.
pub fn github() -> Vec<Case> {
    let folders = [
        std::env::var_os("FOREBAY_CASES").map(PathBuf::from).unwrap_or_else(|| paths::root().join("../shared/cases")),
        paths::root().join("guest-examples"),
    ];
    let found = folders.iter().map(|folder| bodies(&folder.join("github"))).find(|cases| !cases.is_empty());
    found.expect("the github pack has fixtures")
}

/// The body of one event.
pub fn github_body(event: &str) -> Bytes {
    let case = github().into_iter().find(|case| case.event == event);
    case.unwrap_or_else(|| panic!("there is no case for `{event}`")).body
}

fn bodies(folder: &std::path::Path) -> Vec<Case> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut cases: Vec<Case> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let event = path.file_stem()?.to_str()?.to_owned();
            (path.extension()? == "json")
                .then(|| Case { event, body: std::fs::read(&path).expect("it can be read").into() })
        })
        .collect();
    cases.sort_by(|a, b| a.event.cmp(&b.event));
    cases
}
