//! What the two engines say differently. Statements are written once, in the words that both understand, and rendered
//! here for the engine that they are for.
//!
//! | | SQLite | MySQL family |
//! |---|---|---|
//! | a list of rows | `VALUES` | `SELECT .. UNION ALL ..`: TiDB has no table constructor |
//! | join in the order written | `CROSS JOIN` | `STRAIGHT_JOIN` |
//! | a limit that is bound | `LIMIT ? + 0`: a bare one is planned again each time | `LIMIT ?` |
//! | update from a list | `UPDATE .. FROM` | `UPDATE list STRAIGHT_JOIN table` |
//! | removal by a list | `DELETE .. WHERE key IN (VALUES ..)` | `DELETE table FROM list STRAIGHT_JOIN table` |
//! | a row that is there already | `ON CONFLICT` | `ON DUPLICATE KEY UPDATE` |
//! | a read that holds what it read | the one writer holds all | `FOR UPDATE`, `LOCK IN SHARE MODE` |
//!
//! Neither `RETURNING` nor `SKIP LOCKED`, `CHECK` or partial indexes are relied on where the MySQL protocol is spoken:
//! some servers accept them and do nothing.

/// The database that a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Engine {
    /// The embedded one.
    Sqlite,
    /// A server that speaks the MySQL protocol.
    MySql {
        /// Whether a shared lock on a row keeps writers off it, as a server is seen to do at the start (`mysql`).
        shares_locks: bool,
    },
}

impl Engine {
    /// How many there are to render statements for.
    pub(in crate::store) const COUNT: usize = 3;

    /// A number below [`Engine::COUNT`] of its own.
    pub(in crate::store) const fn index(self) -> usize {
        match self {
            Engine::Sqlite => 0,
            Engine::MySql { shares_locks: true } => 1,
            Engine::MySql { shares_locks: false } => 2,
        }
    }

    /// One of two texts, where the engines force two.
    pub(in crate::store) const fn pick<T: ?Sized>(self, sqlite: &'static T, mysql: &'static T) -> &'static T {
        match self {
            Engine::Sqlite => sqlite,
            Engine::MySql { .. } => mysql,
        }
    }
}

/// What a read does to the rows that it finds, until the transaction ends. SQLite's one writer holds everything anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Lock {
    /// Nothing: it reads what the transaction sees, which may be old.
    None,
    /// It reads the current row and keeps others from changing it.
    Share,
    /// It reads the current row and keeps others from locking it.
    Update,
}

impl Lock {
    /// What stands behind a `SELECT`.
    const fn suffix(self, engine: Engine) -> &'static str {
        match (self, engine) {
            (Lock::None, _) | (_, Engine::Sqlite) => "",
            (Lock::Share, Engine::MySql { shares_locks: true }) => " LOCK IN SHARE MODE",
            (Lock::Share | Lock::Update, Engine::MySql { .. }) => " FOR UPDATE",
        }
    }
}

/// What an insert does with a row whose key is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Conflict {
    /// The statement fails.
    Fail,
    /// The row that is there stays; the columns of its key.
    Keep(&'static str),
    /// A number is added to that of the row that is there; the columns of the key, and the number's.
    Add(&'static str, &'static str),
    /// A column of the row that is there is set; the columns of the key, and the column.
    Set(&'static str, &'static str),
    /// A column of the row that is there is set to the larger of the two; the columns of the key, and the column.
    Raise(&'static str, &'static str),
}

impl Conflict {
    fn clause(self, engine: Engine) -> String {
        match (self, engine) {
            (Conflict::Fail, _) => String::new(),
            (Conflict::Keep(key), Engine::Sqlite) => format!(" ON CONFLICT ({key}) DO NOTHING"),
            (Conflict::Add(key, column), Engine::Sqlite) => {
                format!(" ON CONFLICT ({key}) DO UPDATE SET {column} = {column} + excluded.{column}")
            }
            (Conflict::Set(key, column), Engine::Sqlite) => {
                format!(" ON CONFLICT ({key}) DO UPDATE SET {column} = excluded.{column}")
            }
            (Conflict::Raise(key, column), Engine::Sqlite) => {
                format!(" ON CONFLICT ({key}) DO UPDATE SET {column} = max({column}, excluded.{column})")
            }
            (Conflict::Keep(key), Engine::MySql { .. }) => {
                let first = key.split(',').next().unwrap_or(key);
                format!(" ON DUPLICATE KEY UPDATE {first} = {first}")
            }
            (Conflict::Add(_, column), Engine::MySql { .. }) => {
                format!(" ON DUPLICATE KEY UPDATE {column} = {column} + VALUES({column})")
            }
            (Conflict::Set(_, column), Engine::MySql { .. }) => {
                format!(" ON DUPLICATE KEY UPDATE {column} = VALUES({column})")
            }
            (Conflict::Raise(_, column), Engine::MySql { .. }) => {
                format!(" ON DUPLICATE KEY UPDATE {column} = GREATEST({column}, VALUES({column}))")
            }
        }
    }
}

/// What a statement does with its list of rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Shape {
    /// Reads what the rows name. `select` reads from `wanted` first, the list, whose columns are named.
    Select { wanted: &'static str, select: &'static str, lock: Lock },
    /// Stores the rows. `into` is the table and its columns.
    Insert { into: &'static str, conflict: Conflict },
    /// Changes what the rows name. `rows` is the list's name in `set` and `on`, with the names of its columns.
    Update { table: &'static str, set: &'static str, rows: &'static str, on: &'static str },
    /// Removes what the rows name by the table's primary key, `key`.
    Delete { table: &'static str, key: &'static str },
}

impl Shape {
    /// How many values a row has: as many as the list has columns.
    pub(in crate::store) const fn columns(self) -> usize {
        match self {
            Shape::Select { wanted: columns, .. }
            | Shape::Insert { into: columns, .. }
            | Shape::Update { rows: columns, .. }
            | Shape::Delete { key: columns, .. } => names(columns),
        }
    }

    /// The text for `size` rows.
    pub(in crate::store) fn render(self, engine: Engine, size: usize) -> String {
        let columns = self.columns();
        match self {
            Shape::Select { wanted, select, lock } => {
                let list = list(engine, &vec!["?"; columns], size);
                let select = self::select(engine, select);
                format!("WITH wanted {wanted} AS ({list}) {select}{}", lock.suffix(engine))
            }
            Shape::Insert { into, conflict } => {
                let values = repeated(&row(columns), size);
                let conflict = conflict.clause(engine);
                match engine {
                    // Rows that are left unbound are not stored.
                    Engine::Sqlite => format!(
                        "INSERT INTO {into} SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL{conflict}"
                    ),
                    Engine::MySql { .. } => format!("INSERT INTO {into} VALUES {values}{conflict}"),
                }
            }
            Shape::Update { table, set, rows, on } => {
                let (name, columns) = rows.split_once(' ').expect("a list has a name, and columns");
                let columns: Vec<&str> = columns.trim_matches(['(', ')']).split(", ").collect();
                match engine {
                    Engine::Sqlite => {
                        let list = list(engine, &columns, size);
                        let (set, on) = (numbered(name, &columns, set), numbered(name, &columns, on));
                        format!("UPDATE {table} SET {set} FROM ({list}) AS {name} WHERE {on}")
                    }
                    Engine::MySql { .. } => {
                        let named: Vec<String> = columns.iter().map(|column| format!("? AS {column}")).collect();
                        let (list, set) = (list(engine, &named, size), qualified(table, set));
                        format!("UPDATE ({list}) AS {name} STRAIGHT_JOIN {table} ON {on} SET {set}")
                    }
                }
            }
            Shape::Delete { table, key } => match engine {
                Engine::Sqlite => format!("DELETE FROM {table} WHERE {key} IN ({})", list(engine, &["?"], size)),
                // A list of values in the condition may be taken for a reason to read, and lock, the whole table.
                Engine::MySql { .. } => {
                    let list = list(engine, &[format!("? AS {key}")], size);
                    format!("DELETE {table} FROM ({list}) AS gone STRAIGHT_JOIN {table} ON {table}.{key} = gone.{key}")
                }
            },
        }
    }

    /// Whether the engine wants just as many rows as there are, or leaves alone what is unbound.
    pub(in crate::store) const fn wants_all_bound(self, engine: Engine) -> bool {
        matches!((self, engine), (Shape::Insert { .. }, Engine::MySql { .. }))
    }
}

/// A select in which the tables are joined in the order written, and which is prepared once.
///
/// SQLite plans a statement again whenever a value is bound to a bare `LIMIT ?`, to plan for that very number; a sum is
/// no number that it looks at.
pub(in crate::store) fn select(engine: Engine, select: &str) -> String {
    match engine {
        Engine::Sqlite => select.replace("LIMIT ?", "LIMIT ? + 0"),
        Engine::MySql { .. } => select.replace("CROSS JOIN", "STRAIGHT_JOIN"),
    }
}

/// The names in `(id, head)`, counted.
const fn names(list: &str) -> usize {
    let list = list.as_bytes();
    let (mut at, mut count) = (0, 1);
    while at < list.len() {
        count += (list[at] == b',') as usize;
        at += 1;
    }
    count
}

/// `text` with the columns of a list as SQLite calls them, `column1` and so on: it materializes a list whose columns
/// are named, and reads a bare one row by row.
fn numbered(list: &str, columns: &[&str], text: &str) -> String {
    let mut numbers: Vec<(usize, &str)> = columns.iter().copied().enumerate().collect();
    // A name may begin with another one.
    numbers.sort_by_key(|(_, column)| std::cmp::Reverse(column.len()));
    numbers.into_iter().fold(text.to_owned(), |text, (index, column)| {
        text.replace(&format!("{list}.{column}"), &format!("{list}.column{}", index + 1))
    })
}

/// The assignments of `set` with the table before each column that is assigned: in an update of a list and a table, the
/// bare name of a column that both have is ambiguous on a server. SQLite takes none but bare names.
fn qualified(table: &str, set: &str) -> String {
    let mut depth = 0_usize;
    let assignments = set.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    assignments.map(|assignment| format!("{table}.{}", assignment.trim_start())).collect::<Vec<_>>().join(", ")
}

/// A list of rows as a table. On a server the first row is written as `columns` says, which may name them.
fn list(engine: Engine, columns: &[impl AsRef<str>], size: usize) -> String {
    match engine {
        Engine::Sqlite => format!("VALUES {}", repeated(&row(columns.len()), size)),
        Engine::MySql { .. } => {
            let first = columns.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
            let other = format!(" UNION ALL SELECT {}", vec!["?"; columns.len()].join(", "));
            format!("SELECT {first}{}", other.repeat(size - 1))
        }
    }
}

fn row(columns: usize) -> String {
    format!("({})", vec!["?"; columns].join(", "))
}

fn repeated(row: &str, size: usize) -> String {
    vec![row; size].join(", ")
}

/// Whether a transaction was undone because another one was in its way: doing it again may succeed.
///
/// Codes of MariaDB and MySQL: 1020 a snapshot that is stale, 1062 a key that another one took, 1205 a lock that was
/// not had in time, 1213 a deadlock. Of TiDB: 8002, 8022, 8028, 9007, a commit that lost, or a schema that changed
/// under it.
pub(in crate::store) fn is_conflict(error: &sqlx::Error) -> bool {
    const CODES: [u16; 8] = [1020, 1062, 1205, 1213, 8002, 8022, 8028, 9007];
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().is_some_and(|error| CODES.contains(&error.number()))
}

/// Whether one request of many is to blame: what it brings does not fit into a row, or it is about a row that does not
/// say what it should.
///
/// Codes of MariaDB and MySQL: 1048 nothing where something must be, 1153 more than a packet, 1264 and 1690 a number
/// that is too large, 1366 a text that is none, 1406 one that is too long. Of SQLite: 18 too big, 19 a constraint, 20
/// another type.
pub(in crate::store) fn is_of_a_request(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::AnyDriverError(_) => true,
        _ => is_unstorable(error),
    }
}

/// Whether the database has no room for what a request brings, and will never have.
pub(in crate::store) fn is_unstorable(error: &sqlx::Error) -> bool {
    const CODES: [u16; 6] = [1048, 1153, 1264, 1366, 1406, 1690];
    const SQLITE_CODES: [u32; 3] = [18, 19, 20];
    let sqlx::Error::Database(error) = error else { return false };
    match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        Some(error) => CODES.contains(&error.number()),
        None => {
            let code = error.code().and_then(|code| code.parse::<u32>().ok());
            // The low byte says what it is, the others which of its kind.
            code.is_some_and(|code| SQLITE_CODES.contains(&(code & 0xff)))
        }
    }
}

/// Whether a statement names a table or a column that is not there.
///
/// MariaDB and MySQL: 1054 a column, 1146 a table. SQLite has one code for all that is wrong with a statement, and says
/// what.
pub(in crate::store) fn is_missing(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        Some(error) => [1054, 1146].contains(&error.number()),
        None => ["no such table: ", "no such column: "].iter().any(|said| error.message().contains(said)),
    }
}

/// Whether a server does not let this user do it, whatever it was: 1142 and 1143 a right on a table or a column that
/// the user lacks, 1290 and 1836 a server that takes no writes.
pub(in crate::store) fn is_forbidden(error: &sqlx::Error) -> bool {
    const CODES: [u16; 4] = [1142, 1143, 1290, 1836];
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().is_some_and(|error| CODES.contains(&error.number()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPDATE: Shape = Shape::Update {
        table: "lane",
        set: "head = coalesce(moved.head, lane.head), last = moved.head_before",
        rows: "moved (id, head, head_before)",
        on: "lane.id = moved.id",
    };

    #[test]
    fn columns_of_a_list_have_names_in_statements_and_what_the_engine_wants_in_texts() {
        assert_eq!(UPDATE.columns(), 3);
        assert_eq!(
            UPDATE.render(Engine::Sqlite, 2),
            "UPDATE lane SET head = coalesce(moved.column2, lane.head), last = moved.column3 \
             FROM (VALUES (?, ?, ?), (?, ?, ?)) AS moved WHERE lane.id = moved.column1"
        );
        assert_eq!(
            UPDATE.render(Engine::MySql { shares_locks: true }, 2),
            "UPDATE (SELECT ? AS id, ? AS head, ? AS head_before UNION ALL SELECT ?, ?, ?) AS moved \
             STRAIGHT_JOIN lane ON lane.id = moved.id \
             SET lane.head = coalesce(moved.head, lane.head), lane.last = moved.head_before"
        );
    }

    #[test]
    fn what_is_removed_is_found_by_its_key() {
        let delete = Shape::Delete { table: "message", key: "ordinal" };
        assert_eq!(delete.columns(), 1);
        assert_eq!(delete.render(Engine::Sqlite, 2), "DELETE FROM message WHERE ordinal IN (VALUES (?), (?))");
        assert_eq!(
            delete.render(Engine::MySql { shares_locks: true }, 2),
            "DELETE message FROM (SELECT ? AS ordinal UNION ALL SELECT ?) AS gone \
             STRAIGHT_JOIN message ON message.ordinal = gone.ordinal"
        );
    }
}
