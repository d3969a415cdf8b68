//! The batch-read protocol as the guest has it: the request that it writes, the records that it reads from an answer,
//! and what an event may ask for. Nothing here calls anybody.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, header};
use tokio::time::Instant;

use super::LoadedGeneration;
use super::call::{Call, within};
use super::contract::returned::{self, Returned};
use super::imports::{CallState, Entry};
use super::output::{bad, failed, within_output_bytes};
use crate::model::failure::{Failure, FailureClass};
use crate::model::pack::{Manifest, Reader};
use crate::model::reading::{ReadWish, Reading, RecordedReads};
use crate::model::time::Timestamp;

/// Keys that one event may ask for, over all readers.
const KEYS_PER_EVENT_MAX: usize = 1_000;
/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 512;
/// What a provider may be asked to do. `TRACE` would bring the secrets that the host puts in back to the guest.
const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// The longest path with its query, in bytes.
const PATH_BYTES_MAX: usize = 16 * 1024;

/// Headers that the host alone sets, beside those that the manifest puts secrets into.
const HOST_HEADERS: [HeaderName; 8] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
];

/// A request as the guest wrote it, checked: it can be sent, and to nowhere that its manifest does not name.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The method.
    pub method: Method,
    /// One of the reader's hosts.
    pub host: Authority,
    /// Path and query.
    pub path: PathAndQuery,
    /// Headers; none of the host's own.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A provider's answer.
#[derive(Debug, Clone)]
pub struct ReadResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What the guest found in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The record of each key that was found.
    pub records: HashMap<String, Bytes>,
    /// Keys with more than one record: which is meant, nobody can know.
    pub ambiguous: BTreeSet<String>,
    /// Records of keys that were not asked for; they are dropped.
    pub unasked: usize,
}

impl LoadedGeneration {
    /// Has the guest write the request that looks up `keys`. `now` is what its clock shows.
    pub async fn encode_read(
        &self,
        reader: &Reader,
        keys: &[String],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<ReadRequest, Failure> {
        let state = CallState::for_read(self.manifest(), self.number(), reader, keys, now, Entry::EncodeRead);
        let mut call = Call::start(self, state, deadline).await?;
        let result = within(deadline, call.connector.encode_read(&mut call.store, reader, keys)).await;
        request(call.finish(self, result)?, reader, self.manifest())
    }

    /// Has the guest read the answer.
    pub async fn decode_read(
        &self,
        reader: &Reader,
        keys: &[String],
        mut response: ReadResponse,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Decoded, Failure> {
        // It may be a credential.
        response.headers.remove(header::SET_COOKIE);
        let state = CallState::for_read(self.manifest(), self.number(), reader, keys, now, Entry::DecodeRead);
        let mut call = Call::start(self, state, deadline).await?;
        let result = within(deadline, call.connector.decode_read(&mut call.store, reader, keys, &response)).await;
        records(call.finish(self, result)?, keys, self.manifest())
    }
}

/// Takes what `prepare` asks for: readers that there are, keys of bounded length and number, each once.
pub(super) fn wishes(reads: Vec<returned::Read>, manifest: &Manifest) -> Result<Vec<ReadWish>, Failure> {
    let asked: usize = reads.iter().map(|read| read.keys.len()).sum();
    if asked > KEYS_PER_EVENT_MAX {
        return Err(bad(format!("asked for {asked} keys: at most {KEYS_PER_EVENT_MAX} are read for one event")));
    }
    let mut wishes: Vec<ReadWish> = Vec::new();
    for read in reads {
        let reader = &known(&read.reader, manifest)?.name;
        let place = match wishes.iter().position(|wish| wish.reader == *reader) {
            Some(place) => place,
            None => {
                wishes.push(ReadWish { reader: reader.clone(), keys: Vec::new() });
                wishes.len() - 1
            }
        };
        for key in read.keys {
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                let bytes = key.len();
                return Err(bad(format!(
                    "asked reader `{reader}` for a key of {bytes} bytes: 1 to {KEY_BYTES_MAX} are allowed"
                )));
            }
            if !wishes[place].keys.contains(&key) {
                wishes[place].keys.push(key);
            }
        }
    }
    wishes.retain(|wish| !wish.keys.is_empty());
    Ok(wishes)
}

fn known<'m>(name: &str, manifest: &'m Manifest) -> Result<&'m Reader, Failure> {
    manifest.reader(name).ok_or_else(|| {
        let declared: Vec<&str> = manifest.readers.iter().map(|reader| reader.name.as_str()).collect();
        let shown: String = name.chars().take(80).collect();
        bad(format!("asked reader `{shown}`, which is not in the manifest's `readers` [{}]", declared.join(", ")))
    })
}

/// Takes the request that `encode-read` returned.
fn request(
    result: Returned<returned::HttpRequest>,
    reader: &Reader,
    manifest: &Manifest,
) -> Result<ReadRequest, Failure> {
    let request = result.map_err(failed)?;
    let headers_bytes: usize = request.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    within_output_bytes(request.path.len() + request.body.len() + headers_bytes, manifest)?;
    let unsendable = |what: &str| bad(format!("the request for reader `{}` {what}", reader.name));
    let method = Method::from_bytes(request.method.as_bytes()).ok().filter(|method| METHODS.contains(method));
    let method = method.ok_or_else(|| unsendable("has another method than GET, HEAD, POST, PUT, PATCH or DELETE"))?;
    let is_path = request.path.starts_with('/') && request.path.len() <= PATH_BYTES_MAX;
    let path = request.path.parse::<PathAndQuery>().ok().filter(|_| is_path);
    let path = path.ok_or_else(|| unsendable("has a path that is none: it begins with `/`, and is escaped"))?;
    if request.headers.len() > HEADERS_MAX {
        return Err(unsendable(&format!("has {} headers: at most {HEADERS_MAX} are sent", request.headers.len())));
    }
    let mut host = reader.hosts.first().cloned().ok_or_else(|| unsendable("has no host"))?;
    let mut headers = HeaderMap::new();
    for given in request.headers {
        let name = HeaderName::from_bytes(given.name.as_bytes())
            .map_err(|_| unsendable("has a header whose name cannot be sent"))?;
        let value = HeaderValue::from_bytes(&given.value)
            .map_err(|_| unsendable(&format!("has a header `{name}` whose value cannot be sent")))?;
        if name == header::HOST {
            host = allowed(&value, reader)?;
        } else if HOST_HEADERS.contains(&name) || reader.secret_headers.iter().any(|secret| secret.name == name) {
            return Err(unsendable(&format!("has the header `{name}`, which is the host's to set")));
        } else {
            headers.append(name, value);
        }
    }
    Ok(ReadRequest { method, host, path, headers, body: Bytes::from(request.body) })
}

fn allowed(wanted: &HeaderValue, reader: &Reader) -> Result<Authority, Failure> {
    let found = reader.hosts.iter().find(|host| host.as_str().as_bytes() == wanted.as_bytes());
    found.cloned().ok_or_else(|| {
        let declared: Vec<&str> = reader.hosts.iter().map(Authority::as_str).collect();
        let shown: String = String::from_utf8_lossy(wanted.as_bytes()).chars().take(80).collect();
        bad(format!(
            "reader `{}` asked for the host `{shown}`, which is not among its `hosts` [{}]",
            reader.name,
            declared.join(", ")
        ))
    })
}

/// Takes the records that `decode-read` returned, and leaves out those that nobody asked for.
fn records(result: Returned<returned::Records>, keys: &[String], manifest: &Manifest) -> Result<Decoded, Failure> {
    let returned = result.map_err(failed)?;
    within_output_bytes(returned.iter().map(|(key, value)| key.len() + value.len()).sum(), manifest)?;
    let asked: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
    let mut decoded = Decoded::default();
    for (key, value) in returned {
        if !asked.contains(key.as_str()) {
            decoded.unasked += 1;
        } else if decoded.ambiguous.contains(&key) || decoded.records.remove(&key).is_some() {
            decoded.ambiguous.insert(key);
        } else {
            decoded.records.insert(key, Bytes::from(value));
        }
    }
    Ok(decoded)
}

/// What a rehearsal reads: what was read when the event was run. Asked for anything else, it cannot go on.
pub(super) fn recorded(wishes: &[ReadWish], reads: &RecordedReads) -> Result<Vec<Reading>, Failure> {
    let missing = |text: String| Failure::new(FailureClass::ReadRefused, text);
    if wishes.is_empty() {
        return Ok(Vec::new());
    }
    let kept = match reads {
        RecordedReads::Kept(kept) => kept,
        RecordedReads::TooLarge { count, bytes } => {
            return Err(missing(format!("its {count} reads were not recorded: their {bytes} bytes are too many")));
        }
    };
    let by_key: BTreeMap<_, _> = kept.iter().map(|reading| ((&reading.reader, &reading.key), reading)).collect();
    let mut readings = Vec::new();
    for wish in wishes {
        for key in &wish.keys {
            let found = by_key.get(&(&wish.reader, key));
            let reading = found.ok_or_else(|| {
                missing(format!("it asks reader `{}` for a key that is not among its recorded reads", wish.reader))
            })?;
            readings.push(Reading::clone(reading));
        }
    }
    Ok(readings)
}
