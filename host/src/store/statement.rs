//! Statements over many rows. The driver hops to another thread for every statement, so a group of requests becomes few
//! large ones; and it caches prepared statements by their text, so texts come in few sizes.

use std::sync::OnceLock;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::stored::Values;

/// How many rows one statement takes. A smaller set of rows leaves the last ones of the next size unbound, which SQLite
/// reads as NULL: every statement is written so that a row of NULLs does nothing.
pub(super) const SIZES: [usize; 4] = [1, 8, 32, 128];

/// The rows of the largest statement.
const SIZE_MAX: usize = SIZES[SIZES.len() - 1];

/// A statement whose text contains a list of rows.
pub(super) struct Statement {
    before: &'static str,
    columns: usize,
    after: &'static str,
    texts: [OnceLock<&'static str>; SIZES.len()],
}

impl Statement {
    /// `before VALUES (?, ..), .. after`, with `columns` placeholders a row.
    pub(super) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self { before, columns, after, texts: [const { OnceLock::new() }; SIZES.len()] }
    }

    /// Writes the rows. Returns how many rows of the table that changed.
    pub(super) async fn execute<T>(
        &'static self,
        connection: &mut SqliteConnection,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> Result<u64, sqlx::Error> {
        let mut affected = 0;
        for (text, values) in self.chunks(rows, bind) {
            let done = sqlx::query_with(text, values.into_arguments()).execute(&mut *connection).await?;
            affected += done.rows_affected();
        }
        Ok(affected)
    }

    /// Runs the statement over the rows and decodes what it returns, in no particular order.
    pub(super) async fn fetch<T, U>(
        &'static self,
        connection: &mut SqliteConnection,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
        decode: impl Fn(&SqliteRow) -> Result<U, sqlx::Error>,
    ) -> Result<Vec<U>, sqlx::Error> {
        let mut found = Vec::new();
        for (text, values) in self.chunks(rows, bind) {
            for row in sqlx::query_with(text, values.into_arguments()).fetch_all(&mut *connection).await? {
                found.push(decode(&row)?);
            }
        }
        Ok(found)
    }

    /// The text for the statement of that size.
    pub(super) fn text(&'static self, size: usize) -> &'static str {
        let index = SIZES.iter().position(|known| *known == size).expect("a size is one of SIZES");
        self.texts[index].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            let text = format!("{} VALUES {} {}", self.before, vec![row.as_str(); size].join(", "), self.after);
            // Once for each statement and size of this program: a bounded number of bytes.
            text.leak()
        })
    }

    fn chunks<T>(
        &'static self,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> impl Iterator<Item = (&'static str, Values)> {
        let mut left = rows.len();
        let mut rows = rows.into_iter();
        std::iter::from_fn(move || {
            let taken = left.min(SIZE_MAX);
            let size = SIZES.into_iter().find(|size| taken > 0 && taken <= *size)?;
            left -= taken;
            let mut values = Values::default();
            for row in rows.by_ref().take(taken) {
                bind(&mut values, row);
            }
            Some((self.text(size), values))
        })
    }
}

/// A text put together from constants, for the driver that wants to hear that no input is in it.
pub(super) fn constant(text: String) -> impl SqlSafeStr {
    AssertSqlSafe(text)
}
