//! `forebay migrate`: brings the schema of a data directory, while no host uses it, or of a shared database up to date. `forebay serve` does the
//! same at its start; this is for those who want it done, or refused, beforehand.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::exit::Failure;
use super::output::print;
use crate::store::{self, DatabaseUrl};

/// `forebay migrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  forebay migrate --data /var/lib/forebay\n  \
    FOREBAY_DATABASE_URL=mysql://forebay:…@db:3306/forebay forebay migrate")]
pub(super) struct Arguments {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = super::serve::DATA_DEFAULT)]
    data: PathBuf,
    /// The shared database, instead of the one in the data directory
    #[arg(long, value_name = "URL", env = "FOREBAY_DATABASE_URL", hide_env_values = true)]
    database_url: Option<DatabaseUrl>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    from: i64,
    to: i64,
    applied: Vec<Applied>,
}

#[derive(Serialize)]
struct Applied {
    version: i64,
    description: String,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let report = store::migrate(&arguments.data, arguments.database_url.as_ref())
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    if !arguments.json {
        let text = match report.applied.len() {
            0 => format!("the schema is up to date, at version {}\n", report.to),
            count => {
                format!("{count} migrations applied: the schema is at version {}, was at {}\n", report.to, report.from)
            }
        };
        return Ok(print(&text)?);
    }
    let applied = report.applied.into_iter().map(|(version, description)| Applied { version, description }).collect();
    let report = Report { from: report.from, to: report.to, applied };
    let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(print(&format!("{text}\n"))?)
}
