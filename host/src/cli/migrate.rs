//! `forebay migrate`: brings the schema of a data directory, while no host uses it, or of a shared database up to date, as
//! `forebay serve` does at its start: for those who want it done, or refused, beforehand. Then it makes the work items that
//! events lack.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::exit::Failure;
use super::output::print;
use crate::env::Env;
use crate::store::{self, CoverageRepair, DatabaseUrl, MigrationReport};

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
    /// Events that got the work item that they lacked.
    repaired: u64,
    /// Events that could not get one.
    uncovered: u64,
}

#[derive(Serialize)]
struct Applied {
    version: i64,
    description: String,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let failed = |error: store::StoreError| Failure::Failed(error.to_string());
    let url = arguments.database_url.as_ref();
    let report = store::migrate(&arguments.data, url).await.map_err(failed)?;
    let repair = store::repair_coverage(&arguments.data, url, &Env::system()).await.map_err(failed)?;
    let text = if arguments.json { json(report, repair)? } else { sentences(&report, repair) };
    print(&text)?;
    match repair.left {
        0 => Ok(()),
        left => Err(Failure::Failed(format!(
            "{left} events have no work item and got none: the store lacks their namespace or their pack's generation"
        ))),
    }
}

fn sentences(report: &MigrationReport, repair: CoverageRepair) -> String {
    let mut text = match report.applied.len() {
        0 => format!("the schema is up to date, at version {}\n", report.to),
        count => {
            format!("{count} migrations applied: the schema is at version {}, was at {}\n", report.to, report.from)
        }
    };
    if repair.repaired > 0 {
        let _ = writeln!(text, "{} events had no work item, and have one now", repair.repaired);
    }
    text
}

fn json(report: MigrationReport, repair: CoverageRepair) -> Result<String, Failure> {
    let applied = report.applied.into_iter().map(|(version, description)| Applied { version, description }).collect();
    let CoverageRepair { repaired, left } = repair;
    let report = Report { from: report.from, to: report.to, applied, repaired, uncovered: left };
    let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(text + "\n")
}
