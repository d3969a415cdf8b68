//! The manifest, `pack.toml`: from text to [`Manifest`], which is right once it exists.
//!
//! Invariants:
//! - Nothing that is written in a manifest is ignored: unknown keys, and keys that have no effect where they stand, are
//!   errors.
//! - Every error names its line and what to write instead.

mod queue_class;
mod readers;
mod section;
#[cfg(test)]
mod tests;
mod verification;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use self::section::{Section, Value};
use super::LoadError;
use crate::model::names::{DestinationName, RouteName};
use crate::model::pack::{
    Answer, Coalescing, EventList, FailedHeadPolicy, GuestLimits, HeadPolicy, ImportName, KeyRule, Manifest, Ordering,
    QueueClassRule, Route,
};
use crate::model::verification::Verification;

/// The longest manifest, in bytes.
pub(super) const MANIFEST_BYTES_MAX: usize = 256 * 1024;

const VERSION_BYTES_MAX: usize = 64;
const ROUTES_MAX: usize = 64;
const DESTINATIONS_MAX: usize = 64;
const SETTINGS_MAX: usize = 256;
const SETTING_BYTES_MAX: usize = 64 * 1024;
const KEEP_HEADERS_MAX: usize = 64;
const POINTER_BYTES_MAX: usize = 1_024;

/// Events that a request may carry if its route does not say: few enough for one short transaction.
const EVENTS_DEFAULT: u32 = 100;
const EVENTS_MAX: u64 = 1_000;

/// About four minutes of one core.
const FUEL_MAX: u64 = 1_000_000_000_000;
const MEMORY_MIB_MAX: u64 = 1_024;
const DEADLINE_MS_MAX: u64 = 300_000;
const OUTPUT_KIB_MAX: u64 = 64 * 1_024;
const MESSAGES_MAX: u64 = 1_024;
const LOG_KIB_MAX: u64 = 1_024;
const CONCURRENCY_MAX: u64 = 1_024;

const KIB: u64 = 1_024;
const MIB: u64 = 1_024 * 1_024;

/// Headers that carry what nobody may store.
const SECRET_HEADERS: [HeaderName; 3] =
    [http::header::AUTHORIZATION, http::header::COOKIE, http::header::PROXY_AUTHORIZATION];

/// The keys that say where a key is, of which a rule has one.
const KEY_PLACES: [&str; 3] = ["header", "pointer", "pointers"];
/// Values that a key may be made of.
const KEY_POINTERS_MAX: usize = 8;

const MANIFEST_KEYS: [&str; 9] =
    ["name", "version", "build", "imports", "limits", "routes", "readers", "destinations", "settings"];
const ROUTE_KEYS: [&str; 13] = [
    "path",
    "verify",
    "secret",
    "event_list",
    "delivery_key",
    "source_key",
    "ordering",
    "coalescing",
    "failed_head",
    "queue_class",
    "keep_headers",
    "answer",
    "handshake",
];

/// A manifest as its author wrote it: what the pack declares, and how `forebay pack build` makes its component.
#[derive(Debug)]
pub(super) struct Authored {
    pub(super) manifest: Manifest,
    pub(super) build: BuildRule,
}

/// How a pack's component is made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuildRule {
    /// By cargo, from the crate in this folder, relative to the manifest's.
    Rust { path: PathBuf },
    /// By componentize-js, from this module, relative to the manifest.
    JavaScript { path: PathBuf },
}

/// Reads a manifest. Unknown keys are errors that name the line and the nearest known key.
pub fn parse_manifest(text: &str) -> Result<Manifest, LoadError> {
    read(text).map(|authored| authored.manifest)
}

/// Reads a manifest with what is of use to its author only.
pub(super) fn read(text: &str) -> Result<Authored, LoadError> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(LoadError(format!("pack.toml has {} bytes: at most {MANIFEST_BYTES_MAX} are allowed", text.len())));
    }
    let mut document = Section::document(text, &MANIFEST_KEYS)?;
    let name = document.required("name", "\"github\"")?.parse()?;
    let version = version(&document.required("version", "\"1.0.0\"")?)?;
    let build = document.optional("build").map_or(Ok(BuildRule::Rust { path: PathBuf::from(".") }), build_rule)?;
    let imports = unique(document.optional("imports"), ImportName::ALL.len(), import)?;
    let limits = document.optional("limits").map_or(Ok(GuestLimits::DEFAULT), limits)?;
    let routes = routes(document.required("routes", "[{ path = \"hooks\", verify = \"plain\" }]")?)?;
    let readers = document.optional("readers").map_or(Ok(Vec::new()), readers::read)?;
    let destinations = unique(document.optional("destinations"), DESTINATIONS_MAX, destination)?;
    let settings = document.optional("settings").map_or(Ok(BTreeMap::new()), settings)?;
    if !settings.is_empty() && !imports.contains(&ImportName::Config) {
        return Err(document.error("`settings` cannot be read without the import: add `imports = [\"config\"]`"));
    }
    let manifest = Manifest { name, version, imports, limits, routes, readers, destinations, settings };
    Ok(Authored { manifest, build })
}

fn destination(value: &Value<'_>) -> Result<DestinationName, LoadError> {
    let name: DestinationName = value.parse()?;
    if name.is_flow() {
        return Err(value.error(&format!("contains `{name}`: a pack's own actions need no destination")));
    }
    Ok(name)
}

/// The version becomes part of a file's name.
fn version(value: &Value<'_>) -> Result<String, LoadError> {
    let text = value.text()?;
    let right = (1..=VERSION_BYTES_MAX).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_'));
    if right { Ok(text.to_owned()) } else { Err(value.error("must be 1 to 64 letters, digits, `.`, `-`, `+` and `_`")) }
}

fn build_rule(value: Value<'_>) -> Result<BuildRule, LoadError> {
    #[derive(Clone, Copy)]
    enum Kind {
        Rust,
        JavaScript,
    }
    let mut table = value.section(&["kind", "path"])?;
    let kind = table.required("kind", "\"rust\"")?;
    let kind = kind.choice(&[("rust", Kind::Rust), ("javascript", Kind::JavaScript)])?;
    let path = table.optional("path").map(|path| path.parse()).transpose()?;
    Ok(match kind {
        Kind::Rust => BuildRule::Rust { path: path.unwrap_or_else(|| PathBuf::from(".")) },
        Kind::JavaScript => BuildRule::JavaScript { path: path.unwrap_or_else(|| PathBuf::from("src/pack.js")) },
    })
}

fn import(value: &Value<'_>) -> Result<ImportName, LoadError> {
    value.choice(&ImportName::ALL.map(|import| (import.as_str(), import)))
}

fn limits(value: Value<'_>) -> Result<GuestLimits, LoadError> {
    let keys = ["fuel", "memory_mib", "deadline_ms", "output_kib", "messages", "log_kib", "concurrency"];
    let mut table = value.section(&keys)?;
    let mut limits = GuestLimits::DEFAULT;
    if let Some(fuel) = table.optional("fuel") {
        limits.fuel = fuel.integer(1..=FUEL_MAX, "")?;
    }
    if let Some(memory) = table.optional("memory_mib") {
        limits.memory_bytes = memory.integer(1..=MEMORY_MIB_MAX, " MiB")? * MIB;
    }
    if let Some(deadline) = table.optional("deadline_ms") {
        limits.deadline = Duration::from_millis(deadline.integer(1..=DEADLINE_MS_MAX, " ms")?);
    }
    if let Some(output) = table.optional("output_kib") {
        limits.output_bytes = output.integer(1..=OUTPUT_KIB_MAX, " KiB")? * KIB;
    }
    if let Some(messages) = table.optional("messages") {
        limits.messages = u32::try_from(messages.integer(0..=MESSAGES_MAX, "")?).unwrap_or(u32::MAX);
    }
    if let Some(log) = table.optional("log_kib") {
        limits.log_bytes = log.integer(0..=LOG_KIB_MAX, " KiB")? * KIB;
    }
    if let Some(concurrency) = table.optional("concurrency") {
        limits.concurrency = u32::try_from(concurrency.integer(1..=CONCURRENCY_MAX, "")?).unwrap_or(u32::MAX);
    }
    Ok(limits)
}

fn settings(value: Value<'_>) -> Result<BTreeMap<String, String>, LoadError> {
    let settings: BTreeMap<_, _> = value.text_by_key(SETTINGS_MAX)?.into_iter().collect();
    let bytes: usize = settings.iter().map(|(key, text)| key.len() + text.len()).sum();
    if bytes > SETTING_BYTES_MAX {
        return Err(LoadError(format!(
            "pack.toml: `settings` has {bytes} bytes: at most {SETTING_BYTES_MAX} are allowed"
        )));
    }
    Ok(settings)
}

fn routes(value: Value<'_>) -> Result<Vec<Route>, LoadError> {
    let mut routes: Vec<Route> = Vec::new();
    for entry in value.list(ROUTES_MAX)? {
        let mut table = entry.section(&ROUTE_KEYS)?;
        let path: RouteName = table.required("path", "\"hooks\"")?.parse()?;
        if routes.iter().any(|other| other.path == path) {
            return Err(table.error(&format!("the route `{path}` is declared twice: rename or remove one")));
        }
        routes.push(route(path, table)?);
    }
    if routes.is_empty() {
        return Err(LoadError(
            "pack.toml: `routes` is empty: a pack needs one way in at least, `[[routes]]`".to_owned(),
        ));
    }
    Ok(routes)
}

fn route(path: RouteName, mut table: Section<'_>) -> Result<Route, LoadError> {
    let verified = verification::read(&mut table)?;
    let delivery_key = match table.optional("delivery_key") {
        Some(rule) if rule.is_text() => Some(rule.choice(&[("body", ())]).map(|()| KeyRule::Body)?),
        Some(rule) => Some(key_rule(rule)?),
        None => verified.preset.as_ref().and_then(|preset| preset.delivery_key.clone()),
    };
    let keep_headers = match table.optional("keep_headers") {
        Some(names) => keep_headers(names, &verified.verification)?,
        None => verified.preset.as_ref().map_or_else(Vec::new, |preset| preset.keep_headers.clone()),
    };
    let event_list = match table.optional("event_list") {
        Some(list) => Some(event_list(list)?),
        None => verified.preset.as_ref().and_then(|preset| preset.event_list.clone()),
    };
    let handshake = match table.optional("handshake") {
        Some(handshake) => Some(verification::handshake(handshake, &verified.verification)?),
        None => verified.preset.as_ref().and_then(|preset| preset.handshake.clone()),
    };
    let queue_class = table.optional("queue_class").map_or(Ok(QueueClassRule::DEFAULT), queue_class::read)?;
    let answer = match table.optional("answer") {
        Some(wanted) => answer(wanted)?,
        None => verified.preset.map_or(Answer::Receipt, |preset| preset.answer),
    };
    let ordering = match table.optional("ordering") {
        None => Ordering::None,
        Some(ordering) => ordering.choice(&[
            ("none", Ordering::None),
            ("source", Ordering::Source),
            ("delivery", Ordering::Delivery),
        ])?,
    };
    let coalescing = coalescing(&mut table, ordering)?;
    let source_key = match (ordering, coalescing) {
        (Ordering::None, Coalescing::SourceProjection) => {
            Some(key_rule(table.required("source_key", "{ pointer = \"/repository/full_name\" }")?)?)
        }
        (Ordering::None, _) => {
            for key in ["source_key", "failed_head"] {
                if let Some(stray) = table.optional(key) {
                    return Err(
                        stray.error("has no effect without order: add `ordering = \"source\"`, or leave it out")
                    );
                }
            }
            None
        }
        (Ordering::Source, _) => {
            Some(key_rule(table.required("source_key", "{ pointer = \"/repository/full_name\" }")?)?)
        }
        (Ordering::Delivery, _) => table.optional("source_key").map(key_rule).transpose()?,
    };
    let failed_head = failed_head(&mut table, coalescing)?;
    let verification = verified.verification;
    Ok(Route {
        path,
        verification,
        event_list,
        delivery_key,
        source_key,
        ordering,
        coalescing,
        failed_head,
        queue_class,
        keep_headers,
        answer,
        handshake,
    })
}

fn coalescing(table: &mut Section<'_>, ordering: Ordering) -> Result<Coalescing, LoadError> {
    let Some(value) = table.optional("coalescing") else { return Ok(Coalescing::None) };
    let coalescing = value.choice(&[
        ("none", Coalescing::None),
        ("latest_by_source", Coalescing::LatestBySource),
        ("source_projection", Coalescing::SourceProjection),
    ])?;
    match (coalescing, ordering) {
        (Coalescing::SourceProjection, Ordering::Source | Ordering::Delivery) => {
            Err(value.error("keeps an order of its own: leave `ordering` out, or make it \"none\""))
        }
        (Coalescing::LatestBySource, Ordering::None | Ordering::Delivery) => {
            Err(value.error("needs the order of sources and no other: add `ordering = \"source\"`, or leave it out"))
        }
        (Coalescing::None, _)
        | (Coalescing::LatestBySource, Ordering::Source)
        | (Coalescing::SourceProjection, Ordering::None) => Ok(coalescing),
    }
}

fn event_list(value: Value<'_>) -> Result<EventList, LoadError> {
    let mut table = value.section(&["pointer", "max"])?;
    let pointer = table.required("pointer", "\"/events\"")?;
    // The one pointer that may be empty: the body itself is the list.
    let pointer = if pointer.text()?.is_empty() { String::new() } else { json_pointer(&pointer)? };
    let events_max = match table.optional("max") {
        None => EVENTS_DEFAULT,
        Some(max) => u32::try_from(max.integer(1..=EVENTS_MAX, "")?).unwrap_or(u32::MAX),
    };
    Ok(EventList { pointer, events_max })
}

fn key_rule(value: Value<'_>) -> Result<KeyRule, LoadError> {
    let mut table = value.section(&KEY_PLACES)?;
    let Some(pointers) = table.optional("pointers") else { return key_place(&mut table) };
    if table.optional("header").or(table.optional("pointer")).is_some() {
        return Err(table.error("a key has one place: leave out either `pointers` or the other one"));
    }
    let few = pointers.error("must name two values at least: for one, write `pointer`");
    let pointers = unique(Some(pointers), KEY_POINTERS_MAX, json_pointer)?;
    if pointers.len() < 2 { Err(few) } else { Ok(KeyRule::Pointers(pointers)) }
}

/// The one place that a table names.
fn key_place(table: &mut Section<'_>) -> Result<KeyRule, LoadError> {
    match (table.optional("header"), table.optional("pointer")) {
        (Some(header), None) => Ok(KeyRule::Header(header.parse()?)),
        (None, Some(pointer)) => Ok(KeyRule::Pointer(json_pointer(&pointer)?)),
        (_, _) => Err(table.error("a key has one place: `{ header = \"x-id\" }` or `{ pointer = \"/id\" }`")),
    }
}

/// RFC 6901, section 3: `/`-separated tokens, in which `~` begins `~0` or `~1`.
fn json_pointer(value: &Value<'_>) -> Result<String, LoadError> {
    let text = value.text()?;
    let escapes_right = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if text.starts_with('/') && text.len() <= POINTER_BYTES_MAX && escapes_right {
        Ok(text.to_owned())
    } else {
        Err(value.error("must be a JSON pointer such as `/data/id`, with `~0` for `~` and `~1` for `/` in a name"))
    }
}

fn keep_headers(value: Value<'_>, verification: &Verification) -> Result<Vec<HeaderName>, LoadError> {
    let token_header = match verification {
        Verification::SharedToken { header, .. } => Some(header),
        Verification::Plain | Verification::Basic { .. } | Verification::Signature { .. } => None,
    };
    unique(Some(value), KEEP_HEADERS_MAX, |entry| {
        let header: HeaderName = entry.parse()?;
        if SECRET_HEADERS.contains(&header) || token_header == Some(&header) {
            return Err(
                entry.error(&format!("cannot contain `{header}`: it carries a secret, and kept headers are stored"))
            );
        }
        Ok(header)
    })
}

fn failed_head(route: &mut Section<'_>, coalescing: Coalescing) -> Result<FailedHeadPolicy, LoadError> {
    let mut policy = FailedHeadPolicy::DEFAULT;
    let Some(value) = route.optional("failed_head") else { return Ok(policy) };
    let mut table = value.section(&["retrying", "dead"])?;
    if let Some(retrying) = table.optional("retrying") {
        policy.retrying = head_policy(&retrying)?;
        if (policy.retrying, coalescing) == (HeadPolicy::Skip, Coalescing::SourceProjection) {
            return Err(retrying.error("cannot be `skip` here: of a projection one at a time is active, until it ends"));
        }
    }
    if let Some(dead) = table.optional("dead") {
        policy.dead = head_policy(&dead)?;
    }
    Ok(policy)
}

fn head_policy(value: &Value<'_>) -> Result<HeadPolicy, LoadError> {
    value.choice(&[("block", HeadPolicy::Block), ("skip", HeadPolicy::Skip)])
}

fn answer(value: Value<'_>) -> Result<Answer, LoadError> {
    if value.is_text() {
        return value.choice(&[("receipt", ())]).map(|()| Answer::Receipt);
    }
    let mut table = value.section(&["status"])?;
    let status = table.required("status", "200")?;
    let number = status.integer(200..=299, "")?;
    let code = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    code.map(Answer::Empty).ok_or_else(|| status.error("is no HTTP status"))
}

/// The entries of a list in which none may stand twice; none if there is no list.
fn unique<T: PartialEq + Display>(
    list: Option<Value<'_>>,
    count_max: usize,
    read: impl Fn(&Value<'_>) -> Result<T, LoadError>,
) -> Result<Vec<T>, LoadError> {
    let mut entries = Vec::new();
    for value in list.map_or(Ok(Vec::new()), |list| list.list(count_max))? {
        let entry = read(&value)?;
        if entries.contains(&entry) {
            return Err(value.error(&format!("contains `{entry}` twice")));
        }
        entries.push(entry);
    }
    Ok(entries)
}
