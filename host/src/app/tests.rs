use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::InboundConfig;
use crate::execute::SLOTS_SAFE_MAX;
use crate::rig::http;

/// How long a stop may take: as long as in production.
const TIMEOUT: Duration = Duration::from_secs(25);

/// A configuration that listens where the system finds room, with these keys beside.
pub(super) fn config(keys: &[(&'static str, &str)]) -> Config {
    let listen = [("intake.listen", "127.0.0.1:0"), ("admin.listen", "127.0.0.1:0")];
    let flags =
        listen.iter().chain(keys).map(|(key, value)| FlagSetting { flag: "test", key, value: (*value).to_owned() });
    Config::load(&Sources { flags: flags.collect(), ..Sources::default() }).unwrap()
}

fn launch(data: &Path) -> Launch {
    Launch { data: data.to_owned(), secrets: None, packs: Vec::new() }
}

async fn start(data: &Path) -> Result<Running, StartError> {
    App::start(config(&[]), launch(data)).await
}

#[tokio::test]
async fn a_host_starts_answers_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("made/on/demand");
    let running = start(&data).await.unwrap();
    let (intake, admin) = (running.intake_addr(), running.admin_addr());
    assert_eq!(http::get(admin, "/healthz").await.unwrap().status, 200);
    assert_eq!(http::get(admin, "/api/v1/stats").await.unwrap().status, 200);
    let nowhere = http::post(intake, "/in/default/nowhere", &serde_json::json!({})).await.unwrap();
    assert_eq!(nowhere.status, 404);
    running.shutdown(TIMEOUT).await.unwrap();
    assert!(http::get(admin, "/healthz").await.is_err(), "nothing listens any more");
    assert!(http::get(intake, "/").await.is_err(), "nothing listens any more");
    start(&data).await.unwrap().shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_data_directory_serves_one_host() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path()).await.unwrap();
    let second = start(folder.path()).await.err();
    assert!(matches!(second, Some(StartError::Store(_))), "{second:?}");
    assert_eq!(http::get(first.admin_addr(), "/healthz").await.unwrap().status, 200, "the first one goes on");
    first.shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("forebay.sqlite");
    std::fs::write(&database, "what somebody else keeps here".repeat(1_000)).unwrap();
    let refused = start(folder.path()).await.err();
    assert!(matches!(refused, Some(StartError::Store(_))), "{refused:?}");
    assert!(std::fs::read_to_string(&database).unwrap().starts_with("what somebody else"), "it is as it was");
}

#[tokio::test]
async fn a_start_that_fails_stops_what_it_had_started() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Launch { secrets: Some(folder.path().join("nowhere")), ..launch(folder.path()) };
    let refused = App::start(config(&[]), missing).await.err();
    assert!(matches!(refused, Some(StartError::Secrets(_))), "{refused:?}");
    start(folder.path()).await.unwrap().shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_had_is_named_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let no_pack = Launch { packs: vec![folder.path().join("missing.fpk")], ..launch(&data) };
    let refused = App::start(config(&[]), no_pack).await.err().unwrap();
    assert!(refused.to_string().contains("missing.fpk"), "{refused}");

    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "short\n").unwrap();
    let keys = [("admin.token_file", token_file.to_str().unwrap())];
    let refused = App::start(config(&keys), launch(&data)).await.err().unwrap();
    assert!(refused.to_string().contains("shorter than 16 bytes"), "{refused}");

    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = App::start(config(&[("admin.listen", &address)]), launch(&data)).await.err().unwrap();
    assert!(refused.to_string().starts_with(&format!("admin cannot listen on {address}")), "{refused}");
    assert!(!data.join("forebay.sqlite").exists());
}

#[tokio::test]
async fn what_a_store_left_behind_is_not_taken_for_an_empty_house() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path()).await.unwrap();
    // Not before that has every shard its index.
    while http::get(running.admin_addr(), "/readyz").await.unwrap().status != 200 {}
    running.shutdown(TIMEOUT).await.unwrap();
    let database = folder.path().join("forebay.sqlite");
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.path().join(format!("forebay.sqlite{ending}")));
    }
    for is_there in [false, true] {
        if is_there {
            std::fs::write(&database, "").unwrap();
        }
        let refused = start(folder.path()).await.err().unwrap().to_string();
        assert!(refused.contains("timeline") && refused.contains("restore the database from a backup"), "{refused}");
        let findings = diagnose(Ok(config(&[])), &launch(folder.path())).await;
        let found = findings.iter().find(|finding| finding.name == "database").unwrap();
        assert_eq!((found.health, &found.seen), (Health::Failure, &refused));
    }
    assert_eq!(std::fs::metadata(&database).unwrap().len(), 0, "nothing was made of it");
    // The way out that the text names.
    for left in ["timeline", "checkpoints"] {
        let _ = std::fs::remove_dir_all(folder.path().join(left));
    }
    start(folder.path()).await.unwrap().shutdown(TIMEOUT).await.unwrap();
}

#[test]
fn settings_that_no_start_could_use_are_refused_together_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forebay.toml");
    let text = "[database]\nurl = 'mysql://'\n[admin]\ntoken_file = '/dev/zero'\n[publish]\nca_file = '/nope'\n\
                [checkpoints]\nfolder = '/proc/x'\n";
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&Sources { file: Some(&file), ..Sources::default() }).unwrap();
    let refused = check(&config).unwrap_err().to_string().replace(&file.display().to_string(), "forebay.toml");
    for (line, words) in [
        (2, "`database.url` cannot be used: "),
        (4, "`admin.token_file` cannot be used: /dev/zero is not a regular file"),
        (6, "`publish.ca_file` names /nope, which cannot be read"),
        (8, "`checkpoints.folder` cannot be used: /proc cannot be written to"),
    ] {
        assert!(refused.contains(&format!("forebay.toml line {line}: {words}")), "{words}\n{refused}");
    }
    let nul = super::tests::config(&[("checkpoints.folder", "a\0b")]);
    assert!(check(&nul).unwrap_err().to_string().contains("NUL"));
    assert_eq!(check(&super::tests::config(&[])), Ok(()));
}

// OBS-1
#[tokio::test]
async fn every_metric_says_what_it_means() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path()).await.unwrap();
    let answer = http::get(running.admin_addr(), "/metrics").await.unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let mut seen = 0;
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        // Those of the recorder's own test mean nothing.
        if !name.starts_with("forebay_telemetry_test") {
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
            seen += 1;
        }
    }
    assert!(seen > 10, "{text}");
    running.shutdown(TIMEOUT).await.unwrap();
}

// OBS-2
#[test]
fn the_default_number_of_workers_is_what_is_known_to_be_safe() {
    assert_eq!(InboundConfig::default().workers_per_pack, SLOTS_SAFE_MAX);
}
