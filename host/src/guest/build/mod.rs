//! `forebay pack build` and `forebay pack check`: from an author's folder to a pack file, and what a pack can do.
//!
//! Cargo compiles the folder's crate to a core module for wasm32-unknown-unknown, and `wit-component` makes a component
//! of it in-process; of a JavaScript module, `componentize-js` makes one. The checks that a host makes before it serves
//! a pack come before the file is written.

mod javascript;
mod toolchain;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use self::toolchain::{TARGET, Toolchain};
use super::check::Surface;
use super::generation::link_and_try;
use super::manifest::{self, Authored, BuildRule};
use super::package::{PACK_BYTES_MAX, too_large};
use super::{LoadError, PackFile, check, engine};
use crate::model::hash::fnv1a;
use crate::model::pack::Manifest;

/// A guest's stack, which lies at the beginning of its memory: the linker's own idea of it, a megabyte, would be the
/// greater part of what has to be written back after each call. What goes beyond it meets the end of the memory, and
/// traps.
const STACK_BYTES: u32 = 128 * 1024;

/// A compiler's report of what it made, in bytes.
const REPORT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where guests are compiled, next to their manifest, if nothing else is said.
const TARGET_DIRECTORY_NAME: &str = "target-guests";

/// What is to be built, and where to.
#[derive(Debug, Clone, Copy)]
pub struct PackBuild<'p> {
    /// The folder with the `pack.toml`.
    pub folder: &'p Path,
    /// The file to write; `NAME-VERSION.fpk` in the folder if there is none.
    pub output: Option<&'p Path>,
    /// Where the compiler keeps its work: packs that share it share their dependencies. `target-guests` in the folder
    /// if there is none.
    pub target_directory: Option<&'p Path>,
    /// Who finds out whether it can be instantiated.
    pub trial: Trial,
}

/// Who compiles a component and makes an instance of it, to see whether that can be done. It takes a second, and half a
/// minute with an engine for JavaScript in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The build, before it writes the file.
    OfTheBuild,
    /// Whoever loads the file next, which is to be at once.
    OfTheNext,
}

/// A pack that was built and checked.
#[derive(Debug)]
pub struct BuiltPack {
    /// The file that was written.
    pub file: PathBuf,
    /// What is in it.
    pub report: PackReport,
}

/// What a pack is, and what it can do.
#[derive(Debug)]
pub struct PackReport {
    /// What it declares.
    pub manifest: Arc<Manifest>,
    /// What its component imports and exports.
    pub surface: Surface,
    /// The component's size, in bytes.
    pub component_bytes: usize,
    /// The pack file's size, in bytes.
    pub file_bytes: usize,
    /// SHA-256 of the pack file.
    pub digest: [u8; 32],
}

/// Builds a pack and writes its file. `progress` gets a line for each step, and the compiler's own lines.
pub fn build_pack(build: PackBuild<'_>, progress: &mut dyn FnMut(&str)) -> Result<BuiltPack, LoadError> {
    let manifest_path = build.folder.join("pack.toml");
    let manifest_text = std::fs::read_to_string(&manifest_path).map_err(|error| {
        LoadError(format!("{}: {error}. A pack's folder has its manifest there", manifest_path.display()))
    })?;
    let Authored { manifest, build: rule } = manifest::read(&manifest_text)?;
    progress(&format!("compiling {} {}", manifest.name, manifest.version));
    let target_directory = match build.target_directory {
        Some(directory) => directory.to_owned(),
        None => build.folder.join(TARGET_DIRECTORY_NAME),
    };
    let component = match rule {
        BuildRule::Rust { path } => componentize(&compile(&build.folder.join(path), &target_directory, progress)?)?,
        BuildRule::JavaScript { path } => {
            javascript::compile(&manifest, build.folder, &path, &target_directory, progress)?
        }
    };
    progress("checking the component");
    let manifest = Arc::new(manifest);
    let surface = match build.trial {
        Trial::OfTheBuild => inspect(&manifest, &component)?,
        Trial::OfTheNext => check::check(&component, &manifest.imports)?,
    };
    let bytes = PackFile::encode(&manifest_text, &component)?;
    let file = match build.output {
        Some(output) => output.to_owned(),
        None => build.folder.join(format!("{}-{}.fpk", manifest.name, manifest.version)),
    };
    write(&file, &bytes).map_err(|error| LoadError(format!("{} cannot be written: {error}", file.display())))?;
    progress(&format!("wrote {} ({} bytes)", file.display(), bytes.len()));
    let report = PackReport {
        manifest,
        surface,
        component_bytes: component.len(),
        file_bytes: bytes.len(),
        digest: Sha256::digest(&bytes).into(),
    };
    Ok(BuiltPack { file, report })
}

/// Whoever reads the file meanwhile finds the old one or the new one.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let mut aside = tempfile::NamedTempFile::new_in(folder)?;
    aside.write_all(bytes)?;
    aside.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    aside.persist(file)?;
    Ok(())
}

/// Checks a pack file as a host does before it serves it. No more of it is read than a pack may have.
pub fn check_pack_file(file: &Path) -> Result<PackReport, LoadError> {
    check_pack(&read_pack_file(file)?)
}

/// Reads a file that is to be a pack file. One that is too large to be one is refused before any of it is read.
pub fn read_pack_file(file: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |error: std::io::Error| LoadError(error.to_string());
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    let size = opened.metadata().map_err(unreadable)?.len();
    if size > PACK_BYTES_MAX as u64 {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // Its size may not be what it says, or not be it any more.
    opened.take(PACK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > PACK_BYTES_MAX { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// Checks a pack file's bytes as a host does before it serves them.
pub(super) fn check_pack(bytes: &[u8]) -> Result<PackReport, LoadError> {
    let pack = PackFile::parse(bytes)?;
    let manifest = Arc::new(pack.manifest);
    Ok(PackReport {
        surface: inspect(&manifest, &pack.component)?,
        component_bytes: pack.component.len(),
        file_bytes: bytes.len(),
        digest: pack.digest,
        manifest,
    })
}

fn inspect(manifest: &Arc<Manifest>, component: &[u8]) -> Result<Surface, LoadError> {
    let surface = check::check(component, &manifest.imports)?;
    let engine = engine::for_checking()?;
    let compiled = Component::new(&engine, component)
        .map_err(|error| LoadError(format!("the component cannot be compiled: {error:#}")))?;
    link_and_try(&engine, manifest, &compiled, surface.contract)?;
    Ok(surface)
}

/// Compiles the crate, and gives back its core module.
fn compile(crate_folder: &Path, target_directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>, LoadError> {
    let crate_manifest = crate_folder.join("Cargo.toml");
    let crate_manifest = crate_manifest.canonicalize().map_err(|error| {
        LoadError(format!("{}: {error}. `build.path` in pack.toml says where the crate is", crate_manifest.display()))
    })?;
    // Crates of one name and version in two folders are one to cargo where they share a target directory: it would take
    // the first one's code for the second's. What this says, to the last crate only, changes nothing in what is made.
    let folder = fnv1a(crate_manifest.as_os_str().as_bytes().iter().copied());
    let folder = format!("--cfg=forebay_folder=\"{folder:016x}\"");
    let toolchain = Toolchain::find(progress)?;
    let mut command = toolchain.cargo();
    command
        .args(["rustc", "--release", "--lib", "--target", TARGET, "--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(&crate_manifest)
        .arg("--")
        .args([format!("-Clink-arg=-zstack-size={STACK_BYTES}"), folder])
        .env("CARGO_TARGET_DIR", target_directory)
        // Flags that were meant for the host's own build.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let (status, made) = run(command, "cargo", progress)?;
    if !status.success() {
        return Err(LoadError(format!("the crate does not compile ({status}): cargo's lines above say why")));
    }
    let module = module_of(&made, &crate_manifest)?;
    std::fs::read(&module).map_err(|error| LoadError(format!("{} cannot be read: {error}", module.display())))
}

/// Runs a program to its end: its lines for people go to `progress`; how it ended and its report come back.
fn run(mut command: Command, name: &str, progress: &mut dyn FnMut(&str)) -> Result<(ExitStatus, Vec<u8>), LoadError> {
    let failed = |error: std::io::Error| LoadError(format!("{name} cannot be run: {error}"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let report = std::thread::scope(|scope| {
        // Both are read at once: a full pipe that nobody reads would stop it.
        let report = scope.spawn(move || {
            let mut report = Vec::new();
            stdout.map(|stdout| stdout.take(REPORT_BYTES_MAX).read_to_end(&mut report)).transpose()?;
            Ok(report)
        });
        for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')) {
            progress(&String::from_utf8_lossy(&line?));
        }
        report.join().unwrap_or_else(|_| Err(std::io::Error::other("reading its report panicked")))
    });
    let status = child.wait().map_err(failed)?;
    Ok((status, report.map_err(failed)?))
}

/// The module that cargo reports for the crate of this manifest.
fn module_of(report: &[u8], crate_manifest: &Path) -> Result<PathBuf, LoadError> {
    #[derive(serde::Deserialize)]
    struct Message {
        reason: String,
        manifest_path: Option<PathBuf>,
        #[serde(default)]
        filenames: Vec<PathBuf>,
    }
    let messages = serde_json::Deserializer::from_slice(report).into_iter::<Message>();
    let mut artifacts = messages.filter_map(Result::ok).filter(|message| {
        message.reason == "compiler-artifact" && message.manifest_path.as_deref() == Some(crate_manifest)
    });
    let module = artifacts.find_map(|artifact| {
        artifact.filenames.into_iter().find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
    });
    module.ok_or_else(|| {
        LoadError(format!(
            "cargo made no WebAssembly module of {}: add `crate-type = [\"cdylib\"]` to its `[lib]`",
            crate_manifest.display()
        ))
    })
}

fn componentize(core: &[u8]) -> Result<Vec<u8>, LoadError> {
    let encoded =
        wit_component::ComponentEncoder::default().module(core).and_then(|encoder| encoder.validate(true).encode());
    encoded.map_err(|error| {
        LoadError(format!(
            "no component can be made of the module: {error:#}. Does the crate have a `forebay_sdk::export!(..)`?"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_with_crates_of_one_name_are_two_crates_in_one_target_directory() {
        let directory = tempfile::TempDir::new().unwrap();
        let target = directory.path().join("target");
        let folder = |name: &str, answer: u32| {
            let folder = directory.path().join(name);
            std::fs::create_dir_all(folder.join("src")).unwrap();
            let manifest = "[package]\nname = \"same\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"cdylib\"]\n";
            std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
            let code = format!("#[no_mangle]\npub extern \"C\" fn answer() -> u32 {{ {answer} }}\n");
            std::fs::write(folder.join("src/lib.rs"), code).unwrap();
            folder
        };
        // Both are there before the first is compiled: neither is newer than what was made of the other.
        let folders = [folder("one", 1_000_001), folder("other", 2_000_002)];
        let compiled = folders.each_ref().map(|folder| compile(folder, &target, &mut |_| {}).unwrap());
        assert_ne!(compiled[0], compiled[1]);
        assert_eq!(compile(&folders[0], &target, &mut |_| {}).unwrap(), compiled[0]);
    }
}
