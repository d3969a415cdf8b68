//! Real guests in a real engine: the example packs, and components written out by hand.

mod caching;
mod calls;
mod checking;
mod examples;
mod hostile;
mod javascript;
mod packages;
mod reading;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

pub(crate) use self::versions::of_the_next_version;
use super::*;
use crate::env::{Env, deadline};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, ReceiptId};

/// Long enough that no healthy call meets it, on any machine.
const AMPLE: Duration = Duration::from_secs(60);

/// An engine.
struct Engine {
    host: GuestHost,
}

impl Engine {
    /// One with room for a few calls, that compiles nothing twice: the tests share their cache.
    fn start() -> Self {
        Self::with_instances(4)
    }

    fn with_instances(instances_max: u32) -> Self {
        Self::on(target_directory().join("guest-cache"), instances_max)
    }

    fn on(cache: PathBuf, instances_max: u32) -> Self {
        Self::with(GuestOptions { instances_max, ..options(cache) })
    }

    fn with(options: GuestOptions) -> Self {
        Self { host: GuestHost::start(options, Env::system()).unwrap() }
    }

    /// Loads an example pack, with its manifest changed.
    async fn load(&self, name: &str, change: impl FnOnce(&mut Manifest)) -> Arc<LoadedGeneration> {
        let PackFile { mut manifest, component, .. } = example(name);
        change(&mut manifest);
        self.host.load(GenerationNumber(1), Arc::new(manifest), component).await.unwrap()
    }
}

/// What the tests' engines are started with.
fn options(cache: PathBuf) -> GuestOptions {
    GuestOptions {
        cache,
        instances_max: 4,
        long_calls_max: 1,
        memory_bytes_max: 512 * 1024 * 1024,
        ceilings: Ceilings::NONE,
        compilations_max: 1,
        compilation_time_max: 10 * AMPLE,
    }
}

/// An event of the pack's first route.
fn event(pack: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Event {
    let header = |(name, value): &(&str, &str)| Header {
        name: (*name).to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    Event {
        id: EventId::from_bytes([1; 16]),
        receipt_id: ReceiptId::from_bytes([2; 16]),
        namespace: "default".parse().unwrap(),
        pack: pack.parse().unwrap(),
        generation: GenerationNumber(1),
        route: pack.parse().unwrap(),
        source_key: None,
        delivery_key: "delivery-1".to_owned(),
        payload_digest: [0; 32],
        content_type: "application/json".to_owned(),
        headers: headers.iter().map(header).collect(),
        body: body.into(),
        received_at: Timestamp::from_millis(1_700_000_000_000),
    }
}

/// Prepares and runs an event; `None` if it is ignored.
async fn flow(generation: &LoadedGeneration, event: &Event) -> Result<Option<FlowOutput>, Failure> {
    flow_within(generation, event, AMPLE).await
}

async fn flow_within(
    generation: &LoadedGeneration,
    event: &Event,
    time: Duration,
) -> Result<Option<FlowOutput>, Failure> {
    let deadline = deadline(time);
    match generation.prepare(event, 1, deadline).await? {
        Prepared::Ignore { .. } => Ok(None),
        Prepared::Run { state, .. } => generation.run(event, 1, state, &[], deadline).await.map(Some),
    }
}

/// An example pack, as `make guests` builds it; built here if it is older than what it is made of.
pub(crate) fn example(name: &str) -> PackFile {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let file = target_directory().join("packs").join(name).with_extension("fpk");
    let sources = ["wit", "sdk", "guest-examples"].map(|folder| newest(&root.join(folder)));
    let built = std::fs::metadata(&file).and_then(|metadata| metadata.modified());
    if built.is_ok_and(|built| sources.iter().all(|source| *source < built)) {
        return PackFile::parse(&std::fs::read(&file).unwrap()).unwrap();
    }
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut lines = Vec::new();
    let build = PackBuild {
        folder: &root.join("guest-examples").join(name),
        output: Some(&file),
        target_directory: Some(&target_directory().join("guests")),
        trial: Trial::OfTheNext,
    };
    if let Err(error) = build_pack(build, &mut |line| lines.push(line.to_owned())) {
        panic!("{error}\n{}", lines.join("\n"));
    }
    PackFile::parse(&std::fs::read(&file).unwrap()).unwrap()
}

/// Test executables lie in `TARGET/PROFILE/deps`.
fn target_directory() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// When anything in a folder was last changed, build output aside.
fn newest(folder: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("target") {
            continue;
        }
        let metadata = entry.metadata().unwrap();
        let changed = if metadata.is_dir() { self::newest(&entry.path()) } else { metadata.modified().unwrap() };
        newest = newest.max(changed);
    }
    newest
}
