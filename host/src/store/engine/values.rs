//! Values for the placeholders of statements. Each type is written here as `row` reads it.

use bytes::Bytes;
use sqlx::mysql::MySqlArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, Encode, Type};

use super::headers;
use crate::model::event::Header;
use crate::model::failure::FailureClass;
use crate::model::ids::{EventId, LeaseToken, MessageId, ReceiptId, RuntimeId, WorkItemId};
use crate::model::lane::Blockers;
use crate::model::names::{DestinationName, Namespace, PackName, RouteName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;

/// A value for a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Value {
    /// About how many bytes it takes up in a statement.
    fn weight(&self) -> usize {
        match self {
            Value::Null | Value::Integer(_) => 8,
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
        }
    }
}

macro_rules! values_of {
    ($($type:ty: |$value:ident| $of:expr;)+) => {
        $(
            impl From<$type> for Value {
                fn from($value: $type) -> Self {
                    $of
                }
            }
        )+
    };
}

values_of! {
    i64: |number| Value::Integer(number);
    bool: |yes| Value::Integer(i64::from(yes));
    u16: |number| Value::Integer(i64::from(number));
    u32: |number| Value::Integer(i64::from(number));
    // No number of this program comes near the largest one that is stored.
    u64: |number| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    GenerationNumber: |number| number.0.into();
    Blockers: |blockers| blockers.0.into();
    Timestamp: |time| Value::Integer(time.as_millis());
    &str: |text| Value::Text(text.to_owned());
    String: |text| Value::Text(text);
    &Namespace: |name| name.as_str().into();
    &PackName: |name| name.as_str().into();
    &RouteName: |name| name.as_str().into();
    &DestinationName: |name| name.as_str().into();
    FailureClass: |class| class.as_str().into();
    &[u8]: |bytes| Value::Blob(bytes.to_vec());
    Vec<u8>: |bytes| Value::Blob(bytes);
    // Takes over a buffer that has no other holder: a body is not copied on its way.
    Bytes: |bytes| Value::Blob(Vec::from(bytes));
    [u8; 32]: |digest| Value::Blob(digest.to_vec());
    ReceiptId: |id| Value::Blob(id.as_bytes().to_vec());
    EventId: |id| Value::Blob(id.as_bytes().to_vec());
    WorkItemId: |id| Value::Blob(id.as_bytes().to_vec());
    MessageId: |id| Value::Blob(id.as_bytes().to_vec());
    LeaseToken: |token| Value::Blob(token.as_bytes().to_vec());
    RuntimeId: |id| Value::Blob(id.as_bytes().to_vec());
    &[Header]: |list| Value::Blob(headers::encode(list));
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

    /// About how many bytes they take up in a statement.
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

    /// Adds a value.
    pub(in crate::store) fn push(&mut self, value: impl Into<Value>) -> &mut Self {
        self.0.push(value.into());
        self
    }

    /// Adds the only value of a row.
    pub(in crate::store) fn only<T: Into<Value>>(&mut self, value: T) {
        self.push(value);
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
