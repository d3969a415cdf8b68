//! The console's page and files over HTTP. `it::console` tests them in a browser.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::console::names;
use super::{Desk, shown};

const TOKEN: &str = "a-token-of-20-letters";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("console")
}

/// Every file below, by its path from the folder.
fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// The paths behind `begin`, up to `end`.
fn between<'t>(text: &'t str, begin: &'t str, end: char) -> Vec<&'t str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

#[test]
fn every_file_of_the_console_is_in_the_binary() {
    let mut there = files_below(&folder());
    assert!(there.remove("index.html"));
    assert_eq!(names().into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), there);
}

#[test]
fn every_module_that_is_imported_is_there() {
    let there = files_below(&folder());
    for name in there.iter().filter(|name| name.ends_with(".js")) {
        let text = fs::read_to_string(folder().join(name)).unwrap();
        for import in between(&text, "from \"", '"') {
            let mut path: Vec<&str> = name.split('/').collect();
            path.pop();
            for part in import.split('/') {
                match part {
                    "." => {}
                    ".." => drop(path.pop()),
                    part => path.push(part),
                }
            }
            assert!(there.contains(&path.join("/")), "{name} imports {import}");
        }
    }
}

#[test]
fn nothing_in_the_console_reads_html_or_evaluates_text() {
    let unwanted = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "new Function",
        "srcdoc",
    ];
    for name in names().into_iter().filter(|name| name.ends_with(".js")) {
        let text = fs::read_to_string(folder().join(name)).unwrap();
        for word in unwanted {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
    let page = fs::read_to_string(folder().join("index.html")).unwrap();
    for inline in [" style=", "<style", "<script>", " onclick=", "javascript:", "http:", "https:"] {
        assert!(!page.contains(inline), "{inline}");
    }
}

#[tokio::test]
async fn the_page_is_given_to_everybody_and_lets_its_own_files_run_alone() {
    let desk = Desk::open(Some(TOKEN)).await;
    for path in ["/", "/console"] {
        let answer = desk.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.headers["location"].to_str().unwrap()),
            (307, "/console/"),
            "{path}"
        );
    }
    let page = desk.get("/console/").await;
    assert_eq!(page.status, 200);
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(text.contains("name=\"forebay-token\" content=\"asked\""), "{text}");
    assert!(!text.contains('{'), "all that stands in braces is put in: {text}");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(policy.split("; ").any(|given| given == rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(page.headers[name], value, "{name}");
    }
    let open = Desk::open(None).await;
    let text = String::from_utf8(open.get("/console/").await.body.to_vec()).unwrap();
    assert!(text.contains("name=\"forebay-token\" content=\"none\""), "{text}");
}

#[tokio::test]
async fn the_page_is_asked_for_anew_and_its_files_are_kept_for_good() {
    let desk = Desk::open(Some(TOKEN)).await;
    let page = desk.get("/console/").await;
    let tag = page.headers["etag"].to_str().unwrap().to_owned();
    let again = desk.ask("GET", "/console/", &[("if-none-match", &tag)], "").await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    assert!(again.headers.contains_key("content-security-policy"), "what is kept goes on under the rules");
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    let files = between(&text, "=\"files/", '"');
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        let answer = desk.get(&format!("/console/files/{file}")).await;
        assert_eq!(answer.status, 200, "{file}");
        assert_eq!(answer.headers["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        let kind = match file.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(answer.headers["content-type"], kind, "{file}");
    }
    for path in [
        "/console/files/0000000000000000/js/main.js",
        "/console/files/",
        "/console/nothing",
        "/console/files/x/../../secrets",
    ] {
        let answer = desk.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", shown(&answer));
    }
}

#[tokio::test]
async fn without_a_token_a_rebound_name_gets_no_page_either() {
    let desk = Desk::open(None).await;
    let answer = desk.ask("GET", "/console/", &[("host", "evil.example")], "").await;
    assert_eq!(answer.status, 403);
    // A link from elsewhere may lead here: the page asks for nothing by itself that changes anything.
    let linked = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    assert_eq!(desk.ask("GET", "/console/", &linked, "").await.status, 200);
}

#[tokio::test]
async fn what_the_api_answers_is_kept_by_nobody() {
    let desk = Desk::open(None).await;
    for path in ["/api/v1/stats", "/api/v1/events/42", "/healthz"] {
        let answer = desk.get(path).await;
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
}
