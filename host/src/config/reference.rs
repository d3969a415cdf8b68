//! The configuration reference, written from the table of keys and the defaults.

use std::fmt::Write;

use toml::Value;

use super::check::defaults;
use super::keys::{KEYS, Key, Kind, NAME_PART, OTHER_VARIABLES};

const INTRODUCTION: &str = "\
# Configuration

<!-- Written by `forebay config --reference`; a test compares it with the code. Do not edit. -->

`forebay serve --config FILE` reads one TOML file. Every key with an environment variable can also
be set by that variable, which overrides the file; `--intake` and `--admin` override both. A
variable that is empty counts as not set. In a variable, the items of a list are separated by
commas.

An unknown key or an unknown `FOREBAY_*` variable stops the start, with an error that names the
nearest known one. `forebay config --check FILE` reports all problems and starts nothing.

A key ends with its unit: `_ms` milliseconds, `_seconds` seconds, `_kib` 1,024 bytes, `_mib`
1,048,576 bytes.
";

/// The text of `docs/configuration.md`.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    let defaults = Value::Table(defaults());
    let mut section = None;
    for key in KEYS {
        let (its_section, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if section != Some(its_section) {
            section = Some(its_section);
            text.push_str(&heading(its_section));
        }
        let variable = key.variable().map_or_else(|| "–".to_owned(), |variable| format!("`{variable}`"));
        let default = default_of(&defaults, key.path);
        let _ = writeln!(text, "| `{name}` | {} | {default} | {variable} | {} |", type_of(key), key.meaning);
    }
    text.push_str("\n## Other variables\n\n| variable | meaning |\n|---|---|\n");
    for (name, meaning) in OTHER_VARIABLES {
        let _ = writeln!(text, "| `{name}` | {meaning} |");
    }
    text
}

fn heading(section: &str) -> String {
    let title = match section {
        "" => "Top level".to_owned(),
        named => format!("`[{named}]`"),
    };
    let introduction = match section.split_once('.') {
        Some(("destinations", NAME_PART)) => {
            "\nA destination, under the name that packs emit to: one table for each, or none. Others are set while\n\
             hosts run, with the same keys: see [operations](operations.md#destinations).\n"
        }
        Some(("readers", NAME_PART)) => {
            "\nAn address that a pack's readers call instead of the hosts in its manifest: a proxy, another\n\
             region, a test server. `NAME` has no meaning. One table for each, or none.\n"
        }
        Some(_) | None => "",
    };
    format!(
        "\n## {title}\n{introduction}\n| key | type | default | environment variable | meaning |\n|---|---|---|---|---|\n"
    )
}

fn type_of(key: &Key) -> String {
    match key.kind {
        Kind::Number { min, max } => {
            let unit = key.unit().map(|unit| format!(" {unit}")).unwrap_or_default();
            format!("{min} to {max}{unit}")
        }
        Kind::Switch => "true or false".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Address => "address:port".to_owned(),
        Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::List => "list of texts".to_owned(),
    }
}

fn default_of(defaults: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(defaults, |table, part| table.get(part));
    found.map_or_else(|| "–".to_owned(), |value| format!("`{value}`"))
}
