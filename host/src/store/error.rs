//! The store's errors, divided by what the caller can do about them.

use super::engine::dialect::is_unstorable;

/// Why a call did not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The writer has all that it may hold. Nothing was written; try again later.
    #[error("the store is busy: its queue of {queue} is full")]
    Busy {
        /// Which bound was reached: `requests`, `bytes` or `readers`.
        queue: &'static str,
    },
    /// The database could not do it now. Nothing was written; trying again may help.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The commit's fate is not known: it may or may not be durable. Resolve it by reading, or by doing it again.
    #[error("the store did not say whether it committed: {0}")]
    Unknown(String),
    /// It names something that the store does not hold (a namespace, a pack, a generation). Nothing was written; trying
    /// again does not help.
    #[error("{0}")]
    Refused(String),
    /// The database cannot hold something that it brings. Nothing was written; trying again does not help.
    #[error("the store cannot hold it: {0}")]
    Unstorable(String),
    /// The store cannot be used as it is; the text says what to do.
    #[error("{0}")]
    Unusable(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => StoreError::Busy { queue: "readers" },
            sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => StoreError::Unusable(format!(
                "the store holds a row that it cannot read ({error}): put that row right, or restore a backup"
            )),
            // What the database says may repeat what somebody sent.
            error if is_unstorable(&error) => {
                StoreError::Unstorable(format!("the database refuses it ({})", code(&error)))
            }
            error => StoreError::Unavailable(error.to_string()),
        }
    }
}

/// What the database calls an error by.
fn code(error: &sqlx::Error) -> String {
    let sqlx::Error::Database(error) = error else { return String::new() };
    match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        Some(error) => format!("error {}", error.number()),
        None => format!("code {}", error.code().unwrap_or_default()),
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        StoreError::Unavailable(error.to_string())
    }
}
