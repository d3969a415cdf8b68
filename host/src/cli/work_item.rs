//! `forebay work-item`: how far an event's execution is, letting a lane go on that a dead one holds up, and running one
//! again that has ended.

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{fields, print};
use crate::admin::wire;
use crate::model::ids::WorkItemId;

/// `forebay work-item`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show one work item
    #[command(after_help = "Example:\n  forebay work-item show wi_019a…")]
    Show(Arguments),
    /// Skip a dead work item, so that its lane goes on (routes whose failed-head policy is `block`)
    #[command(
        after_help = "Example:\n  forebay work-item skip wi_019a…\n\nExit code 4: the work item is not dead, or holds up no lane."
    )]
    Skip(Arguments),
    /// Run a work item that is done or dead again, as one new work item on the same event
    #[command(after_help = REPLAY_HELP)]
    Replay(Arguments),
}

const REPLAY_HELP: &str = "\
The replay runs on the generation of the original, at the end of its source's lane. Its messages are new ones, with ids of \
their own. A work item is replayed once: repeating the command shows the same replay, which can be replayed in its turn.

Example:
  forebay work-item replay wi_019a…

Exit code 4: the work item has not ended, or an executor of the older protocol replayed its event.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The work item
    #[arg(value_name = "ID")]
    id: WorkItemId,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    let (answer, json) = match verb {
        Verb::Show(Arguments { id, host }) => {
            (Client::new(&host)?.get(&format!("/api/v1/work-items/{id}")).await?, host.json)
        }
        Verb::Skip(Arguments { id, host }) => {
            (Client::new(&host)?.post(&format!("/api/v1/work-items/{id}/skip")).await?, host.json)
        }
        Verb::Replay(Arguments { id, host }) => return replay(&Client::new(&host)?, &id.to_string(), host.json).await,
    };
    if json {
        return Ok(print(&answer.text())?);
    }
    Ok(print(&work_item_fields(&answer.read()?))?)
}

/// Has a work item run again, and prints its replay.
pub(super) async fn replay(client: &Client, id: &str, json: bool) -> Result<(), Failure> {
    let answer = client.post(&format!("/api/v1/work-items/{id}/replay")).await?;
    if json {
        return Ok(print(&answer.text())?);
    }
    let replay: wire::Replay = answer.read()?;
    let outcome = if replay.already { "it was replayed before, as" } else { "it runs again, as" };
    Ok(print(&format!("{outcome}\n{}", work_item_fields(&replay.work_item)))?)
}

/// What was read for a run: each record with its length.
fn read_shown(reads: &wire::Reads) -> String {
    if !reads.kept {
        return format!("{} records, too large to be kept", reads.count);
    }
    let record = |record: &wire::ReadRecord| match &record.value {
        Some(value) => format!("{} {} ({} bytes)", record.reader, record.key, value.bytes),
        None => format!("{} {} (none)", record.reader, record.key),
    };
    reads.records.iter().map(record).collect::<Vec<_>>().join(", ")
}

/// A work item for people.
pub(super) fn work_item_fields(item: &wire::WorkItem) -> String {
    let failure = item.failure.as_ref().map(|failure| format!("{}: {}", failure.class, failure.message));
    fields(&[
        ("work item", Some(&item.id)),
        ("event", Some(&item.event_id)),
        ("type", Some(&item.work_type)),
        ("namespace", Some(&item.namespace)),
        ("pack", Some(&format!("{} #{}", item.pack, item.generation))),
        ("source", item.source_key.as_deref()),
        ("class", Some(&item.queue_class)),
        ("projection", item.projection.as_deref()),
        ("state", Some(&item.state)),
        ("attempt", Some(&item.attempt.to_string())),
        ("failures", Some(&item.failures.to_string())),
        ("run after", Some(&item.run_after)),
        ("leased until", item.lease_until.as_deref()),
        ("note", item.note.as_deref()),
        ("ignored", item.ignored.then_some("yes")),
        ("last failure", failure.as_deref()),
        ("created", Some(&item.created_at)),
        ("finished", item.finished_at.as_deref()),
        ("replay of", item.replay_of.as_deref()),
        ("replayed", item.replayed_at.as_deref()),
        ("output", item.output_sha256.as_deref()),
        ("read", item.reads.as_ref().map(read_shown).as_deref()),
    ])
}
