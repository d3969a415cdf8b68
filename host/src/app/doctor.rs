//! The doctor: what a host needs at its start, looked at one by one and without starting anything. A start stops at the
//! first thing that is wrong; this names them all, and what each takes.

mod surroundings;

use std::fmt::Display;
use std::path::Path;

use super::{Launch, descriptors, directories, options, packs, token};
use crate::config::{Config, ConfigError};
use crate::env::Env;
use crate::store::{
    self, Behaviour, CoverageGap, Examination, Examined, MigrationReport, Miscount, PACKET_BYTES_ADVISED,
    PACKET_BYTES_MIN, ServerFacts, StoreError,
};

/// The largest difference between the database's clock and the host's that is nothing to speak of.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 1_000;

/// Counters that are shown of those that are wrong.
const MISCOUNTS_SHOWN_MAX: usize = 10;

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Ok,
    /// A host starts with it; somebody should look.
    Warning,
    /// A host does not start with it, or does not do all of its work.
    Failure,
}

/// What was found about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub health: Health,
    /// What was seen.
    pub seen: String,
    /// What to do about it; `None` where there is nothing to do, or where `seen` says it.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(name: &'static str, seen: impl Display) -> Self {
        Self { name, health: Health::Ok, seen: seen.to_string(), remedy: None }
    }

    /// Somebody should look.
    pub fn warning(name: &'static str, seen: impl Display, remedy: impl Display) -> Self {
        Self { name, health: Health::Warning, seen: seen.to_string(), remedy: Some(remedy.to_string()) }
    }

    /// A host does not start, or not work.
    pub fn failure(name: &'static str, seen: impl Display, remedy: impl Display) -> Self {
        Self { name, health: Health::Failure, seen: seen.to_string(), remedy: Some(remedy.to_string()) }
    }

    /// An error that says itself what to do.
    fn refusal(name: &'static str, error: &dyn Display) -> Self {
        Self { name, health: Health::Failure, seen: error.to_string(), remedy: None }
    }
}

/// Looks at everything that a host with this configuration would start with.
pub async fn diagnose(config: Result<Config, ConfigError>, launch: &Launch) -> Vec<Finding> {
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            let remedy = "every key is in docs/configuration.md, and in `forebay config --reference`";
            return vec![Finding::failure("configuration", error, remedy)];
        }
    };
    let env = Env::system();
    let mut findings = vec![Finding::ok("configuration", "can be used")];
    findings.push(match descriptors::provide(&config) {
        Ok(()) => Finding::ok("file descriptors", "are enough"),
        Err(error) => Finding::refusal("file descriptors", &error),
    });
    findings.push(match token::read(config.admin.token.as_ref()) {
        Ok(Some(_)) => Finding::ok("admin token", "is asked for"),
        Ok(None) => Finding::ok("admin token", "none: the admin listener is on loopback"),
        Err(error) => Finding::refusal("admin token", &error),
    });
    findings.extend(surroundings::settings(&config));
    findings.extend(launch.packs.iter().map(|path| pack(path)));
    findings.extend(surroundings::secrets(&config, launch, &env));
    findings.extend(surroundings::directories(&launch.data));
    findings.extend(database(&config, launch, &env).await);
    findings
}

fn pack(path: &Path) -> Finding {
    match packs::read(&[path.to_owned()]) {
        Ok(packs) => {
            let names: Vec<String> = packs.iter().map(|pack| pack.manifest.name.to_string()).collect();
            Finding::ok("pack", format_args!("{} holds {}", path.display(), names.join(", ")))
        }
        Err(error) => Finding::failure("pack", error, "build it again with `forebay pack build`, or give another file"),
    }
}

async fn database(config: &Config, launch: &Launch, env: &Env) -> Vec<Finding> {
    let url = match options::shared_database(config) {
        Ok(url) => url,
        Err(error) => return vec![Finding::refusal("database", &error)],
    };
    if let (None, Err(error)) = (&url, directories::check_store(&launch.data)) {
        return vec![Finding::refusal("database", &error)];
    }
    match store::examine(&launch.data, url.as_ref(), env).await {
        Ok(Examined::Missing) => vec![Finding::ok("database", "there is none yet: the first start creates it")],
        Ok(Examined::InUse) => {
            let seen = format!("a host has the data directory {} open (forebay.lock)", launch.data.display());
            let remedy =
                "nothing, if the host is meant to run: ask it with --admin URL. To look at its database, stop it";
            vec![Finding::warning("database", seen, remedy)]
        }
        Ok(Examined::Found(found)) => {
            let mut findings = examined(config, &found);
            findings.extend(
                surroundings::destinations(config, launch, env, &found.contents.destinations).into_iter().flatten(),
            );
            findings
        }
        Err(error) => vec![unusable(&error)],
    }
}

fn unusable(error: &StoreError) -> Finding {
    match error {
        StoreError::Unavailable(_) => {
            let remedy = "see that the server runs, and that `database.url` has the right host, user and password";
            Finding::failure("database", error, remedy)
        }
        StoreError::Busy { .. }
        | StoreError::Unknown(_)
        | StoreError::Refused(_)
        | StoreError::Unstorable(_)
        | StoreError::Unusable(_) => Finding::refusal("database", error),
    }
}

fn examined(config: &Config, found: &Examination) -> Vec<Finding> {
    let mut findings = vec![match &found.server {
        Some(server) => Finding::ok("database", format_args!("{} answers", server.version)),
        None => Finding::ok("database", "the file is healthy"),
    }];
    findings.push(schema(&found.schema));
    findings.push(shards(config.store.shards, found.contents.shards));
    findings.extend(found.server.iter().flat_map(|found| server(config, found)));
    findings.push(coverage(&found.contents.coverage));
    findings.push(counters(&found.contents.miscounts));
    findings
}

fn schema(outstanding: &MigrationReport) -> Finding {
    let MigrationReport { from, to, applied } = outstanding;
    if applied.is_empty() {
        return Finding::ok("schema", format_args!("version {to}"));
    }
    let names: Vec<String> = applied.iter().map(|(version, name)| format!("{version} {name}")).collect();
    let seen = format!("version {from} of {to}; to be applied: {}", names.join(", "));
    Finding::warning("schema", seen, "`forebay migrate` applies it, and so does the next start; take a backup first")
}

fn shards(configured: u16, found: u64) -> Finding {
    if found == 0 || found == u64::from(configured) {
        return Finding::ok("shards", configured);
    }
    let seen = format!("the store was created with {found}, and store.shards = {configured}");
    Finding::failure("shards", seen, format_args!("set store.shards to {found}: the number cannot be changed"))
}

fn server(config: &Config, server: &ServerFacts) -> Vec<Finding> {
    let mut findings = vec![packets(config, server.packet_bytes), clock(server.clock_ahead_ms), locks(server)];
    findings.extend(server.behaviour.map(idle));
    findings
}

fn packets(config: &Config, bytes: u64) -> Finding {
    const NAME: &str = "database packets";
    if let (PACKET_BYTES_MIN.., Err(error)) = (bytes, options::check_packet(config, bytes)) {
        return Finding::refusal(NAME, &error);
    }
    let seen = format!("max_allowed_packet is {} MiB", bytes >> 20);
    let remedy = format!("set max_allowed_packet on the server to at least {} MiB", PACKET_BYTES_ADVISED >> 20);
    match bytes {
        ..PACKET_BYTES_MIN => Finding::failure(NAME, seen, remedy),
        PACKET_BYTES_MIN..PACKET_BYTES_ADVISED => Finding::warning(NAME, seen, remedy),
        PACKET_BYTES_ADVISED.. => Finding::ok(NAME, seen),
    }
}

fn clock(ahead_ms: i64) -> Finding {
    const NAME: &str = "database clock";
    let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let seen = format!("{} ms {direction} this machine's", ahead_ms.unsigned_abs());
    if ahead_ms.abs() <= CLOCK_DIFFERENCE_MS_MAX {
        return Finding::ok(NAME, seen);
    }
    let remedy = "have NTP set both clocks: the database's decides about leases and due times";
    Finding::warning(NAME, seen, remedy)
}

fn locks(server: &ServerFacts) -> Finding {
    const NAME: &str = "database locks";
    match server.behaviour {
        Some(behaviour) if behaviour.shares_locks => {
            Finding::ok(NAME, "as they must be; shared locks keep writers off")
        }
        Some(_) => Finding::ok(NAME, "as they must be; shared locks keep no writer off, so exclusive ones are taken"),
        None => Finding::warning(NAME, "not tested: there is no schema yet", "run `forebay migrate`, then this again"),
    }
}

fn idle(behaviour: Behaviour) -> Finding {
    const NAME: &str = "database transactions";
    if behaviour.ends_idle_transactions {
        return Finding::ok(NAME, "the server ends those of a vanished host soon");
    }
    let remedy =
        "if hosts may lose power or network, configure TCP keepalive to notice it within seconds, or use MariaDB";
    Finding::warning(NAME, "those of a vanished host stay open until the server closes its connection", remedy)
}

fn coverage(gap: &CoverageGap) -> Finding {
    const NAME: &str = "coverage";
    if gap.events == 0 {
        return Finding::ok(NAME, "every event has its work item");
    }
    let first: Vec<String> = gap.first.iter().map(ToString::to_string).collect();
    let more = if gap.events > gap.first.len() as u64 { ", .." } else { "" };
    let seen = format!("{} events have no work item, and are never worked off: {}{more}", gap.events, first.join(", "));
    Finding::failure(NAME, seen, "`forebay migrate` creates their work items")
}

fn counters(miscounts: &[Miscount]) -> Finding {
    const NAME: &str = "counters";
    if miscounts.is_empty() {
        return Finding::ok(NAME, "they agree with the rows");
    }
    let shown = miscounts.iter().take(MISCOUNTS_SHOWN_MAX);
    let shown: Vec<_> =
        shown.map(|Miscount { of, counted, rows }| format!("{counted} {of}, and there are {rows}")).collect();
    let more = if miscounts.len() > MISCOUNTS_SHOWN_MAX { "; .." } else { "" };
    let remedy =
        "nothing is lost, but statistics and budgets are off: `forebay migrate` corrects them. Please report it";
    Finding::warning(NAME, format_args!("they count {}{more}", shown.join("; ")), remedy)
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use crate::model::ids::EventId;

    fn launch(data: &Path) -> Launch {
        Launch { data: data.to_owned(), secrets: None, packs: Vec::new() }
    }

    fn health(findings: &[Finding], name: &str) -> Health {
        findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}: {findings:?}")).health
    }

    #[tokio::test]
    async fn a_store_that_is_not_there_yet_is_no_failure_and_is_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let findings = diagnose(Ok(config(&[])), &launch(&data)).await;
        assert!(findings.iter().all(|finding| finding.health < Health::Failure), "{findings:?}");
        assert_eq!(health(&findings, "data directory"), Health::Warning);
        assert!(!data.exists());
    }

    #[tokio::test]
    async fn a_directory_that_a_host_uses_is_said_to_be_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(&[]);
        let launch = launch(directory.path());
        let options = options::store(&config, &directories::prepare(&launch).unwrap()).unwrap();
        let store = store::Store::open(options, Env::system()).await.unwrap();
        let findings = diagnose(Ok(config.clone()), &launch).await;
        let database = findings.iter().find(|finding| finding.name == "database").unwrap();
        assert_eq!(database.health, Health::Warning);
        assert!(database.seen.contains("forebay.lock"), "{database:?}");

        store.close().await;
        let findings = diagnose(Ok(config), &launch).await;
        for name in ["database", "schema", "shards", "coverage", "counters"] {
            assert_eq!(health(&findings, name), Health::Ok, "{findings:?}");
        }
    }

    #[tokio::test]
    async fn what_a_start_would_refuse_is_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("forebay.sqlite"), "not a database, but long enough ".repeat(100))
            .unwrap();
        let launch = Launch { packs: vec!["no-such.fpk".into()], ..launch(directory.path()) };
        let findings = diagnose(Ok(config(&[("admin.token_file", "/no/such/token")])), &launch).await;
        for name in ["admin token", "pack", "database"] {
            assert_eq!(health(&findings, name), Health::Failure, "{findings:?}");
        }
        let unreadable =
            Config::load(&crate::config::Sources { file: Some(Path::new("/no/such")), ..Default::default() });
        assert_eq!(diagnose(unreadable, &launch).await[0].health, Health::Failure);
    }

    fn seen<'f>(findings: &'f [Finding], name: &str) -> Vec<(Health, &'f str)> {
        let of_name = findings.iter().filter(|finding| finding.name == name);
        of_name.map(|finding| (finding.health, finding.seen.as_str())).collect()
    }

    fn pack(folder: &Path, name: &str) -> std::path::PathBuf {
        let manifest = format!(
            "name = \"{name}\"\nversion = \"0.1.0\"\n[build]\nkind = \"rust\"\n[[routes]]\npath = \"{name}\"\n\
             verify = \"standard-webhooks\"\nsecret = \"{name}\"\n"
        );
        let path = folder.join(format!("{name}.fpk"));
        std::fs::write(&path, crate::guest::PackFile::encode(&manifest, b"no matter").unwrap()).unwrap();
        path
    }

    #[tokio::test]
    async fn secrets_that_are_named_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = folder.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        let launch = Launch {
            packs: vec![pack(folder.path(), "inx")],
            secrets: Some(secrets.clone()),
            ..launch(&folder.path().join("data"))
        };
        let keys = [("destinations.out.url", "http://a.example/"), ("destinations.out.secret", "outx")];
        let look = async |namespaces: &str| {
            let keys = [&keys[..], &[("namespaces", namespaces)]].concat();
            diagnose(Ok(config(&keys)), &launch).await
        };
        let findings = look("default").await;
        let found = seen(&findings, "secrets");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].0, Health::Failure);
        assert!(found[0].1.starts_with("route `inx` of pack `inx`: there is no secret `inx`"), "{found:?}");
        assert!(found[1].1.starts_with("destination `out`: there is no secret `outx`"), "{found:?}");

        std::fs::write(secrets.join("inx"), "whsec_!!!notbase64\n").unwrap();
        std::fs::create_dir(secrets.join("acme")).unwrap();
        std::fs::write(secrets.join("acme/outx"), "whsec_c2VjcmV0\n").unwrap();
        let findings = look("acme, globex").await;
        let found = seen(&findings, "secrets");
        assert_eq!(found[0].0, Health::Failure);
        assert!(found[0].1.contains("is no key") && !found[0].1.contains("notbase64"), "{found:?}");
        assert_eq!(found[1].0, Health::Warning, "one tenant has it: {found:?}");

        std::fs::write(secrets.join("inx"), "whsec_c2VjcmV0\n").unwrap();
        std::fs::write(secrets.join("outx"), "whsec_c2VjcmV0\n").unwrap();
        let findings = look("acme, globex").await;
        assert_eq!(seen(&findings, "secrets").len(), 1);
        assert_eq!(health(&findings, "secrets"), Health::Ok);
    }

    #[tokio::test]
    async fn every_place_that_a_start_would_stop_at_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for file in ["timeline", "cache"] {
            std::fs::write(directory.path().join(file), "").unwrap();
        }
        let keys = [("publish.ca_file", "/nope"), ("checkpoints.folder", "/proc/x")];
        let findings = diagnose(Ok(config(&keys)), &launch(directory.path())).await;
        let found = seen(&findings, "data directory");
        for file in ["timeline", "cache"] {
            assert!(found.iter().any(|(health, seen)| *health == Health::Failure && seen.contains(file)), "{found:?}");
        }
        assert_eq!(health(&findings, "certificate authorities"), Health::Failure);
        assert_eq!(health(&findings, "checkpoints"), Health::Failure);
    }

    #[test]
    fn what_a_server_says_is_weighed() {
        let default = config(&[]);
        assert_eq!(packets(&default, PACKET_BYTES_MIN - 1).health, Health::Failure);
        assert_eq!(packets(&default, PACKET_BYTES_MIN).health, Health::Warning);
        assert_eq!(packets(&default, PACKET_BYTES_ADVISED).health, Health::Ok);
        for (key, value) in [("intake.body_max_mib", "64"), ("guest.output_max_kib", "65536")] {
            let found = packets(&config(&[(key, value)]), PACKET_BYTES_ADVISED);
            assert_eq!(found.health, Health::Failure);
            assert!(found.seen.starts_with(&format!("`{key}` allows 67108864 bytes")), "{}", found.seen);
        }
        assert_eq!(clock(-1_001).health, Health::Warning);
        assert_eq!(clock(-1_001).seen, "1001 ms behind this machine's");
        assert_eq!(clock(900).health, Health::Ok);
        assert_eq!(shards(4, 0).health, Health::Ok);
        assert_eq!(shards(4, 8).health, Health::Failure);
    }

    // STA-1
    #[test]
    fn a_counter_that_is_wrong_is_told_with_what_it_says() {
        let miscount = Miscount { of: "ready messages".to_owned(), counted: -1, rows: 2 };
        let finding = counters(&vec![miscount; MISCOUNTS_SHOWN_MAX + 1]);
        assert_eq!(finding.health, Health::Warning);
        assert!(finding.seen.starts_with("they count -1 ready messages, and there are 2; "), "{}", finding.seen);
        assert!(finding.seen.ends_with("; .."), "{}", finding.seen);
        assert_eq!(counters(&[]).health, Health::Ok);
    }

    // RDY-3
    #[test]
    fn a_gap_in_the_coverage_is_a_failure_that_counts_and_lists() {
        let gap = CoverageGap { events: 2, first: vec![EventId::from_bytes([1; 16])] };
        let finding = coverage(&gap);
        assert_eq!(finding.health, Health::Failure);
        let id = gap.first[0];
        assert_eq!(finding.seen, format!("2 events have no work item, and are never worked off: {id}, .."));
        assert_eq!(finding.remedy.unwrap(), "`forebay migrate` creates their work items");
        assert_eq!(coverage(&CoverageGap::default()).health, Health::Ok);
    }
}
