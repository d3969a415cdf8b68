//! How values are framed, and how fields stand in keys and values.
//!
//! A frame is `length | crc32c | payload`; the checksum covers the key as well, so that a value which comes back under
//! another key is as torn as one whose bytes changed. Nothing is read from the index without passing through [`open`].

use crate::model::time::Timestamp;

const HEAD_BYTES: usize = 8;

/// Frames `payload` as the value of `key`.
pub(super) fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a value is a few hundred bytes");
    let mut framed = Vec::with_capacity(HEAD_BYTES + payload.len());
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(&checksum(key, payload).to_be_bytes());
    framed.extend_from_slice(payload);
    framed
}

/// The payload of a framed value, or `None` if the value is torn.
pub(super) fn open<'a>(key: &[u8], framed: &'a [u8]) -> Option<&'a [u8]> {
    let mut fields = Fields::new(framed);
    let length = fields.u32()?;
    let sum = fields.u32()?;
    let payload = fields.rest();
    let whole = usize::try_from(length).ok()? == payload.len() && checksum(key, payload) == sum;
    whole.then_some(payload)
}

fn checksum(key: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), payload)
}

/// A time as bytes that sort as it does.
pub(super) fn time_bytes(time: Timestamp) -> [u8; 8] {
    (time.as_millis() ^ i64::MIN).to_be_bytes()
}

/// Reads fields one after the other; every read says `None` once the bytes have run out.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    pub(super) fn time(&mut self) -> Option<Timestamp> {
        self.bytes().map(|bytes| Timestamp::from_millis(i64::from_be_bytes(bytes) ^ i64::MIN))
    }

    /// A text with its length before it.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.u8()?);
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(head).ok()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// `Some` if nothing is left over.
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
