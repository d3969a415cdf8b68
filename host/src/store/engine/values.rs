//! How values are stored: states by their codes, ids as bytes, headers as one blob. Every column is written and read
//! here, so that a damaged row becomes an error, never a panic and never a guess.

use std::str::FromStr;

use bytes::Bytes;
use metrics::counter;
use sqlx::mysql::MySqlArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, Encode, Type};

use super::codes;
use super::connection::Row;
use crate::model::event::Header;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::lane::LaneKind;
use crate::model::message::MessageState;
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};

/// The layout of a header blob, its first byte.
const HEADERS_VERSION: u8 = 1;

/// A stored value that this program never writes: the database was changed by hand, or is damaged.
#[derive(Debug, thiserror::Error)]
#[error("a stored {what} is not one: {found}")]
pub(in crate::store) struct Damaged {
    what: &'static str,
    found: String,
}

pub(in crate::store) fn damaged(what: &'static str, found: impl ToString) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(Damaged { what, found: found.to_string() }))
}

/// A value for a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Value {
    /// How many bytes it takes up in a statement, about.
    fn weight(&self) -> usize {
        match self {
            Value::Null | Value::Integer(_) => 8,
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Integer(i64::from(number))
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Value::Integer(i64::from(yes))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::Blob(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Blob(bytes)
    }
}

impl From<WorkItemId> for Value {
    fn from(id: WorkItemId) -> Self {
        id.as_bytes().as_slice().into()
    }
}

impl From<EventId> for Value {
    fn from(id: EventId) -> Self {
        id.as_bytes().as_slice().into()
    }
}

impl From<MessageId> for Value {
    fn from(id: MessageId) -> Self {
        id.as_bytes().as_slice().into()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Values for a statement's placeholders, in order.
#[derive(Debug, Default)]
pub(in crate::store) struct Values(Vec<Value>);

impl Values {
    pub(in crate::store) fn into_sqlite(self) -> SqliteArguments {
        self.into_arguments()
    }

    pub(in crate::store) fn into_mysql(self) -> MySqlArguments {
        self.into_arguments()
    }

    fn into_arguments<A: Arguments>(self) -> A
    where
        Option<i64>: Encode<'static, A::Database> + Type<A::Database>,
        i64: Encode<'static, A::Database> + Type<A::Database>,
        String: Encode<'static, A::Database> + Type<A::Database>,
        Vec<u8>: Encode<'static, A::Database> + Type<A::Database>,
    {
        let mut arguments = A::default();
        for value in self.0 {
            let added = match value {
                Value::Null => arguments.add(None::<i64>),
                Value::Integer(number) => arguments.add(number),
                Value::Text(text) => arguments.add(text),
                Value::Blob(bytes) => arguments.add(bytes),
            };
            added.expect("numbers, text and bytes are stored as they are");
        }
        arguments
    }

    /// How many bytes they take up in a statement, about.
    pub(in crate::store) fn weight(&self) -> usize {
        self.0.iter().map(Value::weight).sum()
    }

    /// Adds those of another list.
    pub(in crate::store) fn append(&mut self, mut more: Values) {
        self.0.append(&mut more.0);
    }

    /// Adds NULLs up to `count` values.
    pub(in crate::store) fn pad(&mut self, count: usize) {
        self.0.resize(count.max(self.0.len()), Value::Null);
    }

    /// Any value that an engine stores.
    pub(in crate::store) fn push(&mut self, value: impl Into<Value>) -> &mut Self {
        self.0.push(value.into());
        self
    }

    /// The values of a row that has only one.
    pub(in crate::store) fn only<T: Into<Value>>(&mut self, value: T) {
        self.push(value);
    }

    pub(in crate::store) fn id(&mut self, id: &[u8; 16]) -> &mut Self {
        self.push(id.as_slice())
    }

    pub(in crate::store) fn optional_id(&mut self, id: Option<&[u8; 16]>) -> &mut Self {
        self.push(id.map(<[u8; 16]>::as_slice))
    }

    pub(in crate::store) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.push(time.as_millis())
    }

    pub(in crate::store) fn optional_time(&mut self, time: Option<Timestamp>) -> &mut Self {
        self.push(time.map(Timestamp::as_millis))
    }

    pub(in crate::store) fn bytes(&mut self, bytes: Bytes) -> &mut Self {
        // Takes the buffer over where nobody else holds it: a body is not copied on its way.
        self.push(Vec::from(bytes))
    }

    pub(in crate::store) fn headers(&mut self, headers: &[Header]) -> &mut Self {
        self.push(encode_headers(headers))
    }
}

/// The values of one row, or of a statement without a list.
macro_rules! values {
    ($($value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "a statement may have no placeholder")]
        let mut values = $crate::store::engine::values::Values::default();
        $(values.push($value);)*
        values
    }};
}
pub(in crate::store) use values;

/// Reads a row's columns into the model's types.
impl Row {
    pub(in crate::store) fn bytes_16(&self, index: usize) -> Result<[u8; 16], sqlx::Error> {
        let bytes: &[u8] = self.value(index)?;
        bytes.try_into().map_err(|_| damaged("id", format_args!("{} bytes", bytes.len())))
    }

    pub(in crate::store) fn work_item_id(&self, index: usize) -> Result<WorkItemId, sqlx::Error> {
        self.bytes_16(index).map(WorkItemId::from_bytes)
    }

    pub(in crate::store) fn event_id(&self, index: usize) -> Result<EventId, sqlx::Error> {
        self.bytes_16(index).map(EventId::from_bytes)
    }

    pub(in crate::store) fn message_id(&self, index: usize) -> Result<MessageId, sqlx::Error> {
        self.bytes_16(index).map(MessageId::from_bytes)
    }

    pub(in crate::store) fn generation(&self, index: usize) -> Result<GenerationNumber, sqlx::Error> {
        self.unsigned_32(index).map(GenerationNumber)
    }

    pub(in crate::store) fn optional_bytes_32(&self, index: usize) -> Result<Option<[u8; 32]>, sqlx::Error> {
        let Some(bytes) = self.value::<Option<&[u8]>>(index)? else { return Ok(None) };
        bytes.try_into().map(Some).map_err(|_| damaged("hash", format_args!("{} bytes", bytes.len())))
    }

    pub(in crate::store) fn optional_bytes_16(&self, index: usize) -> Result<Option<[u8; 16]>, sqlx::Error> {
        let Some(bytes) = self.value::<Option<&[u8]>>(index)? else { return Ok(None) };
        bytes.try_into().map(Some).map_err(|_| damaged("id", format_args!("{} bytes", bytes.len())))
    }

    pub(in crate::store) fn digest(&self, index: usize) -> Result<[u8; 32], sqlx::Error> {
        let bytes: &[u8] = self.value(index)?;
        bytes.try_into().map_err(|_| damaged("digest", format_args!("{} bytes", bytes.len())))
    }

    pub(in crate::store) fn unsigned(&self, index: usize) -> Result<u64, sqlx::Error> {
        let number: i64 = self.value(index)?;
        u64::try_from(number).map_err(|_| damaged("count", number))
    }

    /// The sum over a counter's stripes. A snapshot that lacks a transaction and holds one that waited for it
    /// (`messages`) shows what went and not what came: for that moment a sum may be below zero, and there is nothing
    /// there. One that stays below zero is a counter that is wrong (`counters`); so each is counted.
    pub(in crate::store) fn sum(&self, index: usize) -> Result<u64, sqlx::Error> {
        Ok(u64::try_from(self.value::<i64>(index)?).unwrap_or_else(|_| {
            counter!("forebay_store_sums_below_zero_total").increment(1);
            0
        }))
    }

    pub(in crate::store) fn unsigned_16(&self, index: usize) -> Result<u16, sqlx::Error> {
        let number: i64 = self.value(index)?;
        u16::try_from(number).map_err(|_| damaged("number", number))
    }

    pub(in crate::store) fn optional_unsigned_16(&self, index: usize) -> Result<Option<u16>, sqlx::Error> {
        let number: Option<i64> = self.value(index)?;
        number.map(|number| u16::try_from(number).map_err(|_| damaged("number", number))).transpose()
    }

    pub(in crate::store) fn optional_unsigned_32(&self, index: usize) -> Result<Option<u32>, sqlx::Error> {
        let number: Option<i64> = self.value(index)?;
        number.map(|number| u32::try_from(number).map_err(|_| damaged("number", number))).transpose()
    }

    pub(in crate::store) fn unsigned_32(&self, index: usize) -> Result<u32, sqlx::Error> {
        let number: i64 = self.value(index)?;
        u32::try_from(number).map_err(|_| damaged("count", number))
    }

    pub(in crate::store) fn time(&self, index: usize) -> Result<Timestamp, sqlx::Error> {
        Ok(Timestamp::from_millis(self.value(index)?))
    }

    pub(in crate::store) fn optional_time(&self, index: usize) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.value::<Option<i64>>(index)?.map(Timestamp::from_millis))
    }

    pub(in crate::store) fn name<T: FromStr>(&self, index: usize) -> Result<T, sqlx::Error> {
        let text: &str = self.value(index)?;
        text.parse().map_err(|_| damaged("name", text))
    }

    pub(in crate::store) fn blob(&self, index: usize) -> Result<Bytes, sqlx::Error> {
        Ok(self.value::<Vec<u8>>(index)?.into())
    }

    pub(in crate::store) fn headers(&self, index: usize) -> Result<Vec<Header>, sqlx::Error> {
        let bytes = self.blob(index)?;
        decode_headers(&bytes).ok_or_else(|| damaged("list of headers", format_args!("{} bytes", bytes.len())))
    }

    pub(in crate::store) fn work_state(&self, index: usize) -> Result<WorkState, sqlx::Error> {
        let code: i64 = self.value(index)?;
        codes::work_state(code).ok_or_else(|| damaged("work item state", code))
    }

    pub(in crate::store) fn work_type(&self, index: usize) -> Result<WorkType, sqlx::Error> {
        let code: i64 = self.value(index)?;
        codes::work_type(code).ok_or_else(|| damaged("work type", code))
    }

    pub(in crate::store) fn queue_class(&self, index: usize) -> Result<QueueClass, sqlx::Error> {
        let code: i64 = self.value(index)?;
        codes::queue_class(code).ok_or_else(|| damaged("queue class", code))
    }

    pub(in crate::store) fn lane_kind(&self, index: usize) -> Result<LaneKind, sqlx::Error> {
        let code: i64 = self.value(index)?;
        codes::lane_kind(code).ok_or_else(|| damaged("kind of lane", code))
    }

    pub(in crate::store) fn message_state(&self, index: usize) -> Result<MessageState, sqlx::Error> {
        let code: i64 = self.value(index)?;
        codes::message_state(code).ok_or_else(|| damaged("message state", code))
    }

    /// A failure from its class and its text. The delay that a guest asked for is not kept: `run_after` has it.
    pub(in crate::store) fn optional_failure(
        &self,
        class: usize,
        message: usize,
    ) -> Result<Option<Failure>, sqlx::Error> {
        let Some(word) = self.value::<Option<&str>>(class)? else { return Ok(None) };
        let class = failure_class(word).ok_or_else(|| damaged("failure class", word))?;
        Ok(Some(Failure { class, message: self.value::<Option<String>>(message)?.unwrap_or_default() }))
    }
}

fn failure_class(word: &str) -> Option<FailureClass> {
    const ALL: [FailureClass; 12] = [
        FailureClass::Retry { delay: None },
        FailureClass::Rejected,
        FailureClass::InvalidInput,
        FailureClass::Panic,
        FailureClass::Trap,
        FailureClass::OutOfFuel,
        FailureClass::Deadline,
        FailureClass::Memory,
        FailureClass::BadOutput,
        FailureClass::ReadFailed { delay: None },
        FailureClass::ReadRefused,
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
