//! What a guest returned, checked and turned into the host's own types. Whatever passes here, the rest of the host can
//! store and send.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::bindings::forebay::connector::types as wire;
use super::reads::wishes;
use super::{Due, EmittedMessage, FlowOutput, Prepared};
use crate::model::event::{Event, Header};
use crate::model::failure::{Failure, FailureClass};
use crate::model::message::is_reserved_header;
use crate::model::names::DestinationName;
use crate::model::pack::Manifest;
use crate::model::time::Timestamp;

/// The longest text for people: a note, a reason to ignore.
const NOTE_BYTES_MAX: usize = 1_024;
/// The longest ordering or idempotency key.
const KEY_BYTES_MAX: usize = 255;
/// Headers of one message.
const HEADERS_MAX: usize = 64;
/// The furthest future that a message can be meant for: ten years.
const FUTURE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Takes what `prepare` returned.
pub(super) fn prepared(
    result: Result<wire::Prepared, wire::Failure>,
    manifest: &Manifest,
) -> Result<Prepared, Failure> {
    match result.map_err(failed)? {
        wire::Prepared::Ignore(reason) => Ok(Prepared::Ignore { reason: shortened(reason) }),
        wire::Prepared::Run(plan) => {
            within_output_bytes(plan.state.len(), manifest)?;
            Ok(Prepared::Run { state: Bytes::from(plan.state), reads: wishes(plan.reads, manifest)? })
        }
    }
}

/// Takes what `run` returned.
pub(super) fn output(
    result: Result<wire::Output, wire::Failure>,
    manifest: &Manifest,
    event: &Event,
) -> Result<FlowOutput, Failure> {
    let output = result.map_err(failed)?;
    if !output.actions.is_empty() {
        return Err(bad("actions are not served by this version of the host"));
    }
    let (emitted, allowed) = (output.messages.len(), manifest.limits.messages);
    if emitted > allowed as usize {
        return Err(bad(format!("emitted {emitted} messages: `limits.messages` is {allowed}")));
    }
    within_output_bytes(output.messages.iter().map(size).sum(), manifest)?;
    let messages =
        output.messages.into_iter().map(|message| checked(message, manifest, event)).collect::<Result<_, _>>()?;
    Ok(FlowOutput { note: output.note.map(shortened), messages })
}

pub(super) fn failed(failure: wire::Failure) -> Failure {
    let (class, reason) = match failure {
        wire::Failure::Retry(retry) => {
            (FailureClass::Retry { delay: retry.delay.map(Duration::from_millis) }, retry.reason)
        }
        wire::Failure::Reject(reason) => (FailureClass::Rejected, reason),
        wire::Failure::InvalidInput(reason) => (FailureClass::InvalidInput, reason),
        wire::Failure::Other(reason) => (FailureClass::Retry { delay: None }, reason),
    };
    Failure::new(class, if reason.is_empty() { "the guest gave no reason".to_owned() } else { reason })
}

pub(super) fn within_output_bytes(bytes: usize, manifest: &Manifest) -> Result<(), Failure> {
    let allowed = manifest.limits.output_bytes;
    if bytes as u64 > allowed {
        return Err(bad(format!("returned {bytes} bytes: `limits.output_kib` allows {allowed}")));
    }
    Ok(())
}

fn size(message: &wire::Message) -> usize {
    let headers: usize = message.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    let keys = [&message.ordering_key, &message.idempotency_key].into_iter().flatten().map(String::len).sum::<usize>();
    message.destination.len() + message.body.len() + message.content_type.len() + headers + keys
}

fn checked(message: wire::Message, manifest: &Manifest, event: &Event) -> Result<EmittedMessage, Failure> {
    if HeaderValue::from_str(&message.content_type).is_err() || message.content_type.is_empty() {
        return Err(bad("emitted a message whose content-type cannot be sent"));
    }
    if message.headers.len() > HEADERS_MAX {
        return Err(bad(format!(
            "emitted a message with {} headers: at most {HEADERS_MAX} are sent",
            message.headers.len()
        )));
    }
    let due = match message.due {
        wire::Due::Now => Due::Now,
        wire::Due::After(millis) if u128::from(millis) <= FUTURE_MAX.as_millis() => {
            Due::After(Duration::from_millis(millis))
        }
        wire::Due::After(_) => return Err(bad("emitted a message that is due in more than ten years")),
        wire::Due::At(millis) => Due::At(time(millis, event)?),
    };
    Ok(EmittedMessage {
        destination: destination(&message.destination, manifest)?,
        body: Bytes::from(message.body),
        content_type: message.content_type,
        headers: message.headers.into_iter().map(header).collect::<Result<_, _>>()?,
        ordering_key: message.ordering_key.map(|key| key_of("ordering", key)).transpose()?,
        idempotency_key: message.idempotency_key.map(idempotency_key).transpose()?,
        due,
        expire_at: message.expire_at.map(|millis| time(millis, event)).transpose()?,
    })
}

fn destination(name: &str, manifest: &Manifest) -> Result<DestinationName, Failure> {
    match manifest.destinations.iter().find(|declared| declared.as_str() == name) {
        Some(declared) => Ok(declared.clone()),
        None => {
            let declared: Vec<&str> = manifest.destinations.iter().map(DestinationName::as_str).collect();
            let shown: String = name.chars().take(80).collect();
            Err(bad(format!(
                "emitted a message to `{shown}`, which is not in the manifest's `destinations` [{}]",
                declared.join(", ")
            )))
        }
    }
}

fn header(header: wire::Header) -> Result<Header, Failure> {
    let Ok(name) = HeaderName::from_bytes(header.name.as_bytes()) else {
        return Err(bad("emitted a message with a header whose name cannot be sent"));
    };
    if is_reserved_header(name.as_str()) {
        return Err(bad(format!("emitted a message with the header `{name}`, which is the host's to set")));
    }
    if HeaderValue::from_bytes(&header.value).is_err() {
        return Err(bad(format!("emitted a message whose header `{name}` has a value that cannot be sent")));
    }
    Ok(Header { name: name.as_str().to_owned(), value: Bytes::from(header.value) })
}

fn key_of(kind: &str, key: String) -> Result<String, Failure> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        Ok(key)
    } else {
        Err(bad(format!(
            "emitted a message whose {kind} key has {} bytes: 1 to {KEY_BYTES_MAX} are allowed",
            key.len()
        )))
    }
}

/// It may travel in a header.
fn idempotency_key(key: String) -> Result<String, Failure> {
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("emitted a message whose idempotency key is not of visible ASCII characters"));
    }
    key_of("idempotency", key)
}

fn time(millis: i64, event: &Event) -> Result<Timestamp, Failure> {
    let time = Timestamp::from_millis(millis);
    if millis < 0 || time > event.received_at + FUTURE_MAX {
        return Err(bad("emitted a message with a time before 1970, or in more than ten years"));
    }
    Ok(time)
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NOTE_BYTES_MAX));
    text
}

pub(super) fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::BadOutput, message)
}
