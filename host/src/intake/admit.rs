//! Admission, step by step, in the order in which the steps get dearer.
//!
//! Invariants:
//! - A place in the budget comes first, and is held until the store has answered, whatever became of the sender.
//! - From a verified body on, the enqueue is finished even if the connection or the deadline ends before it: the sender
//!   may be told `503`, and its next try finds a duplicate, where the route has a delivery key to find it by.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, EXPECT};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::IntakeOptions;
use super::answer::{self, Accepted, Novelty, Refusal};
use super::body;
use super::budget::{Budget, Share};
use super::complaint::Complaint;
use super::handshake::{self, Reply};
use super::judge::{IdEntropy, Judgement, Submission};
use super::meters::Meters;
use super::routes::{OpenRoute, RouteTable};
use crate::env::{self, Env};
use crate::model::handshake::Handshake;
use crate::model::ids::EventId;
use crate::model::names::SecretName;
use crate::secrets::{Secret, Secrets};
use crate::store::{Delivery, Enqueued, Store, StoreError};

/// Up to this size a body is hashed and parsed where it was read; a larger one would hold up the other connections of
/// its thread, and goes to a thread of its own.
const JUDGE_IN_PLACE_BYTES_MAX: usize = 256 * 1024;

/// How much longer than the deadline the last answers may take while the host stops.
const DRAIN_SLACK: Duration = Duration::from_secs(5);

/// All that admission needs.
pub(super) struct Intake {
    options: IntakeOptions,
    budget: Arc<Budget>,
    /// Cancelled once the host stops and bodies have had their time.
    bodies_over: CancellationToken,
    store: Store,
    routes: RouteTable,
    secrets: Secrets,
    env: Env,
    pub(super) meters: Meters,
    store_complaint: Complaint,
    secret_complaint: Complaint,
}

/// What a request came to.
enum Outcome {
    /// It is durable.
    Accepted(Accepted, Arc<OpenRoute>),
    /// Its key belongs to an event with another payload.
    Conflict(EventId),
    /// It was no delivery: the provider makes sure of the address.
    Handshake(Reply),
}

impl Intake {
    /// Takes the metrics' handles from the recorder that is installed now.
    pub(super) fn new(
        options: IntakeOptions,
        store: Store,
        routes: RouteTable,
        secrets: Secrets,
        env: Env,
    ) -> Arc<Self> {
        let meters = Meters::new();
        let (in_flight, bytes_in_flight) = (meters.in_flight.clone(), meters.bytes_in_flight.clone());
        let budget = Budget::new(options.requests_max, options.bytes_max, in_flight, bytes_in_flight);
        Arc::new(Self {
            options,
            budget,
            bodies_over: CancellationToken::new(),
            store,
            routes,
            secrets,
            env,
            meters,
            store_complaint: Complaint::default(),
            secret_complaint: Complaint::default(),
        })
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let started = self.env.clock.monotonic();
        let (parts, mut body) = request.into_parts();
        let expects_continue = parts.headers.contains_key(EXPECT);
        let response = match self.admit(parts, &mut body).await {
            Ok(Outcome::Accepted(accepted, open)) => {
                let answer = &open.route.answer;
                self.meters.accepted(accepted.novelty, answer::accepted_status(answer));
                answer::accepted(&accepted, answer)
            }
            Ok(Outcome::Conflict(event_id)) => {
                self.meters.refused(Refusal::Conflict);
                answer::conflict(event_id)
            }
            Ok(Outcome::Handshake(reply)) => {
                self.meters.handshakes.increment(1);
                answer::handshake(reply)
            }
            Err(refusal) => {
                // A sender that waits for `100 Continue` sends nothing that would have to be read.
                if !expects_continue {
                    discard_rest(body);
                }
                self.refuse(refusal)
            }
        };
        self.meters.took(self.env.clock.monotonic().saturating_sub(started));
        response
    }

    /// Refuses a request on a connection for which there is no place.
    pub(super) fn shed(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !request.headers().contains_key(EXPECT) {
            discard_rest(request.into_body());
        }
        self.refuse(Refusal::ConnectionsFull)
    }

    /// Admits nothing more, and waits until what was admitted is decided; whether it is. A body that has not arrived
    /// within `late_bodies_max` is refused.
    pub(super) async fn drain(&self, late_bodies_max: Duration) -> bool {
        let mut draining = pin!(self.budget.drain(self.options.deadline + DRAIN_SLACK));
        match timeout_at(env::deadline(late_bodies_max), draining.as_mut()).await {
            Ok(drained) => drained,
            Err(_) => {
                self.bodies_over.cancel();
                draining.await
            }
        }
    }

    /// How long a request may take.
    pub(super) fn deadline(&self) -> Duration {
        self.options.deadline
    }

    /// The monotonic time, for complaints.
    pub(super) fn monotonic(&self) -> Duration {
        self.env.clock.monotonic()
    }

    fn refuse(&self, refusal: Refusal) -> Response<Full<Bytes>> {
        self.meters.refused(refusal);
        answer::refused(refusal, &*self.env.entropy)
    }

    async fn admit(&self, parts: Parts, body: &mut Incoming) -> Result<Outcome, Refusal> {
        let mut share = self.budget.admit()?;
        let open = self.routes.find(parts.uri.path());
        if let Some(open) = &open
            && let Some(asked) =
                open.route.handshake.as_ref().and_then(|one| handshake::asked(one, &parts.method, &parts.uri))
        {
            return handshake::reply(asked, &self.handshake_secrets(open)?).map(Outcome::Handshake);
        }
        if parts.method != Method::POST {
            return Err(Refusal::Method);
        }
        let open = open.ok_or(Refusal::NoRoute)?;
        refuse_encoding(&parts.headers)?;

        let deadline = env::deadline(self.options.deadline);
        let bytes = self.receive(body, &mut share, deadline).await?;

        let submission = Submission {
            secrets: self.secrets_of(&open)?,
            uri: self.uri_of(&open, &parts.uri)?,
            route: open.clone(),
            headers: parts.headers,
            body: bytes,
            now: self.env.now(),
            entropy: self.id_entropy(),
        };
        match judge(submission, share).await? {
            (Judgement::Handshake(reply), _) => Ok(Outcome::Handshake(reply)),
            (Judgement::Delivery(judged), share) => {
                self.meters.unordered.increment(judged.unordered);
                self.enqueue(judged.delivery, open, share, deadline).await
            }
        }
    }

    /// The whole body, if it comes in time.
    async fn receive(&self, body: &mut Incoming, share: &mut Share, deadline: Instant) -> Result<Bytes, Refusal> {
        let collecting = timeout_at(deadline, body::collect(body, self.options.body_bytes_max, share));
        tokio::select! {
            // First: what has arrived is taken, also at the moment of the stop.
            biased;
            collected = collecting => collected.map_err(|_| Refusal::TooSlow)?,
            () = self.bodies_over.cancelled() => Err(Refusal::Stopping),
        }
    }

    /// Makes a delivery durable, in a task of its own: whoever waits for it may go away.
    async fn enqueue(
        &self,
        delivery: Delivery,
        open: Arc<OpenRoute>,
        share: Share,
        deadline: Instant,
    ) -> Result<Outcome, Refusal> {
        let receipt_id = delivery.receipt_id;
        let store = self.store.clone();
        let finishing = env::spawn("intake enqueue", async move {
            let result = store.enqueue(delivery).await;
            drop(share);
            result
        });
        let enqueued = match timeout_at(deadline, finishing).await {
            Err(_) => return Err(Refusal::CommitTooSlow),
            // The task panicked, and said so.
            Ok(Err(_)) => return Err(Refusal::StoreUnknown),
            Ok(Ok(result)) => result.map_err(|error| self.store_refusal(&error))?,
        };
        Ok(match enqueued {
            Enqueued::Stored { events } => {
                Outcome::Accepted(Accepted { receipt_id, events, novelty: Novelty::First }, open)
            }
            Enqueued::Duplicate { receipt_id, events } => {
                Outcome::Accepted(Accepted { receipt_id, events, novelty: Novelty::Duplicate }, open)
            }
            Enqueued::Conflict { event_id } => Outcome::Conflict(event_id),
        })
    }

    fn secrets_of(&self, open: &OpenRoute) -> Result<Arc<[Secret]>, Refusal> {
        self.secrets_named(open, open.route.verification.secret())
    }

    /// The secrets for a handshake: tokens of its own, if it has some, or else the secrets of the route.
    fn handshake_secrets(&self, open: &OpenRoute) -> Result<Arc<[Secret]>, Refusal> {
        let of_route = || open.route.verification.secret();
        self.secrets_named(open, open.route.handshake.as_ref().and_then(Handshake::secret).or_else(of_route))
    }

    fn secrets_named(&self, open: &OpenRoute, name: Option<&SecretName>) -> Result<Arc<[Secret]>, Refusal> {
        let Some(name) = name else { return Ok(Arc::default()) };
        self.secrets.get(&open.namespace, name).map_err(|error| {
            if self.secret_complaint.is_due(self.monotonic()) {
                tracing::warn!(%error, "deliveries are refused: the secret of their route cannot be read");
            }
            Refusal::SecretUnusable
        })
    }

    /// The address that the sender signed, if it signs one. What the request says of its host is not asked: a proxy may
    /// have written it, or anybody.
    fn uri_of(&self, open: &OpenRoute, requested: &Uri) -> Result<String, Refusal> {
        if !open.route.verification.signs_uri() {
            return Ok(String::new());
        }
        let Some(public_url) = &self.options.public_url else {
            if self.secret_complaint.is_due(self.monotonic()) {
                let route = open.route.path.as_str();
                tracing::warn!(
                    route,
                    "deliveries are refused: their signature covers the address, set `intake.public_url`"
                );
            }
            return Err(Refusal::PublicUrlUnset);
        };
        let path = requested.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        Ok(format!("{public_url}{path}"))
    }

    fn store_refusal(&self, error: &StoreError) -> Refusal {
        let refusal = match error {
            // Ordinary overload: the counter has it.
            StoreError::Busy { .. } => return Refusal::StoreBusy,
            // The store has said so already.
            StoreError::Unstorable(_) => return Refusal::Unstorable,
            StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::Unusable(_) => Refusal::StoreUnavailable,
            StoreError::Unknown(_) => Refusal::StoreUnknown,
        };
        if self.store_complaint.is_due(self.monotonic()) {
            tracing::warn!(%error, "deliveries are refused: the store does not take them");
        }
        refusal
    }

    /// One draw for all ids, however many events there are: a draw is a system call.
    fn id_entropy(&self) -> IdEntropy {
        let mut entropy = IdEntropy::default();
        self.env.entropy.fill(entropy.as_flattened_mut());
        entropy
    }
}

/// Judges a request, where it does not hold up others. The body's share goes with it.
async fn judge(submission: Submission, share: Share) -> Result<(Judgement, Share), Refusal> {
    if submission.body.len() <= JUDGE_IN_PLACE_BYTES_MAX {
        return submission.judge().map(|judgement| (judgement, share));
    }
    let judging = tokio::task::spawn_blocking(move || submission.judge().map(|judgement| (judgement, share)));
    // It fails only if it panics or the runtime ends; the sender comes again.
    judging.await.unwrap_or(Err(Refusal::StoreUnavailable))
}

/// A compressed body is refused: its signature would be over bytes that no guest expects, and whoever unpacks it here
/// has to trust its size before its sender.
fn refuse_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let identity = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().all(identity) { Ok(()) } else { Err(Refusal::ContentEncoding) }
}

/// Lets the sender of a refused body finish writing, so that it reads the answer.
fn discard_rest(body: Incoming) {
    if !body.is_end_stream() {
        drop(env::spawn("intake discard", body::discard(body)));
    }
}
