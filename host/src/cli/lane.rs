//! `forebay lane`: showing Destination Lanes, and pausing, closing and resuming them.

use std::fmt::Write;
use std::str::FromStr;

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments, Query};
use super::exit::Failure;
use super::output::{NONE, Table, fields, printable};
use crate::admin::wire;
use crate::model::names::{DestinationName, Namespace};

pub(super) const HELP: &str = "\
Examples:
  forebay lane list --troubled
  forebay lane pause acme/sink --reason 'maintenance until 18:00'";

/// `forebay lane`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the lanes of the host's shards, and every gate that is not open
    #[command(after_help = "Examples:\n  forebay lane list\n  forebay lane list --namespace acme")]
    List(ListArguments),
    /// Show the lanes to one destination, of all namespaces or of one
    #[command(after_help = "Example:\n  forebay lane show acme/sink")]
    Show(OneArguments),
    /// Stop sending until the lane is resumed; waiting messages stay
    #[command(after_help = PAUSE_HELP)]
    Pause(GateArguments),
    /// Send again from a paused or closed lane
    #[command(
        after_help = "Resuming a whole destination resumes the lanes of every namespace.\n\nExample:\n  forebay lane resume acme/sink"
    )]
    Resume(OneArguments),
    /// Stop sending for good; waiting messages stay visible, and a resume opens the lane again
    #[command(after_help = CLOSE_HELP)]
    Close(GateArguments),
}

const PAUSE_HELP: &str = "\
Every host sees the gate within a second, and it outlives restarts. Attempts that have begun are finished. Messages expire in \
a lane that is not open, too.

Examples:
  forebay lane pause sink --reason 'maintenance until 18:00'
  forebay lane pause acme/sink";

const CLOSE_HELP: &str = "\
Every host sees the gate within a second, and it outlives restarts. Attempts that have begun are finished. Messages expire in \
a lane that is not open, too.

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
    /// Only lanes of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only lanes to this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationName>,
    /// Only lanes whose gate is not open, whose circuit is not closed, or whose destination is throttled
    #[arg(long)]
    troubled: bool,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct OneArguments {
    /// NAMESPACE/DESTINATION, or DESTINATION for all namespaces
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
            let query = query(namespace, destination).and("troubled", troubled.then_some(true));
            Client::new(&host)?.get(query.as_str()).await?.show(&host, |lanes: wire::Lanes| lane_table(&lanes))
        }
        Verb::Show(OneArguments { target, host }) => show(target, &host).await,
        Verb::Pause(GateArguments { one, reason }) => set_gate(one, "paused", reason).await,
        Verb::Resume(one) => set_gate(one, "open", None).await,
        Verb::Close(GateArguments { one, reason }) => set_gate(one, "closed", reason).await,
    }
}

fn query(namespace: Option<Namespace>, destination: Option<DestinationName>) -> Query {
    Query::new("/api/v1/lanes").and("namespace", namespace).and("destination", destination)
}

fn lane_table(lanes: &wire::Lanes) -> String {
    let mut table = Table::new(["LANE", "SHARD", "GATE", "CIRCUIT", "PENDING", "IN FLIGHT", "ELIGIBLE FROM", "HELD"]);
    for lane in &lanes.items {
        table.row([
            &lane.lane,
            &lane.shard.to_string(),
            &lane.gate,
            &lane.circuit,
            &lane.pending.to_string(),
            &lane.in_flight_messages.to_string(),
            lane.eligible_from.as_deref().unwrap_or(NONE),
            lane.held.as_deref().unwrap_or(NONE),
        ]);
    }
    table.render() + &footer(lanes)
}

async fn show(target: Target, host: &HostArguments) -> Result<(), Failure> {
    let name = target.destination.clone();
    let query = query(target.namespace, Some(target.destination));
    let answer = Client::new(host)?.get(query.as_str()).await?;
    let lanes: wire::Lanes = answer.read()?;
    if !host.json && lanes.items.is_empty() && lanes.gates.is_empty() {
        let reason = format!("this host knows no lane to destination {name}: no message to it was emitted yet");
        return Err(Failure::NotFound(reason));
    }
    answer.show(host, |lanes: wire::Lanes| {
        let shown: String = lanes.items.iter().map(lane_text).collect();
        shown + &footer(&lanes)
    })
}

fn lane_text(lane: &wire::Lane) -> String {
    let text = fields(&[
        ("lane", Some(&lane.lane)),
        ("shard", Some(&lane.shard.to_string())),
        ("ordered", Some(if lane.ordered { "yes" } else { "no" })),
        ("gate", Some(&lane.gate)),
        ("circuit", Some(&lane.circuit)),
        ("circuit open until", lane.circuit_until.as_deref()),
        ("throttled until", lane.throttled_until.as_deref()),
        ("pending", Some(&lane.pending.to_string())),
        ("in flight", Some(&format!("{} messages, {} bytes", lane.in_flight_messages, lane.in_flight_bytes))),
        ("eligible from", lane.eligible_from.as_deref()),
        ("held", lane.held.as_deref()),
    ]);
    text + "\n"
}

/// Gates that are not open, and the limits of the host's view.
fn footer(lanes: &wire::Lanes) -> String {
    let mut text = String::new();
    if lanes.more {
        text.push_str("\nthere are more lanes: narrow with --namespace or --destination\n");
    }
    for gate in &lanes.gates {
        let name = lane_name(gate.namespace.as_deref(), &gate.destination);
        let reason = gate.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let line = format!("{name} is {} since {}{reason}", gate.gate, gate.changed_at);
        let _ = writeln!(text, "{}", printable(&line));
    }
    if !lanes.elsewhere.is_empty() {
        let shards: Vec<String> = lanes.elsewhere.iter().map(u16::to_string).collect();
        let _ = writeln!(text, "other hosts own shards {} and know their lanes", shards.join(", "));
    }
    text
}

async fn set_gate(one: OneArguments, gate: &str, reason: Option<String>) -> Result<(), Failure> {
    let OneArguments { target: Target { namespace, destination }, host } = one;
    let (namespace, destination) = (namespace.as_ref().map(Namespace::to_string), destination.to_string());
    let wish = wire::SetGate { destination, namespace, gate: gate.to_owned(), reason };
    let answer = Client::new(&host)?.post_json("/api/v1/lanes/gate", &wish).await?;
    answer.show(&host, |set: wire::SetGate| {
        format!("{} is {}\n", lane_name(set.namespace.as_deref(), &set.destination), set.gate)
    })
}

/// `NAMESPACE/DESTINATION`, or `DESTINATION` for all namespaces.
fn lane_name(namespace: Option<&str>, destination: &str) -> String {
    namespace.map_or_else(|| destination.to_owned(), |namespace| format!("{namespace}/{destination}"))
}
