//! `forebay pack new`: creates a project that builds and passes its test.
//!
//! The connector is the example `hello` (or `js-hello`) under another name. The SDK and the contract are not published,
//! so the project gets the copies of this binary: it fits the host that created it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::output::print;
use crate::model::names::PackName;

pub(super) const HELP: &str = "\
The folder holds the connector, its manifest, fixtures, and a copy of the SDK and of the contract that this host serves. \
Next: `forebay dev FOLDER` to write it, `forebay pack test FOLDER` to compare it with its fixtures.

Examples:
  forebay pack new orders && forebay pack test orders
  forebay pack new orders --lang js";

/// The names of the examples, which are replaced.
const RUST_EXAMPLE_NAME: &str = "hello";
const JS_EXAMPLE_NAME: &str = "js-hello";

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// The pack's name, also the name of its first route
    #[arg(value_name = "NAME")]
    name: PackName,
    /// The language of the connector
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// The folder to create; by default NAME
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A language that packs are written in.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    /// Rust, with forebay-sdk
    Rust,
    /// JavaScript; building it needs Node.js and npm
    #[value(alias = "javascript")]
    Js,
}

impl Language {
    /// The file of the connector's code.
    fn source(self) -> &'static str {
        match self {
            Self::Rust => "src/lib.rs",
            Self::Js => "src/pack.js",
        }
    }
}

/// The created project.
#[derive(Serialize)]
struct Report {
    name: String,
    folder: String,
    files: Vec<&'static str>,
}

macro_rules! copied {
    ($($place:literal <- $source:literal)+) => {
        [$(($place, include_str!(concat!("../../../../", $source)))),+]
    };
}

/// A project in JavaScript. All files are the author's except `forebay/connector.js`, which contains no name.
const JS: [(&str, &str); 8] = copied! {
    "pack.toml" <- "guest-examples/js-hello/pack.toml"
    "README.md" <- "guest-examples/js-hello/README.md"
    "src/pack.js" <- "guest-examples/js-hello/src/pack.js"
    "src/forebay/connector.js" <- "guest-examples/js-hello/src/forebay/connector.js"
    "fixtures/greeting.request.json" <- "guest-examples/js-hello/fixtures/greeting.request.json"
    "fixtures/other.request.json" <- "guest-examples/js-hello/fixtures/other.request.json"
    "fixtures/greeting.expected.json" <- "guest-examples/js-hello/fixtures/greeting.expected.json"
    "fixtures/other.expected.json" <- "guest-examples/js-hello/fixtures/other.expected.json"
};

/// The author's files of a project in Rust; they contain the example's name.
const OWN: [(&str, &str); 9] = copied! {
    "pack.toml" <- "guest-examples/hello/pack.toml"
    "README.md" <- "guest-examples/hello/README.md"
    "src/lib.rs" <- "guest-examples/hello/src/lib.rs"
    "fixtures/reminder.request.json" <- "guest-examples/hello/fixtures/reminder.request.json"
    "fixtures/reminder.expected.json" <- "guest-examples/hello/fixtures/reminder.expected.json"
    "fixtures/greeting.request.json" <- "guest-examples/hello/fixtures/greeting.request.json"
    "fixtures/other.request.json" <- "guest-examples/hello/fixtures/other.request.json"
    "fixtures/greeting.expected.json" <- "guest-examples/hello/fixtures/greeting.expected.json"
    "fixtures/other.expected.json" <- "guest-examples/hello/fixtures/other.expected.json"
};

/// The SDK, the contract, and the locked versions of the examples.
const GIVEN: [(&str, &str); 11] = copied! {
    "Cargo.lock" <- "guest-examples/Cargo.lock"
    "forebay/wit/forebay-connector.wit" <- "wit/forebay-connector.wit"
    "forebay/sdk/src/lib.rs" <- "sdk/src/lib.rs"
    "forebay/sdk/src/event.rs" <- "sdk/src/event.rs"
    "forebay/sdk/src/export.rs" <- "sdk/src/export.rs"
    "forebay/sdk/src/failure.rs" <- "sdk/src/failure.rs"
    "forebay/sdk/src/host.rs" <- "sdk/src/host.rs"
    "forebay/sdk/src/output.rs" <- "sdk/src/output.rs"
    "forebay/sdk/src/reads.rs" <- "sdk/src/reads.rs"
    "forebay/sdk/src/testing.rs" <- "sdk/src/testing.rs"
    "forebay/sdk/src/time.rs" <- "sdk/src/time.rs"
};

const SDK_MANIFEST: &str = include_str!("../../../../sdk/Cargo.toml");

/// Generated files of a project.
const GITIGNORE: &str = "/target\n/target-guests\n*.fpk\n";

pub(super) fn new(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { name, lang, folder, json } = arguments;
    let folder = folder.clone().unwrap_or_else(|| PathBuf::from(name.as_str()));
    let files = match lang {
        Language::Rust => rust_project(name),
        Language::Js => js_project(name),
    };
    write(&folder, &files).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::Conflict(format!("{} exists: choose another folder with --folder", folder.display()))
        }
        _ => Failure::Failed(format!("{} cannot be written: {error}", folder.display())),
    })?;
    if *json {
        let files = files.iter().map(|(place, _)| *place).collect();
        let report = Report { name: name.to_string(), folder: folder.display().to_string(), files };
        let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let (folder, source) = (folder.display(), lang.source());
    Ok(print(&format!("created {folder}: its code is in {folder}/{source}\nnext: forebay pack test {folder}\n"))?)
}

/// Every file of a project in JavaScript, with its place in the folder.
fn js_project(name: &PackName) -> Vec<(&'static str, String)> {
    let own = JS.iter().map(|(place, text)| (*place, text.replace(JS_EXAMPLE_NAME, name.as_str())));
    own.chain([(".gitignore", GITIGNORE.to_owned())]).collect()
}

/// Every file of a project in Rust, with its place in the folder.
fn rust_project(name: &PackName) -> Vec<(&'static str, String)> {
    let own = OWN.iter().map(|(place, text)| (*place, text.replace(RUST_EXAMPLE_NAME, name.as_str())));
    // The greeting itself keeps its `hello`.
    let own = own.map(|(place, text)| (place, text.replace(&format!("{name}, "), "hello, ")));
    let given = GIVEN.iter().map(|(place, text)| (*place, (*text).to_owned()));
    let made = [
        ("Cargo.toml", crate_manifest(name)),
        ("forebay/sdk/Cargo.toml", sdk_manifest()),
        (".gitignore", GITIGNORE.to_owned()),
    ];
    own.chain(given).chain(made).collect()
}

/// The prefix of the crate's name keeps pack names from meeting names that cargo reserves.
fn crate_manifest(name: &PackName) -> String {
    format!(
        r#"[package]
name = "connector-{name}"
version = "0.1.0"
edition = "2024"
publish = false

[lib]
crate-type = ["cdylib", "rlib"]

[dependencies]
forebay-sdk = {{ path = "forebay/sdk" }}
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"

[workspace]
members = ["forebay/sdk"]

# Small and fast; function names stay, so that a trap's backtrace can be read.
[profile.release]
codegen-units = 1
lto = true
opt-level = 3
panic = "abort"
strip = "debuginfo"
"#
    )
}

/// The SDK's manifest without its ties to the workspace of the examples.
fn sdk_manifest() -> String {
    let package = SDK_MANIFEST.split("[lints]").next().unwrap_or(SDK_MANIFEST);
    let kept = package.lines().filter(|line| !line.starts_with("workspace = ") && !line.starts_with('#'));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Creates the folder, which must not exist: no work is overwritten.
fn write(folder: &Path, files: &[(&'static str, String)]) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (place, text) in files {
        let file = folder.join(place);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_sdk_is_written_along() {
        let sources = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/src")).unwrap();
        let mut there: Vec<String> =
            sources.map(|entry| format!("forebay/sdk/src/{}", entry.unwrap().file_name().to_str().unwrap())).collect();
        let mut written: Vec<&str> =
            GIVEN.iter().map(|(place, _)| *place).filter(|place| place.starts_with("forebay/sdk/src/")).collect();
        there.sort();
        written.sort_unstable();
        assert_eq!(written, there, "name these files in GIVEN");
    }

    #[test]
    fn the_sdk_stands_in_the_projects_own_workspace() {
        let manifest: toml::Table = sdk_manifest().parse().unwrap();
        assert!(!manifest.contains_key("lints") && !manifest["package"].as_table().unwrap().contains_key("workspace"));
        assert!(manifest["dependencies"].as_table().unwrap().contains_key("wit-bindgen"));
    }

    #[test]
    fn the_example_gets_the_packs_name_and_says_hello_still() {
        let name = "7-orders".parse().unwrap();
        let projects = [
            (rust_project(&name), "src/lib.rs", "hello, {subject}"),
            (js_project(&name), "src/pack.js", "hello, ${subject}"),
        ];
        for (files, source, greeting) in projects {
            let text = |wanted: &str| &files.iter().find(|(place, _)| *place == wanted).unwrap().1;
            let manifest = crate::guest::parse_manifest(text("pack.toml")).unwrap();
            assert_eq!((manifest.name.as_str(), manifest.routes[0].path.as_str()), ("7-orders", "7-orders"));
            assert!(text("fixtures/greeting.request.json").contains("\"route\": \"7-orders\""));
            assert!(text("fixtures/greeting.expected.json").contains("hello, world"));
            assert!(text(source).contains(greeting), "{source}");
        }
    }

    #[test]
    fn a_folder_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path(), &rust_project(&"orders".parse().unwrap())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
