//! `forebay destination`: showing destinations, and setting and removing them while hosts run.

use std::fmt::Write;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};

use super::client::{Client, HostArguments, Query};
use super::exit::Failure;
use super::output::{NONE, Table, fields, printable};
use crate::admin::wire::{DestinationOf, DestinationRemoved, DestinationSet, Destinations, PendingMessages};
use crate::config::destination_value;
use crate::model::names::DestinationName;

/// `forebay destination`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the destinations that the host knows
    #[command(after_help = LIST_HELP)]
    List(ListArguments),
    /// Show one destination, with a count of its pending messages
    #[command(after_help = "Example:\n  forebay destination show crm\n\nExit code 3: the destination does not exist.")]
    Show(OneArguments),
    /// Set a destination, or keys of one, for every host on the database, without a restart
    #[command(after_help = SET_HELP)]
    Set(SetArguments),
    /// Remove a destination that was set
    #[command(after_help = REMOVE_HELP)]
    Remove(RemoveArguments),
}

pub(super) const HELP: &str = "\
Examples:
  forebay destination list
  forebay destination set crm url=https://crm.example/hooks secret=crm-signing";

const LIST_HELP: &str = "\
Origins:
  configuration  from the configuration of the host
  set            set by `forebay destination set`, for every host on the database
  removed        removed, with messages that wait until it is set again

Examples:
  forebay destination list
  forebay destination list --json";

const SET_HELP: &str = "\
The keys are those of [destinations.NAME] in a configuration, with the same rules. Keys that are not given stay as they are; \
KEY= without a value sets the default. A destination of the host's configuration is changed there.

Every host sees the change within a second: waiting messages are sent, and the next attempts use the new keys. The secret \
must be a file in the secrets directory of every host.

Examples:
  forebay destination set crm url=https://crm.example/hooks secret=crm-signing
  forebay destination set crm in_flight_messages=8 retry_statuses=401,404
  forebay destination set crm weight=
  forebay destination set crm --version 17 ordering=exact

Exit code 4: the version differs, the destination comes from the configuration, or waiting messages would change order.";

const REMOVE_HELP: &str = "\
Pending messages are never lost: `remove` refuses while there are any, unless --pending wait is given. Then they wait until \
the destination is set again; `forebay message why` shows the reason.

Examples:
  forebay destination remove crm
  forebay destination remove crm --pending wait

Exit code 4: messages are pending, the version differs, or the destination comes from the configuration.";

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct OneArguments {
    /// The destination
    #[arg(value_name = "NAME")]
    name: DestinationName,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct SetArguments {
    #[command(flatten)]
    one: OneArguments,
    /// A key of [destinations.NAME] and its value; a list has commas between its values
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_key)]
    keys: Vec<(String, Value)>,
    /// Set the keys that are not given to their defaults
    #[arg(long)]
    replace: bool,
    /// Change it only if this is its version; 0 means that it does not exist yet
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Change it even if waiting messages then have another order
    #[arg(long)]
    reorder: bool,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    #[command(flatten)]
    one: OneArguments,
    /// Remove it despite pending messages, which wait until it is set again
    #[arg(long, value_name = "wait")]
    pending: Option<PendingWord>,
    /// Remove it only if this is its version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PendingWord {
    Wait,
}

/// `KEY=VALUE`, with the value as the configuration has it. The host checks both.
fn parse_key(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("it must be KEY=VALUE")?;
    Ok((key.to_owned(), destination_value(key, value)))
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(ListArguments { host }) => list(&host).await,
        Verb::Show(OneArguments { name, host }) => show(&name, &host).await,
        Verb::Set(arguments) => set(arguments).await,
        Verb::Remove(arguments) => remove(arguments).await,
    }
}

async fn list(host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.get("/api/v1/destinations").await?;
    answer.show(host, |destinations: Destinations| destination_table(&destinations.items))
}

fn destination_table(destinations: &[DestinationOf]) -> String {
    let mut table = Table::new(["DESTINATION", "ORIGIN", "VERSION", "URL", "ORDERING", "IN FLIGHT", "WEIGHT"]);
    for destination in destinations {
        let settings = destination.settings.as_ref();
        let of = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        table.row([
            &destination.name,
            &destination.origin,
            &of(destination.version.map(|version| version.to_string())),
            &of(settings.map(|settings| settings.url.clone())),
            &of(settings.map(|settings| settings.ordering.clone())),
            &of(settings.map(|settings| settings.in_flight_messages.to_string())),
            &of(settings.map(|settings| settings.weight.to_string())),
        ]);
    }
    let troubles: String = destinations.iter().map(troubles).collect();
    table.render() + &troubles
}

async fn show(name: &DestinationName, host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.get(&format!("/api/v1/destinations/{name}")).await?;
    answer.show(host, |destination: DestinationOf| destination_text(&destination))
}

async fn set(arguments: SetArguments) -> Result<(), Failure> {
    let SetArguments { one: OneArguments { name, host }, keys, replace, version, reorder } = arguments;
    let document: Map<String, Value> = keys.into_iter().collect();
    let query = Query::new(format!("/api/v1/destinations/{name}"))
        .and("reorder", reorder.then_some(true))
        .and("version", version);
    let (client, path) = (Client::new(&host)?, query.as_str());
    let answer = if replace { client.put(path, &document).await? } else { client.patch(path, &document).await? };
    answer.show(&host, |DestinationSet { destination, notes }: DestinationSet| {
        let notes: String = notes.iter().map(|note| format!("note: {}\n", printable(note))).collect();
        destination_text(&destination) + &notes
    })
}

async fn remove(arguments: RemoveArguments) -> Result<(), Failure> {
    let RemoveArguments { one: OneArguments { name, host }, pending, version } = arguments;
    let pending = pending.map(|PendingWord::Wait| "wait");
    let query = Query::new(format!("/api/v1/destinations/{name}")).and("pending", pending).and("version", version);
    let answer = Client::new(&host)?.delete(query.as_str()).await?;
    answer.show(&host, |DestinationRemoved { name, pending, .. }: DestinationRemoved| {
        let waiting = match pending {
            PendingMessages { messages: 0, more: false } => "no message waits for it".to_owned(),
            PendingMessages { messages: 1, more: false } => "1 message waits until it is set again".to_owned(),
            pending => format!("{} wait until it is set again", counted(pending)),
        };
        format!("{name} is removed; {waiting}\n")
    })
}

fn counted(pending: PendingMessages) -> String {
    let PendingMessages { messages, more } = pending;
    format!("{}{messages} messages", if more { "at least " } else { "" })
}

/// A destination as fields.
fn destination_text(destination: &DestinationOf) -> String {
    let mut pairs = vec![
        ("destination", Some(destination.name.clone())),
        ("origin", Some(destination.origin.clone())),
        ("version", destination.version.map(|version| version.to_string())),
    ];
    if let Some(settings) = &destination.settings {
        pairs.extend([
            ("url", Some(settings.url.clone())),
            ("secret", settings.secret.clone()),
            ("deadline_ms", Some(settings.deadline_ms.to_string())),
            ("retry_initial_ms", Some(settings.retry_initial_ms.to_string())),
            ("retry_max_ms", Some(settings.retry_max_ms.to_string())),
            ("attempts_max", Some(settings.attempts_max.to_string())),
            ("uncertain", Some(settings.uncertain.clone())),
            ("retry_statuses", Some(settings.retry_statuses.join(", ")).filter(|list| !list.is_empty())),
            ("in_flight_messages", Some(settings.in_flight_messages.to_string())),
            ("in_flight_mib", Some(settings.in_flight_mib.to_string())),
            ("ordering", Some(settings.ordering.clone())),
            ("ordering_domains", settings.ordering_domains.map(|domains| domains.to_string())),
            ("weight", Some(settings.weight.to_string())),
        ]);
    }
    pairs.extend([
        ("pending", destination.pending.map(counted)),
        ("created", destination.created_at.clone()),
        ("changed", destination.changed_at.clone()),
    ]);
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    fields(&pairs) + &troubles(destination)
}

/// The troubles that the host has with it.
fn troubles(destination: &DestinationOf) -> String {
    let mut text = String::new();
    if let Some(trouble) = &destination.trouble {
        let _ = writeln!(text, "{}: {}", destination.name, printable(trouble));
    }
    for lacking in &destination.lacking {
        let _ = writeln!(text, "{}: {}", destination.name, printable(&lacking.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_as_a_configuration_would_write_them() {
        let read = |text| parse_key(text).map(|(key, value)| json!({ key: value }));
        assert_eq!(read("url=https://a.example/?b=c"), Ok(json!({"url": "https://a.example/?b=c"})));
        assert_eq!(read("weight=4"), Ok(json!({"weight": 4})));
        assert_eq!(read("secret=17"), Ok(json!({"secret": "17"})));
        assert_eq!(read("retry_statuses=401, 404"), Ok(json!({"retry_statuses": ["401", "404"]})));
        assert_eq!(read("weight="), Ok(json!({"weight": null})));
        assert_eq!(read("weight=heavy"), Ok(json!({"weight": "heavy"})), "the host refuses it with a reason");
        assert_eq!(read("weigth=4"), Ok(json!({"weigth": 4})), "the host names the key that is meant");
        assert!(read("weight").is_err());
    }
}
