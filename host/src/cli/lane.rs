//! `forebay lane`: how Destination Lanes stand, and pausing, closing and resuming them.

use std::fmt::Write;
use std::str::FromStr;

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, fields, print};
use crate::admin::wire;
use crate::model::names::{DestinationName, Namespace};

/// `forebay lane`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the lanes of the shards that the host owns, and every gate that is not open
    #[command(after_help = "Examples:\n  forebay lane list\n  forebay lane list --namespace acme")]
    List(ListArguments),
    /// Show the lanes of one destination, of all tenants or of one
    #[command(after_help = "Example:\n  forebay lane show acme/sink")]
    Show(OneArguments),
    /// Stop sending until the lane is resumed; waiting messages stay
    #[command(after_help = PAUSE_HELP)]
    Pause(GateArguments),
    /// Send again from a paused or closed lane
    #[command(
        after_help = "Resuming a whole destination resumes the lanes of every tenant.\n\nExample:\n  forebay lane resume acme/sink"
    )]
    Resume(OneArguments),
    /// Shut a lane for good; waiting messages stay visible, and a resume opens it again
    #[command(after_help = CLOSE_HELP)]
    Close(GateArguments),
}

const PAUSE_HELP: &str = "\
Every host sees the gate within a second, and it outlives restarts. What is being sent is sent to its end. Messages expire in \
a shut lane too.

Examples:
  forebay lane pause sink --reason 'maintenance until 18:00'
  forebay lane pause acme/sink";

const CLOSE_HELP: &str = "\
Every host sees the gate within a second, and it outlives restarts. What is being sent is sent to its end. Messages expire in \
a shut lane too.

Example:
  forebay lane close acme/sink --reason 'customer left'";

/// A lane as it is named on the command line: a whole destination, or that of one tenant.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) namespace: Option<Namespace>,
    pub(super) destination: DestinationName,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, destination) = match text.split_once('/') {
            Some((namespace, destination)) => (Some(namespace), destination),
            None => (None, text),
        };
        Ok(Self {
            namespace: namespace.map(str::parse).transpose().map_err(|error| format!("{error}"))?,
            destination: destination.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only lanes of this tenant
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only lanes to this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationName>,
    /// Only those that are shut, that fail, or that were asked to wait
    #[arg(long)]
    troubled: bool,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct OneArguments {
    /// A destination, or one tenant's: NAMESPACE/DESTINATION
    #[arg(value_name = "LANE")]
    target: Target,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct GateArguments {
    #[command(flatten)]
    one: OneArguments,
    /// The reason, shown by `forebay lane list`
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(ListArguments { namespace, destination, troubled, host }) => {
            let path = path(namespace, destination);
            let troubled = if troubled { "&troubled=true" } else { "" };
            list(&format!("{path}{troubled}"), &host).await
        }
        Verb::Show(OneArguments { target, host }) => show(target, &host).await,
        Verb::Pause(GateArguments { one, reason }) => set_gate(one, "paused", reason).await,
        Verb::Resume(one) => set_gate(one, "open", None).await,
        Verb::Close(GateArguments { one, reason }) => set_gate(one, "closed", reason).await,
    }
}

fn path(namespace: Option<Namespace>, destination: Option<DestinationName>) -> String {
    // Names are of characters that need no escape in a query.
    let namespace = namespace.map(|namespace| format!("namespace={namespace}"));
    let destination = destination.map(|destination| format!("destination={destination}"));
    let query: Vec<String> = [namespace, destination].into_iter().flatten().collect();
    format!("/api/v1/lanes?{}", query.join("&"))
}

async fn list(path: &str, host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.get(path).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let lanes: wire::Lanes = answer.read()?;
    let mut table = Table::new(["LANE", "SHARD", "GATE", "CIRCUIT", "PENDING", "IN FLIGHT", "NEXT", "HELD"]);
    for lane in &lanes.lanes {
        table.row([
            &lane.lane,
            &lane.shard.to_string(),
            &lane.gate,
            &lane.circuit,
            &lane.pending.to_string(),
            &lane.in_flight_messages.to_string(),
            lane.eligible_from.as_deref().unwrap_or("–"),
            lane.held.as_deref().unwrap_or("–"),
        ]);
    }
    let mut text = table.render();
    text.push_str(&footer(&lanes));
    Ok(print(&text)?)
}

async fn show(target: Target, host: &HostArguments) -> Result<(), Failure> {
    let name = target.destination.clone();
    let answer = Client::new(host)?.get(&path(target.namespace, Some(target.destination))).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let lanes: wire::Lanes = answer.read()?;
    if lanes.lanes.is_empty() && lanes.gates.is_empty() {
        let reason = format!("this host has met no lane of the destination {name} (nothing was emitted to it yet)");
        return Err(Failure::NotFound(reason));
    }
    let mut text = String::new();
    for lane in &lanes.lanes {
        text.push_str(&fields(&[
            ("lane", Some(&lane.lane)),
            ("shard", Some(&lane.shard.to_string())),
            ("order", Some(if lane.ordered { "one after the other" } else { "none" })),
            ("gate", Some(&lane.gate)),
            ("circuit", Some(&lane.circuit)),
            ("circuit open until", lane.circuit_until.as_deref()),
            ("left alone until", lane.throttled_until.as_deref()),
            ("pending", Some(&lane.pending.to_string())),
            ("in flight", Some(&format!("{} messages, {} bytes", lane.in_flight_messages, lane.in_flight_bytes))),
            ("none before", lane.eligible_from.as_deref()),
            ("held", lane.held.as_deref()),
        ]));
        text.push('\n');
    }
    text.push_str(&footer(&lanes));
    Ok(print(&text)?)
}

/// Gates, and what the asked host does not know.
fn footer(lanes: &wire::Lanes) -> String {
    let mut text = String::new();
    if lanes.more {
        text.push_str("\nthere are more lanes: narrow with --namespace or --destination\n");
    }
    for gate in &lanes.gates {
        let whose = gate.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let reason = gate.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let line = format!("{whose}{} is {} since {}{reason}", gate.destination, gate.gate, gate.changed_at);
        let _ = writeln!(text, "{}", super::output::printable(&line));
    }
    if !lanes.elsewhere.is_empty() {
        let shards: Vec<String> = lanes.elsewhere.iter().map(u16::to_string).collect();
        let _ = writeln!(text, "shards owned by other hosts, which know their lanes: {}", shards.join(", "));
    }
    text
}

async fn set_gate(one: OneArguments, gate: &str, reason: Option<String>) -> Result<(), Failure> {
    let OneArguments { target, host } = one;
    let wish = wire::SetGate {
        destination: target.destination.to_string(),
        namespace: target.namespace.as_ref().map(Namespace::to_string),
        gate: gate.to_owned(),
        reason,
    };
    let answer = Client::new(&host)?.post_json("/api/v1/lanes/gate", &wish).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let whose = wish.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    Ok(print(&format!("{whose}{} is {gate}\n", wish.destination))?)
}
