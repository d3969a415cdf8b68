//! Two runtimes over one MariaDB server: runtimes are killed, with and without their timeline's folder, and paused
//! beyond their leases, the server is killed, messages are cancelled all the while, and at the end everything is
//! counted.
//!
//! What happens is decided by a seed, which is printed; `FOREBAY_SEED` sets it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use forebay::env;
use forebay::rig::mariadb::MariaDb;
use forebay_tests::audit;
use forebay_tests::canceller::Canceller;
use forebay_tests::provider::Providers;
use forebay_tests::world::{World, seed};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use tempfile::TempDir;

/// How much goes wrong.
const ACCIDENTS: usize = 14;
/// Between two accidents, in milliseconds.
const CALM_MS: std::ops::Range<u64> = 100..1_200;
/// How long a runtime stands still: longer than its leases of shards and of work items.
const PAUSE: Duration = Duration::from_millis(7_500);
/// Providers that deliver at once, each to both runtimes.
const CLIENTS: usize = 4;
/// The packs of both.
const PACKS: [&str; 2] = ["github", "hostile"];

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
enum Accident {
    RuntimeKilled(usize),
    /// Killed, and the folder of its timeline is gone.
    RuntimeBereft(usize),
    RuntimePaused(usize),
    ServerKilled,
}

/// A server, and two hosts over it that send to one sink.
struct Cluster {
    server: MariaDb,
    worlds: [World; 2],
    /// Where both keep their checkpoints.
    _checkpoints: TempDir,
}

impl Cluster {
    async fn start() -> anyhow::Result<Self> {
        let server = MariaDb::start()?;
        let checkpoints = TempDir::new()?;
        let settings = format!(
            "[database]\nurl = \"{}\"\n[store]\nshards = 8\n[checkpoints]\nevery_seconds = 1\nfolder = \"{}\"\n",
            server.create_database()?,
            checkpoints.path().display(),
        );
        let mut first = World::prepare(&PACKS, &settings).await?;
        let mut second = World::prepare_over(Arc::clone(&first.sink), &PACKS, &settings)?;
        first.restart().await?;
        second.restart().await?;
        Ok(Self { server, worlds: [first, second], _checkpoints: checkpoints })
    }

    async fn happen(&mut self, accident: Accident) -> anyhow::Result<()> {
        match accident {
            Accident::RuntimeKilled(which) => {
                self.worlds[which].kill().await?;
                self.worlds[which].restart().await
            }
            Accident::RuntimeBereft(which) => {
                self.worlds[which].kill().await?;
                std::fs::remove_dir_all(self.worlds[which].site.host.data.join("timeline"))?;
                self.worlds[which].restart().await
            }
            Accident::RuntimePaused(which) => {
                let host = self.worlds[which].host()?;
                host.signal(Signal::STOP)?;
                env::sleep(PAUSE).await;
                host.signal(Signal::CONT)
            }
            Accident::ServerKilled => tokio::task::block_in_place(|| self.server.kill_and_start()),
        }
    }
}

// ADM-3, CLM-1, CLM-3, CLM-5, CLM-6, TL-3, TL-5, TL-6, TL-7
#[tokio::test(flavor = "multi_thread")]
async fn two_runtimes_over_one_server_lose_nothing_whatever_dies() -> anyhow::Result<()> {
    let seed = seed();
    println!("FOREBAY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start().await?;
    let intakes = [0, 1].map(|which: usize| cluster.worlds[which].site.host.intake);
    let providers = Providers::start(CLIENTS, &intakes, seed);
    let canceller = Canceller::start(cluster.worlds.iter().map(World::admin).collect(), seed);
    let mut accidents = vec![Accident::RuntimePaused(0), Accident::RuntimePaused(1)];
    accidents.push(Accident::RuntimeBereft(0));
    let others = [
        Accident::RuntimeKilled(0),
        Accident::RuntimeKilled(1),
        Accident::RuntimeBereft(0),
        Accident::RuntimeBereft(1),
        Accident::ServerKilled,
    ];
    while accidents.len() < ACCIDENTS {
        accidents.push(*others.choose(&mut random).context("there are others")?);
    }
    for accident in accidents {
        env::sleep(Duration::from_millis(random.random_range(CALM_MS))).await;
        println!("{accident:?}");
        cluster.happen(accident).await?;
    }
    let acknowledged = providers.stop().await?;
    let cancelled = canceller.stop().await?;
    ensure!(!cancelled.is_empty(), "nothing was cancelled");
    let [first, second] = &mut cluster.worlds;
    first.settle_to_the_last().await?;
    println!("{} deliveries over {ACCIDENTS} accidents", acknowledged.len());
    audit::nothing_is_lost(first, &acknowledged, &cancelled).await?;
    assert_eq!(first.admin().stats().await?, second.admin().stats().await?, "both see the same");
    assert!(first.stop().await?.success());
    assert!(second.stop().await?.success());
    Ok(())
}
