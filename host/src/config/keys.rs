//! The table of all keys: what each may be set to, and what it means. Files, environment variables, flags and the
//! reference all go by it.

use std::net::SocketAddr;

use toml::Value;

use crate::model::message::MESSAGE_BYTES_MAX;
use crate::model::retention::EVENTS_DAYS_MIN;

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
    ("FOREBAY_CONFIG", "The configuration file, if `--config` is not given."),
    ("FOREBAY_LOG", "A log filter by module (`forebay=info,forebay::timeline=debug`); overrides `log.level`."),
    ("FOREBAY_ADMIN_URL", "The running host that commands talk to, if `--admin` is not given."),
    ("FOREBAY_GUEST_TARGET_DIR", "The build folder of `forebay pack build`, if `--target-directory` is not given."),
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
const CENTURY_DAYS: u32 = 36_525;

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
        "The tenants. Each has its own addresses, `/in/{namespace}/{route}`, and its own secrets.",
    ),
    key("intake.listen", Kind::Address, "The listener for deliveries."),
    number(
        "intake.requests_max",
        1,
        65_536,
        "Concurrent requests. Further ones are answered `503` at once. The host serves twice as many connections, \
         each with a file descriptor, and does not start if there are not enough.",
    ),
    number(
        "intake.bytes_max_mib",
        1,
        65_536,
        "Bodies of concurrent requests, together. Requests beyond it are answered `503` at once.",
    ),
    number("intake.body_max_mib", 1, 256, "The largest body. A larger one is answered `413`."),
    number(
        "intake.deadline_ms",
        100,
        300_000,
        "Time from the end of a request's head to its answer. The head itself may take 20 s.",
    ),
    key(
        "intake.public_url",
        Kind::Text,
        "The address that providers deliver to, `https://hooks.example.com`, without a path unless a proxy removes \
         one. Required by routes whose signatures cover the address (HubSpot); the host that a request names is not \
         trusted.",
    ),
    key("admin.listen", Kind::Address, "The listener for operators: health, metrics, the API."),
    key(
        "admin.token",
        Kind::Text,
        "The bearer token of the admin listener, at least 16 characters. Required, here or as `admin.token_file`, \
         unless the listener is on loopback.",
    ),
    key("admin.token_file", Kind::Text, "A file whose first line is the token, instead of `admin.token`."),
    number(
        "inbound.workers_per_pack",
        0,
        1_024,
        "Workers of each pack: its concurrent flows. A value above the default is allowed, and logged as unsafe. \
         With 0 this host only takes deliveries in; other hosts over the same database work them off, or this one \
         after a start with more workers.",
    ),
    number(
        "inbound.max_processing_rows",
        1,
        65_536,
        "Rows of one pack that may be `processing` at once, over all hosts that share its database. Hosts that count \
         at the same moment may together exceed it by one claim for each host but one. If not set, each host has its \
         own limit, three times `inbound.workers_per_pack`: one row per worker, and two whose outcome is being \
         recorded.",
    ),
    key(
        "inbound.queue_profile",
        Kind::Word(&["reserved", "default-heavy"]),
        "How the workers of a pack are divided if it admits `bulk` events among others. `reserved`: a quarter for \
         interactive and default work only, a quarter for bulk only, the rest for all, oldest first. \
         `default-heavy`: a quarter for interactive and default work only, a quarter for all with bulk first, the \
         rest for all, oldest first.",
    ),
    number(
        "inbound.bodies_max_mib",
        1,
        65_536,
        "Bodies of each pack's events in memory at once. An event beyond it waits under its lease; a body that is \
         larger than all of it is loaded alone.",
    ),
    key("inbound.stage_timing", Kind::Switch, "Whether the stage times of every event are logged, at level `debug`."),
    number(
        "inbound.lease_seconds",
        2,
        HOUR_SECONDS,
        "Lease of a claim, unless it is renewed. The work of a dead host is taken over after it. At least 5 s more \
         than `flow.deadline_ms`.",
    ),
    number(
        "inbound.retry_initial_ms",
        1,
        DAY_MS,
        "Upper bound of the delay after the first failure; it doubles with each further failure.",
    ),
    number("inbound.retry_max_ms", 1, DAY_MS, "Upper bound of every delay after a failure."),
    number("inbound.failures_max", 1, 1_000, "Failures after which a work item is `dead`."),
    number(
        "flow.deadline_ms",
        10,
        600_000,
        "Wall time of one flow: `prepare`, reads and `run` together. A pack may ask for less, not for more.",
    ),
    key(
        "database.url",
        Kind::Text,
        "The database that hosts share, on a server that speaks the MySQL protocol: \
         `mysql://user:password@host:port/database`. If not set, the database is a file in the data directory, for \
         this host alone. It contains a password: prefer the variable to the file.",
    ),
    number("store.shards", 1, 64, "Delay Shards. Fixed at the first start of a data directory."),
    number(
        "store.queue_requests_max",
        1,
        1_000_000,
        "Requests that may wait for the writer. Further ones are answered `503`.",
    ),
    number(
        "store.queue_max_mib",
        1,
        65_536,
        "Bodies that may wait for the writer, together. Requests beyond it are answered `503`.",
    ),
    number("store.readers", 1, 64, "Connections for reading."),
    number("store.read_timeout_ms", 10, 300_000, "How long a read may wait for a connection."),
    number(
        "timeline.lease_seconds",
        2,
        HOUR_SECONDS,
        "Lease of a shard, unless it is renewed. The messages of a dead host are taken over after it.",
    ),
    number("timeline.poll_ms", 10, 60_000, "Longest pause between two checks for new messages without a notification."),
    number(
        "timeline.claimed_max",
        2,
        65_536,
        "Messages that one shard may have claimed at once, at most half of them for one destination. At least twice \
         every `in_flight_messages`.",
    ),
    number(
        "timeline.memory_mib",
        8,
        65_536,
        "Caches and write buffers of all shards together. The host does not start if the queues of a shard do not \
         fit into its part.",
    ),
    key(
        "timeline.namespace_weights",
        Kind::List,
        "Shares of outbound service, `namespace=weight` with a weight from 1 to 1,000 (`acme=4`); other tenants have \
         1. A tenant's share does not depend on how many destinations and ordering keys it sends to.",
    ),
    number(
        "timeline.clock_uncertainty_max_ms",
        5,
        60_000,
        "Largest uncertainty of the clock at which messages are published.",
    ),
    number(
        "checkpoints.every_seconds",
        0,
        86_400,
        "Time between checkpoints of a shard, while anything changes in it. A checkpoint is a copy of its index, for \
         an owner that has none. `0`: only when an operator asks (`forebay shard checkpoint`).",
    ),
    number("checkpoints.kept", 1, 16, "Checkpoints of a shard that are kept."),
    key(
        "checkpoints.folder",
        Kind::Text,
        "The folder for checkpoints; by default `checkpoints` in the data directory. Hosts that share a database \
         find each other's checkpoints only if they share the folder too.",
    ),
    key(
        "checkpoints.bucket",
        Kind::Text,
        "A bucket of an object store that speaks S3, instead of a folder. Give it a rule that removes unfinished \
         uploads.",
    ),
    key("checkpoints.prefix", Kind::Text, "Prefix of the names of all objects in the bucket."),
    key("checkpoints.region", Kind::Text, "Region of the bucket."),
    key(
        "checkpoints.endpoint",
        Kind::Text,
        "Address of the object store, if it is not Amazon's: `https://s3.example.com:9000`.",
    ),
    key("checkpoints.access_key_id", Kind::Text, "Access key ID of the bucket. Required with `checkpoints.bucket`."),
    key(
        "checkpoints.secret_access_key",
        Kind::Text,
        "Secret access key of the bucket. Required with `checkpoints.bucket`; prefer the variable to the file.",
    ),
    key(
        "checkpoints.ca_file",
        Kind::Text,
        "A PEM file of certificate authorities that are trusted for the object store, in addition to the public \
         ones.",
    ),
    number(
        "publish.in_flight_max",
        2,
        65_536,
        "Messages between claim and outcome at once, over all destinations, at most half of them for one \
         destination, and an eighth only for destinations that have nothing in flight. At least twice every \
         `in_flight_messages`.",
    ),
    number(
        "publish.in_flight_mib",
        1,
        65_536,
        "Bodies and headers of these messages in memory at once, shared in the same way. A message that is larger \
         than all of it is sent alone.",
    ),
    number("publish.response_max_kib", 1, 65_536, "Bytes of a response that are read at most."),
    key(
        "publish.allow_networks",
        Kind::List,
        "Networks in CIDR notation that may be called although they are not public (`10.20.0.0/16`). All other \
         private, loopback, link-local and reserved addresses are refused when dialled.",
    ),
    key(
        "publish.ca_file",
        Kind::Text,
        "A PEM file of certificate authorities that are trusted for destinations, in addition to the public ones.",
    ),
    number("publish.idle_connections_max", 0, 1_024, "Idle connections that are kept for one destination."),
    number("publish.idle_timeout_seconds", 1, HOUR_SECONDS, "How long an idle connection is kept."),
    number(
        "retention.events_days",
        EVENTS_DAYS_MIN,
        CENTURY_DAYS,
        "Days that an event is kept after its work has ended. So long are repeated deliveries recognized by it.",
    ),
    number(
        "retention.messages_days",
        1,
        CENTURY_DAYS,
        "Days that a message is kept after its end. So long does an action's `idempotency_key` hold.",
    ),
    number(
        "retention.failed_days",
        0,
        CENTURY_DAYS,
        "Days that dead messages and events with dead work items are kept; at least 7. `0`: until an operator acts.",
    ),
    number(
        "retention.start_after_seconds",
        0,
        86_400,
        "How long the clock must have gone evenly, since a start or since it was set, before anything is removed.",
    ),
    number("guest.instances_max", 1, 4_096, "Concurrent guest instances; further calls wait."),
    number("guest.memory_max_mib", 1, 4_096, "The most memory that a pack may ask for."),
    number(
        "guest.fuel_max_millions",
        1,
        1_000_000,
        "The most fuel that a pack may ask for, in millions of units; a unit is about an instruction.",
    ),
    number("guest.output_max_kib", 1, MESSAGE_BYTES_MAX >> 10, "The most output per call that a pack may ask for."),
    number("guest.messages_max", 0, 1_024, "The most messages per call that a pack may ask for."),
    number("guest.log_max_kib", 0, 1_024, "The most log text per call that a pack may ask for."),
    number("guest.compilations_max", 1, 64, "Packs that may be compiled at once."),
    number(
        "guest.compilation_max_seconds",
        1,
        HOUR_SECONDS,
        "How long compiling one pack may take; a pack that takes longer is refused. Compiled packs are cached.",
    ),
    key(
        "log.format",
        Kind::Word(&["text", "json"]),
        "Lines for people, or one JSON object per line. Logs go to standard error.",
    ),
    key(
        "log.level",
        Kind::Word(&["error", "warn", "info", "debug", "trace"]),
        "The least severe level that is logged.",
    ),
    number(
        "shutdown.timeout_seconds",
        1,
        HOUR_SECONDS,
        "Time from SIGTERM to the exit. Work that is not finished by then is reclaimed later; nothing is lost.",
    ),
    key(
        "destinations.NAME.url",
        Kind::Text,
        "The address that messages are posted to: `http` or `https`, without user and password. Required.",
    ),
    key(
        "destinations.NAME.secret",
        Kind::Text,
        "The name of the secret that signs its messages (Standard Webhooks). Without a secret they are not signed.",
    ),
    number(
        "destinations.NAME.deadline_ms",
        100,
        300_000,
        "Time of one attempt: lookup, connection, TLS, request and response together.",
    ),
    number(
        "destinations.NAME.retry_initial_ms",
        1,
        DAY_MS,
        "Upper bound of the delay after the first failed attempt; it doubles with each further failure.",
    ),
    number("destinations.NAME.retry_max_ms", 1, DAY_MS, "Upper bound of every delay after a failed attempt."),
    number("destinations.NAME.attempts_max", 1, 1_000, "Failed attempts after which a message is `dead`."),
    key(
        "destinations.NAME.uncertain",
        Kind::Word(&["retry", "hold", "end"]),
        "What happens after an attempt whose outcome is unknown: `retry` with the same idempotency key, `hold` for \
         an operator, or `end` the message as `dead`.",
    ),
    key(
        "destinations.NAME.retry_statuses",
        Kind::List,
        "Statuses that are retried although they would end the message: `[\"401\", \"404\"]`. From 300 to 499, \
         except 410, which pauses the lane. A destination that always answers so costs each message all of its \
         attempts.",
    ),
    number(
        "destinations.NAME.in_flight_messages",
        1,
        32_768,
        "Messages of one of its lanes in flight at once. At most half of `publish.in_flight_max` and of \
         `timeline.claimed_max`, which all lanes of one destination share.",
    ),
    number(
        "destinations.NAME.in_flight_mib",
        1,
        65_536,
        "Bytes of one of its lanes in flight at once. At most half of `publish.in_flight_mib`, which all lanes of one \
         destination share. A message that is larger is sent alone.",
    ),
    key(
        "destinations.NAME.ordering",
        Kind::Word(&["none", "exact", "hashed"]),
        "Which messages keep their order: `none`; those with the same ordering key, with a lane per key (`exact`); \
         or the same with `destinations.NAME.ordering_domains` lanes for all keys (`hashed`). An ordered lane has \
         one message in flight, and a message that is retried or uncertain holds its successors. A change rebuilds \
         every index.",
    ),
    number(
        "destinations.NAME.ordering_domains",
        1,
        4_096,
        "Lanes that all ordering keys of one tenant share, if `destinations.NAME.ordering` is `hashed`.",
    ),
    number("destinations.NAME.weight", 1, 1_000, "Its share relative to other destinations."),
    key("readers.NAME.pack", Kind::Text, "The pack whose readers are redirected."),
    key("readers.NAME.reader", Kind::Text, "The reader; if not set, all readers of the pack."),
    key(
        "readers.NAME.origin",
        Kind::Text,
        "Scheme, host and port, and a path prefix: `https://api.eu.example.com`. It replaces the host that the guest \
         chooses.",
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
