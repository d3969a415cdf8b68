//! Whether a component fits this host: what it imports is offered and declared, what it must export is there.
//!
//! Each refusal names the interface, the version that is wanted and the one that is offered, and the remedy. Types are
//! compared later, by the engine (`generation::link_and_try`); this comes first because it can say more.

use wasmparser::{Parser, Validator};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{InterfaceId, PackageName, Resolve, World, WorldId, WorldItem, WorldKey};

use super::LoadError;
use crate::model::pack::ImportName;

/// The largest component that is compiled.
pub(super) const COMPONENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The contract that this host serves.
pub(super) const CONTRACT_NAME: &str = "forebay:connector@0.1.0";
pub(super) const CONTRACT_TEXT: &str = include_str!("../../../wit/forebay-connector.wit");
const CONTRACT_WORLD: &str = "connector";

/// Imports that need no declaration: they tell the guest nothing.
const UNDECLARED: [&str; 2] = ["types", "diagnostics"];

/// What a component asks for and gives: what it imports is what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    /// The interfaces it imports, with versions.
    pub imports: Vec<String>,
    /// The interfaces it exports, with versions.
    pub exports: Vec<String>,
}

/// Checks a component against the contract and its own manifest's imports.
pub(super) fn check(component: &[u8], declared: &[ImportName]) -> Result<Surface, LoadError> {
    let (resolve, world) = read(component)?;
    let offered = Contract::parse()?;
    let world = &resolve.worlds[world];
    for (key, item) in &world.imports {
        check_import(&offered, &resolve, key, item, declared)?;
    }
    check_exports(&offered, &resolve, world)?;
    let name = |key| resolve.name_world_key(key);
    Ok(Surface { imports: world.imports.keys().map(name).collect(), exports: world.exports.keys().map(name).collect() })
}

/// Reads what kind of a file it is, and the interface of a component.
fn read(component: &[u8]) -> Result<(Resolve, WorldId), LoadError> {
    if component.len() > COMPONENT_BYTES_MAX {
        return refuse(format!("the component has {} bytes: at most {COMPONENT_BYTES_MAX} are taken", component.len()));
    }
    if Parser::is_core_wasm(component) {
        return refuse(
            "this is a core WebAssembly module, not a component: build it with `forebay pack build`, which makes one of it",
        );
    }
    if !Parser::is_component(component) {
        return refuse("this is not WebAssembly: a component begins with the bytes 00 61 73 6d 0d 00 01 00");
    }
    if let Err(error) = Validator::new().validate_all(component) {
        let (message, offset) = (error.message(), error.offset());
        return refuse(if message.starts_with("unexpected end") {
            format!(
                "the component is truncated: it ends at byte {} in the middle of a section. Copy it again, or build it again",
                component.len()
            )
        } else {
            format!("the component is not valid: {message} (at byte {offset})")
        });
    }
    match decode(component) {
        Ok(DecodedWasm::Component(resolve, world)) => Ok((resolve, world)),
        Ok(DecodedWasm::WitPackage(..)) => refuse("this is a WIT package, not a component: it holds types and no code"),
        Err(error) => refuse(format!("the component's interface cannot be read as WIT: {error:#}")),
    }
}

/// The contract, parsed.
struct Contract {
    resolve: Resolve,
    world: WorldId,
}

/// An interface that a world imports or exports.
struct Interface<'r> {
    id: InterfaceId,
    package: &'r PackageName,
    name: &'r str,
}

impl<'r> Interface<'r> {
    fn of(resolve: &'r Resolve, item: &WorldItem) -> Option<Self> {
        let id = match item {
            WorldItem::Interface { id, .. } => *id,
            WorldItem::Function(_) | WorldItem::Type { .. } => return None,
        };
        let interface = &resolve.interfaces[id];
        Some(Self { id, package: &resolve.packages[interface.package?].name, name: interface.name.as_deref()? })
    }

    /// Whether it has this one's package and name, in any version.
    fn is_a(&self, other: &Interface<'_>) -> bool {
        self.package.namespace == other.package.namespace
            && self.package.name == other.package.name
            && self.name == other.name
    }
}

impl Contract {
    fn parse() -> Result<Self, LoadError> {
        let mut resolve = Resolve::default();
        let world = resolve
            .push_source("forebay-connector.wit", CONTRACT_TEXT)
            .and_then(|package| resolve.select_world(&[package], Some(CONTRACT_WORLD)))
            .map_err(|error| LoadError(format!("the host's own contract cannot be read: {error:#}")))?;
        Ok(Self { resolve, world })
    }

    fn world(&self) -> &World {
        &self.resolve.worlds[self.world]
    }
}

fn check_import(
    offered: &Contract,
    resolve: &Resolve,
    key: &WorldKey,
    item: &WorldItem,
    declared: &[ImportName],
) -> Result<(), LoadError> {
    let full = resolve.name_world_key(key);
    let Some(wanted) = Interface::of(resolve, item) else {
        return refuse(format!("imports `{full}`, which is no interface of a package: this host offers {}", offers()));
    };
    if wanted.package.namespace == "wasi" {
        return refuse(format!(
            "imports `{full}`: guests have no WASI (no files, network, environment, clock). Build for \
             wasm32-unknown-unknown, and use what the host offers: {}",
            offers()
        ));
    }
    let imports = offered.world().imports.values().filter_map(|item| Interface::of(&offered.resolve, item));
    let Some(own) = imports.into_iter().find(|own| own.is_a(&wanted)) else {
        return refuse(format!("imports `{full}`, which this host does not offer: it offers {}", offers()));
    };
    fits(&full, &own, &wanted, "imports")?;
    if !UNDECLARED.contains(&wanted.name) && !declared.iter().any(|import| import.as_str() == wanted.name) {
        return refuse(format!(
            "imports `{full}`, which pack.toml does not declare: add \"{}\" to `imports`",
            wanted.name
        ));
    }
    let own_functions = &offered.resolve.interfaces[own.id].functions;
    match resolve.interfaces[wanted.id].functions.keys().find(|function| !own_functions.contains_key(*function)) {
        None => Ok(()),
        Some(function) => {
            let own: Vec<&str> = own_functions.keys().map(String::as_str).collect();
            refuse(format!(
                "imports `{function}` of `{full}`, which has no such function on this host: it has {}",
                own.join(", ")
            ))
        }
    }
}

fn check_exports(offered: &Contract, resolve: &Resolve, world: &World) -> Result<(), LoadError> {
    for own in offered.world().exports.values().filter_map(|item| Interface::of(&offered.resolve, item)) {
        let wanted = own.package.interface_id(own.name);
        let mut exports = world.exports.values().filter_map(|item| Interface::of(resolve, item));
        let Some(exported) = exports.find(|exported| exported.is_a(&own)) else {
            let found: Vec<String> =
                world.exports.keys().map(|key| format!("`{}`", resolve.name_world_key(key))).collect();
            let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
            return refuse(format!(
                "does not export `{wanted}`, which makes a connector; it exports {found}. In Rust: `forebay_sdk::export!(..)`; in JavaScript: `export const flow = connector({{ .. }})`"
            ));
        };
        fits(&exported.package.interface_id(exported.name), &own, &exported, "exports")?;
        let functions = &resolve.interfaces[exported.id].functions;
        let mut expected = offered.resolve.interfaces[own.id].functions.keys();
        if let Some(missing) = expected.find(|function| !functions.contains_key(*function)) {
            return refuse(format!("exports `{wanted}` without its function `{missing}`"));
        }
    }
    Ok(())
}

/// Whether the host's version of an interface serves a component that was built for `wanted`: semantic versioning, in
/// which below 1.0 the minor version is what breaks.
fn fits(full: &str, offered: &Interface<'_>, wanted: &Interface<'_>, verb: &str) -> Result<(), LoadError> {
    let compatible = match (&wanted.package.version, &offered.package.version) {
        (Some(wanted), Some(offered)) => {
            wanted.major == offered.major
                && (wanted.major > 0 || wanted.minor == offered.minor)
                && wanted.pre == offered.pre
        }
        (None, _) | (_, None) => false,
    };
    if compatible {
        return Ok(());
    }
    let version = |interface: &Interface<'_>| match &interface.package.version {
        Some(version) => version.to_string(),
        None => "none".to_owned(),
    };
    refuse(format!(
        "{verb} `{full}`: wanted is version {}, offered is {}. Build it with an SDK for {CONTRACT_NAME}",
        version(wanted),
        version(offered)
    ))
}

fn offers() -> String {
    let (package, version) = CONTRACT_NAME.split_once('@').unwrap_or((CONTRACT_NAME, ""));
    let names: Vec<String> = ImportName::ALL.iter().map(|import| format!("`{package}/{import}@{version}`")).collect();
    names.join(", ")
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError(reason.into()))
}
