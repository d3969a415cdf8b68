//! What is around a host: the files that its configuration names, its operator's secrets, its directories.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Finding, Launch};
use crate::app::needs::{self, Need};
use crate::app::{check, directories, options, packs};
use crate::config::{Config, Refusal, RetentionConfig};
use crate::env::Env;
use crate::guest::PackFile;
use crate::secrets::{SecretError, Secrets};
use crate::store::DestinationRow;

/// Secrets that are told of one by one.
const NEEDS_SHOWN_MAX: usize = 20;

/// What is written to a directory and taken back, to see that its disk has room: as much as a host's own files take at
/// once.
const ROOM_BYTES: usize = 1024 * 1024;

/// The directories in the data directory that a host writes to.
const OWN_DIRECTORIES: [&str; 3] = ["timeline", "checkpoints", "cache"];

/// Files and directories that the configuration names.
pub(super) fn settings(config: &Config) -> Vec<Finding> {
    let refused = |name: &'static str, refusals: Vec<Refusal>| {
        refusals.into_iter().map(move |Refusal { key, reason }| {
            Finding::failure(name, format_args!("`{key}` {reason}"), "use another one, or give the host's user access")
        })
    };
    let authorities = refused("certificate authorities", check::authorities(config));
    let checkpoints = refused("checkpoints", check::checkpoints(config));
    authorities.chain(checkpoints).chain([retention(config)]).collect()
}

/// For how long what has ended is kept.
fn retention(config: &Config) -> Finding {
    let RetentionConfig { events_days, messages_days, failed_days, .. } = config.retention;
    let failed = match failed_days {
        0 => "what failed until an operator acts".to_owned(),
        days => format!("what failed for {days}"),
    };
    Finding::ok(
        "retention",
        format_args!("keeps events for {events_days} days, messages for {messages_days}, {failed}"),
    )
}

/// The secrets directory, and what is to be in it. Packs that only the store has are not known here: a start warns of
/// theirs.
pub(super) fn secrets(config: &Config, launch: &Launch, env: &Env) -> Vec<Finding> {
    const NAME: &str = "secrets";
    let directory = directories::secrets(launch);
    let shown = directory.display();
    // Those that cannot be read are told of where packs are looked at.
    let packs: Vec<PackFile> =
        launch.packs.iter().filter_map(|path| packs::read(std::slice::from_ref(path)).ok()).flatten().collect();
    let routes = match needs::routes(config, &packs) {
        Ok(routes) => routes,
        Err(conflict) => return vec![Finding::failure("packs", conflict, "give only one of them to this host")],
    };
    let manifests: Vec<_> = packs.into_iter().map(|pack| pack.manifest).collect();
    let is_to_be_made = is_to_be_made(launch);
    let secrets = match open_secrets(launch, env) {
        Ok(secrets) => secrets,
        Err(error) => {
            return vec![Finding::failure(NAME, error, "make the directory, or give another one with --secrets")];
        }
    };
    let needs = needs::look(config, &routes, &manifests, &secrets);
    let mut findings: Vec<Finding> = needs.iter().filter_map(lacking).collect();
    if findings.len() > NEEDS_SHOWN_MAX {
        let more = findings.len() - NEEDS_SHOWN_MAX;
        findings.truncate(NEEDS_SHOWN_MAX);
        findings.push(Finding::failure(NAME, format_args!("{more} more cannot be used"), "correct these first"));
    }
    if findings.is_empty() {
        findings.push(match (is_to_be_made, needs.len()) {
            (true, _) => Finding::ok(NAME, format_args!("{shown} is made at the first start")),
            (false, 0) => Finding::ok(NAME, format_args!("{shown} can be read, and nothing names one")),
            (false, count) => Finding::ok(NAME, format_args!("{shown} holds those that are named, by {count}")),
        });
    }
    findings
}

/// What the database has of destinations that were set while hosts ran: whether this one can use them.
pub(super) fn destinations(
    config: &Config,
    launch: &Launch,
    env: &Env,
    rows: &[DestinationRow],
) -> Option<Vec<Finding>> {
    const NAME: &str = "destinations";
    let read = options::read_destination(config);
    // That it cannot be opened is told of where secrets are looked at.
    let secrets = open_secrets(launch, env).ok()?;
    let mut findings = Vec::new();
    let set: Vec<_> = rows.iter().filter(|row| !row.removed).collect();
    for row in &set {
        if config.destinations.get(&row.name).is_some() {
            let seen =
                format!("`{}` is in the configuration and was set as well: the configuration's counts", row.name);
            let remedy = format!("forebay destination remove {}, or take it out of the configuration", row.name);
            findings.push(Finding::warning(NAME, seen, remedy));
            continue;
        }
        match read(&row.name, &row.document) {
            Ok(destination) => {
                findings.extend(needs::of_destination(config, &destination, &secrets).as_ref().and_then(lacking));
            }
            Err(problems) => {
                let seen = format!("`{}` cannot be used by this host: {}", row.name, problems.join("; "));
                findings.push(Finding::warning(NAME, seen, "its messages wait here; forebay destination set mends it"));
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(NAME, format_args!("{} were set, and can be used", set.len())));
    }
    findings.truncate(NEEDS_SHOWN_MAX);
    Some(findings)
}

fn is_to_be_made(launch: &Launch) -> bool {
    launch.secrets.is_none() && !directories::secrets(launch).exists()
}

fn open_secrets(launch: &Launch, env: &Env) -> Result<Secrets, SecretError> {
    if is_to_be_made(launch) {
        return Secrets::none(env.clone());
    }
    Secrets::open(&directories::secrets(launch), env.clone())
}

/// A secret that all namespaces lack is forgotten; one that some have may be meant for those alone.
fn lacking(need: &Need) -> Option<Finding> {
    const NAME: &str = "secrets";
    let (_, reason) = need.lacking.first()?;
    let seen = format!("{}: {reason}", need.whose);
    Some(if need.lacking.len() == need.namespaces {
        Finding::failure(NAME, seen, "without it, what needs it is refused or waits")
    } else {
        let namespaces: Vec<&str> = need.lacking.iter().map(|(namespace, _)| namespace.as_str()).collect();
        Finding::warning(NAME, seen, format_args!("nothing, if these do not need it: {}", namespaces.join(", ")))
    })
}

/// The data directory, and those in it.
pub(super) fn directories(data: &Path) -> Vec<Finding> {
    let mut findings = vec![data_directory(data)];
    for name in OWN_DIRECTORIES {
        let path = data.join(name);
        if path.symlink_metadata().is_ok()
            && let Err(reason) = directories::check(&path)
        {
            let remedy = "make it a directory of the host's user (chown), or move it away: the host creates it again";
            findings.push(Finding::failure("data directory", reason, remedy));
        }
    }
    findings
}

fn data_directory(path: &Path) -> Finding {
    const NAME: &str = "data directory";
    let shown = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = "nothing, if this is to be a new store; else give the right one with --data";
            return match directories::check(path) {
                Ok(()) => {
                    Finding::warning(NAME, format_args!("{shown} is not there: the first start makes it"), remedy)
                }
                Err(reason) => Finding::failure(NAME, format_args!("{shown} cannot be made: {reason}"), remedy),
            };
        }
        Err(error) => return Finding::failure(NAME, format_args!("{shown}: {error}"), "let the host's user read it"),
    };
    if let Err(error) = write_some(path) {
        let remedy = "free its disk, or give it to the host's user (chown), and run the doctor as that user";
        return Finding::failure(NAME, format_args!("{shown} cannot be written to: {error}"), remedy);
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Finding::warning(
            NAME,
            format_args!("{shown} is open to other users"),
            format_args!("chmod 700 {shown}"),
        );
    }
    Finding::ok(NAME, format_args!("{shown} can be written to"))
}

/// Writes a little to the disk, into a file that nobody else sees.
fn write_some(path: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(path)?;
    file.write_all(&vec![0; ROOM_BYTES])?;
    file.sync_all()
}
