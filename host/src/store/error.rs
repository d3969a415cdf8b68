//! The store's errors, divided by what the caller can do about them.

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
    /// The store cannot be used as it is; the text says what to do.
    #[error("{0}")]
    Unusable(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => StoreError::Busy { queue: "readers" },
            sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => StoreError::Unusable(format!(
                "the store holds a row that it cannot read ({error}): restore it from a backup"
            )),
            error => StoreError::Unavailable(error.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        StoreError::Unavailable(error.to_string())
    }
}
