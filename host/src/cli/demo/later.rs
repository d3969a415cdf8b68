//! The fourth act: of two waiting reminders, one is rescheduled to an earlier time and fires, and one is cancelled.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::StatusCode;
use serde_json::json;

use super::outcome::parse_time;
use super::{Admitted, Stage, say};
use crate::env;
use crate::rig::http::{self as rig_http, Answer};

/// New delay of the first reminder.
const DELAY: Duration = Duration::from_millis(1_500);
/// Time for it beyond its due time.
const LATE_MAX: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Plays the act.
pub(super) async fn show(stage: &Stage, admitted: &[Admitted]) -> anyhow::Result<()> {
    let mut waiting = Vec::new();
    for one in admitted.iter().filter(|one| one.scripted.delivery.event == "pull_request") {
        let event = stage.event(&one.event).await?;
        let scheduled = event.messages.into_iter().find(|message| message.state == "scheduled");
        waiting.push(scheduled.with_context(|| format!("{}: there is no reminder", one.scripted.about))?.id);
    }
    let [first, second] = &waiting[..] else { bail!("there should be two reminders: {waiting:?}") };

    let cancelled = post(stage, second, "cancel", json!({})).await?;
    ensure!(cancelled.status == StatusCode::OK, "cancel: {cancelled:?}");
    say::line(format_args!("{second}  cancelled"));

    let moved = post(stage, first, "reschedule", json!({ "delay_ms": DELAY.as_millis() as u64 })).await?;
    ensure!(moved.status == StatusCode::OK, "reschedule: {moved:?}");
    say::line(format_args!("{first}  rescheduled to {} ms from now", DELAY.as_millis()));
    fires(stage, first).await?;

    let late = post(stage, first, "cancel", json!({})).await?;
    ensure!(late.status == StatusCode::CONFLICT && late.json()?["error"]["code"] == "too_late", "cancel: {late:?}");
    say::line(format_args!("{first}  cancelling it now: too_late, and the answer says so"));
    let key = stage.message(second).await?.idempotency_key;
    ensure!(stage.sink.attempts(&key).is_empty(), "a cancelled reminder was sent");
    Ok(())
}

async fn fires(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let message = stage.message(id).await?;
    let due_at = parse_time(&message.summary.due_at)?;
    let end = stage.env.clock.monotonic() + DELAY + LATE_MAX;
    let received = loop {
        if let Some(received) = stage.sink.attempts(&message.idempotency_key).pop() {
            break received;
        }
        ensure!(stage.env.clock.monotonic() < end, "{id} did not fire:\n{}", stage.site.host.log_tail());
        env::sleep(LOOK).await;
    };
    ensure!(received.at >= due_at, "{id} came early");
    say::line(format_args!("{id}  received {} after its time", say::offset(received.at.since(due_at))));
    Ok(())
}

async fn post(stage: &Stage, id: &str, verb: &str, body: serde_json::Value) -> anyhow::Result<Answer> {
    rig_http::post(stage.site.host.admin, &format!("/api/v1/messages/{id}/{verb}"), &body).await
}
