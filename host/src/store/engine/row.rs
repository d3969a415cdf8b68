//! Rows, and how they are read: column by column, each as the type that is asked for, in the order in which the
//! statement selects them.
//!
//! A malformed value is an error, never a panic and never a guess. So is a row with more columns than are read, or with
//! fewer: a statement and its reader that have come apart fail with the first row.

use std::str::FromStr;

use bytes::Bytes;
use metrics::counter;
use sqlx::mysql::MySqlRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, MySql, Row as _, Sqlite, Type};

use super::headers;
use crate::model::event::Header;
use crate::model::failure::FailureClass;
use crate::model::ids::{EventId, LeaseToken, MessageId, ReceiptId, RuntimeId, WorkItemId};
use crate::model::lane::Blockers;
use crate::model::names::{DestinationName, Namespace, PackName, RouteName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;

/// A stored value that this program never writes: the database was changed by hand, or is damaged.
#[derive(Debug, thiserror::Error)]
#[error("stored {what} is malformed: {found}")]
struct Damaged {
    what: &'static str,
    found: String,
}

pub(in crate::store) fn damaged(what: &'static str, found: impl ToString) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(Damaged { what, found: found.to_string() }))
}

/// A row of either engine.
pub(in crate::store) enum Row {
    /// Of the embedded database.
    Sqlite(SqliteRow),
    /// Of a server.
    MySql(MySqlRow),
}

impl Row {
    /// Reads the row as one value.
    pub(in crate::store) fn read<T: FromColumns>(&self) -> Result<T, sqlx::Error> {
        self.decode(T::read)
    }

    /// Reads the row with `decode`, which has to take every column.
    pub(in crate::store) fn decode<T>(
        &self,
        decode: impl FnOnce(&mut Columns<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut columns = Columns { row: self, next: 0 };
        let value = decode(&mut columns)?;
        columns.finish()?;
        Ok(value)
    }

    fn len(&self) -> usize {
        match self {
            Row::Sqlite(row) => row.len(),
            Row::MySql(row) => row.len(),
        }
    }

    fn stored<'r, T: Stored<'r>>(&'r self, index: usize) -> Result<Option<T>, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(index),
            Row::MySql(row) => row.try_get(index),
        }
    }
}

/// The columns of a row, read one behind the other.
pub(in crate::store) struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl Columns<'_> {
    /// The value of the next column, or of the next columns.
    pub(in crate::store) fn next<T: FromColumns>(&mut self) -> Result<T, sqlx::Error> {
        T::read(self)
    }

    /// Leaves out columns that say nothing in this row.
    pub(in crate::store) fn skip(&mut self, columns: usize) {
        self.next += columns;
    }

    fn finish(self) -> Result<(), sqlx::Error> {
        let selected = self.row.len();
        if self.next == selected {
            return Ok(());
        }
        Err(damaged("row", format_args!("{selected} columns, of which {} are read", self.next)))
    }
}

/// A value of one or more columns.
pub(in crate::store) trait FromColumns: Sized {
    /// Takes the columns of the value.
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error>;
}

/// A value of one column.
pub(in crate::store) trait Column: Sized {
    /// The value as both drivers read it.
    type Stored<'r>: Stored<'r>;

    /// Makes the value of the stored one.
    fn of_stored(stored: Self::Stored<'_>) -> Result<Self, sqlx::Error>;

    /// The value that NULL stands for, if it may be NULL. One driver reads NULL as 0 where no `Option` is asked for.
    fn of_null() -> Result<Self, sqlx::Error> {
        Err(damaged("value", "NULL"))
    }
}

/// A type that both drivers read.
pub(in crate::store) trait Stored<'r>:
    Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, MySql> + Type<MySql>
{
}

impl<'r, T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, MySql> + Type<MySql>> Stored<'r> for T {}

impl<T: Column> FromColumns for T {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        let index = columns.next;
        columns.next += 1;
        columns.row.stored(index)?.map_or_else(T::of_null, T::of_stored)
    }
}

macro_rules! tuples {
    ($(($($part:ident)+))+) => {
        $(
            impl<$($part: FromColumns),+> FromColumns for ($($part,)+) {
                fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
                    Ok(($(columns.next::<$part>()?,)+))
                }
            }
        )+
    };
}

tuples! { (A B) (A B C) (A B C D) }

impl<T: Column> Column for Option<T> {
    type Stored<'r> = T::Stored<'r>;

    fn of_stored(stored: Self::Stored<'_>) -> Result<Self, sqlx::Error> {
        T::of_stored(stored).map(Some)
    }

    fn of_null() -> Result<Self, sqlx::Error> {
        Ok(None)
    }
}

macro_rules! columns {
    ($($type:ty as $stored:ty: |$value:ident| $of:expr;)+) => {
        $(
            impl Column for $type {
                type Stored<'r> = $stored;

                fn of_stored($value: Self::Stored<'_>) -> Result<Self, sqlx::Error> {
                    $of
                }
            }
        )+
    };
}

columns! {
    i64 as i64: |stored| Ok(stored);
    bool as bool: |stored| Ok(stored);
    String as String: |stored| Ok(stored);
    u16 as i64: |stored| number(stored);
    u32 as i64: |stored| number(stored);
    u64 as i64: |stored| number(stored);
    GenerationNumber as i64: |stored| number(stored).map(Self);
    Blockers as i64: |stored| number(stored).map(Self);
    Timestamp as i64: |stored| Ok(Self::from_millis(stored));
    Bytes as Vec<u8>: |stored| Ok(stored.into());
    ReceiptId as &'r [u8]: |stored| bytes(stored, "id").map(Self::from_bytes);
    EventId as &'r [u8]: |stored| bytes(stored, "id").map(Self::from_bytes);
    WorkItemId as &'r [u8]: |stored| bytes(stored, "id").map(Self::from_bytes);
    MessageId as &'r [u8]: |stored| bytes(stored, "id").map(Self::from_bytes);
    LeaseToken as &'r [u8]: |stored| bytes(stored, "lease token").map(Self::from_bytes);
    RuntimeId as &'r [u8]: |stored| bytes(stored, "id").map(Self::from_bytes);
    [u8; 16] as &'r [u8]: |stored| bytes(stored, "id");
    [u8; 32] as &'r [u8]: |stored| bytes(stored, "digest");
    Namespace as &'r str: |stored| name(stored);
    PackName as &'r str: |stored| name(stored);
    RouteName as &'r str: |stored| name(stored);
    DestinationName as &'r str: |stored| name(stored);
    FailureClass as &'r str: |stored| failure_class(stored).ok_or_else(|| damaged("failure class", stored));
    Vec<Header> as Vec<u8>: |stored| headers(stored);
    Sum as i64: |stored| Ok(Self::of(stored));
}

fn number<T: TryFrom<i64>>(stored: i64) -> Result<T, sqlx::Error> {
    T::try_from(stored).map_err(|_| damaged("number", stored))
}

fn bytes<const N: usize>(stored: &[u8], what: &'static str) -> Result<[u8; N], sqlx::Error> {
    stored.try_into().map_err(|_| damaged(what, format_args!("{} bytes", stored.len())))
}

fn name<T: FromStr>(stored: &str) -> Result<T, sqlx::Error> {
    stored.parse().map_err(|_| damaged("name", stored))
}

fn headers(stored: Vec<u8>) -> Result<Vec<Header>, sqlx::Error> {
    let blob = Bytes::from(stored);
    headers::decode(&blob).ok_or_else(|| damaged("list of headers", format_args!("{} bytes", blob.len())))
}

/// The delay that a guest asked for is not stored: `run_after` has it.
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

/// The sum over a counter's stripes.
///
/// A snapshot that lacks one transaction and holds another that waited for it (`messages`) shows the rows that left and
/// not those that came. For that moment a sum may be below zero, and is read as 0. A sum that stays below zero is a
/// wrong counter (`counters`); so each is counted.
pub(in crate::store) struct Sum(pub(in crate::store) u64);

impl Sum {
    fn of(stored: i64) -> Self {
        Self(u64::try_from(stored).unwrap_or_else(|_| {
            counter!("forebay_store_sums_below_zero_total").increment(1);
            0
        }))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection as _;
    use sqlx::sqlite::SqliteConnection;

    use super::*;
    use crate::model::work_item::WorkState;
    use crate::store::engine::connection::Connection;
    use crate::store::engine::values::values;

    async fn row(text: &str) -> Row {
        let mut file = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        Connection::sqlite(&mut file).fetch_optional(text, values![]).await.unwrap().unwrap()
    }

    fn why<T>(read: Result<T, sqlx::Error>) -> String {
        read.err().expect("it cannot be read").to_string()
    }

    #[tokio::test]
    async fn columns_are_read_by_type_in_the_order_of_the_statement() {
        let row = row("SELECT 7, NULL, 'acme', x'0102', 1, 'x', -5").await;
        let read = row.decode(|columns| {
            let (number, nothing): (u16, Option<Timestamp>) = columns.next()?;
            let (name, blob): (Namespace, Bytes) = columns.next()?;
            let (state, text, Sum(sum)): (WorkState, Option<String>, Sum) = columns.next()?;
            Ok((number, nothing, name.to_string(), blob, state, text, sum))
        });
        let expected =
            (7, None, "acme".to_owned(), Bytes::from_static(&[1, 2]), WorkState::Ready, Some("x".to_owned()), 0);
        assert_eq!(read.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_column_more_or_less_is_an_error() {
        let row = row("SELECT 1, 2").await;
        assert_eq!(row.read::<(i64, i64)>().unwrap(), (1, 2));
        assert!(why(row.read::<i64>()).contains("row is malformed: 2 columns, of which 1 are read"));
        assert!(matches!(row.read::<(i64, i64, i64)>(), Err(sqlx::Error::ColumnIndexOutOfBounds { index: 2, len: 2 })));
    }

    #[tokio::test]
    async fn a_malformed_value_is_an_error() {
        assert!(why(row("SELECT -1").await.read::<u32>()).contains("number is malformed: -1"));
        assert!(why(row("SELECT 9").await.read::<Option<WorkState>>()).contains("work item state is malformed: 9"));
        assert!(why(row("SELECT x'00'").await.read::<EventId>()).contains("id is malformed: 1 bytes"));
        assert!(why(row("SELECT 'a b'").await.read::<PackName>()).contains("name is malformed: a b"));
        for null in
            [row("SELECT NULL").await.read::<i64>().map(drop), row("SELECT NULL").await.read::<String>().map(drop)]
        {
            assert!(why(null).contains("value is malformed: NULL"));
        }
    }
}
