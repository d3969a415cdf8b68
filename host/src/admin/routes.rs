//! The routes of the API, each with its description. `docs/openapi.json` is written from this table.
//!
//! A summary is in the third person ("Lists", "Shows", "Pauses"); a remark is one or two sentences.

use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error_codes::{self as codes, Code};
use super::operations::{Operation, delete, get, patch, post, put};
use super::{
    destinations, events, health, lanes, messages, openapi, packs, queue, retention, shards, why, wire, work_items,
};
use crate::model::message::MessageState;
use crate::model::work_item::WorkState;
use crate::store::PEEK_ROWS_MAX;
use crate::supervise::PREVIEW_EVENTS_MAX;

/// All operations, in the order of the description.
pub(super) fn operations() -> Vec<Operation> {
    [host(), of_events(), of_work_items(), of_messages(), of_destinations(), of_lanes(), of_shards(), of_packs()]
        .into_iter()
        .flatten()
        .collect()
}

/// The errors of a change of the active generation.
const ROLLOUT: &[Code] =
    &[codes::NOT_FOUND, codes::PACK_REFUSED, codes::CONFLICT, codes::NOT_SERVING, codes::STORE_UNKNOWN];

fn host() -> Vec<Operation> {
    vec![
        get("/healthz", "health", health::healthz)
            .open()
            .does("Shows that the process answers")
            .answers::<wire::Health>("The process answers."),
        get("/readyz", "readiness", health::readyz)
            .open()
            .does("Shows whether the host takes deliveries and works them off")
            .remark("Without the token, where one is required, `reasons` and `notes` are withheld.")
            .answers::<wire::Readiness>("The host is ready.")
            .also_answers::<wire::Readiness>(503, "The host is not ready; `reasons` says why."),
        get("/metrics", "metrics", health::metrics)
            .does("Shows the metrics of the host")
            .answers_with("text/plain; version=0.0.4", "The metrics in the text format of Prometheus."),
        get("/api/v1/openapi.json", "openapi", openapi::show)
            .does("Shows this description")
            .answers_with("application/json", "The description in OpenAPI 3.1."),
        get("/api/v1/stats", "stats", queue::stats)
            .does("Counts work items and messages by state")
            .with(
                "exact",
                "Count the rows instead of reading counters, and add figures that only rows give. The cost grows with \
                 the number of rows.",
                json!({"type": "boolean", "default": false}),
            )
            .answers::<wire::Stats>("The counts, by state.")
            .fails(codes::OF_THE_STORE),
        get("/api/v1/retention", "retention", retention::show)
            .does("How long what has ended is kept, how much is past that, and how far this host is with removing it")
            .answers::<wire::Retention>("What is kept, and what was removed.")
            .fails(codes::OF_THE_STORE),
    ]
}

fn of_events() -> Vec<Operation> {
    let event = || id("evt");
    vec![
        get("/api/v1/events", "list_events", events::list)
            .does("Lists events, newest first")
            .with("namespace", "Only of this namespace.", name())
            .with("pack", "Only of this pack.", name())
            .with("route", "Only of this route.", name())
            .with(
                "state",
                "Only events whose last work item has this state. `dead` leaves out events whose dead work item was \
                 replayed.",
                states(&WorkState::ALL, WorkState::as_str),
            )
            .in_pages(event())
            .answers_page_of::<wire::EventSummary>("A page of events.")
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/verify", "verify_events", events::verify_last)
            .does("Re-runs the newest finished events without effects and compares the outputs")
            .takes::<wire::VerifyWish>()
            .answers::<wire::Verification>("The result of the comparison.")
            .fails(&[codes::NOT_FOUND, codes::NOT_SERVING, codes::TOO_LARGE])
            .fails(codes::OF_THE_STORE),
        get("/api/v1/events/{id}", "show_event", events::show)
            .does("Shows an event with its work items and messages")
            .of("id", "The event.", event())
            .answers::<wire::EventDetail>("The event.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/{id}/run", "run_event", events::run)
            .does("Claims an event's work item before all others")
            .remark("Lanes, delays and leases still apply; the error names what blocks the work item.")
            .of("id", "The event.", event())
            .answers::<wire::WorkItem>("The work item, which was claimed.")
            .fails(&[codes::NOT_FOUND, codes::NOT_CLAIMABLE, codes::NOT_NOW, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/{id}/verify", "verify_event", events::verify)
            .does("Re-runs the finished work items of an event without effects and compares the outputs")
            .of("id", "The event.", event())
            .answers::<wire::Verification>("The result of the comparison.")
            .fails(&[codes::NOT_FOUND, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
    ]
}

fn of_work_items() -> Vec<Operation> {
    vec![
        get("/api/v1/work-items/{id}", "show_work_item", work_items::show)
            .does("Shows a work item")
            .of("id", "The work item.", id("wi"))
            .answers::<wire::WorkItem>("The work item.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        change::<wire::WorkItem>(
            post("/api/v1/work-items/{id}/skip", "skip_work_item", work_items::skip),
            "The work item after the change.",
        )
        .does("Skips a dead work item, so that its lane continues")
        .of("id", "The work item.", id("wi"))
        .fails(&[codes::NOT_SKIPPABLE]),
        change::<wire::Replay>(
            post("/api/v1/work-items/{id}/replay", "replay_work_item", work_items::replay),
            "The replay, and whether it existed before.",
        )
        .does("Replays a finished work item once, as a new one")
        .of("id", "The work item.", id("wi"))
        .fails(&[codes::NOT_FINISHED, codes::OLDER_REPLAY]),
    ]
}

fn of_messages() -> Vec<Operation> {
    let now = "The message after the change.";
    let of = |operation: Operation| operation.of("id", "The message.", id("msg"));
    vec![
        get("/api/v1/messages", "list_messages", messages::list)
            .does("Lists messages, newest first")
            .with("namespace", "Only of this namespace.", name())
            .with("destination", "Only to this destination.", destination())
            .with("state", "Only messages in this state.", states(&MessageState::ALL, MessageState::as_str))
            .with("event", "Only messages that the flows of this event emitted.", id("evt"))
            .in_pages(id("msg"))
            .answers_page_of::<wire::MessageSummary>("A page of messages.")
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/messages/{id}", "show_message", messages::show))
            .does("Shows a message")
            .answers::<wire::MessageDetail>("The message.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/messages/{id}/why", "why_message", why::why))
            .does("Explains why a message is not sent, and what to do")
            .answers::<wire::Why>("The first reason that holds, with an explanation and advice.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/cancel", "cancel_message", messages::cancel),
            now,
        ))
        .does("Cancels a message that is not being published yet")
        .remark("A cancelled message is never published. Cancelling it again succeeds.")
        .fails(&[codes::TOO_LATE]),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/reschedule", "reschedule_message", messages::reschedule),
            now,
        ))
        .does("Moves a message that is not being published yet to another time")
        .takes::<wire::Reschedule>()
        .fails(&[codes::TOO_LATE, codes::TOO_LARGE]),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/redrive", "redrive_message", messages::redrive),
            now,
        ))
        .does("Sends a dead message again, with the same idempotency key")
        .fails(&[codes::NOT_DEAD, codes::EXPIRED]),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/resolve", "resolve_message", messages::resolve),
            now,
        ))
        .does("Records the outcome of an uncertain message")
        .takes::<wire::Resolve>()
        .fails(&[codes::NOT_UNCERTAIN, codes::TOO_LARGE]),
    ]
}

fn of_destinations() -> Vec<Operation> {
    let of = |operation: Operation| operation.of("name", "The destination.", name());
    let version = json!({"type": "integer", "minimum": 0});
    let set = |operation: Operation| {
        of(operation)
            .takes::<wire::DestinationKeys>()
            .with(
                "version",
                "Change it only if this is its version; 0 means that it does not exist yet.",
                version.clone(),
            )
            .with(
                "reorder",
                "Change it even if waiting messages then have another order.",
                json!({"type": "boolean", "default": false}),
            )
            .answers::<wire::DestinationSet>("The destination after the change.")
            .fails(&[codes::NOT_FOUND, codes::CONFIGURED, codes::MESSAGES_WAIT, codes::CHANGED_MEANWHILE])
            .fails(&[codes::TOO_LARGE, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE)
            .fails(codes::OF_CHANGES)
    };
    vec![
        get("/api/v1/destinations", "list_destinations", destinations::list)
            .does("Lists the destinations that this host knows")
            .answers::<wire::Destinations>("All destinations, by name.")
            .fails(&[codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/destinations/{name}", "show_destination", destinations::show))
            .does("Shows a destination, with a count of its pending messages")
            .answers::<wire::DestinationOf>("The destination.")
            .fails(&[codes::NOT_FOUND, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        set(put("/api/v1/destinations/{name}", "put_destination", destinations::put))
            .does("Sets a destination for every host on the database")
            .remark("Keys that are not given get their defaults."),
        set(patch("/api/v1/destinations/{name}", "patch_destination", destinations::patch))
            .does("Sets keys of a destination for every host on the database")
            .remark("Keys that are not given stay as they are; null sets a key to its default."),
        of(delete("/api/v1/destinations/{name}", "remove_destination", destinations::remove))
            .does("Removes a destination that was set")
            .with("version", "Remove it only if this is its version.", version.clone())
            .with(
                "pending",
                "With `wait`, pending messages wait until the destination is set again. Without it, the destination is \
                 removed only if there are none.",
                json!({"type": "string", "enum": ["wait"]}),
            )
            .answers::<wire::DestinationRemoved>("The destination is removed.")
            .fails(&[codes::NOT_FOUND, codes::CONFIGURED, codes::MESSAGES_WAIT, codes::CHANGED_MEANWHILE])
            .fails(&[codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE)
            .fails(codes::OF_CHANGES),
    ]
}

fn of_lanes() -> Vec<Operation> {
    vec![
        get("/api/v1/lanes", "list_lanes", lanes::list)
            .does("Lists the Destination Lanes of this host's shards, and every gate that is not open")
            .with("namespace", "Only of this namespace.", name())
            .with("destination", "Only to this destination.", destination())
            .with(
                "troubled",
                "Only lanes whose gate is not open, whose circuit is not closed, or whose destination asked not to be \
                 called for a while.",
                json!({"type": "boolean", "default": false}),
            )
            .answers::<wire::Lanes>("The lanes and gates.")
            .fails(codes::OF_THE_STORE),
        change::<wire::SetGate>(post("/api/v1/lanes/gate", "set_gate", lanes::set_gate), "The gate as it was set.")
            .does("Opens, pauses or closes a destination, for all namespaces or for one")
            .takes::<wire::SetGate>()
            .fails(&[codes::TOO_LARGE]),
        change::<wire::Redriven>(
            post("/api/v1/lanes/redrive", "redrive_lane", lanes::redrive),
            "The result for one page of messages. Repeat the request with `next` as `after` until it is null.",
        )
        .does("Sends a page of a lane's dead messages again")
        .takes::<wire::RedriveLane>()
        .fails(&[codes::TOO_LARGE]),
    ]
}

fn of_shards() -> Vec<Operation> {
    let shard = json!({"type": "integer", "minimum": 0});
    vec![
        get("/api/v1/shards", "list_shards", shards::list)
            .does("Lists the Delay Shards with their owners, progress and checkpoints")
            .answers::<wire::Shards>("All shards, by number.")
            .fails(codes::OF_THE_STORE),
        change::<wire::CheckpointAnswer>(
            post("/api/v1/shards/{shard}/checkpoint", "checkpoint_shard", shards::checkpoint),
            "The checkpoint; null if it is still being made.",
        )
        .does("Makes a checkpoint of a shard")
        .remark("The host that owns the shard makes it; another host refuses.")
        .of("shard", "The shard's number.", shard)
        .fails(&[codes::NOT_SERVING]),
    ]
}

fn of_packs() -> Vec<Operation> {
    let of = |operation: Operation| operation.of("pack", "The pack.", name());
    let active = "The active generation, and the previous one.";
    let last = json!({"type": "integer", "minimum": 1, "maximum": PREVIEW_EVENTS_MAX, "default": PREVIEW_EVENTS_MAX});
    let rows = json!({"type": "integer", "minimum": 1, "maximum": PEEK_ROWS_MAX, "default": queue::PEEK_ROWS_DEFAULT});
    let rollout = |operation: Operation| operation.fails(ROLLOUT).fails(codes::OF_THE_STORE);
    vec![
        get("/api/v1/packs", "list_packs", packs::list)
            .does("Lists the generations of packs, newest first")
            .with("pack", "Only of this pack.", name())
            .answers::<wire::Packs>("The generations.")
            .fails(codes::OF_THE_STORE),
        rollout(post("/api/v1/packs", "install_pack", packs::install))
            .does("Installs a pack file as a generation")
            .takes_file()
            .with("activate", "Activate it too.", json!({"type": "boolean", "default": false}))
            .answers::<wire::Installed>("The generation with this file.")
            .fails(&[codes::TOO_LARGE]),
        of(get("/api/v1/packs/{pack}/queue", "peek_queue", queue::peek))
            .does("Shows the head of a pack's queue, and why each item is not running")
            .with("limit", "The largest number of items.", rows)
            .answers::<wire::Queue>("The head of the queue.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(rollout(post("/api/v1/packs/{pack}/activate", "activate_pack", packs::activate)))
            .does("Activates a generation")
            .remark("New events are admitted under it. Admitted events end on the generation that admitted them.")
            .takes::<wire::Activate>()
            .answers::<wire::Activation>(active)
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/rollback", "rollback_pack", packs::rollback)))
            .does("Activates an older generation again")
            .may_take::<wire::Rollback>()
            .answers::<wire::Activation>(active)
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/deactivate", "deactivate_pack", packs::deactivate)))
            .does("Closes a pack's routes")
            .answers::<wire::Activation>("The previous generation; none is active."),
        of(rollout(post("/api/v1/packs/{pack}/drain", "drain_pack", packs::drain)))
            .does("Moves the unfinished work of a generation to another one, or ends it as dead")
            .takes::<wire::Drain>()
            .answers::<wire::DrainOutcome>("The numbers of work items that were moved and that are left.")
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/preview", "preview_pack", packs::preview_generation)))
            .does("Previews an installed generation on past events, without effects")
            .takes::<wire::PreviewWish>()
            .answers::<wire::Preview>("The differences, and the cost of both sides.")
            .fails(&[codes::TOO_LARGE]),
        rollout(post("/api/v1/packs/preview", "preview_pack_file", packs::preview_file))
            .does("Previews a pack file on past events, without effects")
            .takes_file()
            .with("last", "Number of events, newest first.", last)
            .with(
                "against",
                "The baseline: `active`, `recorded` or a generation's number.",
                json!({"type": "string", "default": "active"}),
            )
            .answers::<wire::Preview>("The differences, and the cost of both sides.")
            .fails(&[codes::TOO_LARGE]),
    ]
}

/// Adds the answer and the errors of a change to something that must exist.
fn change<T: ToSchema>(operation: Operation, answer: &'static str) -> Operation {
    operation.answers::<T>(answer).fails(&[codes::NOT_FOUND]).fails(codes::OF_THE_STORE).fails(codes::OF_CHANGES)
}

fn id(prefix: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}_[0-9a-f]{{32}}$")})
}

fn name() -> Value {
    json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"})
}

/// The name of a destination, or of a pack's flow.
fn destination() -> Value {
    json!({"type": "string", "pattern": "^(flow:)?[a-z0-9][a-z0-9_-]{0,62}$"})
}

fn states<T: Copy>(all: &[T], word_of: fn(T) -> &'static str) -> Value {
    json!({"type": "string", "enum": wire::words(all, word_of)})
}
