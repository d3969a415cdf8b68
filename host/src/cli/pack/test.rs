//! `forebay pack test`: the fixtures of a pack, run in the real engine under the limits of the manifest.
//!
//! A request becomes events by the rules of intake (`intake::Sample`). Each event is run as in a preview: no effects,
//! the first attempt, the same ids and times on every machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::diff::diff;
use super::rehearsal::{self, RecordedCall, RecordedProvider};
use crate::admin::wire;
use crate::cli::exit::Failure;
use crate::cli::fixture::{self, EXPECTED_SUFFIX, Fixture};
use crate::cli::output::{print, printable_lines};
use crate::env::Env;
use crate::guest::{Ceilings, GuestHost, GuestOptions, LoadedGeneration, PackBuild, PackFile, Trial, build_pack};
use crate::intake::Sample;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;

pub(super) const HELP: &str = "\
A fixture is a pair of files in the folder's fixtures/. NAME.request.json is the request of a provider:

  { \"route\": \"orders\", \"headers\": { \"x-kind\": \"new\" }, \"body\": { \"order\": 7 } }

NAME.expected.json is the expected result; --bless writes it. `body` is sent byte for byte as it is written; `body_text` is for \
bodies that are not JSON. `route` may be left out if the pack has only one. Signatures are not required.

`answers` holds the responses to readers, by reader and call:

  \"answers\": { \"contacts\": [ { \"status\": 200, \"body\": { \"results\": [] } } ] }

The requests that the pack writes are part of the result.

Examples:
  forebay pack test orders
  forebay pack test orders --bless

Exit code 6: the result of a fixture differs from the expected one, or has none.";

/// Generous: no other pack waits for this compilation.
const COMPILATION_TIME_MAX: Duration = Duration::from_secs(600);
/// Time of arrival of every fixture: 2023-11-14T22:13:20Z.
const RECEIVED_AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// The folder with the pack.toml
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The pack file to write; by default NAME-VERSION.fpk in the folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the results as the expected ones
    #[arg(long)]
    bless: bool,
    /// The build folder, which packs can share; by default target-guests in the folder
    #[arg(long, value_name = "DIR", env = "FOREBAY_GUEST_TARGET_DIR")]
    target_directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `NAME.expected.json`: a refusal, or the result of each event.
#[derive(Debug, Serialize)]
struct Came {
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reads: Vec<RecordedCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<wire::Outcome>,
}

/// The results of the fixtures.
#[derive(Serialize)]
struct Report {
    pack: String,
    file: String,
    fixtures: Vec<Tested>,
}

#[derive(Serialize)]
struct Tested {
    name: String,
    /// `same`, `differs` or `blessed`.
    verdict: &'static str,
    /// The lines that differ, expected ones with `-`; empty if none do.
    diff: String,
}

pub(super) async fn test(arguments: Arguments) -> Result<(), Failure> {
    let report = report(&arguments).await?;
    if arguments.json {
        let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&printable_lines(&shown(&report)))?;
    }
    match report.fixtures.iter().filter(|fixture| fixture.verdict == "differs").count() {
        0 => Ok(()),
        differing => Err(Failure::Differs(format!(
            "the results of {differing} of {} fixtures differ; --bless accepts them",
            report.fixtures.len()
        ))),
    }
}

async fn report(arguments: &Arguments) -> anyhow::Result<Report> {
    let names = fixture::names(&arguments.folder.join(fixture::FOLDER))?;
    let build = PackBuild {
        folder: &arguments.folder,
        output: arguments.output.as_deref(),
        target_directory: arguments.target_directory.as_deref(),
        trial: Trial::OfTheNext,
    };
    let built = build_pack(build, &mut |line| eprintln!("{line}"))?;
    let pack = PackFile::parse(&fs::read(&built.file)?)?;
    let cache = tempfile::tempdir()?;
    let options = GuestOptions {
        cache: cache.path().to_owned(),
        instances_max: 1,
        long_calls_max: 1,
        memory_bytes_max: pack.manifest.limits.memory_bytes,
        ceilings: Ceilings::NONE,
        compilations_max: 1,
        compilation_time_max: COMPILATION_TIME_MAX,
    };
    let guests = GuestHost::start(options, Env::system())?;
    let generation = guests.load(GenerationNumber(1), Arc::new(pack.manifest), pack.component).await?;
    let mut fixtures = Vec::with_capacity(names.len());
    for name in names {
        let tested = run(&arguments.folder.join(fixture::FOLDER), name, &generation, arguments.bless).await?;
        fixtures.push(tested);
    }
    let pack = generation.manifest().name.to_string();
    Ok(Report { pack, file: built.file.display().to_string(), fixtures })
}

async fn run(folder: &Path, name: String, generation: &Arc<LoadedGeneration>, bless: bool) -> anyhow::Result<Tested> {
    let mut fixture = fixture::read(folder, &name, generation.manifest())?;
    let answers = std::mem::take(&mut fixture.answers);
    let provider = RecordedProvider::new(answers).with_context(|| format!("fixture {name}"))?;
    let came = match sample(fixture, generation)?.events() {
        Err(refused) => Came { refused: Some(refused), reads: Vec::new(), events: Vec::new() },
        Ok(events) => {
            let (reads, outcomes) = rehearsal::rehearse(generation, &events, provider).await;
            Came { refused: None, reads, events: outcomes.iter().map(wire::Outcome::from).collect() }
        }
    };
    let came = format!("{}\n", serde_json::to_string_pretty(&came)?);
    let expected_file = folder.join(format!("{name}{EXPECTED_SUFFIX}"));
    let expected = if expected_file.exists() { fixture::read_text(&expected_file)? } else { String::new() };
    let diff = diff(&expected, &came);
    let verdict = match (diff.is_empty(), bless) {
        (true, _) => "same",
        (false, false) => "differs",
        (false, true) => {
            fs::write(&expected_file, came).with_context(|| expected_file.display().to_string())?;
            "blessed"
        }
    };
    Ok(Tested { name, verdict, diff })
}

/// The request that a fixture describes.
fn sample<'g>(fixture: Fixture<'g>, generation: &LoadedGeneration) -> anyhow::Result<Sample<'g>> {
    Ok(Sample {
        namespace: "test".parse()?,
        pack: generation.manifest().name.clone(),
        generation: generation.number(),
        route: fixture.route,
        headers: fixture.headers,
        body: fixture.body,
        received_at: RECEIVED_AT,
    })
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    for Tested { name, verdict, diff } in &report.fixtures {
        text.push_str(&format!("{verdict:<8} {name}\n"));
        text.push_str(diff);
    }
    let same = report.fixtures.iter().filter(|fixture| fixture.verdict == "same").count();
    text.push_str(&format!("{same} of {} fixtures of {} are as expected\n", report.fixtures.len(), report.pack));
    text
}
