//! Calling out: the way of every request that leaves this host, for messages and for batch reads.
//!
//! Invariants:
//! - An address is checked when it is dialled, on the address that is dialled, every time.
//! - No redirect is followed, no proxy asked, no body decompressed.
//! - Every call has a deadline over lookup, connect, TLS, head and body, and a bound on what is read of its answer.

mod channel;
mod client;
mod connect;
mod guard;
mod retry_after;
mod trust;

#[cfg(test)]
pub(crate) mod sink;

use std::error::Error as StdError;

pub(crate) use self::channel::Channels;
pub use self::client::{CallFailure, Client, ClientError, ClientOptions, Response};
pub(crate) use self::connect::{ConnectError, Connector, Dialer};
pub(crate) use self::guard::Guard;
pub(crate) use self::retry_after::retry_after;
pub(crate) use self::trust::{check_authorities, client_config};

/// The first cause of this type.
pub(crate) fn cause<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// The last cause.
pub(crate) fn innermost<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    causes(error).last().unwrap_or(error)
}

/// The error, its cause, the cause's cause, and so on.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
