//! `forebay:connector@0.1.0`, as it is in `wit/`: its bindings, and what they mean to the host.

use http::header::{HeaderName, HeaderValue};
use wasmtime::Store;
use wasmtime::component::{HasSelf, Linker};

use self::bindings::forebay::connector::{clock, config, diagnostics, log, random, types};
pub(super) use self::bindings::{Connector, ConnectorPre};
use super::returned::{self, Returned};
use crate::guest::ReadResponse;
use crate::guest::imports::{CallState, LogLevel};
use crate::model::event::Event;
use crate::model::message::DueAction;
use crate::model::pack::{ImportName, Reader};
use crate::model::reading::Reading;

#[allow(missing_docs, unreachable_pub, reason = "generated from wit/, which is documented")]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "connector",
        exports: { default: async },
    });
}

/// Makes what the manifest declares known to the linker.
pub(super) fn offer(linker: &mut Linker<CallState>, declared: &[ImportName]) -> wasmtime::Result<()> {
    types::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    diagnostics::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    for import in declared {
        match import {
            ImportName::Log => log::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
            ImportName::Config => config::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
            ImportName::Clock => clock::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
            ImportName::Random => random::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
        }
    }
    Ok(())
}

impl Connector {
    pub(super) async fn prepare(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        attempt: u32,
    ) -> wasmtime::Result<Returned<returned::Prepared>> {
        let returned = self.forebay_connector_flow().call_prepare(store, &event_of(event, attempt)).await?;
        Ok(returned.map(prepared).map_err(failure))
    }

    pub(super) async fn encode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
    ) -> wasmtime::Result<Returned<returned::HttpRequest>> {
        let returned = self.forebay_connector_flow().call_encode_read(store, reader.name.as_str(), keys).await?;
        Ok(returned.map(request).map_err(failure))
    }

    pub(super) async fn decode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
        response: &ReadResponse,
    ) -> wasmtime::Result<Returned<returned::Records>> {
        let response = response_of(response);
        let flow = self.forebay_connector_flow();
        let returned = flow.call_decode_read(store, reader.name.as_str(), keys, &response).await?;
        Ok(returned.map_err(failure))
    }

    pub(super) async fn run(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        attempt: u32,
        state: &[u8],
        readings: &[Reading],
    ) -> wasmtime::Result<Returned<returned::Output>> {
        let (event, readings) = (event_of(event, attempt), readings_of(readings));
        let returned = self.forebay_connector_flow().call_run(store, &event, state, &readings).await?;
        Ok(returned.map(output).map_err(failure))
    }

    pub(super) async fn apply(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        action: &DueAction,
        attempt: u32,
    ) -> wasmtime::Result<Returned<returned::Output>> {
        let action = action_of(event, action, attempt);
        let returned = self.forebay_connector_flow().call_apply(store, &action).await?;
        Ok(returned.map(output).map_err(failure))
    }
}

fn event_of(event: &Event, attempt: u32) -> types::Event {
    types::Event {
        id: event.id.to_string(),
        namespace: event.namespace.as_str().to_owned(),
        route: event.route.as_str().to_owned(),
        route_version: event.generation.0,
        source_key: event.source_key.clone(),
        delivery_key: event.delivery_key.clone(),
        received_at: event.received_at.as_millis(),
        content_type: event.content_type.clone(),
        headers: event
            .headers
            .iter()
            .map(|header| types::Header { name: header.name.clone(), value: header.value.to_vec() })
            .collect(),
        body: event.body.to_vec(),
        attempt,
    }
}

fn response_of(response: &ReadResponse) -> types::HttpResponse {
    let header = |(name, value): (&HeaderName, &HeaderValue)| types::Header {
        name: name.as_str().to_owned(),
        value: value.as_bytes().to_vec(),
    };
    types::HttpResponse {
        status: response.status.as_u16(),
        headers: response.headers.iter().map(header).collect(),
        body: response.body.to_vec(),
    }
}

fn readings_of(readings: &[Reading]) -> Vec<types::Reading> {
    let shown = |reading: &Reading| types::Reading {
        reader: reading.reader.as_str().to_owned(),
        key: reading.key.clone(),
        value: reading.value.as_ref().map(|value| value.to_vec()),
    };
    readings.iter().map(shown).collect()
}

fn action_of(event: &Event, action: &DueAction, attempt: u32) -> types::DueAction {
    types::DueAction {
        id: action.id.to_string(),
        namespace: event.namespace.as_str().to_owned(),
        event_id: event.id.to_string(),
        name: action.name.clone(),
        body: action.body.to_vec(),
        due_at: action.due_at.as_millis(),
        attempt,
    }
}

fn prepared(prepared: types::Prepared) -> returned::Prepared {
    match prepared {
        types::Prepared::Ignore(reason) => returned::Prepared::Ignore(reason),
        types::Prepared::Run(plan) => {
            let read = |read: types::Read| returned::Read { reader: read.reader, keys: read.keys };
            let reads = plan.reads.into_iter().map(read).collect();
            returned::Prepared::Run(returned::Plan { state: plan.state, reads })
        }
    }
}

fn request(request: types::HttpRequest) -> returned::HttpRequest {
    let types::HttpRequest { method, path, headers, body } = request;
    returned::HttpRequest { method, path, headers: headers.into_iter().map(header).collect(), body }
}

fn output(output: types::Output) -> returned::Output {
    returned::Output {
        note: output.note,
        messages: output.messages.into_iter().map(message).collect(),
        actions: output.actions.into_iter().map(action).collect(),
    }
}

fn message(message: types::Message) -> returned::Message {
    returned::Message {
        destination: message.destination,
        body: message.body,
        content_type: message.content_type,
        headers: message.headers.into_iter().map(header).collect(),
        ordering_key: message.ordering_key,
        idempotency_key: message.idempotency_key,
        due: due(message.due),
        expire_at: message.expire_at,
    }
}

fn action(action: types::Action) -> returned::Action {
    let types::Action { name, body, idempotency_key, due: when } = action;
    returned::Action { name, body, idempotency_key, due: due(when) }
}

fn header(header: types::Header) -> returned::Header {
    returned::Header { name: header.name, value: header.value }
}

fn due(due: types::Due) -> returned::Due {
    match due {
        types::Due::Now => returned::Due::Now,
        types::Due::After(millis) => returned::Due::After(millis),
        types::Due::At(millis) => returned::Due::At(millis),
    }
}

fn failure(failure: types::Failure) -> returned::Failure {
    match failure {
        types::Failure::Retry(retry) => returned::Failure::Retry { delay_ms: retry.delay, reason: retry.reason },
        types::Failure::Reject(reason) => returned::Failure::Reject(reason),
        types::Failure::InvalidInput(reason) => returned::Failure::InvalidInput(reason),
        types::Failure::Other(reason) => returned::Failure::Other(reason),
    }
}

impl types::Host for CallState {}

impl log::Host for CallState {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.write_line(level, &message);
    }
}

impl config::Host for CallState {
    fn get(&mut self, name: String) -> Option<String> {
        self.setting(&name)
    }
}

impl clock::Host for CallState {
    fn now(&mut self) -> i64 {
        self.time().as_millis()
    }
}

impl random::Host for CallState {
    fn next(&mut self) -> u64 {
        self.draw()
    }
}

impl diagnostics::Host for CallState {
    fn panicked(&mut self, message: String) {
        self.note_panic(message);
    }
}
