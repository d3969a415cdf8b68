//! `forebay work-item`: showing, skipping and replaying work items.

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{fields, generation};
use crate::admin::wire;
use crate::model::ids::WorkItemId;

pub(super) const HELP: &str = "\
Examples:
  forebay work-item show wi_019a…
  forebay work-item replay wi_019a…";

/// `forebay work-item`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show one work item
    #[command(after_help = "Example:\n  forebay work-item show wi_019a…")]
    Show(Arguments),
    /// Skip a dead work item, so that its lane continues (routes whose `failed_head.dead` is `block`)
    #[command(
        after_help = "Example:\n  forebay work-item skip wi_019a…\n\nExit code 4: the work item is not a dead head of a lane."
    )]
    Skip(Arguments),
    /// Replay a work item that is done or dead, as a new work item on the same event
    #[command(after_help = REPLAY_HELP)]
    Replay(Arguments),
}

const REPLAY_HELP: &str = "\
The replay runs on the same generation, at the end of its source's lane. It emits new messages, with new ids. A work item can \
be replayed once: repeating the command shows the same replay, which can be replayed in turn.

Example:
  forebay work-item replay wi_019a…

Exit code 4: the work item has not ended, or an older host replayed its event.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The work item
    #[arg(value_name = "ID")]
    id: WorkItemId,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    let (answer, host) = match verb {
        Verb::Show(Arguments { id, host }) => {
            (Client::new(&host)?.get(&format!("/api/v1/work-items/{id}")).await?, host)
        }
        Verb::Skip(Arguments { id, host }) => {
            (Client::new(&host)?.post(&format!("/api/v1/work-items/{id}/skip")).await?, host)
        }
        Verb::Replay(Arguments { id, host }) => return replay(&id.to_string(), &host).await,
    };
    answer.show(&host, |item: wire::WorkItem| work_item_fields(&item))
}

/// Replays a work item, and prints the replay.
pub(super) async fn replay(id: &str, host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.post(&format!("/api/v1/work-items/{id}/replay")).await?;
    answer.show(host, |wire::Replay { already, work_item }: wire::Replay| {
        let outcome = if already { "replayed before, as" } else { "replayed, as" };
        format!("{outcome}\n{}", work_item_fields(&work_item))
    })
}

/// The reads of a run: each record with its length.
fn read_shown(reads: &wire::Reads) -> String {
    if !reads.kept {
        return format!("{} records, too large to keep", reads.count);
    }
    let record = |record: &wire::ReadRecord| match &record.value {
        Some(value) => format!("{} {} ({} bytes)", record.reader, record.key, value.bytes),
        None => format!("{} {} (none)", record.reader, record.key),
    };
    reads.records.iter().map(record).collect::<Vec<_>>().join(", ")
}

/// A work item as fields.
pub(super) fn work_item_fields(item: &wire::WorkItem) -> String {
    let failure = item.failure.as_ref().map(|failure| format!("{}: {}", failure.class, failure.message));
    fields(&[
        ("work item", Some(&item.id)),
        ("event", Some(&item.event_id)),
        ("type", Some(&item.work_type)),
        ("namespace", Some(&item.namespace)),
        ("pack", Some(&generation(&item.pack, item.generation))),
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
