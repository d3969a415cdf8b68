//! A guest that misbehaves on demand: the body of the event, like `{"do":"loop"}`, selects how.

use std::hint::black_box;
use std::time::Duration;

use forebay_sdk::{
    Action, Connector, DueAction, Event, Failure, HttpRequest, HttpResponse, Message, Output, Prepared, Read, Reading,
    clock, log, random,
};
use serde::{Deserialize, Serialize};

struct Hostile;

forebay_sdk::export!(Hostile);

/// The misbehaviour: `prepare_*` in `prepare`, the others in `run`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Deed {
    PrepareLoop,
    PreparePanic {
        message: String,
    },
    PrepareRead {
        keys: Vec<String>,
    },
    PrepareReadOf {
        reader: String,
        keys: Vec<String>,
    },
    PrepareState {
        bytes: usize,
    },
    Loop,
    Allocate,
    AllocateCarefully,
    Panic {
        message: String,
    },
    Return {
        bytes: usize,
    },
    Log {
        lines: u32,
        bytes: usize,
    },
    Abort,
    Recurse,
    Reject {
        reason: String,
    },
    Invalid {
        reason: String,
    },
    Retry {
        delay_ms: Option<u64>,
        reason: String,
    },
    Other {
        reason: String,
    },
    Emit {
        count: u32,
        destination: String,
    },
    EmitFields {
        content_type: String,
        header: String,
        value: String,
    },
    EmitLater {
        after_ms: u64,
        at_ms: i64,
        expire_at_ms: i64,
    },
    Act {
        #[serde(default)]
        after_ms: u64,
        #[serde(default)]
        key: Option<String>,
        /// The deed of the action.
        #[serde(default)]
        deed: Option<Box<Deed>>,
    },
    /// Fails before this attempt.
    Until {
        attempt: u32,
    },
    Note {
        text: String,
    },
    Draw,
    TellReadings,
}

/// The reader that the manifest declares.
const READER: &str = "records";

impl Connector for Hostile {
    type State = Deed;

    fn prepare(event: &Event) -> Result<Prepared<Deed>, Failure> {
        match event.json()? {
            Deed::PrepareLoop => spin(),
            Deed::PreparePanic { message } => panic!("{message}"),
            Deed::PrepareRead { keys } => {
                Ok(Prepared::run(Deed::TellReadings).reading(Read { reader: READER.to_owned(), keys }))
            }
            Deed::PrepareReadOf { reader, keys } => {
                Ok(Prepared::run(Deed::TellReadings).reading(Read { reader, keys }))
            }
            Deed::PrepareState { bytes } => Ok(Prepared::run(Deed::Note { text: "x".repeat(bytes) })),
            deed => Ok(Prepared::run(deed)),
        }
    }

    /// A key selects the mistake in the request.
    fn encode_read(reader: &str, keys: &[String]) -> Result<HttpRequest, Failure> {
        let request = HttpRequest::post_json("/records", &keys)?;
        match keys.iter().find_map(|key| key.strip_prefix("encode-")) {
            None => Ok(request),
            Some("loop") => spin(),
            Some("panic") => panic!("{reader} cannot be encoded"),
            Some("reject") => Err(Failure::reject("this key has no request")),
            Some("host") => Ok(request.header("host", "elsewhere.example")),
            Some("secret") => Ok(request.header("authorization", "Bearer mine")),
            Some("trace") => Ok(HttpRequest { method: "TRACE".to_owned(), ..request }),
            Some("path") => Ok(HttpRequest { path: "http://127.0.0.1/".to_owned(), ..request }),
            Some("large") => Ok(HttpRequest { body: vec![b'x'; 10 * 1024 * 1024], ..request }),
            Some(other) => Err(Failure::reject(format!("no such deed: {other}"))),
        }
    }

    /// A key selects the mistake in the records.
    fn decode_read(_: &str, keys: &[String], response: &HttpResponse) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        match keys.iter().find_map(|key| key.strip_prefix("decode-")) {
            Some("loop") => spin(),
            Some("panic") => panic!("cannot be decoded"),
            Some("abort") => std::process::abort(),
            Some("retry") => return Err(Failure::retry_after(Duration::from_secs(7), "the provider asked for it")),
            Some("twice") => {
                return Ok(keys.iter().chain(keys).map(|key| (key.clone(), b"x".to_vec())).collect());
            }
            Some("strangers") => {
                let strangers = (0..100).map(|n| (format!("stranger-{n}"), b"x".to_vec()));
                return Ok(keys.iter().map(|key| (key.clone(), b"own".to_vec())).chain(strangers).collect());
            }
            Some("large") => return Ok(keys.iter().map(|key| (key.clone(), vec![b'x'; 1024 * 1024])).collect()),
            Some(_) | None => {}
        }
        let records: std::collections::BTreeMap<String, String> = response.json()?;
        Ok(records.into_iter().map(|(key, value)| (key, value.into_bytes())).collect())
    }

    fn run(event: &Event, deed: Deed, readings: &[Reading]) -> Result<Output, Failure> {
        deed.perform(event.attempt, readings)
    }

    fn apply(action: &DueAction) -> Result<Output, Failure> {
        action.json::<Deed>()?.perform(action.attempt, &[])
    }
}

impl Deed {
    fn perform(self, attempt: u32, readings: &[Reading]) -> Result<Output, Failure> {
        let message = || Message::new("sink", "text/plain", "hello");
        match self {
            Deed::PrepareLoop
            | Deed::PreparePanic { .. }
            | Deed::PrepareRead { .. }
            | Deed::PrepareReadOf { .. }
            | Deed::PrepareState { .. } => Err(Failure::reject("this is done in prepare")),
            Deed::TellReadings => {
                let told = |reading: &Reading| match &reading.value {
                    Some(value) => format!("{}={}", reading.key, String::from_utf8_lossy(value)),
                    None => format!("{} is not there", reading.key),
                };
                Ok(Output::new().note(readings.iter().map(told).collect::<Vec<_>>().join(", ")))
            }
            Deed::Loop => spin(),
            Deed::Allocate => allocate(),
            Deed::AllocateCarefully => allocate_carefully(),
            Deed::Panic { message } => panic!("{message}"),
            Deed::Return { bytes } => Ok(Output::new().message(Message::new("sink", "text/plain", vec![b'x'; bytes]))),
            Deed::Log { lines, bytes } => {
                let line = "x".repeat(bytes);
                (0..lines).for_each(|_| log::info(&line));
                Ok(Output::new().note("logged"))
            }
            Deed::Abort => std::process::abort(),
            Deed::Recurse => Ok(Output::new().note(format!("depth {}", recurse(0)))),
            Deed::Reject { reason } => Err(Failure::reject(reason)),
            Deed::Invalid { reason } => Err(Failure::invalid_input(reason)),
            Deed::Retry { delay_ms, reason } => {
                Err(Failure::Retry { delay: delay_ms.map(Duration::from_millis), reason })
            }
            Deed::Other { reason } => Err(Failure::Other(reason)),
            Deed::Emit { count, destination } => {
                let one = |_| Message::new(destination.as_str(), "text/plain", "hello");
                Ok(Output { messages: (0..count).map(one).collect(), ..Output::new() })
            }
            Deed::EmitFields { content_type, header, value } => {
                Ok(Output::new().message(Message { content_type, ..message() }.header(header, value)))
            }
            Deed::EmitLater { after_ms, at_ms, expire_at_ms } => Ok(Output::new()
                .message(message().after(Duration::from_millis(after_ms)))
                .message(message().at(forebay_sdk::Timestamp::from_millis(at_ms)))
                .message(message().expire_at(forebay_sdk::Timestamp::from_millis(expire_at_ms)))),
            Deed::Act { after_ms, key, deed } => {
                let deed = deed.map_or_else(|| Deed::Note { text: "applied".to_owned() }, |deed| *deed);
                let action = Action::json("later", &deed)?.after(Duration::from_millis(after_ms));
                Ok(Output::new().action(Action { idempotency_key: key, ..action }))
            }
            Deed::Until { attempt: wanted } if attempt < wanted => Err(Failure::Other(format!("attempt {attempt}"))),
            Deed::Until { .. } => Ok(Output::new().note(format!("attempt {attempt}"))),
            Deed::Note { text } => Ok(Output::new().note(text)),
            Deed::Draw => {
                let (time, first, second) = (clock::now().as_millis(), random::next(), random::next());
                Ok(Output::new().note(format!("{time} {first} {second}")))
            }
        }
    }
}

// Not inlined, so that a backtrace names it.
#[inline(never)]
fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn allocate() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1024 * 1024]));
    }
}

/// Allocates memory that may be refused, and continues without it.
fn allocate_carefully() -> Result<Output, Failure> {
    let mut kept = Vec::<u8>::new();
    match kept.try_reserve_exact(1 << 30) {
        Ok(()) => Ok(Output::new().note("was given a gigabyte")),
        Err(_) => Ok(Output::new().note("went on without")),
    }
}

fn recurse(depth: u64) -> u64 {
    let deeper = black_box(recurse as fn(u64) -> u64);
    deeper(black_box(depth + 1)).wrapping_add(black_box(depth))
}
