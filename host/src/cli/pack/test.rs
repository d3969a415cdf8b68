//! `forebay pack test`: the fixtures of a pack, request in and output out, in the real engine under the manifest's limits.
//!
//! A request becomes events by the rules that intake has (`intake::Sample`), and each event is run as a preview runs it: no
//! effects, the first attempt, the same ids and times on every machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::diff::diff;
use super::rehearsal::{self, RecordedAnswer, RecordedCall, RecordedProvider};
use crate::admin::wire;
use crate::cli::exit::Failure;
use crate::cli::output::{print, printable_lines};
use crate::env::Env;
use crate::guest::{GuestHost, GuestOptions, LoadedGeneration, PackBuild, PackFile, build_pack};
use crate::intake::Sample;
use crate::model::pack::{GenerationNumber, Route};
use crate::model::time::Timestamp;

pub(super) const HELP: &str = "\
A fixture is a pair of files in the folder's fixtures/: NAME.request.json, what a provider sends,

  { \"route\": \"orders\", \"headers\": { \"x-kind\": \"new\" }, \"body\": { \"order\": 7 } }

and NAME.expected.json, what comes of it. `body` is sent byte for byte as it is written there;
`body_text` is for what is not JSON. `route` may be left out if the pack has only one. Signatures are
not asked for.

What readers are answered stands in \"answers\", call by call and reader by reader:

  \"answers\": { \"contacts\": [ { \"status\": 200, \"body\": { \"results\": [] } } ] }

and the requests that the pack wrote are part of what comes of it.

Examples:
  forebay pack test orders
  forebay pack test orders --bless

Exit code 6 says that a fixture came out otherwise, or that nothing says what is expected of it.";

/// The folder with the fixtures, next to the manifest.
const FIXTURES: &str = "fixtures";
const REQUEST_SUFFIX: &str = ".request.json";
const EXPECTED_SUFFIX: &str = ".expected.json";
/// Fixtures of one pack.
const FIXTURES_MAX: usize = 1_000;
/// One file of a fixture.
const FIXTURE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// When every fixture arrives: 2023-11-14T22:13:20Z.
const RECEIVED_AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// The folder with the pack.toml
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The pack file to write; by default NAME-VERSION.fpk in the folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Take what comes out as what is expected
    #[arg(long)]
    bless: bool,
    /// Where the compiler keeps its work, so that packs can share it; by default target-guests in the folder
    #[arg(long, value_name = "DIR", env = "FOREBAY_GUEST_TARGET_DIR")]
    target_directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `NAME.request.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    route: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    body_text: Option<String>,
    #[serde(default)]
    answers: BTreeMap<String, Vec<RecordedAnswer>>,
}

/// `NAME.expected.json`: a refusal, or what came of each event.
#[derive(Debug, Serialize)]
struct Came {
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reads: Vec<RecordedCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<wire::Outcome>,
}

/// What became of the fixtures.
#[derive(Serialize)]
struct Report {
    pack: String,
    file: String,
    fixtures: Vec<Tested>,
}

#[derive(Serialize)]
struct Tested {
    name: String,
    /// `same`, `differs`, or `blessed`.
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
        differing => Err(Failure::Changed(format!(
            "{differing} of {} fixtures came out otherwise; --bless takes them as they are",
            report.fixtures.len()
        ))),
    }
}

async fn report(arguments: &Arguments) -> anyhow::Result<Report> {
    let names = names(&arguments.folder.join(FIXTURES))?;
    let build =
        PackBuild { folder: &arguments.folder, output: None, target_directory: arguments.target_directory.as_deref() };
    let built = build_pack(build, &mut |line| eprintln!("{line}"))?;
    let pack = PackFile::parse(&fs::read(&built.file)?)?;
    let cache = tempfile::tempdir()?;
    let options = GuestOptions {
        cache: cache.path().to_owned(),
        instances_max: 1,
        memory_bytes_max: pack.manifest.limits.memory_bytes,
        compilations_max: 1,
    };
    let guests = GuestHost::start(options, Env::system())?;
    let generation = guests.load(GenerationNumber(1), Arc::new(pack.manifest), pack.component).await?;
    let mut fixtures = Vec::with_capacity(names.len());
    for name in names {
        let tested = run(&arguments.folder.join(FIXTURES), name, &generation, arguments.bless).await?;
        fixtures.push(tested);
    }
    let pack = generation.manifest().name.to_string();
    Ok(Report { pack, file: built.file.display().to_string(), fixtures })
}

/// The names of the fixtures, sorted.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("{}: a pack's fixtures are there, as NAME{REQUEST_SUFFIX}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let file = entry?.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(REQUEST_SUFFIX)).map(str::to_owned));
    }
    match names.len() {
        0 => bail!("{} has no fixture: make a NAME{REQUEST_SUFFIX}", folder.display()),
        many if many > FIXTURES_MAX => bail!("{} has {many} fixtures: at most {FIXTURES_MAX}", folder.display()),
        _ => names.sort(),
    }
    Ok(names)
}

async fn run(folder: &Path, name: String, generation: &Arc<LoadedGeneration>, bless: bool) -> anyhow::Result<Tested> {
    let file = folder.join(format!("{name}{REQUEST_SUFFIX}"));
    let in_file = || file.display().to_string();
    let request = read(&file).and_then(|text| Ok(serde_json::from_str::<Request>(&text)?)).with_context(in_file)?;
    let provider = RecordedProvider::new(request.answers.clone()).with_context(in_file)?;
    let came = match sample(request, generation).with_context(in_file)?.events() {
        Err(refused) => Came { refused: Some(refused), reads: Vec::new(), events: Vec::new() },
        Ok(events) => {
            let (reads, outcomes) = rehearsal::rehearse(generation, &events, provider).await;
            Came { refused: None, reads, events: outcomes.iter().map(wire::Outcome::from).collect() }
        }
    };
    let came = format!("{}\n", serde_json::to_string_pretty(&came)?);
    let expected_file = folder.join(format!("{name}{EXPECTED_SUFFIX}"));
    let expected = if expected_file.exists() { read(&expected_file)? } else { String::new() };
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

fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    if bytes > FIXTURE_BYTES_MAX {
        bail!("{} has {bytes} bytes: at most {FIXTURE_BYTES_MAX}", file.display());
    }
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// The request that a fixture describes.
fn sample(request: Request, generation: &LoadedGeneration) -> anyhow::Result<Sample<'_>> {
    let manifest = generation.manifest();
    let route: &Route = match (&request.route, &manifest.routes[..]) {
        (None, [only]) => only,
        (None, _) => bail!("the pack has several routes: say which with `route`"),
        (Some(name), routes) => routes
            .iter()
            .find(|route| route.path.as_str() == name)
            .with_context(|| format!("pack.toml declares no route `{name}`"))?,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    let body = match (request.body, request.body_text) {
        (Some(json), None) => {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Bytes::from(json.get().to_owned())
        }
        (None, Some(text)) => Bytes::from(text),
        _ => bail!("say what is sent with `body` (JSON) or with `body_text`, one of them"),
    };
    Ok(Sample {
        namespace: "test".parse()?,
        pack: manifest.name.clone(),
        generation: generation.number(),
        route,
        headers,
        body,
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
    text.push_str(&format!("{same} of {} fixtures of {} are the same\n", report.fixtures.len(), report.pack));
    text
}
