//! The table of all keys: what each may be set to, and what it means. Files, environment variables, flags and the
//! reference all go by it.

use std::net::SocketAddr;

use toml::Value;

use crate::model::message::MESSAGE_BYTES_MAX;

/// A key of the configuration.
#[derive(Debug)]
pub(super) struct Key {
    /// Its full name; [`NAME_PART`] stands for the name of a destination or a reader's address.
    pub(super) path: &'static str,
    /// What it may be set to.
    pub(super) kind: Kind,
    /// What it means, in Markdown.
    pub(super) meaning: &'static str,
}

/// The part of a path that an operator chooses.
pub(super) const NAME_PART: &str = "NAME";

/// What every environment variable of the host begins with.
pub(super) const VARIABLE_PREFIX: &str = "FOREBAY_";

/// Variables that are no keys: what they are for.
pub(super) const OTHER_VARIABLES: [(&str, &str); 4] = [
    ("FOREBAY_CONFIG", "The configuration file, where `--config` is not given."),
    ("FOREBAY_LOG", "A log filter by module (`forebay=info,forebay::timeline=debug`); overrides `log.level`."),
    ("FOREBAY_ADMIN_URL", "The running host that commands talk to, where `--admin` is not given."),
    ("FOREBAY_GUEST_TARGET_DIR", "Where `forebay pack build` compiles, where `--target-directory` is not given."),
];

/// What a key may be set to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A whole number within these bounds.
    Number {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// `true` or `false`.
    Switch,
    /// A text.
    Text,
    /// An address and port to listen on.
    Address,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts; in an environment variable separated by commas.
    List,
}

const DAY_MS: u32 = 86_400_000;
const HOUR_SECONDS: u32 = 3_600;

const fn number(path: &'static str, min: u32, max: u32, meaning: &'static str) -> Key {
    Key { path, kind: Kind::Number { min, max }, meaning }
}

const fn key(path: &'static str, kind: Kind, meaning: &'static str) -> Key {
    Key { path, kind, meaning }
}

/// Every key, in the order of the reference.
pub(super) const KEYS: &[Key] = &[
    key(
        "namespaces",
        Kind::List,
        "The tenants. Each has its own ways in, `/in/{namespace}/{route}`, and its own secrets.",
    ),
    key("intake.listen", Kind::Address, "Where providers deliver."),
    number(
        "intake.requests_max",
        1,
        65_536,
        "Requests in flight. The next one is answered `503` at once. Twice as many connections are served, each with a file \
         descriptor: if there are not so many, the host does not start.",
    ),
    number("intake.bytes_max_mib", 1, 65_536, "Bodies in flight, together. What goes over is answered `503` at once."),
    number("intake.body_max_mib", 1, 256, "The largest body. A larger one is answered `413`."),
    number(
        "intake.deadline_ms",
        100,
        300_000,
        "From the end of a request's head to its answer. The head itself may take 20 s.",
    ),
    key(
        "intake.public_url",
        Kind::Text,
        "The address that providers deliver to, `https://hooks.example.com`, with no path behind it unless a proxy takes one \
         away. Needed by routes whose signatures cover it (HubSpot); what a request says of its host is not believed.",
    ),
    key("admin.listen", Kind::Address, "Where operators ask: health, metrics, the API."),
    key(
        "admin.token",
        Kind::Text,
        "The bearer token that the admin listener asks for, at least 16 characters. Needed, here or as `admin.token_file`, \
         unless the listener is on loopback.",
    ),
    key("admin.token_file", Kind::Text, "A file whose first line is the token, instead of `admin.token`."),
    number(
        "inbound.workers_per_pack",
        0,
        1_024,
        "Executors of each pack: events of it that are worked off at once. More than the default are allowed, and logged as \
         unsafe. With 0 this host takes deliveries in and leaves it to others on the same database to work them off, or to \
         itself once it is started with more.",
    ),
    number(
        "inbound.max_processing_rows",
        1,
        65_536,
        "Rows of one pack that may be `processing` at once, over all hosts that share its database. Hosts that count at the \
         same moment may together exceed it, by what each but one of them then claims. Not set, each host has its own \
         limit, three times `inbound.workers_per_pack`: one for each worker, and two whose outcome is being recorded.",
    ),
    key(
        "inbound.queue_profile",
        Kind::Word(&["reserved", "default-heavy"]),
        "How the workers of a pack are divided if it admits `bulk` events beside others. `reserved`: a quarter for \
         interactive and default work only, a quarter for bulk only, the rest for all, the oldest first. `default-heavy`: a \
         quarter for interactive and default work only, a quarter for all with bulk first, the rest for all, the oldest \
         first.",
    ),
    number(
        "inbound.bodies_max_mib",
        1,
        65_536,
        "Bodies of each pack's events in memory at once. What goes over waits, under its claim; a larger body has all of it for \
         itself.",
    ),
    key("inbound.stage_timing", Kind::Switch, "Whether the stage times of every event are logged, at level `debug`."),
    number(
        "inbound.lease_seconds",
        2,
        HOUR_SECONDS,
        "How long a claim lasts unless it is renewed: what a dead host's work waits. At least 5 s more than `flow.deadline_ms`.",
    ),
    number(
        "inbound.retry_initial_ms",
        1,
        DAY_MS,
        "The ceiling of the delay after the first failure; it doubles with each further one.",
    ),
    number("inbound.retry_max_ms", 1, DAY_MS, "The ceiling of every delay after a failure."),
    number("inbound.failures_max", 1, 1_000, "The failure with this number is the last: the WorkItem is `dead`."),
    number(
        "flow.deadline_ms",
        10,
        600_000,
        "Wall time of one flow, `prepare` and `run` together. A pack may ask for less, not for more.",
    ),
    key(
        "database.url",
        Kind::Text,
        "The database that many hosts share, on a server that speaks the MySQL protocol: \
         `mysql://user:password@host:port/database`. Not set, the database is a file in the data directory, for this host \
         alone. Holds a password: prefer the variable to the file.",
    ),
    number("store.shards", 1, 64, "Delay Shards. Fixed at the first start of a data directory."),
    number("store.queue_requests_max", 1, 1_000_000, "Requests that may wait for the writer. More are answered `503`."),
    number("store.queue_max_mib", 1, 65_536, "Bodies that may wait for the writer, together. More are answered `503`."),
    number("store.readers", 1, 64, "Connections for reading."),
    number("store.read_timeout_ms", 10, 300_000, "How long a read may wait for a connection."),
    number(
        "timeline.lease_seconds",
        2,
        HOUR_SECONDS,
        "How long the ownership of a shard lasts unless it is renewed: what a dead host's messages wait.",
    ),
    number("timeline.poll_ms", 10, 60_000, "The longest pause between two looks for new messages when nothing calls."),
    number(
        "timeline.claimed_max",
        2,
        65_536,
        "Messages that one shard may have claimed at once, half of them for one destination at the most. At least twice every \
         `in_flight_messages`.",
    ),
    number(
        "timeline.memory_mib",
        8,
        65_536,
        "Caches and write buffers of all shards together. What waits in a shard's queues fits into its part, or the host does \
         not start.",
    ),
    key(
        "timeline.namespace_weights",
        Kind::List,
        "Shares of outbound service, `namespace=weight` with a weight from 1 to 1,000 (`acme=4`); every other tenant's is 1. A \
         tenant's share is the same over however many destinations and keys it sends.",
    ),
    number(
        "timeline.clock_uncertainty_max_ms",
        5,
        60_000,
        "How uncertain the clock may be. While it is more so, nothing is published.",
    ),
    number(
        "checkpoints.every_seconds",
        0,
        86_400,
        "How often a checkpoint of each shard is made, while anything changes in it: a copy of its index, for an owner that \
         finds none of its own. `0`: only when an operator asks (`forebay shard checkpoint`).",
    ),
    number("checkpoints.kept", 1, 16, "How many checkpoints of a shard are kept."),
    key(
        "checkpoints.folder",
        Kind::Text,
        "The folder that checkpoints are kept in; not set, `checkpoints` in the data directory. Hosts that share a database \
         find one another's only if they share the folder as well.",
    ),
    key(
        "checkpoints.bucket",
        Kind::Text,
        "A bucket of an object store that speaks S3, instead of a folder. Give it a rule that ends uploads which were begun \
         and not finished.",
    ),
    key("checkpoints.prefix", Kind::Text, "What the names of all objects in the bucket begin with."),
    key("checkpoints.region", Kind::Text, "The bucket's region."),
    key(
        "checkpoints.endpoint",
        Kind::Text,
        "Where the object store is, if it is not Amazon's: `https://s3.example.com:9000`.",
    ),
    key("checkpoints.access_key_id", Kind::Text, "Who asks for the bucket's objects. Needed for a bucket."),
    key(
        "checkpoints.secret_access_key",
        Kind::Text,
        "The secret that belongs to it. Needed for a bucket; prefer the variable to the file.",
    ),
    key(
        "checkpoints.ca_file",
        Kind::Text,
        "A PEM file of certificate authorities whose word is taken for the object store, beside those that browsers trust.",
    ),
    number(
        "publish.in_flight_max",
        2,
        65_536,
        "Messages between claim and outcome at once, over all destinations, of which one destination has half at the most. \
         At least twice every `in_flight_messages`. An eighth is for destinations that have nothing under way.",
    ),
    number(
        "publish.in_flight_mib",
        1,
        65_536,
        "Bodies and headers of these messages at once, in memory, of which one destination has half at the most. A message \
         that is larger than all of it goes alone.",
    ),
    number("publish.response_max_kib", 1, 65_536, "The most of a response that is read."),
    key(
        "publish.allow_networks",
        Kind::List,
        "Networks in CIDR notation that may be called although they are not public (`10.20.0.0/16`). All other private, \
         loopback, link-local and reserved addresses are refused when dialled.",
    ),
    key(
        "publish.ca_file",
        Kind::Text,
        "A PEM file of certificate authorities whose word is taken for destinations, beside those that browsers trust.",
    ),
    number("publish.idle_connections_max", 0, 1_024, "Idle connections kept for one destination."),
    number("publish.idle_timeout_seconds", 1, HOUR_SECONDS, "How long an idle connection is kept."),
    number("guest.instances_max", 1, 4_096, "Guest instances that may live at once; further calls wait."),
    number("guest.memory_max_mib", 1, 4_096, "The most memory that a pack may ask for."),
    number(
        "guest.fuel_max_millions",
        1,
        1_000_000,
        "The most fuel that a pack may ask for, in millions of units; a unit is about an instruction.",
    ),
    number("guest.output_max_kib", 1, MESSAGE_BYTES_MAX >> 10, "The most output of one call that a pack may ask for."),
    number("guest.messages_max", 0, 1_024, "The most messages of one call that a pack may ask for."),
    number("guest.log_max_kib", 0, 1_024, "The most log text of one call that a pack may ask for."),
    number("guest.compilations_max", 1, 64, "Packs that may be compiled at once."),
    number(
        "guest.compilation_max_seconds",
        1,
        HOUR_SECONDS,
        "How long compiling one pack may take; one that takes longer is refused. What was compiled before is not compiled again.",
    ),
    key(
        "log.format",
        Kind::Word(&["text", "json"]),
        "Lines for people, or one JSON object a line. Logs go to standard error.",
    ),
    key("log.level", Kind::Word(&["error", "warn", "info", "debug", "trace"]), "The least level that is logged."),
    number(
        "shutdown.timeout_seconds",
        1,
        HOUR_SECONDS,
        "From SIGTERM to the exit. What is not finished by then is left to be reclaimed; nothing is lost.",
    ),
    key(
        "destinations.NAME.url",
        Kind::Text,
        "Where its messages are posted: `http` or `https`, without user and password. Required.",
    ),
    key(
        "destinations.NAME.secret",
        Kind::Text,
        "The name of the secret that its messages are signed with (Standard Webhooks). Without one they are not signed.",
    ),
    number(
        "destinations.NAME.deadline_ms",
        100,
        300_000,
        "One attempt: lookup, connection, TLS, request and response together.",
    ),
    number(
        "destinations.NAME.retry_initial_ms",
        1,
        DAY_MS,
        "The ceiling of the delay after the first failed attempt; it doubles with each further one.",
    ),
    number("destinations.NAME.retry_max_ms", 1, DAY_MS, "The ceiling of every delay after a failed attempt."),
    number(
        "destinations.NAME.attempts_max",
        1,
        1_000,
        "The failed attempt with this number is the last: the message is `dead`.",
    ),
    key(
        "destinations.NAME.uncertain",
        Kind::Word(&["retry", "hold", "end"]),
        "What to do when nobody knows whether an attempt arrived: `retry` with the same idempotency key, `hold` for an \
         operator, or `end` the message as `dead`.",
    ),
    key(
        "destinations.NAME.retry_statuses",
        Kind::List,
        "Answers after which a message is tried again although they would end it: `[\"401\", \"404\"]`. Any from 300 to 499 but \
         410, which pauses the lane. What is never right costs each message all of its attempts.",
    ),
    number(
        "destinations.NAME.in_flight_messages",
        1,
        32_768,
        "Messages of one of its lanes that may be under way at once. At most half of `publish.in_flight_max` and of \
         `timeline.claimed_max`, which is what all lanes of one destination have together.",
    ),
    number(
        "destinations.NAME.in_flight_mib",
        1,
        65_536,
        "Bytes of one of its lanes that may be under way at once. At most half of `publish.in_flight_mib`, which is what all \
         lanes of one destination have together; a message that is larger goes alone.",
    ),
    key(
        "destinations.NAME.ordering",
        Kind::Word(&["none", "exact", "hashed"]),
        "Which of its messages keep their order: `none`, those of one ordering key with a lane for each key (`exact`), or with \
         `destinations.NAME.ordering_domains` lanes for all keys (`hashed`). Of an ordered lane one message is under way at a \
         time, and one that is retried or uncertain holds those behind it. A change has every index built again.",
    ),
    number(
        "destinations.NAME.ordering_domains",
        1,
        4_096,
        "The lanes that all ordering keys of one tenant share, where `destinations.NAME.ordering` is `hashed`.",
    ),
    number("destinations.NAME.weight", 1, 1_000, "Its share beside other destinations."),
    key("readers.NAME.pack", Kind::Text, "The pack whose readers are meant."),
    key("readers.NAME.reader", Kind::Text, "The reader; all of the pack's if it is not set."),
    key(
        "readers.NAME.origin",
        Kind::Text,
        "Scheme, host and port, and a path that goes before the reader's own: `https://api.eu.example.com`. The guest's choice \
         of a host no longer counts.",
    ),
];

impl Key {
    /// The environment variable that sets it; `None` where a part of its path is an operator's own name.
    pub(super) fn variable(&self) -> Option<String> {
        let named = self.path.split('.').any(|part| part == NAME_PART);
        (!named).then(|| format!("{VARIABLE_PREFIX}{}", self.path.replace('.', "_").to_uppercase()))
    }

    /// The unit that its name ends with.
    pub(super) fn unit(&self) -> Option<&'static str> {
        [("_ms", "ms"), ("_seconds", "s"), ("_kib", "KiB"), ("_mib", "MiB")]
            .into_iter()
            .find_map(|(ending, unit)| self.path.ends_with(ending).then_some(unit))
    }

    /// Whether `path`, as written in a file, is this key.
    fn matches(&self, path: &str) -> bool {
        let mut ours = self.path.split('.');
        let mut theirs = path.split('.');
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(our), Some(their)) if our == their || our == NAME_PART => {}
                _ => return false,
            }
        }
    }
}

/// The key that `path` names.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.matches(path))
}

impl Kind {
    /// Whether `value` is of this kind; if not, what was expected. The value itself is not repeated.
    pub(super) fn accept(self, value: &Value) -> Result<(), String> {
        let fits = match self {
            Kind::Number { min, max } => {
                value.as_integer().is_some_and(|number| (i64::from(min)..=i64::from(max)).contains(&number))
            }
            Kind::Switch => value.is_bool(),
            Kind::Text => value.as_str().is_some_and(|text| !text.is_empty()),
            Kind::Address => value.as_str().is_some_and(|text| text.parse::<SocketAddr>().is_ok()),
            Kind::Word(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Kind::List => value.as_array().is_some_and(|items| items.iter().all(Value::is_str)),
        };
        if fits { Ok(()) } else { Err(self.expectation()) }
    }

    /// Reads the text of an environment variable or a flag.
    pub(super) fn read(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Number { .. } => text.trim().parse().ok().map(Value::Integer),
            Kind::Switch => text.trim().parse().ok().map(Value::Boolean),
            Kind::Text => Some(Value::String(text.to_owned())),
            Kind::Address | Kind::Word(_) => Some(Value::String(text.trim().to_owned())),
            Kind::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
            }
        };
        let value = value.ok_or_else(|| self.expectation())?;
        self.accept(&value).map(|()| value)
    }

    /// What is expected, for an error message.
    fn expectation(self) -> String {
        match self {
            Kind::Number { min, max } => format!("must be a whole number from {min} to {max}"),
            Kind::Switch => "must be true or false".to_owned(),
            Kind::Text => "must be a text that is not empty".to_owned(),
            Kind::Address => "must be an address and a port, like 127.0.0.1:8080 or [::1]:8080".to_owned(),
            Kind::Word(words) => format!("must be one of {}", words.join(", ")),
            Kind::List => "must be a list of texts".to_owned(),
        }
    }
}
