//! What the tests of generations do with a store.

use bytes::Bytes;

use super::*;

impl Fixture {
    pub(super) async fn stage(&self, digest: u8, component: Bytes) -> Installed {
        let (text, now) = ("[pack]".to_owned(), self.now());
        self.store.install_pack(&pack(), [digest; 32], text, component, Installing::Staged, now).await.unwrap()
    }

    pub(super) async fn activate(&self, number: GenerationNumber) -> Activated {
        self.store.activate(&pack(), Some(number), None, self.now()).await.unwrap()
    }

    pub(super) async fn stages(&self) -> Vec<(u32, &'static str, u64)> {
        let listed = self.store.list_generations(Some(&pack())).await.unwrap();
        let row = |status: GenerationStatus| {
            (status.generation.number.0, status.stage().as_str(), status.unfinished.values().sum())
        };
        listed.into_iter().map(row).collect()
    }

    pub(super) async fn drain_generation(&self, from: GenerationNumber, target: DrainTarget) -> (u64, u64) {
        let drained = self.store.drain_generation(&pack(), from, target, self.now()).await.unwrap();
        (drained.rows, drained.left)
    }

    pub(super) async fn claim_on(&self, number: GenerationNumber) -> Vec<ClaimedWorkItem> {
        self.store.claim(ClaimRequest { generations: vec![number], ..self.request(10) }).await.unwrap()
    }
}

/// Bytes that differ from chunk to chunk.
pub(super) fn large(bytes: u32) -> Bytes {
    (0..bytes).map(|place| u8::try_from(place / 7 % 251).unwrap()).collect()
}
