//! Installing, listing, activating and draining generations on a running host.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{GenerationName, read_file};
use crate::admin::wire;
use crate::cli::client::{Answer, Client, HostArguments, Query};
use crate::cli::exit::Failure;
use crate::cli::output::{NONE, Table, generation};
use crate::model::names::PackName;

pub(super) const INSTALL_HELP: &str = "\
The host checks and compiles the file before it stores it. If the file cannot serve, the host refuses it with the reason, and \
nothing changes. A file that was installed before keeps its generation.

Examples:
  forebay pack install orders-1.2.0.fpk
  forebay pack install orders-1.2.0.fpk --activate";

pub(super) const LIST_HELP: &str = "\
Stages:
  staged    installed, and not active so far
  active    new events are admitted under it
  draining  no longer active; the unfinished work shown still runs on it
  retired   no longer active, and nothing refers to it; it can be activated again

Examples:
  forebay pack list
  forebay pack list orders --json";

pub(super) const ACTIVATE_HELP: &str = "\
The host loads the generation first; if it cannot serve, nothing changes. Admitted events end on the generation that admitted \
them. Other hosts on the same database follow within seconds.

Example:
  forebay pack activate orders@3";

pub(super) const ROLLBACK_HELP: &str = "\
A rollback is an activation: admitted events end on the generation that admitted them.

Examples:
  forebay pack rollback orders
  forebay pack rollback orders --to 3";

pub(super) const DEACTIVATE_HELP: &str = "\
Deliveries to its routes are then answered 404, and most providers do not send them again. To change a pack, activate another \
generation instead. `forebay pack activate` opens the routes again.

Example:
  forebay pack deactivate orders";

pub(super) const DRAIN_HELP: &str = "\
For work that a generation cannot finish, because it keeps failing or the generation can no longer be loaded. Running work is \
not touched. The generation that takes over must declare the same routes. Work that ended as dead can be replayed.

Examples:
  forebay pack drain orders@2 --to 3
  forebay pack drain orders@2 --dead-letter";

#[derive(Debug, Args)]
pub(in crate::cli) struct InstallArguments {
    /// The pack file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make it the active generation
    #[arg(long)]
    activate: bool,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ListArguments {
    /// Only generations of this pack
    #[arg(value_name = "PACK")]
    pack: Option<PackName>,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ActivateArguments {
    /// The generation
    #[arg(value_name = "PACK@N")]
    generation: GenerationName,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RollbackArguments {
    /// The pack
    #[arg(value_name = "PACK")]
    pack: PackName,
    /// The generation to go back to; by default the newest older one that was active
    #[arg(long, value_name = "N")]
    to: Option<u32>,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeactivateArguments {
    /// The pack
    #[arg(value_name = "PACK")]
    pack: PackName,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("end").required(true).args(["to", "dead_letter"]))]
pub(in crate::cli) struct DrainArguments {
    /// The generation to drain
    #[arg(value_name = "PACK@N")]
    generation: GenerationName,
    /// The generation of the same pack that takes over its work
    #[arg(long, value_name = "M")]
    to: Option<u32>,
    /// End its work as dead
    #[arg(long)]
    dead_letter: bool,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn install(arguments: InstallArguments) -> Result<(), Failure> {
    let client = Client::new(&arguments.host)?;
    let file = read_file(&arguments.file)?;
    let answer = client.post_file(&format!("/api/v1/packs?activate={}", arguments.activate), file).await?;
    answer.show(&arguments.host, |installed: wire::Installed| {
        let wire::Installed { pack, generation, new, activation } = installed;
        let arrived = if new { "installed" } else { "was installed before" };
        let next = match activation {
            Some(activation) => format!("\n{}", switched(&activation)),
            None => format!("\nnext: forebay pack activate {pack}@{generation}"),
        };
        format!("{pack}@{generation} {arrived}{next}\n")
    })
}

pub(super) async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let query = Query::new("/api/v1/packs").and("pack", arguments.pack.as_ref());
    let answer = Client::new(&arguments.host)?.get(query.as_str()).await?;
    answer.show(&arguments.host, |packs: wire::Packs| {
        let mut table = Table::new(["GENERATION", "STAGE", "VERSION", "INSTALLED", "ACTIVATED", "UNFINISHED WORK"]);
        for item in packs.items {
            let unfinished: Vec<String> =
                item.unfinished.iter().map(|(state, count)| format!("{count} {state}")).collect();
            let unfinished = if unfinished.is_empty() { NONE.to_owned() } else { unfinished.join(", ") };
            table.row([
                &generation(&item.pack, item.generation),
                &item.stage,
                item.version.as_deref().unwrap_or("?"),
                &item.installed_at,
                item.activated_at.as_deref().unwrap_or(NONE),
                &unfinished,
            ]);
        }
        table.render()
    })
}

pub(super) async fn activate(arguments: ActivateArguments) -> Result<(), Failure> {
    let GenerationName { pack, number } = &arguments.generation;
    let wish = wire::Activate { generation: *number };
    let answer = Client::new(&arguments.host)?.post_json(&format!("/api/v1/packs/{pack}/activate"), &wish).await?;
    show_switch(&answer, &arguments.host)
}

pub(super) async fn rollback(arguments: RollbackArguments) -> Result<(), Failure> {
    let (pack, wish) = (&arguments.pack, wire::Rollback { to: arguments.to });
    let answer = Client::new(&arguments.host)?.post_json(&format!("/api/v1/packs/{pack}/rollback"), &wish).await?;
    show_switch(&answer, &arguments.host)
}

pub(super) async fn deactivate(arguments: DeactivateArguments) -> Result<(), Failure> {
    let path = format!("/api/v1/packs/{}/deactivate", arguments.pack);
    show_switch(&Client::new(&arguments.host)?.post(&path).await?, &arguments.host)
}

pub(super) async fn drain(arguments: DrainArguments) -> Result<(), Failure> {
    let GenerationName { pack, number } = &arguments.generation;
    let wish = wire::Drain { generation: *number, to: arguments.to, dead_letter: arguments.dead_letter };
    let answer = Client::new(&arguments.host)?.post_json(&format!("/api/v1/packs/{pack}/drain"), &wish).await?;
    answer.show(&arguments.host, |outcome: wire::DrainOutcome| {
        let done = match arguments.to {
            Some(to) => format!("{} work items moved to {pack}@{to}", outcome.rows),
            None => format!("{} work items ended as dead", outcome.rows),
        };
        match outcome.left {
            0 => format!("{done}; nothing refers to {pack}@{number} any more\n"),
            left => format!("{done}; {left} still refer to {pack}@{number}: drain again when they have ended\n"),
        }
    })
}

fn show_switch(answer: &Answer, host: &HostArguments) -> Result<(), Failure> {
    answer.show(host, |activation: wire::Activation| format!("{}\n", switched(&activation)))
}

fn switched(activation: &wire::Activation) -> String {
    let wire::Activation { pack, active, previous } = activation;
    match (active, previous) {
        (Some(active), Some(previous)) if active == previous => format!("{pack}@{active} was active already"),
        (Some(active), Some(previous)) => format!("{pack}@{active} is active; before it, {pack}@{previous} was"),
        (Some(active), None) => format!("{pack}@{active} is active; none was before"),
        (None, Some(previous)) => format!("no generation of {pack} is active; {pack}@{previous} was"),
        (None, None) => format!("no generation of {pack} was active"),
    }
}
