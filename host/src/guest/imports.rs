//! What a guest can ask of the host, whatever version of the contract it asks by (`contract`).
//!
//! Invariants:
//! - Nothing here does I/O, and nothing answers differently to a second attempt of the same event (GST-5).
//! - A log line carries what the guest wrote and where it comes from; the host adds no byte of the event.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::limits::MemoryLimits;
use crate::model::event::Event;
use crate::model::failure::FAILURE_TEXT_BYTES_MAX;
use crate::model::message::DueAction;
use crate::model::pack::{GenerationNumber, Manifest, Reader};
use crate::model::time::Timestamp;

/// The export that is called: each has a randomness of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// `flow.prepare`.
    Prepare,
    /// `flow.encode-read`.
    EncodeRead,
    /// `flow.decode-read`.
    DecodeRead,
    /// `flow.run`.
    Run,
    /// `flow.apply`.
    Apply,
}

impl Entry {
    /// Its name in the contract.
    const fn as_str(self) -> &'static str {
        match self {
            Entry::Prepare => "prepare",
            Entry::EncodeRead => "encode-read",
            Entry::DecodeRead => "decode-read",
            Entry::Run => "run",
            Entry::Apply => "apply",
        }
    }
}

/// Everything that one call has: it lives and dies with the call's store.
pub(super) struct CallState {
    pub(super) memory: MemoryLimits,
    pub(super) panic: Option<String>,
    /// Whether log lines are dropped.
    pub(super) muted: bool,
    origin: Origin,
    manifest: Arc<Manifest>,
    now: Timestamp,
    random: Draws,
    log: LogBudget,
}

/// Where a log line comes from.
struct Origin {
    generation: String,
    event: String,
    call: &'static str,
}

impl CallState {
    /// The state of a call that begins.
    pub(super) fn for_call(manifest: &Arc<Manifest>, event: &Event, entry: Entry) -> Self {
        let origin = Origin {
            generation: super::describe(&event.pack, event.generation),
            event: event.id.to_string(),
            call: entry.as_str(),
        };
        let generation = event.generation.0;
        let random = Draws { event: *event.id.as_bytes(), generation, call: entry.as_str(), drawn: 0 };
        Self::new(manifest, origin, event.received_at, random)
    }

    /// The state of a call for many events: its randomness is decided by what is asked, and its log lines name the
    /// reader.
    pub(super) fn for_read(
        manifest: &Arc<Manifest>,
        number: GenerationNumber,
        reader: &Reader,
        keys: &[String],
        now: Timestamp,
        entry: Entry,
    ) -> Self {
        let origin = Origin {
            generation: super::describe(&manifest.name, number),
            event: format!("reader {}", reader.name),
            call: entry.as_str(),
        };
        let mut digest = Sha256::new().chain_update(reader.name.as_str());
        for key in keys {
            digest.update([0]);
            digest.update(key);
        }
        let mut asked = [0; 16];
        asked.copy_from_slice(&digest.finalize()[..16]);
        let random = Draws { event: asked, generation: number.0, call: entry.as_str(), drawn: 0 };
        Self::new(manifest, origin, now, random)
    }

    /// The state of a call that applies an action: its time is when the action was due, and its randomness the action's
    /// own.
    pub(super) fn for_action(manifest: &Arc<Manifest>, event: &Event, action: &DueAction) -> Self {
        let of_event = Self::for_call(manifest, event, Entry::Apply);
        let random = Draws { event: *action.id.as_bytes(), ..of_event.random };
        Self { now: action.due_at, random, ..of_event }
    }

    /// The state of an instance that is made to see whether it can be made, and never called.
    pub(super) fn for_trial(manifest: &Arc<Manifest>) -> Self {
        let origin = Origin { generation: manifest.name.to_string(), event: String::new(), call: "load" };
        let random = Draws { event: [0; 16], generation: 0, call: origin.call, drawn: 0 };
        Self::new(manifest, origin, Timestamp::default(), random)
    }

    fn new(manifest: &Arc<Manifest>, origin: Origin, now: Timestamp, random: Draws) -> Self {
        Self {
            memory: MemoryLimits::new(manifest.limits.memory_bytes),
            panic: None,
            muted: false,
            origin,
            now,
            random,
            log: LogBudget { bytes_left: manifest.limits.log_bytes, lines_cut: 0, bytes_cut: 0 },
            manifest: Arc::clone(manifest),
        }
    }

    /// Says once what the log's bound kept out.
    pub(super) fn report_cut_lines(&self) {
        if self.log.lines_cut > 0 && !self.muted {
            let Origin { generation, event, call } = &self.origin;
            let (lines, bytes) = (self.log.lines_cut, self.log.bytes_cut);
            tracing::warn!(target: "guest", generation, event, call, lines, bytes, "log lines were cut");
        }
    }
}

/// How much a line of the guest's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What the guest's imports come down to.
impl CallState {
    /// Writes a line to the host's log, as far as the call's bound goes.
    pub(super) fn write_line(&mut self, level: LogLevel, message: &str) {
        let Some(line) = self.log.admit(message) else { return };
        if self.muted {
            return;
        }
        let Origin { generation, event, call } = &self.origin;
        match level {
            LogLevel::Trace => tracing::trace!(target: "guest", generation, event, call, "{line}"),
            LogLevel::Debug => tracing::debug!(target: "guest", generation, event, call, "{line}"),
            LogLevel::Info => tracing::info!(target: "guest", generation, event, call, "{line}"),
            LogLevel::Warn => tracing::warn!(target: "guest", generation, event, call, "{line}"),
            LogLevel::Error => tracing::error!(target: "guest", generation, event, call, "{line}"),
        }
    }

    /// The pack's setting of this name.
    pub(super) fn setting(&self, name: &str) -> Option<String> {
        self.manifest.settings.get(name).cloned()
    }

    /// The time, which stands still.
    pub(super) fn time(&self) -> Timestamp {
        self.now
    }

    /// The next of the call's random numbers.
    pub(super) fn draw(&mut self) -> u64 {
        self.random.next()
    }

    /// Keeps what a guest says before it ends.
    pub(super) fn note_panic(&mut self, mut message: String) {
        message.truncate(message.floor_char_boundary(FAILURE_TEXT_BYTES_MAX));
        self.panic = Some(message);
    }
}

/// Log text that may still be written, and what was kept out.
struct LogBudget {
    bytes_left: u64,
    lines_cut: u64,
    bytes_cut: u64,
}

impl LogBudget {
    /// As much of a line as may still be written; none if that is nothing.
    fn admit<'line>(&mut self, line: &'line str) -> Option<&'line str> {
        let left = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        if left == 0 {
            self.lines_cut += 1;
            self.bytes_cut += line.len() as u64;
            return None;
        }
        let kept = line.floor_char_boundary(left.min(line.len()));
        let cut = line.len() - kept;
        // An empty line fills the host's log like any other: it costs a byte.
        self.bytes_left -= kept.max(usize::from(line.is_empty())) as u64;
        if cut == 0 {
            return Some(line);
        }
        self.lines_cut += 1;
        self.bytes_cut += cut as u64;
        (kept > 0).then_some(&line[..kept])
    }
}

/// A sequence of numbers that event, generation and entry decide: SHA-256 over a counter, which no library's next
/// version changes.
struct Draws {
    event: [u8; 16],
    generation: u32,
    call: &'static str,
    drawn: u64,
}

impl Draws {
    fn next(&mut self) -> u64 {
        let block = Sha256::new()
            .chain_update(self.event)
            .chain_update(self.generation.to_be_bytes())
            .chain_update(self.drawn.to_be_bytes())
            .chain_update(self.call)
            .finalize();
        self.drawn += 1;
        let mut number = [0; 8];
        number.copy_from_slice(&block[..8]);
        u64::from_be_bytes(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // GST-3
    #[test]
    fn log_text_over_the_bound_is_cut_at_a_character_and_counted() {
        let mut budget = LogBudget { bytes_left: 8, lines_cut: 0, bytes_cut: 0 };
        assert_eq!(budget.admit("abcde"), Some("abcde"));
        assert_eq!(budget.admit("xyä"), Some("xy"));
        assert_eq!(budget.admit("ü"), None);
        assert_eq!(budget.admit("z"), Some("z"));
        assert_eq!(budget.admit("more"), None);
        assert_eq!(budget.admit(""), None);
        assert_eq!((budget.lines_cut, budget.bytes_cut), (4, 2 + 2 + 4));
    }

    // GST-3
    #[test]
    fn empty_lines_are_not_free() {
        let mut budget = LogBudget { bytes_left: 2, lines_cut: 0, bytes_cut: 0 };
        let written = (0..10).filter(|_| budget.admit("").is_some()).count();
        assert_eq!((written, budget.lines_cut), (2, 8));
    }
}
