//! Conversions between the contract's generated types and the SDK's own. Connectors use them through
//! [`crate::export!`] only.

use std::marker::PhantomData;
use std::time::Duration;

use self::bindings::exports::forebay::connector::flow::Guest;
use self::bindings::forebay::connector::types as wire;
use crate::{
    Action, Connector, Due, DueAction, Event, Failure, Header, HttpRequest, HttpResponse, Message, Output, Prepared,
    Read, Reading, Timestamp,
};

#[allow(missing_docs, reason = "generated from wit/, which is documented")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "connector",
        pub_export_macro: true,
        export_macro_name: "export_component",
        default_bindings_module: "forebay_sdk::export::bindings",
    });
}

pub use self::bindings::export_component;

/// Checks the argument of [`crate::export!`] on every target.
pub fn is_connector<C: Connector>() {}

/// The component's exports, implemented by connector `C`.
pub struct Exported<C>(PhantomData<C>);

impl<C: Connector> Guest for Exported<C> {
    fn prepare(event: wire::Event) -> Result<wire::Prepared, wire::Failure> {
        report_panics();
        match C::prepare(&event.into())? {
            Prepared::Ignore { reason } => Ok(wire::Prepared::Ignore(reason)),
            Prepared::Run { state, reads } => {
                let state = serde_json::to_vec(&state).map_err(Failure::from)?;
                let reads = reads.into_iter().map(wire::Read::from).collect();
                Ok(wire::Prepared::Run(wire::Plan { state, reads }))
            }
        }
    }

    fn encode_read(reader: String, keys: Vec<String>) -> Result<wire::HttpRequest, wire::Failure> {
        report_panics();
        Ok(C::encode_read(&reader, &keys)?.into())
    }

    fn decode_read(
        reader: String,
        keys: Vec<String>,
        response: wire::HttpResponse,
    ) -> Result<Vec<(String, Vec<u8>)>, wire::Failure> {
        report_panics();
        Ok(C::decode_read(&reader, &keys, &response.into())?)
    }

    fn run(event: wire::Event, state: Vec<u8>, readings: Vec<wire::Reading>) -> Result<wire::Output, wire::Failure> {
        report_panics();
        let state = serde_json::from_slice(&state).map_err(Failure::from)?;
        let readings: Vec<Reading> = readings.into_iter().map(Reading::from).collect();
        Ok(C::run(&event.into(), state, &readings)?.into())
    }

    fn apply(action: wire::DueAction) -> Result<wire::Output, wire::Failure> {
        report_panics();
        Ok(C::apply(&action.into())?.into())
    }
}

/// Sends the message of a panic to the host before the trap, which has no message.
fn report_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| bindings::forebay::connector::diagnostics::panicked(&panic.to_string())));
}

impl From<wire::Event> for Event {
    fn from(event: wire::Event) -> Self {
        Self {
            id: event.id,
            namespace: event.namespace,
            route: event.route,
            route_version: event.route_version,
            source_key: event.source_key,
            delivery_key: event.delivery_key,
            received_at: Timestamp::from_millis(event.received_at),
            content_type: event.content_type,
            headers: event.headers.into_iter().map(Header::from).collect(),
            body: event.body,
            attempt: event.attempt,
        }
    }
}

impl From<wire::Header> for Header {
    fn from(header: wire::Header) -> Self {
        Self { name: header.name, value: header.value }
    }
}

impl From<Header> for wire::Header {
    fn from(header: Header) -> Self {
        Self { name: header.name, value: header.value }
    }
}

impl From<Read> for wire::Read {
    fn from(read: Read) -> Self {
        Self { reader: read.reader, keys: read.keys }
    }
}

impl From<wire::Reading> for Reading {
    fn from(reading: wire::Reading) -> Self {
        Self { reader: reading.reader, key: reading.key, value: reading.value }
    }
}

impl From<HttpRequest> for wire::HttpRequest {
    fn from(request: HttpRequest) -> Self {
        let headers = request.headers.into_iter().map(wire::Header::from).collect();
        Self { method: request.method, path: request.path, headers, body: request.body }
    }
}

impl From<wire::HttpResponse> for HttpResponse {
    fn from(response: wire::HttpResponse) -> Self {
        let headers = response.headers.into_iter().map(Header::from).collect();
        Self { status: response.status, headers, body: response.body }
    }
}

impl From<Output> for wire::Output {
    fn from(output: Output) -> Self {
        Self {
            note: output.note,
            messages: output.messages.into_iter().map(wire::Message::from).collect(),
            actions: output.actions.into_iter().map(wire::Action::from).collect(),
        }
    }
}

impl From<Message> for wire::Message {
    fn from(message: Message) -> Self {
        Self {
            destination: message.destination,
            body: message.body,
            content_type: message.content_type,
            headers: message.headers.into_iter().map(wire::Header::from).collect(),
            ordering_key: message.ordering_key,
            idempotency_key: message.idempotency_key,
            due: message.due.into(),
            expire_at: message.expire_at.map(Timestamp::as_millis),
        }
    }
}

impl From<Action> for wire::Action {
    fn from(action: Action) -> Self {
        Self { name: action.name, body: action.body, idempotency_key: action.idempotency_key, due: action.due.into() }
    }
}

impl From<wire::DueAction> for DueAction {
    fn from(action: wire::DueAction) -> Self {
        Self {
            id: action.id,
            namespace: action.namespace,
            event_id: action.event_id,
            name: action.name,
            body: action.body,
            due_at: Timestamp::from_millis(action.due_at),
            attempt: action.attempt,
        }
    }
}

impl From<Due> for wire::Due {
    fn from(due: Due) -> Self {
        match due {
            Due::Now => wire::Due::Now,
            Due::After(delay) => wire::Due::After(millis(delay)),
            Due::At(time) => wire::Due::At(time.as_millis()),
        }
    }
}

impl From<Failure> for wire::Failure {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Retry { delay, reason } => wire::Failure::Retry(wire::Retry { delay: delay.map(millis), reason }),
            Failure::Reject(reason) => wire::Failure::Reject(reason),
            Failure::InvalidInput(reason) => wire::Failure::InvalidInput(reason),
            Failure::Other(reason) => wire::Failure::Other(reason),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
