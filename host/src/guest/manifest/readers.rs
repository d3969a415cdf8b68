//! The readers of a manifest: which hosts are called for records, and what the host adds to the requests.

use std::time::Duration;

use http::HeaderName;
use http::uri::Authority;

use super::section::{Section, Value};
use super::unique;
use crate::guest::LoadError;
use crate::model::names::ReaderName;
use crate::model::pack::{Reader, SecretHeader};

const READERS_MAX: usize = 16;
const HOSTS_MAX: usize = 16;
const KEYS_MAX: u64 = 1_000;
const SECRET_HEADERS_MAX: usize = 8;
const PREFIX_BYTES_MAX: usize = 64;
const STATUSES_MAX: usize = 16;
const TIMEOUT_MS_MAX: u64 = 300_000;
const RESPONSE_KIB_MAX: u64 = 16 * 1_024;
const RESPONSE_KIB_DEFAULT: u64 = 1_024;
const KIB: u64 = 1_024;

const READER_KEYS: [&str; 7] =
    ["name", "hosts", "max_keys", "response_kib", "timeout_ms", "decoded_statuses", "secret_headers"];

pub(super) fn read(value: Value<'_>) -> Result<Vec<Reader>, LoadError> {
    let mut readers: Vec<Reader> = Vec::new();
    for entry in value.list(READERS_MAX)? {
        let mut table = entry.section(&READER_KEYS)?;
        let name: ReaderName = table.required("name", "\"contacts\"")?.parse()?;
        if readers.iter().any(|other| other.name == name) {
            return Err(table.error(&format!("the reader `{name}` is declared twice: rename or remove one")));
        }
        readers.push(reader(name, table)?);
    }
    Ok(readers)
}

fn reader(name: ReaderName, mut table: Section<'_>) -> Result<Reader, LoadError> {
    let hosts = table.required("hosts", "[\"api.example.com\"]")?;
    let none = hosts.error("is empty: a reader needs a host that it may call");
    let hosts = unique(Some(hosts), HOSTS_MAX, host)?;
    if hosts.is_empty() {
        return Err(none);
    }
    let keys_max = table.required("max_keys", "100")?.integer(1..=KEYS_MAX, "")?;
    let response_kib = match table.optional("response_kib") {
        None => RESPONSE_KIB_DEFAULT,
        Some(response) => response.integer(1..=RESPONSE_KIB_MAX, " KiB")?,
    };
    let timeout = table.optional("timeout_ms").map(|timeout| timeout.integer(1..=TIMEOUT_MS_MAX, " ms")).transpose()?;
    let decoded_statuses = unique(table.optional("decoded_statuses"), STATUSES_MAX, |status| {
        // What is no success and still an answer; the rest is retried, or redirects.
        status.integer(400..=499, "").map(|status| u16::try_from(status).unwrap_or(u16::MAX))
    })?;
    let secret_headers = table.optional("secret_headers").map_or(Ok(Vec::new()), secret_headers)?;
    Ok(Reader {
        name,
        hosts,
        keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX),
        response_bytes_max: response_kib * KIB,
        timeout: timeout.map(Duration::from_millis),
        decoded_statuses,
        secret_headers,
    })
}

/// `name` or `name:port`, called over https.
fn host(value: &Value<'_>) -> Result<Authority, LoadError> {
    let text = value.text()?;
    let wrong =
        || value.error("must hold host names like `api.example.com`, with a port if it is not 443, and no scheme");
    let authority: Authority = text.parse().map_err(|_| wrong())?;
    let right = !text.contains('@') && !authority.host().is_empty() && text == text.to_ascii_lowercase();
    if right { Ok(authority) } else { Err(wrong()) }
}

fn secret_headers(value: Value<'_>) -> Result<Vec<SecretHeader>, LoadError> {
    let mut headers: Vec<SecretHeader> = Vec::new();
    for entry in value.list(SECRET_HEADERS_MAX)? {
        let mut table = entry.section(&["header", "secret", "prefix"])?;
        let header = table.required("header", "\"authorization\"")?;
        let name: HeaderName = header.parse()?;
        if headers.iter().any(|other| other.name == name) {
            return Err(header.error(&format!("is `{name}` twice")));
        }
        let secret = table.required("secret", "\"api-token\"")?.parse()?;
        let prefix = match table.optional("prefix") {
            None => String::new(),
            Some(prefix) => prefix_text(&prefix)?,
        };
        headers.push(SecretHeader { name, prefix, secret });
    }
    Ok(headers)
}

fn prefix_text(value: &Value<'_>) -> Result<String, LoadError> {
    let text = value.text()?;
    let right = text.len() <= PREFIX_BYTES_MAX && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if right { Ok(text.to_owned()) } else { Err(value.error("must be at most 64 printable ASCII characters")) }
}
