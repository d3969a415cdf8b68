//! The cache of compiled components: it saves work, and is never trusted further than its digest.

use std::os::unix::fs::PermissionsExt;

use super::*;

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
