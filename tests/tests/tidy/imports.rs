//! Imports go one way. The table is the architecture: whoever adds a line to it has changed the architecture, and says
//! so in ARCHITECTURE.md.

use super::source::{Source, files, nothing_found};

/// What each module of the host may import of the others.
const MODULES: [(&str, &[&str]); 19] = [
    ("main", &["cli"]),
    (
        "cli",
        &[
            "admin",
            "app",
            "claim",
            "config",
            "env",
            "execute",
            "guest",
            "intake",
            "lanes",
            "model",
            "publish",
            "rig",
            "secrets",
            "store",
            "supervise",
            "telemetry",
            "timeline",
        ],
    ),
    ("rig", &["env", "model"]),
    (
        "app",
        &[
            "admin",
            "claim",
            "config",
            "env",
            "execute",
            "guest",
            "intake",
            "lanes",
            "model",
            "outbound",
            "publish",
            "secrets",
            "store",
            "supervise",
            "telemetry",
            "timeline",
        ],
    ),
    ("config", &["model", "secrets"]),
    ("telemetry", &["config", "model"]),
    (
        "admin",
        &[
            "claim",
            "env",
            "execute",
            "guest",
            "intake",
            "lanes",
            "model",
            "publish",
            "secrets",
            "store",
            "supervise",
            "timeline",
        ],
    ),
    ("supervise", &["claim", "env", "execute", "guest", "intake", "model", "publish", "secrets", "store", "timeline"]),
    ("claim", &["env", "execute", "guest", "lanes", "model", "store"]),
    ("execute", &["env", "guest", "lanes", "model", "outbound", "secrets", "store"]),
    ("intake", &["env", "model", "secrets", "store"]),
    ("timeline", &["env", "lanes", "model", "outbound", "publish", "secrets", "store"]),
    ("publish", &["env", "lanes", "model", "outbound", "secrets", "store"]),
    ("outbound", &["env", "model"]),
    ("guest", &["env", "model"]),
    ("secrets", &["env", "model"]),
    ("store", &["env", "model"]),
    ("env", &["model"]),
    ("lanes", &["model"]),
];

/// Crates that do I/O, or that tie what uses them to a format or an engine.
const IMPURE: [&str; 10] =
    ["axum", "hyper", "hyper_util", "rocksdb", "serde", "serde_json", "sqlx", "tokio", "tracing", "wasmtime"];

/// Modules with no such crate.
const PURE: [&str; 2] = ["model", "lanes"];

/// Crates that one module alone may use; the benchmark's baseline is a server of its own, beside the product.
const OWNED: [(&str, &[&str]); 4] = [
    ("sqlx", &["host/src/store/", "host/src/cli/bench/baseline.rs"]),
    ("object_store", &["host/src/timeline/checkpoint/"]),
    ("rocksdb", &["host/src/timeline/"]),
    ("wasmtime", &["host/src/guest/"]),
];

#[test]
fn modules_import_downwards_only() {
    let mut findings = Vec::new();
    for file in host_files() {
        let module = module_of(&file.path);
        let Some(allowed) = allowed_imports(module) else { continue };
        // The binary names the library; everything else is in it.
        let prefix = if module == "main" { "forebay::" } else { "crate::" };
        for (line, imported) in imported_modules(file.production(), prefix) {
            if imported != module && !allowed.contains(&imported) {
                findings.push(format!("{}:{line}: `{module}` may not import `{imported}`", file.path));
            }
        }
    }
    nothing_found(findings, "imports go down the module list in ARCHITECTURE.md only:");
}

#[test]
fn every_module_has_its_line_in_the_table() {
    let mut findings = Vec::new();
    for file in host_files() {
        let module = module_of(&file.path);
        if allowed_imports(module).is_none() && !["lib", "model"].contains(&module) {
            findings.push(format!("{}: `{module}`", file.path));
        }
    }
    nothing_found(findings, "say in the table what these modules may import:");
}

#[test]
fn pure_modules_know_no_io() {
    let mut findings = Vec::new();
    for file in host_files().iter().filter(|file| PURE.contains(&module_of(&file.path))) {
        for name in IMPURE {
            findings.extend(uses_of_crate(file, file.production(), name));
        }
    }
    nothing_found(findings, "`model` and `lanes` decide; shells do I/O:");
}

#[test]
fn engines_have_one_user() {
    let mut findings = Vec::new();
    for file in host_files() {
        for (name, owners) in OWNED {
            if !owners.iter().any(|owner| file.path.starts_with(owner)) {
                findings.extend(uses_of_crate(&file, &file.text, name));
            }
        }
    }
    nothing_found(findings, "what an engine is used for stays behind the module that owns it:");
}

fn host_files() -> Vec<Source> {
    files("rs").into_iter().filter(|file| file.path.starts_with("host/src/") && !file.is_test()).collect()
}

fn module_of(path: &str) -> &str {
    let below = path.trim_start_matches("host/src/");
    below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
}

fn allowed_imports(module: &str) -> Option<&'static [&'static str]> {
    MODULES.iter().find(|(name, _)| *name == module).map(|(_, allowed)| *allowed)
}

/// Every module that is named behind `prefix`, with its line.
fn imported_modules<'t>(text: &'t str, prefix: &str) -> Vec<(usize, &'t str)> {
    let mut found = Vec::new();
    for (at, line) in code_lines(text) {
        for (start, _) in line.match_indices(prefix) {
            let rest = &line[start + prefix.len()..];
            let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            if name.starts_with(|first: char| first.is_ascii_lowercase()) {
                found.push((at, name));
            }
        }
    }
    found
}

fn uses_of_crate(file: &Source, text: &str, name: &str) -> Vec<String> {
    let path = format!("{name}::");
    let import = format!("use {name};");
    code_lines(text)
        .filter(|(_, line)| line.contains(&import) || begins_a_path(line, &path))
        .map(|(at, _)| format!("{}:{at}: uses `{name}`", file.path))
        .collect()
}

/// Whether `path` is there, and not as the tail of a longer name or path.
fn begins_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|character| character.is_alphanumeric() || character == '_' || character == ':')
    })
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim_start().starts_with("//"))
}
