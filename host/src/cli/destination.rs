//! `forebay destination`: the ways out, and setting and removing them while hosts run.

use std::fmt::Write;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, fields, print, printable};
use crate::admin::wire::{DestinationOf, DestinationRemoved, DestinationSet, Destinations, PendingMessages};
use crate::model::names::DestinationName;

/// `forebay destination`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the destinations that the asked host knows
    List(ListArguments),
    /// Show one, with how many messages wait for it
    Show(OneArguments),
    /// Set a destination, or keys of one, for every host over the database and without a restart
    #[command(after_help = SET_HELP)]
    Set(SetArguments),
    /// Remove a destination that was set
    #[command(after_help = REMOVE_HELP)]
    Remove(RemoveArguments),
}

const SET_HELP: &str = "\
The keys are those of [destinations.NAME] in a configuration, under the same rules. What is not given stays as it was \
set, or at its default; KEY= with nothing behind it goes back to the default. A destination of the asked host's \
configuration is changed there, and not here.

Every host sees it within a second: what waited for it is sent, and the next attempt is made with what is set now. \
Its secret is a file in the secrets directory of every host.

Examples:
  forebay destination set crm url=https://crm.example/hooks secret=crm-signing
  forebay destination set crm in_flight_messages=8 retry_statuses=401,404
  forebay destination set crm weight=
  forebay destination set crm --version 17 ordering=exact

Exit code 4 says that it has another version by now, is the configuration's, or that messages wait in an order that \
it would not have any more.";

const REMOVE_HELP: &str = "\
Nothing is lost with a destination: messages that are pending are a reason to refuse, unless it is said that they wait. \
They then stay visible (forebay message why) and are sent once it is set again.

Examples:
  forebay destination remove crm
  forebay destination remove crm --pending wait

Exit code 4 says that messages are pending, or that it has another version by now.";

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct OneArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    name: DestinationName,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct SetArguments {
    #[command(flatten)]
    one: OneArguments,
    /// A key of [destinations.NAME] and its value; of a list, the values with commas between them
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_key)]
    keys: Vec<(String, Value)>,
    /// Forget the keys that are not given
    #[arg(long)]
    replace: bool,
    /// Only if this is its version; 0 if it is to be new
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Even if messages wait that would then stand in another order
    #[arg(long)]
    reorder: bool,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    #[command(flatten)]
    one: OneArguments,
    /// What becomes of its messages that are pending
    #[arg(long, value_name = "WHAT")]
    pending: Option<PendingWord>,
    /// Only if this is its version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PendingWord {
    /// They wait until it is set again.
    Wait,
}

/// Keys whose values are words, whatever they look like.
const TEXT_KEYS: [&str; 4] = ["url", "secret", "uncertain", "ordering"];
/// Keys whose values are lists.
const LIST_KEYS: [&str; 1] = ["retry_statuses"];

fn parse_key(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("it must be KEY=VALUE")?;
    let value = match value {
        "" => Value::Null,
        list if LIST_KEYS.contains(&key) => list.split(',').map(|item| Value::from(item.trim())).collect(),
        text if TEXT_KEYS.contains(&key) => Value::from(text),
        number => number.parse::<i64>().map_or_else(|_| Value::from(number), Value::from),
    };
    Ok((key.to_owned(), value))
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
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let Destinations { destinations } = answer.read()?;
    let mut table = Table::new(["DESTINATION", "FROM", "VERSION", "URL", "ORDERING", "IN FLIGHT", "WEIGHT"]);
    for destination in &destinations {
        let settings = destination.settings.as_ref();
        let of = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
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
    let mut text = table.render();
    for destination in &destinations {
        text.push_str(&troubles(destination));
    }
    Ok(print(&text)?)
}

async fn show(name: &DestinationName, host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.get(&format!("/api/v1/destinations/{name}")).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let destination: DestinationOf = answer.read()?;
    Ok(print(&one(&destination))?)
}

async fn set(arguments: SetArguments) -> Result<(), Failure> {
    let SetArguments { one: OneArguments { name, host }, keys, replace, version, reorder } = arguments;
    let document: Map<String, Value> = keys.into_iter().collect();
    let path = format!("/api/v1/destinations/{name}?reorder={reorder}{}", version_of(version));
    let client = Client::new(&host)?;
    let answer = if replace { client.put(&path, &document).await? } else { client.patch(&path, &document).await? };
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let DestinationSet { destination, notes } = answer.read()?;
    let mut text = one(&destination);
    for note in notes {
        let _ = writeln!(text, "note: {}", printable(&note));
    }
    Ok(print(&text)?)
}

async fn remove(arguments: RemoveArguments) -> Result<(), Failure> {
    let RemoveArguments { one: OneArguments { name, host }, pending, version } = arguments;
    let pending = match pending {
        Some(PendingWord::Wait) => "pending=wait",
        None => "",
    };
    let path = format!("/api/v1/destinations/{name}?{pending}{}", version_of(version));
    let answer = Client::new(&host)?.delete(&path).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let DestinationRemoved { name, pending, .. } = answer.read()?;
    let waiting = match pending {
        PendingMessages { messages: 0, more: false } => "nothing waits for it".to_owned(),
        PendingMessages { messages: 1, more: false } => "1 message waits until it is set again".to_owned(),
        pending => format!("{} wait until it is set again", counted(pending)),
    };
    Ok(print(&format!("{name} is removed; {waiting}\n"))?)
}

fn version_of(version: Option<u64>) -> String {
    version.map(|version| format!("&version={version}")).unwrap_or_default()
}

fn counted(pending: PendingMessages) -> String {
    let PendingMessages { messages, more } = pending;
    format!("{}{messages} messages", if more { "at least " } else { "" })
}

/// A destination, key by key.
fn one(destination: &DestinationOf) -> String {
    let mut pairs = vec![
        ("destination", Some(destination.name.clone())),
        ("from", Some(destination.origin.clone())),
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
        ("set", destination.created_at.clone()),
        ("changed", destination.changed_at.clone()),
    ]);
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    fields(&pairs) + &troubles(destination)
}

/// What is wrong with it on the asked host.
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
        assert_eq!(read("weight=heavy"), Ok(json!({"weight": "heavy"})), "the host says what is wrong with it");
        assert!(read("weight").is_err());
    }
}
