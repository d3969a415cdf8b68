//! The MariaDB server of these tests: one for all of them, a database for each.

use std::sync::OnceLock;

use crate::cli::rig::mariadb::MariaDb;

/// The server. The first test that wants it starts it; it ends with the process.
pub(super) fn server() -> &'static MariaDb {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    SERVER.get_or_init(|| MariaDb::start().expect("a server starts"))
}
