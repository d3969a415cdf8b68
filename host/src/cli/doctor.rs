//! `forebay doctor`: checks what a host needs before its start, and asks a running one.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use serde::Serialize;

use super::client::Client;
use super::exit::Failure;
use super::output::{fields, print};
use crate::admin::wire::Readiness;
use crate::app::{Config, Finding, Health, Launch, Sources, diagnose};

const EXAMPLES: &str = "\
Examples:
  forebay doctor --config /etc/forebay.toml --data /var/lib/forebay --pack github.fpk
  forebay doctor --data /var/lib/forebay --admin http://127.0.0.1:8081

Checks everything that a start needs, without starting anything. The data directory of a running host is not examined: ask \
that host with --admin. Exit code 1: at least one finding is a failure; warnings do not count.";

/// `forebay doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The configuration; without it, the defaults and the environment
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = super::serve::DATA_DEFAULT)]
    data: PathBuf,
    /// The secrets, as for `forebay serve`
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
    /// A pack file that the host shall serve; may be given several times
    #[arg(long = "pack", value_name = "FILE")]
    packs: Vec<PathBuf>,
    /// Also ask this running host whether it is ready; the token is read from FOREBAY_ADMIN_TOKEN
    #[arg(long, value_name = "URL")]
    admin: Option<Uri>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    findings: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    status: &'static str,
    seen: &'a str,
    remedy: Option<&'a str>,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let sources =
        Sources { file: arguments.config.as_deref(), environment: std::env::vars_os().collect(), flags: Vec::new() };
    let launch = Launch { data: arguments.data, secrets: arguments.secrets, packs: arguments.packs };
    let mut findings = diagnose(Config::load(&sources), &launch).await;
    if let Some(admin) = &arguments.admin {
        findings.extend(ask(admin).await?);
    }
    let text = if arguments.json { json(&findings)? } else { table(&findings) };
    print(&text)?;
    match findings.iter().filter(|finding| finding.health == Health::Failure).count() {
        0 => Ok(()),
        1 => Err(Failure::Failed("one finding is a failure".to_owned())),
        count => Err(Failure::Failed(format!("{count} findings are failures"))),
    }
}

/// Findings of a running host.
async fn ask(admin: &Uri) -> Result<Vec<Finding>, Failure> {
    let answer = match Client::at(admin)?.get_whatever("/readyz").await {
        Ok(answer) => answer,
        Err(Failure::Unreachable(text)) => {
            let remedy = "check that the host runs, and that --admin names its admin listener";
            return Ok(vec![Finding::failure("host", text, remedy)]);
        }
        Err(failure) => return Err(failure),
    };
    let readiness: Readiness = answer.read()?;
    let answers = Finding::ok("host", format_args!("{admin} answers"));
    if readiness.ready {
        return Ok(vec![answers, Finding::ok("readiness", "it takes deliveries and works them off")]);
    }
    let remedy = "see `Health and readiness` in docs/operations.md, which lists the reasons";
    let reasons = readiness.reasons.into_iter().map(|reason| Finding::failure("readiness", reason, remedy));
    Ok(std::iter::once(answers).chain(reasons).collect())
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Warning => "warning",
        Health::Failure => "failure",
    }
}

fn entry(finding: &Finding) -> Entry<'_> {
    Entry { name: finding.name, status: word(finding.health), seen: &finding.seen, remedy: finding.remedy.as_deref() }
}

fn json(findings: &[Finding]) -> Result<String, Failure> {
    let report = Report { findings: findings.iter().map(entry).collect() };
    let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(text + "\n")
}

/// A line per finding, uncut, with its remedy below.
fn table(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let mut seen = finding.seen.lines();
        lines.push((format!("{:<8}{}", word(finding.health), finding.name), seen.next().unwrap_or_default()));
        lines.extend(seen.map(|more| (String::new(), more)));
        lines.extend(finding.remedy.as_deref().map(|remedy| (format!("{:<8}  to do", ""), remedy)));
    }
    fields(&lines.iter().map(|(name, text)| (name.as_str(), Some(*text))).collect::<Vec<_>>())
}
