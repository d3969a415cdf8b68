//! `forebay pack build` and `check`: from a folder to a pack file, and what a pack can do.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::output::{fields, print};
use crate::guest::{PackBuild, PackReport, Trial, build_pack, check_pack_file};
use crate::model::pack::Reader;

pub(super) const BUILD_HELP: &str = "\
A pack in Rust needs cargo; the wasm target is added if it is missing. A pack in JavaScript needs Node.js, npm and, for the \
first build, npm's registry. The output of the compilers is shown unchanged.

Examples:
  forebay pack build
  forebay pack build packs/orders --output orders.fpk";

pub(super) const CHECK_HELP: &str = "\
Checks the file as a host does: the manifest, the contract version of the component, its imports and exports, and whether it \
compiles and starts within its limits. A pack can do only what it imports.

Examples:
  forebay pack check orders.fpk
  forebay pack check orders.fpk --json

Exit code 1: no host of this version would serve the file; the error names the reason.";

#[derive(Debug, Args)]
pub(in crate::cli) struct BuildArguments {
    /// The folder with the pack.toml
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The file to write; by default NAME-VERSION.fpk in the folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The build folder, which packs can share; by default target-guests in the folder
    #[arg(long, value_name = "DIR", env = "FOREBAY_GUEST_TARGET_DIR")]
    target_directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArguments {
    /// The pack file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The description of a pack.
#[derive(Serialize)]
struct Report {
    name: String,
    version: String,
    file: String,
    file_bytes: usize,
    component_bytes: usize,
    sha256: String,
    routes: Vec<String>,
    destinations: Vec<String>,
    /// Hosts and secrets of each reader.
    readers: Vec<String>,
    /// The contract version that it was built for.
    contract: String,
    imports: Vec<String>,
    exports: Vec<String>,
}

pub(super) fn build(arguments: &BuildArguments) -> Result<(), Failure> {
    let wanted = PackBuild {
        folder: &arguments.folder,
        output: arguments.output.as_deref(),
        target_directory: arguments.target_directory.as_deref(),
        trial: Trial::OfTheBuild,
    };
    let built =
        build_pack(wanted, &mut |line| eprintln!("{line}")).map_err(|error| Failure::Failed(error.to_string()))?;
    show(Report::of(&built.report, built.file.display().to_string()), arguments.json)
}

pub(super) fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let named = |reason: String| Failure::Failed(format!("{}: {reason}", arguments.file.display()));
    let report = check_pack_file(&arguments.file).map_err(|error| named(error.to_string()))?;
    show(Report::of(&report, arguments.file.display().to_string()), arguments.json)
}

impl Report {
    fn of(report: &PackReport, file: String) -> Self {
        let manifest = &report.manifest;
        Self {
            name: manifest.name.to_string(),
            version: manifest.version.clone(),
            file,
            file_bytes: report.file_bytes,
            component_bytes: report.component_bytes,
            sha256: data_encoding::HEXLOWER.encode(&report.digest),
            routes: manifest.routes.iter().map(|route| route.path.to_string()).collect(),
            destinations: manifest.destinations.iter().map(ToString::to_string).collect(),
            readers: manifest.readers.iter().map(reads).collect(),
            contract: report.surface.contract.to_string(),
            imports: report.surface.imports.clone(),
            exports: report.surface.exports.clone(),
        }
    }
}

/// `contacts from api.example.com with secret api-token`.
fn reads(reader: &Reader) -> String {
    let hosts: Vec<&str> = reader.hosts.iter().map(|host| host.as_str()).collect();
    let secrets: Vec<&str> = reader.secret_headers.iter().map(|header| header.secret.as_str()).collect();
    let with = if secrets.is_empty() { String::new() } else { format!(" with secret {}", secrets.join(", ")) };
    format!("{} from {}{with}", reader.name, hosts.join(", "))
}

fn show(report: Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let readers = (!report.readers.is_empty()).then(|| report.readers.join("; "));
    Ok(print(&fields(&[
        ("pack", Some(&format!("{} {}", report.name, report.version))),
        ("file", Some(&format!("{} ({} bytes)", report.file, report.file_bytes))),
        ("component", Some(&format!("{} bytes", report.component_bytes))),
        ("sha256", Some(&report.sha256)),
        ("routes", Some(&report.routes.join(", "))),
        ("destinations", Some(&report.destinations.join(", "))),
        ("readers", readers.as_deref()),
        ("built for", Some(&report.contract)),
        ("imports", Some(&report.imports.join(", "))),
        ("exports", Some(&report.exports.join(", "))),
    ]))?)
}
