//! Which version of the contract a component was built for, and whether it fits it: what it imports is offered and
//! declared, what it must export is there.
//!
//! Each refusal names the interface, the version that is wanted and those that are offered, and the remedy. Types are
//! compared later, by the engine (`generation::link_and_try`); this comes first because it can say more.

use wasmparser::{Parser, Validator};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{InterfaceId, PackageName, Resolve, World, WorldId, WorldItem, WorldKey};

use super::LoadError;
use super::contract::ContractVersion;
use crate::model::pack::ImportName;

/// The largest component that is compiled.
pub(super) const COMPONENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Imports that need no declaration: they tell the guest nothing.
const UNDECLARED: [&str; 2] = ["types", "diagnostics"];

/// What a component asks for and gives: what it imports is what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    /// The version of the contract that it was built for.
    pub contract: ContractVersion,
    /// The interfaces it imports, with versions.
    pub imports: Vec<String>,
    /// The interfaces it exports, with versions.
    pub exports: Vec<String>,
}

/// Finds out which version a component was built for, and checks it against that and its own manifest's imports.
pub(super) fn check(component: &[u8], declared: &[ImportName]) -> Result<Surface, LoadError> {
    let (resolve, world) = read(component)?;
    let world = &resolve.worlds[world];
    // One that has nothing of the contract is told what is wanted of packs that are built here.
    let contract = built_for(&resolve, world)?.unwrap_or(ContractVersion::BUILT);
    let offered = Contract::parse(contract)?;
    for (key, item) in &world.imports {
        check_import(&offered, &resolve, key, item, declared)?;
    }
    check_exports(&offered, &resolve, world)?;
    let name = |key| resolve.name_world_key(key);
    Ok(Surface {
        contract,
        imports: world.imports.keys().map(name).collect(),
        exports: world.exports.keys().map(name).collect(),
    })
}

/// The version of the contract's package that a component's interfaces are of: one and the same for all, and one that
/// is served. None if it has none of these interfaces.
fn built_for(resolve: &Resolve, world: &World) -> Result<Option<ContractVersion>, LoadError> {
    let of = |verb: &'static str, item| Interface::of(resolve, item).map(|interface| (verb, interface));
    let exports = world.exports.values().filter_map(|item| of("exports", item));
    let imports = world.imports.values().filter_map(|item| of("imports", item));
    let mut all = exports.chain(imports).filter(|(_, interface)| interface.is_of_the_contract());
    let Some((verb, first)) = all.next() else { return Ok(None) };
    if let Some((other_verb, other)) = all.find(|(_, other)| !same_version(first.package, other.package)) {
        return refuse(format!(
            "is built for two versions of the contract: it {verb} `{}` and {other_verb} `{}`. Build all of it with one SDK, \
             for {}",
            first.full_name(),
            other.full_name(),
            ContractVersion::BUILT
        ));
    }
    match ContractVersion::ALL.iter().find(|version| version.serves(first.package)) {
        Some(version) => Ok(Some(*version)),
        None => refuse(format!(
            "{verb} `{}`: wanted is version {}, offered is {}. Build it with an SDK for {}",
            first.full_name(),
            first.version(),
            ContractVersion::ALL.iter().map(|version| version.number()).collect::<Vec<_>>().join(" or "),
            ContractVersion::BUILT
        )),
    }
}

/// Whether whoever serves one of these serves the other (`ContractVersion::serves`).
fn same_version(one: &PackageName, other: &PackageName) -> bool {
    match (&one.version, &other.version) {
        (Some(one), Some(other)) => {
            one.major == other.major && (one.major > 0 || one.minor == other.minor) && one.pre == other.pre
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
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

/// A version of the contract, parsed.
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

    fn is_of_the_contract(&self) -> bool {
        let own = ContractVersion::BUILT.name().split_once('@').map(|(package, _)| package);
        own.and_then(|own| own.split_once(':')) == Some((&self.package.namespace, &self.package.name))
    }

    fn full_name(&self) -> String {
        self.package.interface_id(self.name)
    }

    fn version(&self) -> String {
        self.package.version.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
    }
}

impl Contract {
    fn parse(version: ContractVersion) -> Result<Self, LoadError> {
        let mut resolve = Resolve::default();
        let world = resolve
            .push_source("forebay-connector.wit", version.text())
            .and_then(|package| resolve.select_world(&[package], Some(ContractVersion::WORLD)))
            .map_err(|error| LoadError(format!("the host's own contract cannot be read: {error:#}")))?;
        Ok(Self { resolve, world })
    }

    fn imports(&self) -> impl Iterator<Item = Interface<'_>> {
        self.resolve.worlds[self.world].imports.values().filter_map(|item| Interface::of(&self.resolve, item))
    }

    fn exports(&self) -> impl Iterator<Item = Interface<'_>> {
        self.resolve.worlds[self.world].exports.values().filter_map(|item| Interface::of(&self.resolve, item))
    }

    /// What a manifest may declare of it, for people.
    fn offers(&self) -> String {
        let declared = ImportName::ALL.iter().filter_map(|name| self.imports().find(|own| own.name == name.as_str()));
        declared.map(|own| format!("`{}`", own.full_name())).collect::<Vec<_>>().join(", ")
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
        return refuse(format!(
            "imports `{full}`, which is no interface of a package: this host offers {}",
            offered.offers()
        ));
    };
    if wanted.package.namespace == "wasi" {
        return refuse(format!(
            "imports `{full}`: guests have no WASI (no files, network, environment, clock). Build for \
             wasm32-unknown-unknown, and use what the host offers: {}",
            offered.offers()
        ));
    }
    let mut imports = offered.imports();
    let Some(own) = imports.find(|own| wanted.is_of_the_contract() && own.name == wanted.name) else {
        return refuse(format!("imports `{full}`, which this host does not offer: it offers {}", offered.offers()));
    };
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
    for own in offered.exports() {
        let wanted = own.full_name();
        let mut exports = world.exports.values().filter_map(|item| Interface::of(resolve, item));
        let Some(exported) = exports.find(|exported| exported.is_of_the_contract() && exported.name == own.name) else {
            let found: Vec<String> =
                world.exports.keys().map(|key| format!("`{}`", resolve.name_world_key(key))).collect();
            let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
            return refuse(format!(
                "does not export `{wanted}`, which makes a connector; it exports {found}. In Rust: `forebay_sdk::export!(..)`; in JavaScript: `export const flow = connector({{ .. }})`"
            ));
        };
        let functions = &resolve.interfaces[exported.id].functions;
        let mut expected = offered.resolve.interfaces[own.id].functions.keys();
        if let Some(missing) = expected.find(|function| !functions.contains_key(*function)) {
            return refuse(format!("exports `{wanted}` without its function `{missing}`"));
        }
    }
    Ok(())
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError(reason.into()))
}
