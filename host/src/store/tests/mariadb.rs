//! The MariaDB server of these tests: one for all of them, a database for each.

use std::sync::OnceLock;

use crate::rig::mariadb::MariaDb;
use crate::store::DatabaseUrl;

/// An empty database. The first test that wants one starts the server, which ends with the process.
pub(in crate::store) fn create_database() -> DatabaseUrl {
    create().parse().expect("it has a URL")
}

/// The URL of an empty database, whose server is reached through a socket.
pub(in crate::store) fn create() -> String {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    let server = SERVER.get_or_init(|| MariaDb::start().expect("a server starts"));
    server.create_database().expect("a database is created")
}
