//! JavaScript packs: `componentize-js` puts the module into an engine, runs it up to where it waits for a call, and
//! takes a snapshot; that is the component.
//!
//! The tool is npm's, in the versions of the lock file beside it, and is installed once per target directory. Packages'
//! own scripts are not run. The component is checked like any other: what this does is believed by nobody.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::run;
use crate::guest::LoadError;
use crate::guest::contract::ContractVersion;
use crate::model::pack::Manifest;

const PACKAGE: &str = include_str!("javascript/package.json");
const LOCK: &str = include_str!("javascript/package-lock.json");
const SCRIPT: &str = include_str!("javascript/componentize.mjs");

/// Below the target directory.
const FOLDER: &str = "javascript";
/// Says which lock file was installed.
const INSTALLED: &str = ".installed";
/// The world of one pack: what it declares, and no more.
const WORLD: &str = "pack";

/// Makes the component of a module.
pub(super) fn compile(
    manifest: &Manifest,
    folder: &Path,
    entry: &Path,
    target_directory: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, LoadError> {
    let folder = canonical(folder)?;
    let entry = canonical(&folder.join(entry))?;
    let tools = target_directory.join(FOLDER);
    let failed = |error: io::Error| LoadError(format!("{} cannot be used: {error}", tools.display()));
    std::fs::create_dir_all(&tools).map_err(failed)?;
    let tools = tools.canonicalize().map_err(failed)?;
    // Packs that are built at once share the tool, and install it once.
    let lock = File::create(tools.join(".lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    install(&tools, progress)?;
    let work = tempfile::tempdir_in(&tools).map_err(failed)?;
    drop(lock);
    let wit = work.path().join("wit");
    std::fs::create_dir(&wit)
        .and_then(|()| std::fs::write(wit.join("forebay-connector.wit"), ContractVersion::BUILT.text()))
        .and_then(|()| std::fs::write(wit.join("pack.wit"), world(manifest)))
        .map_err(failed)?;
    progress("taking a snapshot of the module in its engine (half a minute)");
    let component = work.path().join("component.wasm");
    let mut command = Command::new("node");
    // From the pack's folder, so that places in a stack are named from there.
    command.arg(tools.join("componentize.mjs")).arg(&entry).arg(&wit).arg(WORLD).arg(&component).current_dir(folder);
    let (status, _) = run(command, "node", progress)?;
    if !status.success() {
        return Err(LoadError(format!("no component can be made of {}: the lines above say why", entry.display())));
    }
    std::fs::read(&component).map_err(failed)
}

/// Installs the tool, unless it is there in the same versions.
fn install(tools: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), LoadError> {
    for program in ["node", "npm"] {
        if Command::new(program).arg("--version").stdin(Stdio::null()).output().is_err() {
            return Err(LoadError(format!(
                "`{program}` is not installed: JavaScript packs need Node.js 20 or newer, with npm (on Debian: apt-get \
                 install nodejs npm)"
            )));
        }
    }
    let failed = |error: io::Error| LoadError(format!("{} cannot be used: {error}", tools.display()));
    for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCK), ("componentize.mjs", SCRIPT)] {
        std::fs::write(tools.join(name), text).map_err(failed)?;
    }
    let digest = HEXLOWER.encode(&Sha256::digest(LOCK));
    let marker = tools.join(INSTALLED);
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == digest) {
        return Ok(());
    }
    progress("npm ci (once: componentize-js and its engine, 400 MB on disk)");
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(tools);
    let (status, _) = run(command, "npm", progress)?;
    if !status.success() {
        return Err(LoadError(format!(
            "npm cannot install componentize-js ({status}): the lines above say why. It needs the npm registry once"
        )));
    }
    std::fs::write(&marker, digest).map_err(failed)
}

/// A world with the imports that the manifest declares: an engine would import whatever the world offers.
fn world(manifest: &Manifest) -> String {
    let package = ContractVersion::BUILT;
    let declared: String = manifest.imports.iter().map(|import| format!("    import {import};\n")).collect();
    format!("package {package};\n\nworld {WORLD} {{\n    import diagnostics;\n{declared}    export flow;\n}}\n")
}

fn canonical(path: &Path) -> Result<PathBuf, LoadError> {
    path.canonicalize().map_err(|error| {
        LoadError(format!("{}: {error}. `build.path` in pack.toml says where the module is", path.display()))
    })
}
