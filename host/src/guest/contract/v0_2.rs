//! `forebay:connector@0.2.0` of `v0_2.wit`, for tests alone: the seam between the versions has two sides only while
//! there are two versions.

use wasmtime::Store;
use wasmtime::component::{HasSelf, Linker};

use self::bindings::forebay::connector::{clock, diagnostics, log, types};
pub(super) use self::bindings::{Connector, ConnectorPre};
use super::returned::{self, Returned};
use crate::guest::ReadResponse;
use crate::guest::imports::{CallState, LogLevel};
use crate::model::event::Event;
use crate::model::message::DueAction;
use crate::model::pack::{ImportName, Reader};
use crate::model::reading::Reading;

#[allow(missing_docs, unreachable_pub, reason = "generated from v0_2.wit")]
mod bindings {
    wasmtime::component::bindgen!({
        path: "src/guest/contract/v0_2.wit",
        world: "connector",
        exports: { default: async },
    });
}

/// Makes what the manifest declares, and this version has, known to the linker.
pub(super) fn offer(linker: &mut Linker<CallState>, declared: &[ImportName]) -> wasmtime::Result<()> {
    types::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    diagnostics::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    for import in declared {
        match import {
            ImportName::Log => log::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
            ImportName::Clock => clock::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?,
            ImportName::Config | ImportName::Random => {}
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
        let returned = self.forebay_connector_flow().call_prepare(store, &event_of(event), attempt).await?;
        Ok(returned.map(prepared).map_err(failure))
    }

    pub(super) async fn encode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
    ) -> wasmtime::Result<Returned<returned::HttpRequest>> {
        let returned = self.forebay_connector_flow().call_encode_read(store, &read_of(reader, keys)).await?;
        let request = |types::HttpRequest { method, path, headers, body }| returned::HttpRequest {
            method,
            path,
            headers: headers.into_iter().map(header).collect(),
            body,
        };
        Ok(returned.map(request).map_err(failure))
    }

    pub(super) async fn decode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
        response: &ReadResponse,
    ) -> wasmtime::Result<Returned<returned::Records>> {
        let headers = response.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let response = types::HttpResponse {
            status: response.status.as_u16(),
            headers: headers.collect(),
            body: response.body.to_vec(),
        };
        let flow = self.forebay_connector_flow();
        Ok(flow.call_decode_read(store, &read_of(reader, keys), &response).await?.map_err(failure))
    }

    pub(super) async fn run(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        attempt: u32,
        state: &[u8],
        readings: &[Reading],
    ) -> wasmtime::Result<Returned<returned::Output>> {
        let reading = |reading: &Reading| types::Reading {
            reader: reading.reader.as_str().to_owned(),
            key: reading.key.clone(),
            value: reading.value.as_ref().map(|value| value.to_vec()),
        };
        let readings = readings.iter().map(reading).collect();
        let call = types::Call { event: event_of(event), attempt, state: state.to_vec(), readings };
        Ok(self.forebay_connector_flow().call_run(store, &call).await?.map(output).map_err(failure))
    }

    pub(super) async fn apply(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        action: &DueAction,
        attempt: u32,
    ) -> wasmtime::Result<Returned<returned::Output>> {
        let action = types::DueAction {
            id: action.id.to_string(),
            namespace: event.namespace.as_str().to_owned(),
            event_id: event.id.to_string(),
            name: action.name.clone(),
            body: action.body.to_vec(),
            due_at: action.due_at.as_millis(),
        };
        Ok(self.forebay_connector_flow().call_apply(store, &action, attempt).await?.map(output).map_err(failure))
    }
}

fn event_of(event: &Event) -> types::Event {
    types::Event {
        id: event.id.to_string(),
        namespace: event.namespace.as_str().to_owned(),
        route: event.route.as_str().to_owned(),
        route_version: event.generation.0,
        delivery_key: event.delivery_key.clone(),
        source_key: event.source_key.clone(),
        received_at: event.received_at.as_millis(),
        headers: event.headers.iter().map(|header| (header.name.clone(), header.value.to_vec())).collect(),
        content: types::Content { content_type: event.content_type.clone(), body: event.body.to_vec() },
    }
}

fn read_of(reader: &Reader, keys: &[String]) -> types::Read {
    types::Read { reader: reader.name.as_str().to_owned(), keys: keys.to_vec() }
}

fn prepared(plan: Option<types::Plan>) -> returned::Prepared {
    let Some(plan) = plan else { return returned::Prepared::Ignore("of no interest".to_owned()) };
    let read = |types::Read { reader, keys }| returned::Read { reader, keys };
    let reads = plan.reads.into_iter().map(read).collect();
    returned::Prepared::Run(returned::Plan { state: plan.state, reads })
}

fn output(output: types::Output) -> returned::Output {
    let messages = output.messages.into_iter().map(message).collect();
    returned::Output { note: output.note, messages, actions: Vec::new() }
}

fn message(message: types::Message) -> returned::Message {
    returned::Message {
        destination: message.destination,
        body: message.content.body,
        content_type: message.content.content_type,
        headers: message.headers.into_iter().map(header).collect(),
        ordering_key: message.ordering_key,
        idempotency_key: message.idempotency_key,
        due: if message.delay == 0 { returned::Due::Now } else { returned::Due::After(message.delay) },
        expire_at: message.expire_at,
    }
}

fn header((name, value): types::Header) -> returned::Header {
    returned::Header { name, value }
}

fn failure(failure: types::Failure) -> returned::Failure {
    let types::Failure { kind, reason, delay } = failure;
    match kind {
        types::FailureKind::Final => returned::Failure::Reject(reason),
        types::FailureKind::Passing => returned::Failure::Retry { delay_ms: delay, reason },
    }
}

impl types::Host for CallState {}

impl log::Host for CallState {
    fn write(&mut self, line: String, important: bool) {
        self.write_line(if important { LogLevel::Warn } else { LogLevel::Info }, &line);
    }
}

impl clock::Host for CallState {
    fn now(&mut self) -> u64 {
        self.time().as_millis().cast_unsigned()
    }
}

impl diagnostics::Host for CallState {
    fn panicked(&mut self, message: String) {
        self.note_panic(message);
    }
}
