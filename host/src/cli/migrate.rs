//! `forebay migrate`: updates the schema of a data directory that no host uses, or of a shared database, as `forebay
//! serve` does at its start. Then it creates missing work items and corrects wrong counters.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::exit::Failure;
use super::output::print;
use crate::env::Env;
use crate::guest::parse_manifest;
use crate::model::names::RouteName;
use crate::model::pack::QueueClassRule;
use crate::store::{self, CoverageRepair, DatabaseUrl, MigrationReport, Miscount, Repair, RouteRules};

const HELP: &str = "\
Updates the schema as a start does: of a data directory that no host uses, or of a shared database. Then it creates missing \
work items and corrects wrong counters. The schema only goes forward: take a backup first.

Examples:
  forebay migrate --data /var/lib/forebay
  FOREBAY_DATABASE_URL=mysql://forebay:…@db:3306/forebay forebay migrate";

/// `forebay migrate`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
    /// Events whose missing work item was created.
    repaired: u64,
    /// Events that still have no work item.
    uncovered: u64,
    /// Counters that differed from the rows and were corrected.
    recounted: usize,
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
    let repair = store::repair(&arguments.data, url, &Env::system(), &rules).await.map_err(failed)?;
    let text = if arguments.json { json(report, &repair)? } else { sentences(&report, &repair) };
    print(&text)?;
    match repair.coverage.left {
        0 => Ok(()),
        left => Err(Failure::Failed(format!(
            "{left} events still have no work item: the store lacks their namespace or their pack's generation"
        ))),
    }
}

/// The rules of the routes in a stored manifest; empty if this version cannot read it.
fn rules(manifest: &str) -> BTreeMap<RouteName, RouteRules> {
    let routes = parse_manifest(manifest).map(|manifest| manifest.routes).unwrap_or_default();
    let rules = routes.into_iter().map(|route| {
        let queue_class = match route.queue_class {
            QueueClassRule::Fixed(class) | QueueClassRule::ByValue { otherwise: class, .. } => class,
        };
        (route.path, RouteRules { coalescing: route.coalescing, queue_class })
    });
    rules.collect()
}

fn sentences(report: &MigrationReport, repair: &Repair) -> String {
    let mut text = match report.applied.len() {
        0 => format!("the schema is up to date, at version {}\n", report.to),
        count => {
            format!("{count} migrations applied: the schema is at version {}, before at {}\n", report.to, report.from)
        }
    };
    if repair.coverage.repaired > 0 {
        let _ = writeln!(text, "{} missing work items created", repair.coverage.repaired);
    }
    for Miscount { of, counted, rows } in &repair.recounted {
        let _ = writeln!(text, "{of}: the counter was {counted}, and is now {rows}");
    }
    text
}

fn json(report: MigrationReport, repair: &Repair) -> Result<String, Failure> {
    let applied = report.applied.into_iter().map(|(version, description)| Applied { version, description }).collect();
    let CoverageRepair { repaired, left } = repair.coverage;
    let recounted = repair.recounted.len();
    let report = Report { from: report.from, to: report.to, applied, repaired, uncovered: left, recounted };
    let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(text + "\n")
}
