//! The fixtures of a pack: requests of a provider, as files next to its manifest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::guest::ReadResponse;
use crate::model::pack::{Manifest, Route};

/// The folder with the fixtures, next to the manifest.
pub(super) const FOLDER: &str = "fixtures";
/// End of the name of a request's file.
pub(super) const REQUEST_SUFFIX: &str = ".request.json";
/// End of the name of the file with the expected result.
pub(super) const EXPECTED_SUFFIX: &str = ".expected.json";
/// The most fixtures of a pack.
const FIXTURES_MAX: usize = 1_000;
/// The largest file of a fixture.
const FIXTURE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A request, unsigned.
#[derive(Debug)]
pub(super) struct Fixture<'m> {
    /// The route.
    pub(super) route: &'m Route,
    /// Its headers.
    pub(super) headers: HeaderMap,
    /// Its body, byte for byte.
    pub(super) body: Bytes,
    /// Answers to the pack's readers, by reader and call.
    pub(super) answers: BTreeMap<String, Vec<RecordedAnswer>>,
}

/// The answer of a provider to a call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedAnswer {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    body_text: Option<String>,
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

impl RecordedAnswer {
    /// The answer in the form for readers.
    pub(super) fn response(self) -> anyhow::Result<ReadResponse> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
        }
        let body = match (self.body, self.body_text) {
            (Some(json), None) => Bytes::from(json.get().to_owned()),
            (None, text) => Bytes::from(text.unwrap_or_default()),
            (Some(_), Some(_)) => anyhow::bail!("an answer has a `body` (JSON) or a `body_text`, not both"),
        };
        Ok(ReadResponse { status: StatusCode::from_u16(self.status)?, headers, body })
    }
}

/// The names of the fixtures in this folder, sorted.
pub(super) fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("{}: the folder of the fixtures, NAME{REQUEST_SUFFIX}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let file = entry?.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(REQUEST_SUFFIX)).map(str::to_owned));
    }
    match names.len() {
        0 => bail!("{} has no fixture: create NAME{REQUEST_SUFFIX}", folder.display()),
        many if many > FIXTURES_MAX => bail!("{} has {many} fixtures: at most {FIXTURES_MAX}", folder.display()),
        _ => names.sort(),
    }
    Ok(names)
}

/// Reads the fixture of this name, for a pack with this manifest.
pub(super) fn read<'m>(folder: &Path, name: &str, manifest: &'m Manifest) -> anyhow::Result<Fixture<'m>> {
    let file = request_file(folder, name);
    read_text(&file).and_then(|text| parse(&text, manifest)).with_context(|| file.display().to_string())
}

/// The file of a fixture's request.
fn request_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{REQUEST_SUFFIX}"))
}

/// Reads a file of a fixture.
pub(super) fn read_text(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    if bytes > FIXTURE_BYTES_MAX {
        bail!("{} has {bytes} bytes: at most {FIXTURE_BYTES_MAX}", file.display());
    }
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

fn parse<'m>(text: &str, manifest: &'m Manifest) -> anyhow::Result<Fixture<'m>> {
    let request: Request = serde_json::from_str(text)?;
    let route: &Route = match (&request.route, &manifest.routes[..]) {
        (None, [only]) => only,
        (None, _) => bail!("the pack has several routes: name one with `route`"),
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
        _ => bail!("give either `body` (JSON) or `body_text`"),
    };
    Ok(Fixture { route, headers, body, answers: request.answers })
}
