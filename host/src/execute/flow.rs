//! What executes an event: a loaded guest, or the native flow that does nothing.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::time::Instant;

use crate::guest::{Decoded, FlowOutput, LoadedGeneration, Prepared, ReadRequest, ReadResponse};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::message::DueAction;
use crate::model::pack::{Manifest, Reader};
use crate::model::reading::Reading;
use crate::model::time::Timestamp;

/// One generation's `prepare`, batch reads, `run` and `apply`. The executor drops a call that has not ended by its
/// deadline.
pub trait Flow: Send + Sync {
    /// What the pack declares.
    fn manifest(&self) -> &Arc<Manifest>;

    /// Looks at an event, and says whether it is to be run.
    fn prepare<'a>(
        &'a self,
        event: &'a Event,
        attempt: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Prepared, Failure>>;

    /// Writes the request that looks up `keys`, with a clock that shows `now`. Not asked of a flow without readers.
    fn encode_read<'a>(
        &'a self,
        reader: &'a Reader,
        _keys: &'a [String],
        _now: Timestamp,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<ReadRequest, Failure>> {
        ready(Err(no_reader(reader))).boxed()
    }

    /// Reads the answer to that request. Not asked of a flow without readers.
    fn decode_read<'a>(
        &'a self,
        reader: &'a Reader,
        _keys: &'a [String],
        _response: ReadResponse,
        _now: Timestamp,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Decoded, Failure>> {
        ready(Err(no_reader(reader))).boxed()
    }

    /// Runs it, with what `prepare` returned and what was read.
    fn run<'a>(
        &'a self,
        event: &'a Event,
        attempt: u32,
        state: Bytes,
        readings: &'a [Reading],
        deadline: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>>;

    /// Applies an action that came due, and that the event brought about. Not asked of a flow that emits none.
    fn apply<'a>(
        &'a self,
        _event: &'a Event,
        _action: &'a DueAction,
        _attempt: u32,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        ready(Err(Failure::new(FailureClass::Rejected, "this flow has no actions"))).boxed()
    }
}

impl Flow for LoadedGeneration {
    fn manifest(&self) -> &Arc<Manifest> {
        LoadedGeneration::manifest(self)
    }

    fn prepare<'a>(
        &'a self,
        event: &'a Event,
        attempt: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Prepared, Failure>> {
        LoadedGeneration::prepare(self, event, attempt, deadline).boxed()
    }

    fn encode_read<'a>(
        &'a self,
        reader: &'a Reader,
        keys: &'a [String],
        now: Timestamp,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<ReadRequest, Failure>> {
        LoadedGeneration::encode_read(self, reader, keys, now, deadline).boxed()
    }

    fn decode_read<'a>(
        &'a self,
        reader: &'a Reader,
        keys: &'a [String],
        response: ReadResponse,
        now: Timestamp,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Decoded, Failure>> {
        LoadedGeneration::decode_read(self, reader, keys, response, now, deadline).boxed()
    }

    fn run<'a>(
        &'a self,
        event: &'a Event,
        attempt: u32,
        state: Bytes,
        readings: &'a [Reading],
        deadline: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        LoadedGeneration::run(self, event, attempt, state, readings, deadline).boxed()
    }

    fn apply<'a>(
        &'a self,
        event: &'a Event,
        action: &'a DueAction,
        attempt: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        LoadedGeneration::apply(self, event, action, attempt, deadline).boxed()
    }
}

/// A native flow that takes every event and emits nothing: what is left is the cost of the queue itself. For
/// `forebay bench drain`.
pub struct NoopFlow {
    manifest: Arc<Manifest>,
}

impl NoopFlow {
    /// A flow that does nothing under this manifest.
    pub fn new(manifest: Arc<Manifest>) -> Self {
        Self { manifest }
    }
}

impl Flow for NoopFlow {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn prepare<'a>(&'a self, _: &'a Event, _: u32, _: Instant) -> BoxFuture<'a, Result<Prepared, Failure>> {
        ready(Ok(Prepared::Run { state: Bytes::new(), reads: Vec::new() })).boxed()
    }

    fn run<'a>(
        &'a self,
        _: &'a Event,
        _: u32,
        _: Bytes,
        _: &'a [Reading],
        _: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        ready(Ok(FlowOutput::NOTHING)).boxed()
    }
}

fn no_reader(reader: &Reader) -> Failure {
    Failure::new(FailureClass::Rejected, format!("this flow has no reader `{}`", reader.name))
}
