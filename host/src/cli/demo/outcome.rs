//! The third act: each Event, stage by stage, with the times at which the stages ended.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::{Admitted, Stage, say};
use crate::admin::wire::{EventDetail, MessageSummary, WorkItem};
use crate::env;
use crate::model::time::Timestamp;
use crate::rig::site::DESTINATION_SECRET;

/// Time until an event is done and its messages that are due have arrived.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until each event is done, and shows its stages.
pub(super) async fn show(stage: &Stage, admitted: &[Admitted]) -> anyhow::Result<()> {
    for (at, one) in admitted.iter().enumerate() {
        let event = settled(stage, &one.event).await?;
        let admitted_at = parse_time(&event.received_at)?;
        let work_item = event.work_items.first().context("an Event has a WorkItem")?;
        show_work_item(at + 1, one, work_item, admitted_at)?;
        for message in &event.messages {
            show_message(stage, message, admitted_at).await?;
        }
    }
    Ok(())
}

/// The event, once it is done and none of its messages is in flight.
pub(super) async fn settled(stage: &Stage, id: &str) -> anyhow::Result<EventDetail> {
    let end = stage.env.clock.monotonic() + SETTLE_MAX;
    loop {
        let event = stage.event(id).await?;
        let now = crate::admin::wire::rfc3339(stage.env.now());
        let due = |message: &MessageSummary| message.due_at <= now;
        let done = event.work_items.iter().all(|item| item.finished_at.is_some());
        if done && event.messages.iter().all(|message| message.finished_at.is_some() || !due(message)) {
            return Ok(event);
        }
        if stage.env.clock.monotonic() > end {
            bail!("{id} is not done after {} s: {event:?}\n{}", SETTLE_MAX.as_secs(), stage.site.host.log_tail());
        }
        env::sleep(LOOK).await;
    }
}

fn show_work_item(number: usize, one: &Admitted, item: &WorkItem, admitted_at: Timestamp) -> anyhow::Result<()> {
    ensure!(item.state == "done", "{}: {item:?}", one.scripted.about);
    let finished_at = parse_time(item.finished_at.as_deref().context("it is done")?)?;
    let verdict = if item.ignored { "ignored" } else { "done" };
    say::line(format_args!(
        "{number:>3}  {:<13} {:<22} admitted {}  claimed {}x  {verdict} {:>8}   {}",
        one.scripted.delivery.event,
        one.scripted.about,
        clock_time(admitted_at)?,
        item.attempt,
        say::offset(finished_at.since(admitted_at)),
        item.note.as_deref().unwrap_or_default(),
    ));
    Ok(())
}

async fn show_message(stage: &Stage, message: &MessageSummary, admitted_at: Timestamp) -> anyhow::Result<()> {
    let since = |time: &str| parse_time(time).map(|time| say::offset(time.since(admitted_at)));
    let Some(finished_at) = &message.finished_at else {
        say::line(format_args!("       to {}, scheduled, due {}", message.destination, since(&message.due_at)?));
        return Ok(());
    };
    ensure!(message.state == "published", "{message:?}");
    let detail = stage.message(&message.id).await?;
    let attempts = stage.sink.attempts(&detail.idempotency_key);
    let received = attempts.first().with_context(|| format!("{} never arrived", message.id))?;
    ensure!(received.is_signed_with(DESTINATION_SECRET), "{} has a wrong signature", message.id);
    say::line(format_args!(
        "       to {}: admitted {}, received {}, published {}, signature valid",
        message.destination,
        since(detail.admitted_at.as_deref().context("it was published")?)?,
        say::offset(received.at.since(admitted_at)),
        since(finished_at)?,
    ));
    Ok(())
}

/// A time of the API.
pub(super) fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    let time: jiff::Timestamp = text.parse().with_context(|| format!("`{text}` is not a time"))?;
    Ok(Timestamp::from_millis(time.as_millisecond()))
}

/// The time of day, in UTC.
fn clock_time(time: Timestamp) -> anyhow::Result<String> {
    let text = crate::admin::wire::rfc3339(time);
    let (_, clock) = text.split_once('T').context("RFC 3339 has a T")?;
    Ok(clock.trim_end_matches('Z').to_owned())
}
