//! The schema: its version, and how it is brought up to date.

use std::path::Path;

use super::StoreError;

/// What [`migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// The schema's version before; 0 for a new store.
    pub from: i64,
    /// Its version now.
    pub to: i64,
    /// What was applied, in order: version and description.
    pub applied: Vec<(i64, String)>,
}

/// Brings the schema of the store in the directory `data` up to date, and creates the store if there is none.
///
/// Fails, and changes nothing, if another process has it open, if its schema is newer than this binary, or if the file
/// is not a healthy database of Forebay's.
pub async fn migrate(data: &Path) -> Result<MigrationReport, StoreError> {
    let _ = data;
    todo!()
}
