//! `[destinations.NAME]`: from the file's words to a [`Destination`], and from those of somebody who sets one while
//! hosts run. The rules are the same.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sources::Settings;
use super::units;
use crate::model::destination::{DEFAULT_DEADLINE, DEFAULT_TERMS, DESTINATION_PART, Destination, LaneLimits};
use crate::model::destination_lane::Ordering;
use crate::model::message::UncertainPolicy;
use crate::model::names::{DestinationName, SecretName};
use crate::model::retry::RetryPolicy;
use crate::model::url::{self, UrlError};

/// What all destinations together may have in flight.
#[derive(Debug, Clone, Copy)]
pub struct InFlightMax {
    /// Messages: the smaller one of what publishing and a shard may have.
    pub messages: usize,
    /// Bytes of their bodies and headers.
    pub bytes: usize,
}

/// A destination as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DestinationDocument {
    url: Option<String>,
    secret: Option<String>,
    #[serde(rename = "deadline_ms", with = "units::millis")]
    deadline: Duration,
    #[serde(rename = "retry_initial_ms", with = "units::millis")]
    retry_initial: Duration,
    #[serde(rename = "retry_max_ms", with = "units::millis")]
    retry_max: Duration,
    attempts_max: u32,
    uncertain: UncertainWord,
    retry_statuses: Vec<String>,
    in_flight_messages: u32,
    #[serde(rename = "in_flight_mib", with = "units::mib")]
    in_flight_bytes: usize,
    ordering: OrderingWord,
    ordering_domains: u16,
    weight: u32,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UncertainWord {
    Retry,
    Hold,
    End,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderingWord {
    None,
    Exact,
    Hashed,
}

impl Default for DestinationDocument {
    fn default() -> Self {
        Self {
            url: None,
            secret: None,
            deadline: DEFAULT_DEADLINE,
            retry_initial: DEFAULT_TERMS.retry.initial,
            retry_max: DEFAULT_TERMS.retry.max,
            attempts_max: DEFAULT_TERMS.retry.failures_max,
            uncertain: UncertainWord::Retry,
            retry_statuses: Vec::new(),
            in_flight_messages: DEFAULT_TERMS.limits.messages,
            in_flight_bytes: DEFAULT_TERMS.limits.bytes as usize,
            ordering: OrderingWord::None,
            ordering_domains: 64,
            weight: DEFAULT_TERMS.weight,
        }
    }
}

impl DestinationDocument {
    /// Checks what its keys cannot be checked for one by one. What is wrong is noted in `settings`.
    /// `all` is what all destinations together may have in flight.
    pub(super) fn check(self, name: &str, all: InFlightMax, settings: &mut Settings) -> Option<Destination> {
        let path = |key: &str| format!("destinations.{name}.{key}");
        let parsed_name = DestinationName::configured(name).map_err(|error| {
            settings.refuse(&format!("destinations.{name}"), format_args!("is no destination: {error}"));
        });
        let url = match self.url.as_deref() {
            None => Err("is missing: a destination needs an address".to_owned()),
            Some(text) => parse_url(text),
        };
        let url = url.map_err(|reason| settings.refuse(&path("url"), reason));
        let secret = match self.secret.as_deref().map(str::parse::<SecretName>).transpose() {
            Ok(secret) => Ok(secret),
            Err(_) => {
                let reason = "must be the name of a secret, 1 to 63 of a-z, 0-9, `-` and `_`, not the secret itself";
                settings.refuse(&path("secret"), reason);
                Err(())
            }
        };
        if self.retry_initial > self.retry_max {
            settings.refuse(&path("retry_initial_ms"), "must not be more than `retry_max_ms`");
        }
        let retry_statuses = parse_statuses(&self.retry_statuses)
            .map_err(|text| settings.refuse(&path("retry_statuses"), format_args!("names `{text}`: {RETRY_STATUSES}")));
        if let Err(reason) = check_share(self.in_flight_messages, all.messages) {
            settings.refuse(&path("in_flight_messages"), reason);
        }
        if let Err(reason) = check_byte_share(self.in_flight_bytes, all.bytes) {
            settings.refuse(&path("in_flight_mib"), reason);
        }
        Some(Destination {
            name: parsed_name.ok()?,
            url: url.ok()?,
            secret: secret.ok()?,
            deadline: self.deadline,
            retry: RetryPolicy { initial: self.retry_initial, max: self.retry_max, failures_max: self.attempts_max },
            uncertain: match self.uncertain {
                UncertainWord::Retry => UncertainPolicy::Retry,
                UncertainWord::Hold => UncertainPolicy::Hold,
                UncertainWord::End => UncertainPolicy::End,
            },
            retry_statuses: retry_statuses.ok()?,
            ordering: match self.ordering {
                OrderingWord::None => Ordering::None,
                OrderingWord::Exact => Ordering::Exact,
                OrderingWord::Hashed => Ordering::Hashed { domains: self.ordering_domains },
            },
            limits: LaneLimits { messages: self.in_flight_messages, bytes: self.in_flight_bytes as u64 },
            weight: self.weight,
        })
    }
}

/// Reads a destination that is set while hosts run: the keys of `[destinations.NAME]`, in JSON. `in_flight_max` is what
/// all destinations together may have in flight. If it cannot be used, everything that is wrong with it.
pub fn destination(
    name: &str,
    document: &serde_json::Map<String, serde_json::Value>,
    in_flight_max: InFlightMax,
) -> Result<Destination, Vec<String>> {
    // A name with a dot in it would be taken for a path.
    DestinationName::configured(name).map_err(|error| vec![error.to_string()])?;
    let mut settings = Settings::default();
    for (key, value) in document {
        let path = format!("destinations.{name}.{key}");
        match toml::Value::try_from(value) {
            Ok(value) => settings.add_value(&path, value),
            Err(_) => settings.refuse(&path, "must be a number, a text or a list of texts"),
        }
    }
    let written = std::mem::take(&mut settings.values).remove("destinations");
    let written = written.and_then(|destinations| destinations.get(name).cloned());
    let written = written.unwrap_or_else(|| toml::Value::Table(toml::Table::new()));
    let checked = match DestinationDocument::deserialize(written) {
        Ok(written) => written.check(name, in_flight_max, &mut settings),
        Err(error) => {
            settings.problems.push(error.message().to_owned());
            None
        }
    };
    checked.filter(|_| settings.problems.is_empty()).ok_or(settings.problems)
}

/// Whether a lane may ever have so many messages in flight: its destination has no more than its part of all, whatever
/// its lanes may have (the publisher and the shards see to that). If not, what to do.
fn check_share(messages: u32, in_flight_max: usize) -> Result<(), String> {
    let wanted = messages as usize * DESTINATION_PART;
    if wanted <= in_flight_max {
        return Ok(());
    }
    Err(format!(
        "is {messages}, and must not be more than half of `publish.in_flight_max` and of `timeline.claimed_max`: set it to \
         {} or less, or both of these to {wanted} or more",
        in_flight_max / DESTINATION_PART
    ))
}

/// The same of bytes.
fn check_byte_share(bytes: usize, in_flight_max: usize) -> Result<(), String> {
    let wanted = bytes.saturating_mul(DESTINATION_PART);
    if wanted <= in_flight_max {
        return Ok(());
    }
    Err(format!(
        "is {}, and must not be more than half of `publish.in_flight_mib`: set that to {} or more, or this to less",
        bytes / units::MIB,
        wanted / units::MIB
    ))
}

const RETRY_STATUSES: &str = "only answers from 300 to 499, and not 410, end a message, and can be retried instead";

/// The statuses that are retried instead of ending a message; or the text that is none.
fn parse_statuses(texts: &[String]) -> Result<Vec<u16>, String> {
    let parse = |text: &String| match text.parse() {
        Ok(410) => None,
        Ok(status @ 300..=499) => Some(status),
        Ok(_) | Err(_) => None,
    };
    texts.iter().map(|text| parse(text).ok_or_else(|| text.clone())).collect()
}

fn parse_url(text: &str) -> Result<http::Uri, String> {
    url::parse(text).map_err(|error| match error {
        UrlError::User => format!("{error}: sign with `secret` instead"),
        error => error.to_string(),
    })
}
