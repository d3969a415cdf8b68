//! The pack: what a connector declares of itself. A manifest is parsed and checked in `guest`; from here on it is
//! right.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::HeaderName;
use http::uri::Authority;

use super::handshake::Handshake;
use super::names::{DestinationName, PackName, ReaderName, RouteName, SecretName};
use super::queue::{QueueClass, QueueClasses};
use super::verification::Verification;

/// One installed, immutable version of a pack: 1 for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationNumber(pub u32);

impl fmt::Display for GenerationNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a pack declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The pack's name.
    pub name: PackName,
    /// Its author's version, for people.
    pub version: String,
    /// The host interfaces that the component may import.
    pub imports: Vec<ImportName>,
    /// The bounds of each guest call.
    pub limits: GuestLimits,
    /// The ways in.
    pub routes: Vec<Route>,
    /// What its flows may read records with.
    pub readers: Vec<Reader>,
    /// The destinations that its flows may emit to.
    pub destinations: Vec<DestinationName>,
    /// Settings that the guest reads through the `config` import.
    pub settings: BTreeMap<String, String>,
}

impl Manifest {
    /// The queue classes that its routes give.
    pub fn queue_classes(&self) -> QueueClasses {
        self.routes.iter().fold(QueueClasses::NONE, |set, route| set.with(route.queue_class.classes()))
    }
}

/// What a pack reads records with: a provider's batch-read protocol, which the guest writes and reads, and the host
/// calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// Its name, which the guest asks by.
    pub name: ReaderName,
    /// The hosts that may be called, with a port if it is not that of https; the first one unless the guest names
    /// another.
    pub hosts: Vec<Authority>,
    /// How many keys one call may ask for, at least 1.
    pub keys_max: u32,
    /// The longest answer, in bytes.
    pub response_bytes_max: u64,
    /// How long one call may take, within the flow's deadline.
    pub timeout: Option<Duration>,
    /// Statuses beside 2xx that the guest makes sense of.
    pub decoded_statuses: Vec<u16>,
    /// Headers that the host adds, which carry secrets.
    pub secret_headers: Vec<SecretHeader>,
}

/// A header whose value holds a secret of the operator's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// The header.
    pub name: HeaderName,
    /// What stands before the secret, like `Bearer `.
    pub prefix: String,
    /// The secret, of which the newest is sent.
    pub secret: SecretName,
}

impl Manifest {
    /// The reader of this name.
    pub fn reader(&self, name: &str) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.name.as_str() == name)
    }
}

/// A host interface that a component may import, if its manifest declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportName {
    /// Bounded log lines.
    Log,
    /// The pack's settings.
    Config,
    /// The event's time, fixed for a call.
    Clock,
    /// Random bytes seeded from event and generation.
    Random,
}

impl ImportName {
    /// Every import that this host offers.
    pub const ALL: [ImportName; 4] = [ImportName::Log, ImportName::Config, ImportName::Clock, ImportName::Random];

    /// Its name in WIT and in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            ImportName::Log => "log",
            ImportName::Config => "config",
            ImportName::Clock => "clock",
            ImportName::Random => "random",
        }
    }
}

impl fmt::Display for ImportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The bounds of one guest call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestLimits {
    /// Units of computation (about one a wasm instruction).
    pub fuel: u64,
    /// All linear memories together, in bytes.
    pub memory_bytes: u64,
    /// Wall time over prepare, batch read and run together.
    pub deadline: Duration,
    /// Everything that a call returns, in bytes.
    pub output_bytes: u64,
    /// Messages that one `run` may emit.
    pub messages: u32,
    /// Log text of one call, in bytes; what goes over is cut and counted.
    pub log_bytes: u64,
    /// Calls of one generation at once, on one host; further ones wait.
    pub concurrency: u32,
}

impl GuestLimits {
    /// What a manifest gets that says nothing.
    pub const DEFAULT: GuestLimits = GuestLimits {
        fuel: 1_000_000_000,
        memory_bytes: 64 * 1024 * 1024,
        deadline: Duration::from_secs(10),
        output_bytes: 4 * 1024 * 1024,
        messages: 256,
        log_bytes: 64 * 1024,
        concurrency: 1_024,
    };
}

/// A way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The last part of its address, `/in/{namespace}/{path}`.
    pub path: RouteName,
    /// How a request proves where it comes from.
    pub verification: Verification,
    /// Where its events are, if a request carries many.
    pub event_list: Option<EventList>,
    /// Where the delivery's own key is; without one, every request is a delivery of its own.
    pub delivery_key: Option<KeyRule>,
    /// Where the key of the object it is about is; needed if events are ordered by source, or are its projection.
    pub source_key: Option<KeyRule>,
    /// What order its events are worked off in.
    pub ordering: Ordering,
    /// Whether later events of a source make earlier ones superfluous.
    pub coalescing: Coalescing,
    /// What a failing head does to its lane.
    pub failed_head: FailedHeadPolicy,
    /// Which queue class its events are of.
    pub queue_class: QueueClassRule,
    /// The request headers that are stored and shown to the guest.
    pub keep_headers: Vec<HeaderName>,
    /// What the provider wants to hear once its delivery is durable.
    pub answer: Answer,
    /// How the provider makes sure of the address before it delivers there, if it does.
    pub handshake: Option<Handshake>,
}

/// Where the events are in a request that carries many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventList {
    /// An RFC 6901 pointer into the JSON body, at an array; empty if the body is the array.
    pub pointer: String,
    /// How many events a request may carry.
    pub events_max: u32,
}

/// Where a key is found in a request, or in one of the events that it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// A header's value.
    Header(HeaderName),
    /// An RFC 6901 pointer into the JSON body, at a string or a number; if a request carries many events, into each of
    /// them.
    Pointer(String),
    /// As several of these, all of which must be there: what one of them alone does not tell apart.
    Pointers(Vec<String>),
    /// The body as a whole, by its hash: for providers that name deliveries nowhere and repeat them byte for byte.
    Body,
}

/// How an event gets its queue class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueClassRule {
    /// All have this one.
    Fixed(QueueClass),
    /// By a value in the request.
    ByValue {
        /// Where the value is.
        place: KeyRule,
        /// The class of each value.
        classes: BTreeMap<String, QueueClass>,
        /// The class of any other value, and where there is none.
        otherwise: QueueClass,
    },
}

impl QueueClassRule {
    /// What a manifest gets that says nothing.
    pub const DEFAULT: QueueClassRule = QueueClassRule::Fixed(QueueClass::Default);

    /// The classes that it gives.
    pub fn classes(&self) -> QueueClasses {
        match self {
            QueueClassRule::Fixed(class) => QueueClasses::of(&[*class]),
            QueueClassRule::ByValue { classes, otherwise, .. } => classes
                .values()
                .fold(QueueClasses::of(&[*otherwise]), |set, class| set.with(QueueClasses::of(&[*class]))),
        }
    }
}

/// The order in which a route's events are worked off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// None: each event on its own.
    None,
    /// Those of one source key one after another, in order of arrival.
    Source,
    /// All of the route one after another, in order of arrival; and if it has source keys, also behind those of its
    /// source that came in by other routes.
    Delivery,
}

/// Whether later events make earlier ones superfluous that still wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coalescing {
    /// No: each event is worked off.
    None,
    /// Yes, of the same source: whoever ends one goes on with the latest, and those between are superseded.
    LatestBySource,
    /// Yes: the events of a source are its projection. One stands for it, at most one more is queued to follow, and
    /// each that comes supersedes the queued one.
    SourceProjection,
}

/// What a head that does not succeed does to the items behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedHeadPolicy {
    /// While it is tried again.
    pub retrying: HeadPolicy,
    /// Once it is dead.
    pub dead: HeadPolicy,
}

impl FailedHeadPolicy {
    /// Order is kept while there is hope.
    pub const DEFAULT: FailedHeadPolicy = FailedHeadPolicy { retrying: HeadPolicy::Block, dead: HeadPolicy::Skip };
}

/// Whether the items behind a failed head wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadPolicy {
    /// They wait.
    Block,
    /// They pass it.
    Skip,
}

/// What is answered once a delivery is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `202` with the receipt as JSON.
    Receipt,
    /// Exactly this status, with an empty body.
    Empty(http::StatusCode),
}
