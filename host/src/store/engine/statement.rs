//! Statements over many rows. Every statement costs a turn of the driver or of the network, so a group of requests
//! becomes few large ones; and drivers cache prepared statements by their text, so texts come in few sizes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::OnceLock;

use super::connection::Connection;
use super::dialect::{Conflict, Engine, Lock, Shape, select};
use super::row::{Columns, Row};
use super::values::Values;

/// The sizes of statements, in rows. A smaller set of rows leaves the last ones of the next size NULL: every statement
/// is written so that a row of NULLs does nothing.
pub(in crate::store) const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The rows of the largest statement.
const SIZE_MAX: usize = SIZES[SIZES.len() - 1];

/// Bytes of values after which a statement takes no more rows: servers bound the packet of a statement.
const STATEMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A statement whose text contains a list of rows.
pub(in crate::store) struct Statement {
    shape: Shape,
    columns: usize,
    texts: [[OnceLock<&'static str>; SIZES.len()]; Engine::COUNT],
}

impl Statement {
    const fn new(shape: Shape) -> Self {
        Self {
            shape,
            columns: shape.columns(),
            texts: [const { [const { OnceLock::new() }; SIZES.len()] }; Engine::COUNT],
        }
    }

    /// Reads the rows that a list names. In `select` the list is the table `wanted`; the argument `wanted` has the
    /// names of its columns: `(id, epoch)`.
    pub(in crate::store) const fn select(wanted: &'static str, select: &'static str) -> Self {
        Self::new(Shape::Select { wanted, select, lock: Lock::None })
    }

    /// As [`Statement::select`], but reads the current rows and locks them until the transaction ends.
    pub(in crate::store) const fn lock(wanted: &'static str, select: &'static str, lock: Lock) -> Self {
        Self::new(Shape::Select { wanted, select, lock })
    }

    /// Stores rows: `into` is the table with its columns, `lane (id, head)`.
    pub(in crate::store) const fn insert(into: &'static str, conflict: Conflict) -> Self {
        Self::new(Shape::Insert { into, conflict })
    }

    /// Changes the rows of `table` that a list names. `rows` is the list with its columns, `moved (id, head)`. A column
    /// that the list has too is read from the table by its full name.
    pub(in crate::store) const fn update(
        table: &'static str,
        set: &'static str,
        rows: &'static str,
        on: &'static str,
    ) -> Self {
        Self::new(Shape::Update { table, set, rows, on })
    }

    /// Removes the rows of `table` that a list names by their primary key, the column `key`.
    pub(in crate::store) const fn delete(table: &'static str, key: &'static str) -> Self {
        Self::new(Shape::Delete { table, key })
    }

    /// Writes the rows. Returns the number of rows that it found in the table.
    pub(in crate::store) async fn execute<T>(
        &'static self,
        connection: &mut Connection<'_>,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> Result<u64, sqlx::Error> {
        let mut affected = 0;
        for (text, values) in self.chunks(connection.engine(), rows, bind) {
            affected += connection.execute(text, values).await?;
        }
        Ok(affected)
    }

    /// Writes the rows without counting the affected ones.
    pub(in crate::store) async fn write<T>(
        &'static self,
        connection: &mut Connection<'_>,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> Result<(), sqlx::Error> {
        for (text, values) in self.chunks(connection.engine(), rows, bind) {
            connection.write(text, values).await?;
        }
        Ok(())
    }

    /// Runs the statement over the rows and decodes the answer, in no particular order.
    pub(in crate::store) async fn fetch<T, U>(
        &'static self,
        connection: &mut Connection<'_>,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
        decode: impl Fn(&mut Columns<'_>) -> Result<U, sqlx::Error>,
    ) -> Result<Vec<U>, sqlx::Error> {
        let mut reads = Reads::of(connection.engine());
        let asked = reads.ask(self, rows, bind);
        reads.answer(connection).await?.decode(asked, decode)
    }

    /// The text for the statement of that size, a size of [`SIZES`].
    pub(in crate::store) fn text(&'static self, engine: Engine, size: usize) -> &'static str {
        let index = SIZES.iter().position(|known| *known == size).expect("a size is one of SIZES");
        // Once for each statement, engine and size of this program: a bounded number of bytes.
        self.texts[engine.index()][index].get_or_init(|| self.shape.render(engine, size).leak())
    }

    fn chunks<T>(
        &'static self,
        engine: Engine,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> impl Iterator<Item = (&'static str, Values)> {
        let exact = self.shape.wants_all_bound(engine);
        let bound = rows.into_iter().map(|row| {
            let mut values = Values::default();
            bind(&mut values, row);
            values
        });
        let mut bound: VecDeque<Values> = bound.collect();
        std::iter::from_fn(move || {
            let fitting = fitting(&bound);
            let taken = if exact { largest_within(fitting) } else { fitting };
            let size = SIZES.into_iter().find(|size| taken > 0 && taken <= *size)?;
            let mut values = Values::default();
            bound.drain(..taken).for_each(|row| values.append(row));
            values.pad(size * self.columns);
            Some((self.text(engine, size), values))
        })
    }
}

/// The number of first rows that one statement takes: at least one, if there is any.
fn fitting(rows: &VecDeque<Values>) -> usize {
    let mut bytes = 0;
    let fits = |row: &&Values| {
        let first = bytes == 0;
        bytes += row.weight();
        first || bytes <= STATEMENT_BYTES_MAX
    };
    rows.iter().take(SIZE_MAX).take_while(fits).count()
}

/// The largest of [`SIZES`] for which there are rows; 0 for none.
fn largest_within(rows: usize) -> usize {
    SIZES.into_iter().rev().find(|size| *size <= rows).unwrap_or(0)
}

/// Reads that do not depend on one another: the embedded database is asked for all of them at once.
pub(in crate::store) struct Reads {
    engine: Engine,
    statements: Vec<(&'static str, Values)>,
}

/// The answers to one read.
pub(in crate::store) struct Asked(Range<usize>);

/// The rows that were read.
pub(in crate::store) struct Answered(Vec<Vec<Row>>);

impl Reads {
    pub(in crate::store) fn of(engine: Engine) -> Self {
        Self { engine, statements: Vec::new() }
    }

    /// Adds a statement over the rows.
    pub(in crate::store) fn ask<T>(
        &mut self,
        statement: &'static Statement,
        rows: Vec<T>,
        bind: impl Fn(&mut Values, T),
    ) -> Asked {
        let first = self.statements.len();
        self.statements.extend(statement.chunks(self.engine, rows, bind));
        Asked(first..self.statements.len())
    }

    pub(in crate::store) async fn answer(self, connection: &mut Connection<'_>) -> Result<Answered, sqlx::Error> {
        if self.statements.is_empty() {
            return Ok(Answered(Vec::new()));
        }
        connection.fetch_each(self.statements).await.map(Answered)
    }
}

impl Answered {
    /// Decodes the answer to one read, in no particular order.
    pub(in crate::store) fn decode<U>(
        &self,
        asked: Asked,
        decode: impl Fn(&mut Columns<'_>) -> Result<U, sqlx::Error>,
    ) -> Result<Vec<U>, sqlx::Error> {
        self.0[asked.0].iter().flatten().map(|row| row.decode(&decode)).collect()
    }
}

/// A statement with no list of rows in it.
pub(in crate::store) struct Text {
    written: &'static str,
    rendered: [OnceLock<&'static str>; Engine::COUNT],
}

impl Text {
    pub(in crate::store) const fn new(written: &'static str) -> Self {
        Self { written, rendered: [const { OnceLock::new() }; Engine::COUNT] }
    }

    /// The text for an engine.
    pub(in crate::store) fn of(&'static self, engine: Engine) -> &'static str {
        self.rendered[engine.index()].get_or_init(|| select(engine, self.written).leak())
    }
}
