//! Opening, closing, failing and recovering.

use std::path::PathBuf;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::*;
use crate::store::engine::schema::{self, Directory};

fn database(directory: &TempDir) -> PathBuf {
    directory.path().join("data").join("forebay.sqlite")
}

async fn open(directory: &TempDir) -> Result<Store, StoreError> {
    Store::open(options(directory), env(&Arc::new(ManualClock::at(START)))).await
}

async fn refusal(directory: &TempDir) -> String {
    match open(directory).await {
        Err(StoreError::Unusable(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it opened"),
    }
}

// ADM-3
#[tokio::test]
async fn a_commit_is_on_disk_before_it_is_answered() {
    let directory = TempDir::new().unwrap();
    let data = Directory::lock(&directory.path().join("data")).unwrap();
    let mut connection = schema::open(&data, 1).await.unwrap();
    let full: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut connection).await.unwrap();
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
    assert_eq!((full, journal.as_str()), (2, "wal"));
}

// What it means on a server is tried in `interleavings`.
#[tokio::test]
async fn a_transaction_keeps_the_embedded_databases_isolation() {
    let directory = TempDir::new().unwrap();
    let data = Directory::lock(&directory.path().join("data")).unwrap();
    let mut connection = schema::open(&data, 1).await.unwrap();
    let uncommitted: i64 = sqlx::query_scalar("PRAGMA read_uncommitted").fetch_one(&mut connection).await.unwrap();
    assert_eq!(uncommitted, 0, "SQLite's transactions are serializable unless this is set");
}

// ADM-3
#[tokio::test]
async fn what_was_answered_survives_the_process() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.deliver("d-1", Some("repo")).await;
    let (_, second) = fixture.deliver("d-2", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let message = fixture.message("sink", START);
    fixture.finish(&item, done(vec![message.clone()])).await;

    // The files as a process leaves them that is killed now.
    let left = TempDir::new().unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(fixture.directory.path().join("data"))
        .arg(left.path())
        .status()
        .unwrap();
    assert!(copied.success());
    let store = open(&left).await.unwrap();
    assert_eq!(store.work_item(first).await.unwrap().unwrap().state, WorkState::Done);
    assert_eq!(store.work_item(second).await.unwrap().unwrap().state, WorkState::Ready);
    assert_eq!(store.payloads(&[message.id]).await.unwrap()[0].body, message.body);
    store.assert_counted().await;
    let again = store.enqueue(fixture.delivery(vec![fixture.event("d-1", Some("repo"), "d-1")])).await.unwrap();
    assert!(matches!(again, Enqueued::Duplicate { .. }));
}

#[tokio::test]
async fn a_closed_store_does_nothing_more_and_opens_again() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let late = fixture.delivery(vec![fixture.event("d-2", None, "body")]);
    let store = fixture.store.clone();
    store.close().await;
    store.close().await;
    assert!(matches!(store.enqueue(late).await, Err(StoreError::Unavailable(_))));
    assert!(store.stats().await.is_err());
    assert!(store.probe().await.is_err());
    assert_eq!(
        std::fs::metadata(database(&fixture.directory).with_extension("sqlite-wal")).map_or(0, |log| log.len()),
        0
    );
    let fixture = fixture.reopen().await;
    fixture.store.probe().await.unwrap();
    assert_eq!(fixture.claim(10).await.len(), 1);
    assert_eq!(fixture.install(1).await, Installed { number: GenerationNumber(1), new: false });
}

#[tokio::test]
async fn what_is_queued_is_done_before_it_closes() {
    let fixture = Fixture::new().await;
    let deliveries: Vec<_> =
        (0..100).map(|n| fixture.delivery(vec![fixture.event(&format!("d-{n}"), None, "body")])).collect();
    let calls = futures_util::future::join_all(deliveries.into_iter().map(|delivery| fixture.store.enqueue(delivery)));
    let (answers, ()) = futures_util::future::join(calls, fixture.store.close()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Enqueued::Stored { .. }))));
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.store.count_rows().await.unwrap().work_items[&WorkState::Ready], 100);
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory).await.unwrap();
    assert!(refusal(&directory).await.contains("another process"));
    assert!(matches!(migrate(&directory.path().join("data"), None).await, Err(StoreError::Unusable(_))));
    store.close().await;
    open(&directory).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir_all(directory.path().join("data")).unwrap();
    let garbage = b"not a database at all, but long enough to look at ".repeat(100);
    std::fs::write(database(&directory), &garbage).unwrap();
    assert!(refusal(&directory).await.contains("not a healthy Forebay database"));
    assert_eq!(std::fs::read(database(&directory)).unwrap(), garbage);
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    let fixture = Fixture::new().await;
    for n in 0..200 {
        fixture.deliver(&format!("d-{n}-{}", "x".repeat(100)), Some("repo")).await;
    }
    fixture.store.close().await;
    let path = database(&fixture.directory);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 8_192].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    assert!(refusal(&fixture.directory).await.contains("restore it from a backup"));
}

#[tokio::test]
async fn another_programs_database_is_refused() {
    let fixture = Fixture::new().await;
    fixture.store.close().await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("PRAGMA application_id = 7").await;
    tampering.close().await;
    assert!(refusal(&fixture.directory).await.contains("another program"));
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let fixture = Fixture::new().await;
    fixture.store.close().await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (99, 'from the future', TRUE, x'00', 0)",
        )
        .await;
    tampering.close().await;
    let text = refusal(&fixture.directory).await;
    assert!(text.contains("version 99") && text.contains("knows versions up to "), "{text}");
}

#[tokio::test]
async fn another_number_of_shards_is_refused() {
    let directory = TempDir::new().unwrap();
    open(&directory).await.unwrap().close().await;
    let more = StoreOptions { shards: 3, ..options(&directory) };
    let answer = Store::open(more, env(&Arc::new(ManualClock::at(START)))).await;
    assert!(matches!(answer, Err(StoreError::Unusable(text)) if text.contains("2 shards")));
}

#[tokio::test]
async fn a_migration_says_what_it_did() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    // What an interrupted creation leaves.
    std::fs::create_dir_all(&data).unwrap();
    let empty = SqliteConnectOptions::new().filename(database(&directory)).create_if_missing(true);
    let mut empty = empty.connect().await.unwrap();
    sqlx::query("PRAGMA journal_mode = WAL").execute(&mut empty).await.unwrap();
    empty.close().await.unwrap();
    let first = migrate(&data, None).await.unwrap();
    assert_eq!((first.from, first.applied.last().map(|(version, _)| *version)), (0, Some(first.to)));
    let second = migrate(&data, None).await.unwrap();
    assert_eq!((second.from, second.to, second.applied.len()), (first.to, first.to, 0));
}

#[tokio::test]
async fn where_there_is_no_store_nothing_is_migrated_and_nothing_is_made() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("mistyped");
    let refused = async || match migrate(&data, None).await {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(refused().await.starts_with(&format!("there is no store in {}", data.display())));
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("forebay.sqlite"), "").unwrap();
    assert!(refused().await.starts_with("there is no store in "));
}

#[tokio::test]
async fn a_database_that_its_surroundings_keep_from_being_written_is_not_said_to_be_damaged() {
    let directory = TempDir::new().unwrap();
    open(&directory).await.unwrap().close().await;
    // Whoever may do everything still cannot write to a directory as if it were a file.
    let log = directory.path().join("data/forebay.sqlite-wal");
    std::fs::create_dir(&log).unwrap();
    let looked = examine(&directory.path().join("data"), None, &Env::system()).await.unwrap_err().to_string();
    for text in [refusal(&directory).await, looked] {
        assert!(text.starts_with(&format!("{} cannot be used now", log.display())), "{text}");
        assert!(text.contains("chown") && !text.contains("restore") && !text.contains("move"), "{text}");
    }
    std::fs::remove_dir(&log).unwrap();
    open(&directory).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_made_is_its_owners_alone() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    open(&directory).await.unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&data).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700, "it is nobody else's");
}

#[tokio::test]
async fn looking_at_a_directory_creates_nothing_and_says_when_it_is_in_use() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let look = async || examine(&data, None, &Env::system()).await.unwrap();
    assert!(matches!(look().await, Examined::Missing));
    assert!(!data.exists());
    let store = open(&directory).await.unwrap();
    assert!(matches!(look().await, Examined::InUse));
    store.close().await;
    let Examined::Found(found) = look().await else { panic!() };
    assert_eq!((found.schema.applied.as_slice(), found.contents.shards), (&[][..], 2));
    assert!(found.server.is_none());
    let repaired = repair(&data, None, &Env::system(), &no_rules).await.unwrap();
    assert_eq!((repaired.coverage, repaired.recounted), (CoverageRepair::default(), vec![]));
}

#[tokio::test]
async fn looking_at_another_programs_file_leaves_it_as_it_is() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir_all(directory.path().join("data")).unwrap();
    let mut other = Tampering::created(&database(&directory)).await;
    other.execute("CREATE TABLE theirs (id INTEGER)").await;
    other.close().await;
    let before = std::fs::read(database(&directory)).unwrap();
    let data = directory.path().join("data");
    let refused = examine(&data, None, &Env::system()).await.unwrap_err();
    assert!(refused.to_string().contains("another program"), "{refused}");
    assert_eq!(std::fs::read(database(&directory)).unwrap(), before);
}

// ADM-2: a failing database is told, and is used again once it works.
#[tokio::test]
async fn a_locked_database_is_unavailable_until_it_is_unlocked() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("BEGIN IMMEDIATE").await;
    let held = fixture.store.enqueue(fixture.delivery(vec![fixture.event("d-2", None, "body")])).await;
    assert!(matches!(held, Err(StoreError::Unavailable(_))), "{held:?}");
    tampering.execute("ROLLBACK").await;
    fixture.deliver("d-2", None).await;
    assert_eq!(fixture.claim(10).await.len(), 2);
}

#[tokio::test]
async fn a_file_that_is_moved_away_is_noticed_and_found_again() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let path = database(&fixture.directory);
    let away = path.with_extension("away");
    std::fs::rename(&path, &away).unwrap();
    let lost = fixture.store.enqueue(fixture.delivery(vec![fixture.event("d-2", None, "body")])).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert!(!path.exists(), "no empty database takes its place");
    std::fs::rename(&away, &path).unwrap();
    fixture.advance(Duration::from_secs(1));
    fixture.deliver("d-2", None).await;
    assert_eq!(fixture.claim(10).await.len(), 2);
}

// GST-6
#[tokio::test]
async fn a_generation_serves_while_it_is_active_or_work_refers_to_it() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let serving = async || {
        let generations = fixture.store.serving_generations().await.unwrap();
        generations.iter().map(|generation| (generation.number.0, generation.active)).collect::<Vec<_>>()
    };
    assert_eq!(fixture.install(2).await, Installed { number: GenerationNumber(2), new: true });
    assert_eq!(serving().await, [(1, false), (2, true)]);
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.finish(&item, done(vec![])).await;
    assert_eq!(serving().await, [(2, true)]);
    // A rollback is an activation.
    assert_eq!(fixture.install(1).await, Installed { number: GenerationNumber(1), new: false });
    assert_eq!(serving().await, [(1, true)]);
    let stored = fixture.store.generation(&pack(), GenerationNumber(1)).await.unwrap().unwrap();
    assert_eq!((stored.digest, stored.manifest.as_str()), ([1; 32], "[pack]"));
    assert_eq!(fixture.store.component(&stored).await.unwrap(), &b"\0asm"[..]);
}
