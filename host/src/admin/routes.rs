//! The routes of the API, each with its description.
//!
//! Who adds one says here what it does, takes, answers and fails with; `docs/openapi.json` is written from that.

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

/// All of them, in the order in which they are described.
pub(super) fn operations() -> Vec<Operation> {
    [host(), of_events(), of_work_items(), of_messages(), of_destinations(), of_lanes(), of_shards(), of_packs()]
        .into_iter()
        .flatten()
        .collect()
}

/// What a change of what serves may fail with.
const ROLLOUT: &[Code] =
    &[codes::NOT_FOUND, codes::PACK_REFUSED, codes::CONFLICT, codes::NOT_SERVING, codes::STORE_UNKNOWN];

fn host() -> Vec<Operation> {
    vec![
        get("/healthz", "health", health::healthz)
            .open()
            .does("Says that the process answers")
            .answers::<wire::Health>("It does."),
        get("/readyz", "readiness", health::readyz)
            .open()
            .does("Says whether the host does its work, or why not")
            .remark("Who brings no token, where one is asked for, is not told the reasons.")
            .answers::<wire::Readiness>("It takes deliveries and works them off.")
            .also_answers::<wire::Readiness>(503, "It does not; `reasons` says why."),
        get("/metrics", "metrics", health::metrics)
            .does("The host's metrics")
            .answers_with("text/plain; version=0.0.4", "Prometheus' text format."),
        get("/api/v1/openapi.json", "openapi", openapi::show)
            .does("This description")
            .answers_with("application/json", "OpenAPI 3.1."),
        get("/api/v1/stats", "stats", queue::stats)
            .does("How many work items and messages stand in which state")
            .with(
                "exact",
                "Whether to count the rows themselves, and to say how many could be claimed now; that costs more the \
                 more rows there are.",
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
            .with("namespace", "Only of this tenant.", name())
            .with("pack", "Only of this pack.", name())
            .with("route", "Only of this route.", name())
            .with(
                "state",
                "Only those whose work item stands in this state. `dead` is about the last replay: an event is found \
                 as long as nobody ran again what died.",
                states(&WorkState::ALL, WorkState::as_str),
            )
            .in_pages(event())
            .answers_page_of::<wire::EventSummary>("A page.")
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/verify", "verify_events", events::verify_last)
            .does("Runs the newest events that are done again, without effects, and compares")
            .takes::<wire::VerifyWish>()
            .answers::<wire::Verification>("What came of it.")
            .fails(&[codes::NOT_FOUND, codes::NOT_SERVING, codes::TOO_LARGE])
            .fails(codes::OF_THE_STORE),
        get("/api/v1/events/{id}", "show_event", events::show)
            .does("Shows an event, and what became of it")
            .of("id", "The event.", event())
            .answers::<wire::EventDetail>("The event, with its work items and messages.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/{id}/run", "run_event", events::run)
            .does("Has an event's work item claimed before all others")
            .remark("A lane, a delay or a lease is passed by nobody: what stands in the way is answered.")
            .of("id", "The event.", event())
            .answers::<wire::WorkItem>("It was claimed.")
            .fails(&[codes::NOT_FOUND, codes::NOT_CLAIMABLE, codes::NOT_NOW, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        post("/api/v1/events/{id}/verify", "verify_event", events::verify)
            .does("Runs what is done of an event again, without effects, and compares")
            .of("id", "The event.", event())
            .answers::<wire::Verification>("What came of it.")
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
            "As it is now.",
        )
        .does("Lets the lane go on that a dead work item holds up")
        .of("id", "The work item.", id("wi"))
        .fails(&[codes::NOT_SKIPPABLE]),
        change::<wire::Replay>(
            post("/api/v1/work-items/{id}/replay", "replay_work_item", work_items::replay),
            "The work item that does it, and whether it was there before.",
        )
        .does("Runs a work item again that has ended, as one child")
        .of("id", "The work item.", id("wi"))
        .fails(&[codes::NOT_FINISHED, codes::OLDER_REPLAY]),
    ]
}

fn of_messages() -> Vec<Operation> {
    let now = "The message as it is now.";
    let of = |operation: Operation| operation.of("id", "The message.", id("msg"));
    vec![
        get("/api/v1/messages", "list_messages", messages::list)
            .does("Lists messages, newest first")
            .with("namespace", "Only of this tenant.", name())
            .with("destination", "Only to this destination.", destination())
            .with("state", "Only those in this state.", states(&MessageState::ALL, MessageState::as_str))
            .with("event", "Only those that this event's flows emitted.", id("evt"))
            .in_pages(id("msg"))
            .answers_page_of::<wire::MessageSummary>("A page.")
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/messages/{id}", "show_message", messages::show))
            .does("Shows a message")
            .answers::<wire::MessageDetail>("The message.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/messages/{id}/why", "why_message", why::why))
            .does("Says why a message is not sent, and what to do")
            .answers::<wire::Why>("The first reason that holds, and that in words.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/cancel", "cancel_message", messages::cancel),
            now,
        ))
        .does("Cancels a message that is not being published yet")
        .remark("An acknowledged cancel holds. One that was cancelled already is answered the same.")
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
        .does("Sends a dead message again, with the idempotency key that it always had")
        .fails(&[codes::NOT_DEAD, codes::EXPIRED]),
        of(change::<wire::MessageDetail>(
            post("/api/v1/messages/{id}/resolve", "resolve_message", messages::resolve),
            now,
        ))
        .does("Settles a message of which nobody knows whether an attempt arrived")
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
            .with("version", "Only if this is its version; 0 if it is to be new.", version.clone())
            .with(
                "reorder",
                "Whether messages that wait may come to stand in another order.",
                json!({"type": "boolean", "default": false}),
            )
            .answers::<wire::DestinationSet>("As it is now.")
            .fails(&[codes::NOT_FOUND, codes::CONFIGURED, codes::MESSAGES_WAIT, codes::CHANGED_MEANWHILE])
            .fails(&[codes::TOO_LARGE, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE)
            .fails(codes::OF_CHANGES)
    };
    vec![
        get("/api/v1/destinations", "list_destinations", destinations::list)
            .does("The destinations that this host knows")
            .answers::<wire::Destinations>("All of them, by name.")
            .fails(&[codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        of(get("/api/v1/destinations/{name}", "show_destination", destinations::show))
            .does("Shows a destination, and counts the messages that wait for it")
            .answers::<wire::DestinationOf>("The destination.")
            .fails(&[codes::NOT_FOUND, codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE),
        set(put("/api/v1/destinations/{name}", "put_destination", destinations::put))
            .does("Sets a destination, for every host over the database; keys that are not given have their defaults"),
        set(patch("/api/v1/destinations/{name}", "patch_destination", destinations::patch))
            .does("Sets keys of a destination; those that are not given stay, and null is the default"),
        of(delete("/api/v1/destinations/{name}", "remove_destination", destinations::remove))
            .does("Removes a destination that was set")
            .with("version", "Only if this is its version.", version.clone())
            .with(
                "pending",
                "What becomes of its pending messages. Without this, it is removed only if there are none.",
                json!({"type": "string", "enum": ["wait"]}),
            )
            .answers::<wire::DestinationRemoved>("It is called no more.")
            .fails(&[codes::NOT_FOUND, codes::CONFIGURED, codes::MESSAGES_WAIT, codes::CHANGED_MEANWHILE])
            .fails(&[codes::NOT_SERVING])
            .fails(codes::OF_THE_STORE)
            .fails(codes::OF_CHANGES),
    ]
}

fn of_lanes() -> Vec<Operation> {
    vec![
        get("/api/v1/lanes", "list_lanes", lanes::list)
            .does("The Destination Lanes of the shards that this host owns, and every gate that is not open")
            .with("namespace", "Only of this tenant.", name())
            .with("destination", "Only to this destination.", destination())
            .with(
                "troubled",
                "Whether only those are shown whose gate is not open, whose circuit is not closed, or whose destination \
                 asked to be left alone.",
                json!({"type": "boolean", "default": false}),
            )
            .answers::<wire::Lanes>("What this host knows.")
            .fails(codes::OF_THE_STORE),
        change::<wire::SetGate>(
            post("/api/v1/lanes/gate", "set_gate", lanes::set_gate),
            "What was asked for, and is so.",
        )
        .does("Opens, pauses or closes a destination, of all tenants or of one")
        .takes::<wire::SetGate>()
        .fails(&[codes::TOO_LARGE]),
        change::<wire::Redriven>(
            post("/api/v1/lanes/redrive", "redrive_lane", lanes::redrive),
            "What came of a page of messages; ask again with its `next`.",
        )
        .does("Sends a lane's dead messages again, a page of them")
        .takes::<wire::RedriveLane>()
        .fails(&[codes::TOO_LARGE]),
    ]
}

fn of_shards() -> Vec<Operation> {
    let shard = json!({"type": "integer", "minimum": 0});
    vec![
        get("/api/v1/shards", "list_shards", shards::list)
            .does("The Delay Shards: who has them, how far they are, their checkpoints")
            .answers::<wire::Shards>("All of them, by number.")
            .fails(codes::OF_THE_STORE),
        change::<wire::CheckpointAnswer>(
            post("/api/v1/shards/{shard}/checkpoint", "checkpoint_shard", shards::checkpoint),
            "The checkpoint; none, if it is still being made.",
        )
        .does("Has a checkpoint of a shard be made now, by the host that owns it")
        .of("shard", "The shard's number.", shard)
        .fails(&[codes::NOT_SERVING]),
    ]
}

fn of_packs() -> Vec<Operation> {
    let of = |operation: Operation| operation.of("pack", "The pack.", name());
    let active = "What is active now.";
    let last = json!({"type": "integer", "minimum": 1, "maximum": PREVIEW_EVENTS_MAX, "default": PREVIEW_EVENTS_MAX});
    let rows = json!({"type": "integer", "minimum": 1, "maximum": PEEK_ROWS_MAX, "default": queue::PEEK_ROWS_DEFAULT});
    let rollout = |operation: Operation| operation.fails(ROLLOUT).fails(codes::OF_THE_STORE);
    vec![
        get("/api/v1/packs", "list_packs", packs::list)
            .does("The generations of packs, newest first")
            .with("pack", "Only of this pack.", name())
            .answers::<wire::Packs>("The generations.")
            .fails(codes::OF_THE_STORE),
        rollout(post("/api/v1/packs", "install_pack", packs::install))
            .does("Installs a pack file as a generation")
            .takes_file()
            .with("activate", "Whether to activate it, too.", json!({"type": "boolean", "default": false}))
            .answers::<wire::Installed>("The generation that has this file.")
            .fails(&[codes::TOO_LARGE]),
        of(get("/api/v1/packs/{pack}/queue", "peek_queue", queue::peek))
            .does("Who is next in a pack's queue, and why not")
            .with("limit", "The most rows.", rows)
            .answers::<wire::Queue>("The head of the queue.")
            .fails(&[codes::NOT_FOUND])
            .fails(codes::OF_THE_STORE),
        of(rollout(post("/api/v1/packs/{pack}/activate", "activate_pack", packs::activate)))
            .does("Has another generation serve")
            .takes::<wire::Activate>()
            .answers::<wire::Activation>(active)
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/rollback", "rollback_pack", packs::rollback)))
            .does("Has an older generation serve again")
            .may_take::<wire::Rollback>()
            .answers::<wire::Activation>(active)
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/deactivate", "deactivate_pack", packs::deactivate)))
            .does("Closes a pack's routes")
            .answers::<wire::Activation>("Nothing is active now."),
        of(rollout(post("/api/v1/packs/{pack}/drain", "drain_pack", packs::drain)))
            .does("Moves a generation's unfinished work to another, or ends it as dead")
            .takes::<wire::Drain>()
            .answers::<wire::DrainOutcome>("How much was moved, and what is left.")
            .fails(&[codes::TOO_LARGE]),
        of(rollout(post("/api/v1/packs/{pack}/preview", "preview_pack", packs::preview_generation)))
            .does("What an installed generation would make of past events")
            .takes::<wire::PreviewWish>()
            .answers::<wire::Preview>("What the preview saw.")
            .fails(&[codes::TOO_LARGE]),
        rollout(post("/api/v1/packs/preview", "preview_pack_file", packs::preview_file))
            .does("What a pack file would make of past events")
            .takes_file()
            .with("last", "How many events, from the newest on.", last)
            .with(
                "against",
                "`active`, `recorded`, or a generation's number.",
                json!({"type": "string", "default": "active"}),
            )
            .answers::<wire::Preview>("What the preview saw.")
            .fails(&[codes::TOO_LARGE]),
    ]
}

/// An operation that changes what is stored of something that must be there.
fn change<T: ToSchema>(operation: Operation, answer: &'static str) -> Operation {
    operation.answers::<T>(answer).fails(&[codes::NOT_FOUND]).fails(codes::OF_THE_STORE).fails(codes::OF_CHANGES)
}

fn id(prefix: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}_[0-9a-f]{{32}}$")})
}

fn name() -> Value {
    json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"})
}

/// The name of a destination, or of a pack's own flow.
fn destination() -> Value {
    json!({"type": "string", "pattern": "^(flow:)?[a-z0-9][a-z0-9_-]{0,62}$"})
}

fn states<T: Copy>(all: &[T], word_of: fn(T) -> &'static str) -> Value {
    json!({"type": "string", "enum": wire::words(all, word_of)})
}
