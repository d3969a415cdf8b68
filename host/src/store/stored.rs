//! How values are stored: the codes of states, ids as bytes, headers as one blob. Every column is written and read here,
//! so that a row which does not say what it should becomes an error, never a panic and never a guess.

use std::str::FromStr;

use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Decode, Encode, Row, Sqlite, Type};

use crate::model::event::Header;
use crate::model::failure::{Failure, FailureClass};
use crate::model::message::MessageState;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};

/// The layout of a header blob, its first byte.
const HEADERS_VERSION: u8 = 1;

/// A stored value that nothing ever stored: the file was changed by somebody else, or is damaged.
#[derive(Debug, thiserror::Error)]
#[error("a stored {what} is not one: {found}")]
pub(super) struct Damaged {
    what: &'static str,
    found: String,
}

fn damaged(what: &'static str, found: impl ToString) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(Damaged { what, found: found.to_string() }))
}

pub(super) const fn work_state_code(state: WorkState) -> i64 {
    match state {
        WorkState::Blocked => 0,
        WorkState::Ready => 1,
        WorkState::Delayed => 2,
        WorkState::Processing => 3,
        WorkState::Done => 4,
        WorkState::Dead => 5,
    }
}

pub(super) const fn work_type_code(work_type: WorkType) -> i64 {
    match work_type {
        WorkType::ConnectorEvent => 1,
        WorkType::WorkflowActionApply => 2,
    }
}

pub(super) const fn message_state_code(state: MessageState) -> i64 {
    match state {
        MessageState::Scheduled => 0,
        MessageState::Publishing => 1,
        MessageState::RetryWait => 2,
        MessageState::Uncertain => 3,
        MessageState::Published => 4,
        MessageState::Cancelled => 5,
        MessageState::Expired => 6,
        MessageState::Dead => 7,
    }
}

/// Values for a statement's placeholders, in order.
#[derive(Default)]
pub(super) struct Values(SqliteArguments);

impl Values {
    pub(super) fn into_arguments(self) -> SqliteArguments {
        self.0
    }

    /// Any value that the driver can store.
    pub(super) fn push<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        self.0.add(value).expect("numbers, text and bytes are stored as they are");
        self
    }

    pub(super) fn id(&mut self, id: &[u8; 16]) -> &mut Self {
        self.push(id.as_slice())
    }

    pub(super) fn optional_id(&mut self, id: Option<&[u8; 16]>) -> &mut Self {
        self.push(id.map(<[u8; 16]>::as_slice))
    }

    pub(super) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.push(time.as_millis())
    }

    pub(super) fn optional_time(&mut self, time: Option<Timestamp>) -> &mut Self {
        self.push(time.map(Timestamp::as_millis))
    }

    pub(super) fn bytes(&mut self, bytes: Bytes) -> &mut Self {
        // Takes the buffer over where nobody else holds it: a body is not copied on its way.
        self.push(Vec::from(bytes))
    }

    pub(super) fn headers(&mut self, headers: &[Header]) -> &mut Self {
        self.push(encode_headers(headers))
    }
}

/// Reads a row's columns into the model's types.
pub(super) trait Columns {
    fn value<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, index: usize) -> Result<T, sqlx::Error>;

    fn bytes_16(&self, index: usize) -> Result<[u8; 16], sqlx::Error> {
        let bytes: &[u8] = self.value(index)?;
        bytes.try_into().map_err(|_| damaged("id", format_args!("{} bytes", bytes.len())))
    }

    fn optional_bytes_16(&self, index: usize) -> Result<Option<[u8; 16]>, sqlx::Error> {
        let Some(bytes) = self.value::<Option<&[u8]>>(index)? else { return Ok(None) };
        bytes.try_into().map(Some).map_err(|_| damaged("id", format_args!("{} bytes", bytes.len())))
    }

    fn digest(&self, index: usize) -> Result<[u8; 32], sqlx::Error> {
        let bytes: &[u8] = self.value(index)?;
        bytes.try_into().map_err(|_| damaged("digest", format_args!("{} bytes", bytes.len())))
    }

    fn unsigned(&self, index: usize) -> Result<u64, sqlx::Error> {
        let number: i64 = self.value(index)?;
        u64::try_from(number).map_err(|_| damaged("count", number))
    }

    fn unsigned_32(&self, index: usize) -> Result<u32, sqlx::Error> {
        let number: i64 = self.value(index)?;
        u32::try_from(number).map_err(|_| damaged("count", number))
    }

    fn time(&self, index: usize) -> Result<Timestamp, sqlx::Error> {
        Ok(Timestamp::from_millis(self.value(index)?))
    }

    fn optional_time(&self, index: usize) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.value::<Option<i64>>(index)?.map(Timestamp::from_millis))
    }

    fn name<T: FromStr>(&self, index: usize) -> Result<T, sqlx::Error> {
        let text: &str = self.value(index)?;
        text.parse().map_err(|_| damaged("name", text))
    }

    fn blob(&self, index: usize) -> Result<Bytes, sqlx::Error> {
        Ok(self.value::<Vec<u8>>(index)?.into())
    }

    fn headers(&self, index: usize) -> Result<Vec<Header>, sqlx::Error> {
        let bytes = self.blob(index)?;
        decode_headers(&bytes).ok_or_else(|| damaged("list of headers", format_args!("{} bytes", bytes.len())))
    }

    fn work_state(&self, index: usize) -> Result<WorkState, sqlx::Error> {
        let code: i64 = self.value(index)?;
        let found = WorkState::ALL.into_iter().find(|state| work_state_code(*state) == code);
        found.ok_or_else(|| damaged("work item state", code))
    }

    fn work_type(&self, index: usize) -> Result<WorkType, sqlx::Error> {
        let code: i64 = self.value(index)?;
        let all = [WorkType::ConnectorEvent, WorkType::WorkflowActionApply];
        all.into_iter().find(|kind| work_type_code(*kind) == code).ok_or_else(|| damaged("work type", code))
    }

    fn message_state(&self, index: usize) -> Result<MessageState, sqlx::Error> {
        let code: i64 = self.value(index)?;
        let found = MessageState::ALL.into_iter().find(|state| message_state_code(*state) == code);
        found.ok_or_else(|| damaged("message state", code))
    }

    /// A failure from its class and its text. The delay that a guest asked for is not kept: `run_after` has it.
    fn optional_failure(&self, class: usize, message: usize) -> Result<Option<Failure>, sqlx::Error> {
        let Some(word) = self.value::<Option<&str>>(class)? else { return Ok(None) };
        let class = failure_class(word).ok_or_else(|| damaged("failure class", word))?;
        Ok(Some(Failure { class, message: self.value::<Option<String>>(message)?.unwrap_or_default() }))
    }
}

impl Columns for SqliteRow {
    fn value<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, index: usize) -> Result<T, sqlx::Error> {
        self.try_get(index)
    }
}

fn failure_class(word: &str) -> Option<FailureClass> {
    const ALL: [FailureClass; 10] = [
        FailureClass::Retry { delay: None },
        FailureClass::Rejected,
        FailureClass::InvalidInput,
        FailureClass::Panic,
        FailureClass::Trap,
        FailureClass::OutOfFuel,
        FailureClass::Deadline,
        FailureClass::Memory,
        FailureClass::BadOutput,
        FailureClass::Host,
    ];
    ALL.into_iter().find(|class| class.as_str() == word)
}

/// Version, then for each header: length of the name, length of the value (both u32, little-endian), name, value.
fn encode_headers(headers: &[Header]) -> Vec<u8> {
    let length = headers.iter().map(|header| 8 + header.name.len() + header.value.len()).sum::<usize>();
    let mut blob = Vec::with_capacity(1 + length);
    blob.push(HEADERS_VERSION);
    for header in headers {
        for length in [header.name.len(), header.value.len()] {
            let length = u32::try_from(length).expect("requests and outputs are bounded far below 4 GiB");
            blob.extend_from_slice(&length.to_le_bytes());
        }
        blob.extend_from_slice(header.name.as_bytes());
        blob.extend_from_slice(&header.value);
    }
    blob
}

fn decode_headers(blob: &Bytes) -> Option<Vec<Header>> {
    let (version, mut rest) = blob.split_first()?;
    if *version != HEADERS_VERSION {
        return None;
    }
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let (name_length, after) = rest.split_first_chunk::<4>()?;
        let (value_length, after) = after.split_first_chunk::<4>()?;
        let (name, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*name_length)).ok()?)?;
        let (value, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*value_length)).ok()?)?;
        headers.push(Header { name: String::from_utf8(name.to_vec()).ok()?, value: blob.slice_ref(value) });
        rest = after;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &'static [u8]) -> Header {
        Header { name: name.to_owned(), value: Bytes::from_static(value) }
    }

    #[test]
    fn headers_read_back_byte_for_byte() {
        for headers in [
            vec![],
            vec![header("x-empty", b"")],
            vec![header("x-github-event", b"push"), header("x-odd", b"\x00\xff\r\n"), header("x-odd", b"twice")],
        ] {
            assert_eq!(decode_headers(&encode_headers(&headers).into()), Some(headers));
        }
    }

    #[test]
    fn damaged_headers_are_noticed() {
        let whole = encode_headers(&[header("x-github-event", b"push")]);
        for length in 2..whole.len() {
            assert_eq!(decode_headers(&Bytes::copy_from_slice(&whole[..length])), None, "{length}");
        }
        assert_eq!(decode_headers(&Bytes::new()), None);
        assert_eq!(decode_headers(&Bytes::from_static(&[9])), None);
    }
}
