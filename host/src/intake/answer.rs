//! What is answered, and how it is counted. The one place where an outcome becomes a status.
//!
//! A [`Refusal`] has two sides: the status, code and message that the sender sees, and the reason that is counted.
//! Several reasons share one message where telling them apart would help whoever guesses signatures, or would mean
//! nothing outside.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::handshake::Reply;
use crate::env::Entropy;
use crate::model::ids::{EventId, ReceiptId};
use crate::model::pack::Answer;

/// The longest `Retry-After`, in seconds; the shortest is 1 (ADM-2).
const RETRY_AFTER_SECONDS_MAX: u16 = 30;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

macro_rules! refusals {
    ($($status:ident $code:literal $message:literal { $($(#[$doc:meta])* $name:ident $reason:literal)+ })+) => {
        /// Why a request was not admitted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Refusal {
            $($($(#[$doc])* $name,)+)+
        }

        impl Refusal {
            /// Every one, in the order of their numbers.
            pub(super) const ALL: &[Refusal] = &[$($(Refusal::$name,)+)+];

            /// What it is counted under.
            pub(super) const fn reason(self) -> &'static str {
                match self { $($(Refusal::$name => $reason,)+)+ }
            }

            /// What it is answered with.
            pub(super) const fn status(self) -> StatusCode {
                match self { $($(Refusal::$name)|+ => StatusCode::$status,)+ }
            }

            const fn body(self) -> &'static str {
                match self {
                    $($(Refusal::$name)|+ => {
                        concat!(r#"{"error":{"code":""#, $code, r#"","message":""#, $message, r#""}}"#)
                    })+
                }
            }
        }
    };
}

refusals! {
    BAD_REQUEST "truncated_body" "The body ended before its declared length, or its chunks are malformed." {
        /// The body broke off.
        Truncated "truncated_body"
    }
    BAD_REQUEST "delivery_key_missing"
    "This route names deliveries by a header or a field of the JSON body, and the request has not exactly one of it." {
        /// The key that names the delivery is not there.
        DeliveryKeyMissing "delivery_key_missing"
    }
    BAD_REQUEST "body_not_json" "This route finds the delivery's key in a JSON body, and the body is not JSON." {
        /// The key that names the delivery cannot be looked for.
        BodyNotJson "body_not_json"
    }
    BAD_REQUEST "event_list_missing"
    "This route takes its events from a list in the JSON body, and the request has no list there, or an empty one." {
        /// The events cannot be looked for.
        EventsNotJson "events_not_json"
        /// There is no list where the events should be, or nothing in it.
        EventListMissing "event_list_missing"
    }
    BAD_REQUEST "content_type_too_long" "The content-type has more than 1024 bytes." {
        /// A content-type that is none.
        ContentTypeTooLong "content_type_too_long"
    }
    BAD_REQUEST "unstorable" "The request carries something that this host's database cannot hold." {
        /// The database has no room for a part of it, whatever else is stored.
        Unstorable "unstorable"
    }
    UNAUTHORIZED "unverified" "The request does not carry a valid signature of this route's secret." {
        /// A header that the scheme needs is not there.
        SignatureMissing "signature_missing"
        /// A header that the scheme needs is there more than once.
        SignatureRepeated "signature_repeated"
        /// A header that the scheme needs cannot be what it should be.
        SignatureMalformed "signature_malformed"
        /// The time of signing is too far from now.
        SignatureStale "signature_stale"
        /// No signature belongs to any of the secrets.
        SignatureWrong "signature_wrong"
    }
    BAD_REQUEST "handshake_malformed" "The challenge is longer than 4096 bytes." {
        /// A challenge that is none.
        HandshakeMalformed "handshake_malformed"
    }
    FORBIDDEN "handshake_denied" "The token is not the one that this route's operator has given." {
        /// The address's handshake has another token.
        HandshakeDenied "handshake_denied"
    }
    NOT_FOUND "no_route" "No pack serves this address. Addresses have the form /in/{namespace}/{route}." {
        /// Nothing is there.
        NoRoute "no_route"
    }
    METHOD_NOT_ALLOWED "method_not_allowed" "Deliveries are sent with POST." {
        /// Not a POST.
        Method "method_not_allowed"
    }
    REQUEST_TIMEOUT "too_slow" "The body did not arrive in time." {
        /// The body dripped.
        TooSlow "too_slow"
    }
    CONFLICT "conflict" "This delivery's key is taken by an event with another payload, which stays as it was." {
        /// The same delivery key, another payload.
        Conflict "conflict"
    }
    PAYLOAD_TOO_LARGE "too_large" "The body is larger than this host takes." {
        /// Too many bytes.
        TooLarge "too_large"
    }
    PAYLOAD_TOO_LARGE "too_many_events" "The request carries more events than this route takes at once." {
        /// Too many events.
        TooManyEvents "too_many_events"
    }
    UNSUPPORTED_MEDIA_TYPE "content_encoding"
    "Send the body without a content-encoding: it is verified, stored and shown to the pack byte for byte." {
        /// A compressed body.
        ContentEncoding "content_encoding"
    }
    SERVICE_UNAVAILABLE "unavailable" "Nothing was taken on. Send it again after the time in Retry-After." {
        /// As many requests in flight as there may be.
        RequestsFull "requests_full"
        /// As many bytes in flight as there may be.
        BytesFull "bytes_full"
        /// As many connections as there may be.
        ConnectionsFull "connections_full"
        /// The host is stopping.
        Stopping "stopping"
        /// The store has as much queued as it may.
        StoreBusy "store_busy"
        /// The store cannot write.
        StoreUnavailable "store_unavailable"
        /// The operator has not given the secret that the route verifies with, or one that cannot be a key.
        SecretUnusable "secret_unusable"
        /// The operator has not said at what address the host is reached, and the route's signature covers it.
        PublicUrlUnset "public_url_unset"
    }
    SERVICE_UNAVAILABLE "unknown"
    "It may or may not have been taken on. Send it again: with a delivery key it counts once, without one it may count twice." {
        /// The store did not say whether it committed.
        StoreUnknown "store_unknown"
        /// The deadline came before the commit.
        CommitTooSlow "commit_too_slow"
    }
}

/// What became durable, now or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) receipt_id: ReceiptId,
    pub(super) events: Vec<EventId>,
    pub(super) novelty: Novelty,
}

/// Whether a delivery came for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It did.
    First,
    /// It was durable before.
    Duplicate,
}

/// The answer to a delivery that is durable, in the way that its route demands (ADM-3, ADM-5).
pub(super) fn accepted(accepted: &Accepted, answer: &Answer) -> Response<Full<Bytes>> {
    match answer {
        Answer::Receipt => json(StatusCode::ACCEPTED, receipt(accepted)),
        Answer::Empty(status) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = *status;
            response
        }
    }
}

/// The status that [`accepted`] gives.
pub(super) fn accepted_status(answer: &Answer) -> StatusCode {
    match answer {
        Answer::Receipt => StatusCode::ACCEPTED,
        Answer::Empty(status) => *status,
    }
}

/// The answer to a handshake. No browser takes it for a page.
pub(super) fn handshake(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = match reply {
        Reply::Text(text) => {
            let mut response = Response::new(Full::new(text.into()));
            response.headers_mut().insert(CONTENT_TYPE, TEXT);
            response
        }
        Reply::Json(text) => json(StatusCode::OK, text),
        Reply::Empty => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
    };
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer to a request that was not admitted.
pub(super) fn refused(refusal: Refusal, entropy: &dyn Entropy) -> Response<Full<Bytes>> {
    let mut response = json(refusal.status(), Bytes::from_static(refusal.body().as_bytes()));
    let headers = response.headers_mut();
    if refusal.status() == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, retry_after(entropy));
    }
    match refusal {
        Refusal::Method => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        Refusal::ContentEncoding => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Refusal::Stopping | Refusal::ConnectionsFull | Refusal::TooSlow => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Refusal::Truncated
        | Refusal::DeliveryKeyMissing
        | Refusal::BodyNotJson
        | Refusal::EventsNotJson
        | Refusal::EventListMissing
        | Refusal::ContentTypeTooLong
        | Refusal::Unstorable
        | Refusal::TooManyEvents
        | Refusal::SignatureMissing
        | Refusal::SignatureRepeated
        | Refusal::SignatureMalformed
        | Refusal::SignatureStale
        | Refusal::SignatureWrong
        | Refusal::HandshakeMalformed
        | Refusal::HandshakeDenied
        | Refusal::NoRoute
        | Refusal::Conflict
        | Refusal::TooLarge
        | Refusal::RequestsFull
        | Refusal::BytesFull
        | Refusal::StoreBusy
        | Refusal::StoreUnavailable
        | Refusal::SecretUnusable
        | Refusal::PublicUrlUnset
        | Refusal::StoreUnknown
        | Refusal::CommitTooSlow => {}
    }
    response
}

/// The answer to a delivery whose key belongs to an event with another payload: it names that event.
pub(super) fn conflict(event_id: EventId) -> Response<Full<Bytes>> {
    // The typed error, with one more member inside.
    let open = Refusal::Conflict.body().trim_end_matches('}');
    json(Refusal::Conflict.status(), format!(r#"{open},"event":"{event_id}"}}}}"#))
}

fn receipt(accepted: &Accepted) -> String {
    let events: Vec<String> = accepted.events.iter().map(|event| format!(r#""{event}""#)).collect();
    let duplicate = match accepted.novelty {
        Novelty::First => false,
        Novelty::Duplicate => true,
    };
    format!(r#"{{"receipt":"{}","events":[{}],"duplicate":{duplicate}}}"#, accepted.receipt_id, events.join(","))
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Whole seconds, spread so that those who were refused together do not come back together.
fn retry_after(entropy: &dyn Entropy) -> HeaderValue {
    let mut bytes = [0; 2];
    entropy.fill(&mut bytes);
    HeaderValue::from(1 + u16::from_le_bytes(bytes) % RETRY_AFTER_SECONDS_MAX)
}

#[cfg(test)]
mod tests;
