//! The fixtures of the example packs, as a provider would send them.

use std::collections::BTreeMap;

use anyhow::Context;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::paths;

/// A request that a provider sends, and what the pack says comes of it.
#[derive(Debug)]
pub struct Fixture {
    /// Its name, for a failed test.
    pub name: String,
    /// The route; none, if the pack has only one.
    pub route: Option<String>,
    /// The headers, but for the signature.
    pub headers: BTreeMap<String, String>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// What comes of it: `refused`, or `events`.
    pub expected: Value,
}

/// Every fixture of an example pack, in order of name.
pub fn of(pack: &str) -> anyhow::Result<Vec<Fixture>> {
    let folder = paths::root().join("guest-examples").join(pack).join("fixtures");
    let mut fixtures = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let file = path.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        let Some(name) = file.strip_suffix(".request.json") else { continue };
        let expected = std::fs::read(folder.join(format!("{name}.expected.json")))?;
        fixtures.push(read(name, &std::fs::read(&path)?, &expected).with_context(|| path.display().to_string())?);
    }
    fixtures.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(fixtures)
}

fn read(name: &str, request: &[u8], expected: &[u8]) -> anyhow::Result<Fixture> {
    let parts: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(request)?;
    let part = |part: &str| parts.get(part).map(|value| value.get());
    let body = match (part("body"), part("body_text")) {
        (Some(json), None) => Bytes::from(json.to_owned()),
        (None, text) => Bytes::from(serde_json::from_str::<String>(text.context("a body")?)?),
        (Some(_), Some(_)) => anyhow::bail!("two bodies"),
    };
    let mut headers: BTreeMap<String, String> = part("headers").map_or(Ok(BTreeMap::new()), serde_json::from_str)?;
    headers.entry("content-type".to_owned()).or_insert_with(|| "application/json".to_owned());
    Ok(Fixture {
        name: name.to_owned(),
        route: part("route").map(serde_json::from_str).transpose()?,
        headers,
        body,
        expected: serde_json::from_slice(expected)?,
    })
}
