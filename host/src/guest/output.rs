//! What a guest returned, checked and turned into the host's own types. Whatever passes here, the rest of the host can
//! store and send.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::contract::returned::{self, Returned};
use super::reads::wishes;
use super::{Due, EmittedAction, EmittedMessage, FlowOutput, Prepared};
use crate::model::event::{CONTENT_TYPE_BYTES_MAX, Header};
use crate::model::failure::{Failure, FailureClass};
use crate::model::message::is_reserved_header;
use crate::model::names::DestinationName;
use crate::model::pack::Manifest;
use crate::model::time::Timestamp;

/// The longest text for people: a note, a reason to ignore.
const NOTE_BYTES_MAX: usize = 1_024;
/// The longest ordering or idempotency key.
const KEY_BYTES_MAX: usize = 255;
/// The longest name of an action.
const ACTION_NAME_BYTES_MAX: usize = 255;
/// Headers of one message.
const HEADERS_MAX: usize = 64;
/// The longest name of a header, and the longest value.
const HEADER_NAME_BYTES_MAX: usize = 256;
const HEADER_VALUE_BYTES_MAX: usize = 8 * 1_024;
/// The furthest future that a message can be meant for: ten years.
const FUTURE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Takes what `prepare` returned.
pub(super) fn prepared(result: Returned<returned::Prepared>, manifest: &Manifest) -> Result<Prepared, Failure> {
    match result.map_err(failed)? {
        returned::Prepared::Ignore(reason) => Ok(Prepared::Ignore { reason: shortened(reason) }),
        returned::Prepared::Run(plan) => {
            within_output_bytes(plan.state.len(), manifest)?;
            Ok(Prepared::Run { state: Bytes::from(plan.state), reads: wishes(plan.reads, manifest)? })
        }
    }
}

/// Takes what `run` or `apply` returned. Times are judged from `since` on, when the event came or the action was due.
pub(super) fn output(
    result: Returned<returned::Output>,
    manifest: &Manifest,
    since: Timestamp,
) -> Result<FlowOutput, Failure> {
    let output = result.map_err(failed)?;
    let (emitted, allowed) = (output.messages.len() + output.actions.len(), manifest.limits.messages);
    if emitted > allowed as usize {
        return Err(bad(format!("emitted {emitted} messages and actions: `limits.messages` is {allowed}")));
    }
    let action_bytes: usize = output.actions.iter().map(action_size).sum();
    within_output_bytes(output.messages.iter().map(size).sum::<usize>() + action_bytes, manifest)?;
    let messages =
        output.messages.into_iter().map(|message| checked(message, manifest, since)).collect::<Result<_, _>>()?;
    let actions = output.actions.into_iter().map(|action| checked_action(action, since)).collect::<Result<_, _>>()?;
    Ok(FlowOutput { note: output.note.map(shortened), messages, actions })
}

pub(super) fn failed(failure: returned::Failure) -> Failure {
    let (class, reason) = match failure {
        returned::Failure::Retry { delay_ms, reason } => {
            (FailureClass::Retry { delay: delay_ms.map(Duration::from_millis) }, reason)
        }
        returned::Failure::Reject(reason) => (FailureClass::Rejected, reason),
        returned::Failure::InvalidInput(reason) => (FailureClass::InvalidInput, reason),
        returned::Failure::Other(reason) => (FailureClass::Retry { delay: None }, reason),
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

fn size(message: &returned::Message) -> usize {
    let headers: usize = message.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    let keys = [&message.ordering_key, &message.idempotency_key].into_iter().flatten().map(String::len).sum::<usize>();
    message.destination.len() + message.body.len() + message.content_type.len() + headers + keys
}

fn action_size(action: &returned::Action) -> usize {
    action.name.len() + action.body.len() + action.idempotency_key.as_ref().map_or(0, String::len)
}

fn checked_action(action: returned::Action, since: Timestamp) -> Result<EmittedAction, Failure> {
    if !(1..=ACTION_NAME_BYTES_MAX).contains(&action.name.len()) {
        let bytes = action.name.len();
        return Err(bad(format!(
            "emitted an action whose name has {bytes} bytes: 1 to {ACTION_NAME_BYTES_MAX} are allowed"
        )));
    }
    Ok(EmittedAction {
        name: action.name,
        body: Bytes::from(action.body),
        idempotency_key: action.idempotency_key.map(idempotency_key).transpose()?,
        due: due(action.due, since)?,
    })
}

fn due(due: returned::Due, since: Timestamp) -> Result<Due, Failure> {
    match due {
        returned::Due::Now => Ok(Due::Now),
        returned::Due::After(millis) if u128::from(millis) <= FUTURE_MAX.as_millis() => {
            Ok(Due::After(Duration::from_millis(millis)))
        }
        returned::Due::After(_) => Err(bad("emitted something that is due in more than ten years")),
        returned::Due::At(millis) => Ok(Due::At(time(millis, since)?)),
    }
}

fn checked(message: returned::Message, manifest: &Manifest, since: Timestamp) -> Result<EmittedMessage, Failure> {
    if HeaderValue::from_str(&message.content_type).is_err() || message.content_type.is_empty() {
        return Err(bad("emitted a message whose content-type cannot be sent"));
    }
    if message.content_type.len() > CONTENT_TYPE_BYTES_MAX {
        let bytes = message.content_type.len();
        return Err(bad(format!(
            "emitted a message whose content-type has {bytes} bytes: at most {CONTENT_TYPE_BYTES_MAX} are allowed"
        )));
    }
    if message.headers.len() > HEADERS_MAX {
        return Err(bad(format!(
            "emitted a message with {} headers: at most {HEADERS_MAX} are sent",
            message.headers.len()
        )));
    }
    let due = due(message.due, since)?;
    Ok(EmittedMessage {
        destination: destination(&message.destination, manifest)?,
        body: Bytes::from(message.body),
        content_type: message.content_type,
        headers: message.headers.into_iter().map(header).collect::<Result<_, _>>()?,
        ordering_key: message.ordering_key.map(|key| key_of("ordering", key)).transpose()?,
        idempotency_key: message.idempotency_key.map(idempotency_key).transpose()?,
        due,
        expire_at: message.expire_at.map(|millis| time(millis, since)).transpose()?,
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

fn header(header: returned::Header) -> Result<Header, Failure> {
    let (name_bytes, value_bytes) = (header.name.len(), header.value.len());
    if name_bytes > HEADER_NAME_BYTES_MAX || value_bytes > HEADER_VALUE_BYTES_MAX {
        return Err(bad(format!(
            "emitted a message with a header of {name_bytes} and {value_bytes} bytes: names have at most {HEADER_NAME_BYTES_MAX}, \
             values {HEADER_VALUE_BYTES_MAX}"
        )));
    }
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
            "emitted something whose {kind} key has {} bytes: 1 to {KEY_BYTES_MAX} are allowed",
            key.len()
        )))
    }
}

/// It may travel in a header.
fn idempotency_key(key: String) -> Result<String, Failure> {
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("emitted something whose idempotency key is not of visible ASCII characters"));
    }
    key_of("idempotency", key)
}

fn time(millis: i64, since: Timestamp) -> Result<Timestamp, Failure> {
    let time = Timestamp::from_millis(millis);
    if millis < 0 || time > since + FUTURE_MAX {
        return Err(bad("emitted something with a time before 1970, or in more than ten years"));
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
