//! Real webhook bodies, from `tests/cases`.

use std::path::Path;

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
    let folder = paths::root().join("tests/cases/github");
    let cases = bodies(&folder);
    assert!(!cases.is_empty(), "{} holds bodies", folder.display());
    cases
}

/// The body of one event.
pub fn github_body(event: &str) -> Bytes {
    let case = github().into_iter().find(|case| case.event == event);
    case.unwrap_or_else(|| panic!("there is no case for `{event}`")).body
}

fn bodies(folder: &Path) -> Vec<Case> {
    let mut cases: Vec<Case> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", folder.display()))
        .filter_map(|entry| {
            let path = entry.expect("its entries can be read").path();
            let event = path.file_stem()?.to_str()?.to_owned();
            (path.extension()? == "json")
                .then(|| Case { event, body: std::fs::read(&path).expect("it can be read").into() })
        })
        .collect();
    cases.sort_by(|a, b| a.event.cmp(&b.event));
    cases
}
