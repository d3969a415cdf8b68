//! The adapter: what an attempt at a message is, for one kind of destination.
//!
//! Invariant: an adapter says what became of the attempt and nothing else. It records nothing, and knows no lane.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::ClaimedMessage;
use super::http::HttpAdapter;
use super::reliance::Reliance;
use super::sign::sign;
use super::verdict::Verdict;
use crate::model::destination::Destination;
use crate::model::names::Namespace;
use crate::secrets::Secrets;
use crate::store::Payload;

/// How messages to a destination are worked off.
pub(super) trait Adapter: Send + Sync {
    /// Whether an attempt needs the message's payload.
    fn needs_payload(&self) -> bool;

    /// Makes one attempt at an admitted message; `payload` is there if it is needed. Nobody is called after the end of
    /// `reliance`.
    fn attempt<'a>(
        &'a self,
        message: &'a ClaimedMessage,
        payload: Option<Payload>,
        reliance: &'a Reliance,
    ) -> BoxFuture<'a, Verdict>;

    /// What this host lacks for every attempt at a tenant's messages, if it lacks anything: no destination could mend
    /// it.
    fn obstacle(&self, _namespace: &Namespace) -> Option<String> {
        None
    }
}

/// A destination that is called over HTTP.
pub(super) struct HttpDestination {
    pub(super) http: Arc<HttpAdapter>,
    pub(super) secrets: Secrets,
    pub(super) destination: Destination,
}

impl HttpDestination {
    async fn call(&self, message: &ClaimedMessage, payload: Payload, reliance: &Reliance) -> Verdict {
        let Some(name) = &self.destination.secret else {
            return self.http.call(&self.destination, &[], payload, reliance).await;
        };
        match self.secrets.get(&message.namespace, name) {
            Ok(secrets) => self.http.call(&self.destination, &secrets, payload, reliance).await,
            // Never unsigned instead.
            Err(error) => Verdict::unfit(error.to_string()),
        }
    }
}

impl Adapter for HttpDestination {
    fn needs_payload(&self) -> bool {
        true
    }

    fn attempt<'a>(
        &'a self,
        message: &'a ClaimedMessage,
        payload: Option<Payload>,
        reliance: &'a Reliance,
    ) -> BoxFuture<'a, Verdict> {
        async move {
            match payload {
                Some(payload) => self.call(message, payload, reliance).await,
                None => Verdict::not_made("its body could not be loaded"),
            }
        }
        .boxed()
    }

    fn obstacle(&self, namespace: &Namespace) -> Option<String> {
        check_secret(&self.destination, namespace, &self.secrets).err()
    }
}

/// Whether a tenant's messages to a destination can be signed as it asks; if not, why.
pub fn check_secret(destination: &Destination, namespace: &Namespace, secrets: &Secrets) -> Result<(), String> {
    let Some(name) = &destination.secret else { return Ok(()) };
    let secrets = secrets.get(namespace, name).map_err(|error| error.to_string())?;
    let signed = sign(&secrets, "", 0, b"");
    signed.map(drop).map_err(|error| format!("secret `{name}` for namespace `{namespace}`: {error}"))
}

/// What a native destination makes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeAnswer {
    /// It takes the message.
    Taken,
    /// It fails, and may take the message later.
    Failed,
}

/// What is called instead of a destination: for `forebay bench`, which measures everything but the call itself.
pub type NativeCall = Arc<dyn Fn(&ClaimedMessage) -> BoxFuture<'static, NativeAnswer> + Send + Sync>;

/// Destinations that are functions of this process.
pub(super) struct NativeAdapter {
    pub(super) call: NativeCall,
}

impl Adapter for NativeAdapter {
    fn needs_payload(&self) -> bool {
        false
    }

    fn attempt<'a>(
        &'a self,
        message: &'a ClaimedMessage,
        _: Option<Payload>,
        _: &'a Reliance,
    ) -> BoxFuture<'a, Verdict> {
        let answer = (self.call)(message);
        async move {
            match answer.await {
                NativeAnswer::Taken => Verdict::Taken(None),
                NativeAnswer::Failed => Verdict::not_sent("it failed"),
            }
        }
        .boxed()
    }
}

/// The flow of a pack: an action becomes a WorkItem.
///
/// There is nobody to call. The store makes the WorkItem in the transaction that records that the action was handed
/// off, so a crash can come before both or after both, and no attempt is ever uncertain.
pub(super) struct FlowAdapter;

impl Adapter for FlowAdapter {
    fn needs_payload(&self) -> bool {
        false
    }

    fn attempt<'a>(
        &'a self,
        message: &'a ClaimedMessage,
        _: Option<Payload>,
        _: &'a Reliance,
    ) -> BoxFuture<'a, Verdict> {
        let is_action = message.destination.is_flow();
        async move { if is_action { Verdict::HandedOff } else { Verdict::not_made("it is no action") } }.boxed()
    }
}
