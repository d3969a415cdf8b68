//! Checkpoints over the object store's own in-memory and local implementations, with a real store that says what
//! counts.

mod bucket;
mod server;

use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt as _, PutPayload};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rocksdb::WriteBatch;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::store::testing::{Fixture, START};
use crate::store::{CheckpointRow, ShardLease};
use crate::timeline::database::{Database, Memory};
use crate::timeline::index::{FeedBounds, Index, Owner, Unusable};
use crate::timeline::keys::Family;

const SHARD: ShardId = ShardId(0);
const LEASE: Duration = Duration::from_secs(10);
const KEPT: u32 = 2;
/// The values of an index here: large enough that its tables are what is uploaded.
const VALUE_BYTES: usize = 1 << 10;

/// A shard's owner, its index, and where checkpoints are kept.
struct Site {
    fixture: Fixture,
    folder: TempDir,
    objects: Arc<dyn ObjectStore>,
    checkpoints: Checkpoints,
    lease: ShardLease,
    index: Index,
    numbers: u64,
}

fn options(place: CheckpointPlace) -> CheckpointOptions {
    CheckpointOptions { place, every: None, kept: KEPT }
}

fn memory() -> Memory {
    Memory::new(1 << 20)
}

impl Site {
    async fn over(objects: Arc<dyn ObjectStore>) -> Self {
        // Where it says that they lie does not matter: the objects are given.
        Self::at(CheckpointPlace::Folder("/nowhere".into()), objects).await
    }

    async fn at(place: CheckpointPlace, objects: Arc<dyn ObjectStore>) -> Self {
        let fixture = Fixture::starting_at(START).await;
        let folder = TempDir::new().unwrap();
        let identity = fixture.store.identity().await.unwrap();
        let place = options(place);
        let store = fixture.store.clone();
        let checkpoints = Checkpoints::over(Arc::clone(&objects), identity, &place, store, fixture.env.clone());
        let lease = acquire(&fixture).await;
        let index = Index::create(&folder.path().join("index"), &memory(), owner(&lease)).unwrap();
        let mut site = Self { fixture, folder, objects, checkpoints, lease, index, numbers: 0 };
        site.write(100);
        site
    }

    async fn new() -> Self {
        Self::over(Arc::new(InMemory::new())).await
    }

    /// Puts so many more values into the index.
    fn write(&mut self, values: u64) {
        let database = self.index.database();
        let mut batch = WriteBatch::new();
        for number in self.numbers..self.numbers + values {
            // Bytes that cannot be pressed together.
            let mut random = vec![0; VALUE_BYTES];
            StdRng::seed_from_u64(number).fill_bytes(&mut random);
            database.put(&mut batch, Family::InFlight, &number.to_be_bytes(), &random);
        }
        database.write(batch).unwrap();
        self.numbers += values;
        let mut step = self.index.begin();
        step.applied(self.numbers);
        step.commit().unwrap();
    }

    fn job(&self, number: u64) -> Job {
        Job {
            lease: self.lease,
            number,
            database: self.index.database(),
            staging: self.folder.path().join("staging"),
            stop: CancellationToken::new(),
        }
    }

    async fn make(&self, number: u64) -> Made {
        self.checkpoints.make(self.job(number)).await.unwrap()
    }

    async fn rows(&self) -> Vec<CheckpointRow> {
        self.checkpoints.of(SHARD).await.unwrap()
    }

    async fn fetch(&self, row: &CheckpointRow) -> Result<(), Refused> {
        self.checkpoints.fetch(row, &self.folder.path().join("fetched")).await
    }

    /// Fetches a checkpoint and opens it as the shard's next owner.
    async fn open(&self, row: &CheckpointRow) -> Result<Index, Unusable> {
        self.fetch(row).await.unwrap();
        let next = Owner { epoch: self.lease.epoch + 1, ..owner(&self.lease) };
        Index::open(&self.folder.path().join("fetched"), &memory(), next, FeedBounds { trimmed: 0, end: self.numbers })
    }

    async fn paths(&self) -> Vec<ObjectPath> {
        let mut paths: Vec<ObjectPath> = self.checkpoints.list(SHARD).await.unwrap().into_keys().collect();
        paths.sort();
        paths
    }

    async fn bytes(&self, path: &ObjectPath) -> Vec<u8> {
        self.objects.get(path).await.unwrap().bytes().await.unwrap().to_vec()
    }

    async fn put(&self, path: &ObjectPath, bytes: Vec<u8>) {
        self.objects.put(path, PutPayload::from(bytes)).await.unwrap();
    }
}

async fn acquire(fixture: &Fixture) -> ShardLease {
    let runtime = fixture.runtime();
    fixture.store.acquire_shard(SHARD, runtime, LEASE, fixture.now()).await.unwrap().expect("nobody has it")
}

fn owner(lease: &ShardLease) -> Owner {
    Owner { shard: SHARD, epoch: lease.epoch }
}

fn values(index: &Index) -> u64 {
    let database = index.database();
    let mut scan = database.scan(Family::InFlight, &[], vec![0xff]);
    let mut values = 0;
    while scan.peek(|_, _| Some(())).unwrap().is_some() {
        values += 1;
        scan.advance();
    }
    values
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_holds_what_the_index_held_and_costs_what_is_new() {
    let folder = TempDir::new().unwrap();
    let local = CheckpointPlace::Folder(folder.path().join("made")).open().unwrap();
    for objects in [Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, local] {
        let mut site = Site::over(objects).await;
        site.write(2_000);
        let first = site.make(1).await;
        assert!(first.uploaded_bytes >= 1 << 20, "{first:?}");
        assert_eq!((first.row.epoch, first.row.applied), (site.lease.epoch, 2_100));
        site.write(10);
        let second = site.make(2).await;
        assert!(second.uploaded_bytes < first.uploaded_bytes / 10, "only what is new: {second:?}");
        assert_eq!(site.rows().await, [second.row.clone(), first.row.clone()]);
        for (row, expected) in [(&first.row, 2_100), (&second.row, 2_110)] {
            let index = site.open(row).await.unwrap();
            assert_eq!((index.applied(), values(&index)), (expected, expected));
        }
        assert!(!site.folder.path().join("staging").exists());
    }
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_more_than_one_part_arrives_whole() {
    let mut site = Site::new().await;
    site.write(3 * PART_BYTES as u64 / VALUE_BYTES as u64);
    let made = site.make(1).await;
    assert!(made.row.bytes > 2 * PART_BYTES as u64);
    let index = site.open(&made.row).await.unwrap();
    assert_eq!(values(&index), site.numbers);
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_with_a_byte_that_is_wrong_or_missing_is_refused_and_leaves_nothing() {
    let site = Site::new().await;
    let row = site.make(1).await.row;
    let fetched = site.folder.path().join("fetched");
    for path in site.paths().await {
        let whole = site.bytes(&path).await;
        // A log in which nothing stands yet has no byte that could be wrong.
        if let Some((_, shorter)) = whole.split_last() {
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            site.put(&path, flipped).await;
            assert_eq!(site.fetch(&row).await, Err(Refused::Torn), "{path}");
            site.put(&path, shorter.to_vec()).await;
            assert_eq!(site.fetch(&row).await, Err(Refused::Torn), "{path}");
        }
        let longer = [&whole[..], b"x"].concat();
        site.put(&path, longer).await;
        assert_eq!(site.fetch(&row).await, Err(Refused::Torn), "{path}");
        site.objects.delete(&path).await.unwrap();
        assert_eq!(site.fetch(&row).await, Err(Refused::Missing), "{path}");
        assert!(!fetched.exists() && !fetched.with_extension("arriving").exists());
        site.put(&path, whole).await;
    }
    site.fetch(&row).await.unwrap();
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn what_another_store_or_shard_or_version_wrote_is_refused() {
    let site = Site::new().await;
    let row = site.make(1).await.row;
    let path = site.checkpoints.manifest_path(SHARD, row.epoch, row.number);
    let manifest = site.checkpoints.manifest(&row, Purpose::Keeping).await.unwrap();
    for (foreign, root) in [
        (manifest.clone(), "another".to_owned()),
        (manifest::Manifest { shard: ShardId(1), ..manifest.clone() }, site.checkpoints.root.clone()),
        (manifest::Manifest { epoch: 77, ..manifest.clone() }, site.checkpoints.root.clone()),
    ] {
        let document = foreign.write(&root);
        let recorded = CheckpointRow { digest: manifest::digest(&document), ..row.clone() };
        site.put(&path, document.clone()).await;
        assert_eq!(site.fetch(&recorded).await, Err(Refused::Foreign));
        assert_eq!(site.fetch(&row).await, Err(Refused::Torn), "it is not the one that was recorded");
    }
    site.put(&path, manifest.write(&site.checkpoints.root)).await;
    let older = manifest::Manifest { version: manifest.version - 1, ..manifest.clone() }.write(&site.checkpoints.root);
    let recorded = CheckpointRow { digest: manifest::digest(&older), ..row.clone() };
    site.put(&path, older).await;
    assert_eq!(site.fetch(&recorded).await, Err(Refused::Outdated));
    site.put(&path, manifest.write(&site.checkpoints.root)).await;

    // Another store in the same bucket does not even see it.
    let place = options(CheckpointPlace::Folder(site.folder.path().into()));
    let (objects, store, env) = (Arc::clone(&site.objects), site.fixture.store.clone(), site.fixture.env.clone());
    let other = Checkpoints::over(objects, [7; 16], &place, store, env);
    assert_eq!(other.fetch(&row, &site.folder.path().join("fetched")).await, Err(Refused::Missing));
    assert_eq!(other.list(SHARD).await.unwrap().len(), 0);
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_few_are_kept_and_nothing_else() {
    let mut site = Site::new().await;
    for number in 1..=5 {
        site.write(10);
        site.make(number).await;
    }
    let rows = site.rows().await;
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [5, 4]);
    let mut needed = std::collections::BTreeSet::new();
    for row in &rows {
        needed.insert(site.checkpoints.manifest_path(SHARD, row.epoch, row.number));
        let manifest = site.checkpoints.manifest(row, Purpose::Keeping).await.unwrap();
        needed.extend(manifest.files.iter().map(|file| site.checkpoints.file_path(SHARD, file.epoch, &file.digest)));
    }
    assert_eq!(site.paths().await, needed.into_iter().collect::<Vec<_>>());
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_has_lost_its_lease_records_nothing_and_removes_nothing_of_its_successors() {
    let mut old = Site::new().await;
    old.write(1_000);
    let first = old.make(1).await.row;
    let kept_by_old = old.rows().await;

    // The shard changes hands; the new owner goes on from the checkpoint, and makes two of its own.
    old.fixture.advance(2 * LEASE);
    let lease = acquire(&old.fixture).await;
    assert_eq!(lease.epoch, old.lease.epoch + 1);
    old.fetch(&first).await.unwrap();
    let path = old.folder.path().join("fetched");
    let mut index = Index::open(&path, &memory(), owner(&lease), FeedBounds { trimmed: 0, end: old.numbers }).unwrap();
    index.own(lease.epoch).unwrap();
    let job = |number, stop| Job {
        lease,
        number,
        database: index.database(),
        staging: old.folder.path().join("staging-of-the-new-one"),
        stop,
    };
    let made = old.checkpoints.make(job(1, CancellationToken::new())).await.unwrap();
    assert!(made.uploaded_bytes < first.bytes / 10, "the tables of the old one are used: {made:?}");
    let newer = old.checkpoints.make(job(2, CancellationToken::new())).await.unwrap().row;

    // The old one goes on as if nothing had happened.
    let late = old.checkpoints.make(old.job(2)).await.unwrap_err();
    assert!(matches!(late, CheckpointError::Fenced), "{late}");
    let everything = old.checkpoints.list(SHARD).await.unwrap();
    old.checkpoints.clean_up(&old.lease, &kept_by_old, &everything).await;
    assert_eq!(old.rows().await, [newer.clone(), made.row.clone()]);
    for row in [&newer, &made.row] {
        old.checkpoints.fetch(row, &old.folder.path().join("again")).await.unwrap();
    }
    // What it wrote in vain, its successor removes, once it needs nothing of those before that.
    old.checkpoints.make(job(3, CancellationToken::new())).await.unwrap();
    let vain = old.checkpoints.manifest_path(SHARD, old.lease.epoch, 2);
    assert!(!old.paths().await.contains(&vain));
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_stopped_counts_for_nothing_and_leaves_no_copy() {
    let site = Site::new().await;
    let job = site.job(1);
    job.stop.cancel();
    let stopped = site.checkpoints.make(job).await.unwrap_err();
    assert!(matches!(stopped, CheckpointError::Stopped), "{stopped}");
    assert_eq!(site.rows().await, []);
    assert!(!site.folder.path().join("staging").exists());
    // What an earlier one left there is no obstacle.
    std::fs::create_dir(site.folder.path().join("staging")).unwrap();
    site.make(1).await;
}

// TL-1
#[tokio::test(flavor = "multi_thread")]
async fn after_an_index_was_found_torn_no_checkpoint_counts() {
    let site = Site::new().await;
    site.make(1).await;
    let stale = ShardLease { epoch: site.lease.epoch + 1, ..site.lease };
    assert!(!site.fixture.store.forget_checkpoints(stale).await.unwrap());
    assert_eq!(site.rows().await.len(), 1);
    assert!(site.fixture.store.forget_checkpoints(site.lease).await.unwrap());
    assert_eq!(site.rows().await, []);
}

#[test]
fn a_place_that_cannot_be_had_says_why() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("file"), Bytes::from_static(b"x")).unwrap();
    let error = CheckpointPlace::Folder(folder.path().join("file/below")).open().unwrap_err();
    assert!(error.contains("file/below"), "{error}");
    let missing = Database::open(&folder.path().join("file"), &memory()).err().map(|error| error.is_torn());
    assert_eq!(missing, Some(false), "a disk that cannot be used is no torn index");
}

/// The endpoint of a store that speaks S3 and has the bucket: `FOREBAY_S3_ENDPOINT`, or one of the test's own.
async fn endpoint() -> String {
    match std::env::var("FOREBAY_S3_ENDPOINT") {
        Ok(endpoint) => endpoint,
        Err(_) => format!("http://{}", bucket::start().await),
    }
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_keeps_checkpoints_of_many_parts_and_lets_old_ones_go() {
    keep_and_let_go(endpoint().await).await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_somebody_elses_keeps_checkpoints_of_many_parts_and_lets_old_ones_go() {
    if let Some(server) = server::Server::start(bucket::BUCKET).await {
        keep_and_let_go(server.endpoint()).await;
    }
}

async fn keep_and_let_go(endpoint: String) {
    let place = S3Place {
        bucket: bucket::BUCKET.to_owned(),
        prefix: "/forebay/".to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some(endpoint),
        access_key_id: "who".to_owned(),
        secret_access_key: crate::secrets::Secret::new(*b"proof"),
        ca_file: None,
    };
    assert_eq!(place.prefix(), "forebay/");
    let place = CheckpointPlace::S3(place);
    let objects = place.open().unwrap();
    let mut site = Site::at(place, objects).await;
    site.write(3 * PART_BYTES as u64 / VALUE_BYTES as u64);
    let first = site.make(1).await;
    let largest = site.checkpoints.list(SHARD).await.unwrap().into_values().max().unwrap();
    assert!(largest > 2 * PART_BYTES as u64, "an object of more than two parts is uploaded: {largest}");
    assert_eq!(values(&site.open(&first.row).await.unwrap()), site.numbers, "and comes back whole");
    for number in 2..=4 {
        site.write(10);
        site.make(number).await;
    }
    let rows = site.rows().await;
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [4, 3]);
    let index = site.open(&rows[0]).await.unwrap();
    assert_eq!(values(&index), site.numbers);
    let manifests = site.paths().await.iter().filter(|path| path.as_ref().ends_with(".manifest")).count();
    assert_eq!(manifests, 2, "what the last one replaced is gone");
    assert!(site.paths().await.iter().all(|path| path.as_ref().starts_with("forebay/")));
    site.objects.delete(&site.checkpoints.manifest_path(SHARD, rows[0].epoch, 4)).await.unwrap();
    assert_eq!(site.fetch(&rows[0]).await, Err(Refused::Missing));
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_does_not_know_its_caller_says_so() {
    let place = S3Place {
        bucket: bucket::BUCKET.to_owned(),
        prefix: String::new(),
        region: "us-east-1".to_owned(),
        endpoint: Some(format!("http://{}", bucket::start().await)),
        access_key_id: "somebody".to_owned(),
        secret_access_key: crate::secrets::Secret::new(*b"else"),
        ca_file: None,
    };
    let site = Site::over(CheckpointPlace::S3(place).open().unwrap()).await;
    let error = site.checkpoints.make(site.job(1)).await.unwrap_err().to_string();
    assert!(error.starts_with("the object store: "), "{error}");
    assert!(!error.contains("else"), "{error}");
    assert_eq!(site.rows().await, []);
}
