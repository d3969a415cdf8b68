//! The body of a request, as it arrives.
//!
//! Invariants:
//! - Memory is taken from the budget before it is taken from the machine, and in steps that follow what has arrived: a
//!   sender that only announces a large body holds nothing for it.
//! - A body that is not whole is an error, never a shorter body.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::timeout_at;

use super::answer::Refusal;
use super::budget::Share;
use crate::env;

/// What a body's buffer holds at first, if it is not known to need less.
const BUFFER_BYTES_FIRST: usize = 64 * 1024;

/// How much of a refused body is read and thrown away, so that its sender, who may still be writing, gets to read the
/// answer instead of a reset connection.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;

/// For how long that goes on.
const DISCARD_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Reads the whole body. `share` holds its memory.
///
/// Waits as long as the sender makes it wait: the caller has the deadline.
pub(super) async fn collect<B>(body: &mut B, bytes_max: usize, share: &mut Share) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
{
    let declared = match body.size_hint().exact() {
        Some(bytes) => Some(usize::try_from(bytes).ok().filter(|&bytes| bytes <= bytes_max).ok_or(Refusal::TooLarge)?),
        None => None,
    };
    let Some(first) = next(body).await? else { return Ok(Bytes::new()) };
    if declared == Some(first.len()) {
        // The usual case: it came in one piece, which is used as it is.
        share.hold(first.len())?;
        return Ok(first);
    }
    let mut buffer = Buffer { bytes: BytesMut::new(), bytes_max: declared.unwrap_or(bytes_max) };
    buffer.append(&first, share)?;
    while let Some(data) = next(body).await? {
        buffer.append(&data, share)?;
    }
    Ok(buffer.bytes.freeze())
}

/// Reads what is left of a refused body and throws it away, within bounds.
pub(super) async fn discard<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Ok(Some(data)) = next(&mut body).await {
            match left.checked_sub(data.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // Either way the sender has had its time.
    let _ = timeout_at(env::deadline(DISCARD_TIME_MAX), reading).await;
}

/// The next data; `None` at the end. Trailers are no data.
async fn next<B>(body: &mut B) -> Result<Option<Bytes>, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| Refusal::Truncated)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

struct Buffer {
    bytes: BytesMut,
    bytes_max: usize,
}

impl Buffer {
    fn append(&mut self, data: &[u8], share: &mut Share) -> Result<(), Refusal> {
        let needed = self.bytes.len() + data.len();
        if needed > self.bytes_max {
            return Err(Refusal::TooLarge);
        }
        if needed > self.bytes.capacity() {
            let doubled = (self.bytes.capacity() * 2).max(BUFFER_BYTES_FIRST);
            let capacity = doubled.clamp(needed, self.bytes_max);
            share.hold(capacity)?;
            self.bytes.reserve(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
