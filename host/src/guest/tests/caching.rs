//! The cache of compiled components: it saves work, and is never trusted further than its digest.

use std::os::unix::fs::PermissionsExt;

use super::hostile::HARMLESS;
use super::*;
use crate::model::pack::ImportName;

/// A cache of its own.
struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    /// An engine on it, as another process would start.
    fn engine(&self) -> Engine {
        Engine::on(self.path(), 4)
    }

    fn artifacts(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

async fn answers(generation: &LoadedGeneration) -> bool {
    let event = event("hostile", &[], r#"{"do":"note","text":"fine"}"#);
    flow(generation, &event).await.is_ok()
}

#[tokio::test]
async fn a_compiled_component_is_found_again_and_only_by_the_host() {
    let cache = Cache::new();
    cache.engine().load("hostile", |_| ()).await;
    let artifacts = cache.artifacts();
    assert_eq!(artifacts.len(), 1);
    assert_eq!(std::fs::metadata(cache.path()).unwrap().permissions().mode() & 0o777, 0o700);
    let written = std::fs::metadata(&artifacts[0]).unwrap().modified().unwrap();
    assert!(answers(&*cache.engine().load("hostile", |_| ()).await).await);
    assert_eq!(std::fs::metadata(&artifacts[0]).unwrap().modified().unwrap(), written);
}

#[tokio::test]
async fn an_artifact_that_was_altered_is_compiled_again() {
    let cache = Cache::new();
    cache.engine().load("github", |_| ()).await;
    let artifact = cache.artifacts().remove(0);
    let original = std::fs::read(&artifact).unwrap();
    for change in [truncate as fn(&mut Vec<u8>), |bytes| flip(bytes), replace] {
        let mut bytes = original.clone();
        change(&mut bytes);
        std::fs::write(&artifact, &bytes).unwrap();
        cache.engine().load("github", |_| ()).await;
        assert_eq!(std::fs::read(&artifact).unwrap(), original);
    }

    fn truncate(bytes: &mut Vec<u8>) {
        bytes.truncate(bytes.len() / 2);
    }
    fn flip(bytes: &mut [u8]) {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    }
    fn replace(bytes: &mut Vec<u8>) {
        *bytes = b"not code".to_vec();
    }
}

#[tokio::test]
async fn one_components_artifact_is_not_taken_for_anothers() {
    let cache = Cache::new();
    cache.engine().load("github", |_| ()).await;
    let github = cache.artifacts().remove(0);
    cache.engine().load("hostile", |_| ()).await;
    let hostile = cache.artifacts().into_iter().find(|artifact| *artifact != github).unwrap();
    std::fs::copy(&github, &hostile).unwrap();
    assert!(answers(&*cache.engine().load("hostile", |_| ()).await).await);
    assert_ne!(std::fs::read(&github).unwrap(), std::fs::read(&hostile).unwrap());
}

/// Another component that does the same: one with a custom section of its own.
fn distinct(number: u8) -> Bytes {
    let mut component = HARMLESS.component().to_vec();
    component.extend_from_slice(&[0, 2, 0, number]);
    component.into()
}

async fn load(engine: &Engine, component: Bytes) -> Result<Arc<LoadedGeneration>, LoadError> {
    let mut manifest = example("hostile").manifest;
    manifest.imports = ImportName::ALL.to_vec();
    engine.host.load(GenerationNumber(1), Arc::new(manifest), component).await
}

// GST-6
#[tokio::test]
async fn a_start_with_twenty_packs_from_the_cache_compiles_none() {
    let cache = Cache::new();
    for compiled in [20, 0] {
        let engine = cache.engine();
        for number in 0..20 {
            load(&engine, distinct(number)).await.unwrap();
        }
        assert_eq!(engine.host.compiled(), compiled);
    }
}

// GST-3, GST-6
#[tokio::test]
async fn a_component_that_takes_too_long_to_compile_is_refused_and_not_kept() {
    let cache = Cache::new();
    let hurried = Engine::with(GuestOptions { compilation_time_max: Duration::ZERO, ..options(cache.path()) });
    // The second one waits for the place of the first, which goes on to its end.
    for _ in 0..2 {
        let error = load(&hurried, distinct(1)).await.unwrap_err();
        assert!(error.to_string().contains("`guest.compilation_max_seconds`"), "{error}");
    }
    assert!(cache.artifacts().is_empty());
    load(&cache.engine(), distinct(1)).await.unwrap();
}
