//! The host is killed again and again while providers deliver; at the end everything is counted.
//!
//! What happens is decided by a seed, which is printed; `FOREBAY_SEED` sets it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use forebay::env;
use forebay_tests::audit;
use forebay_tests::provider::Providers;
use forebay_tests::world::{World, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How often the host is killed.
const KILLS: usize = 22;
/// After so many kills each, the timeline's RocksDB is deleted before the host starts again.
const KILLS_PER_LOST_TIMELINE: usize = 4;
/// Checkpoints are made so often that most of the hosts that find no timeline find one of these.
const CHECKPOINTS: &str = "[checkpoints]\nevery_seconds = 1\n";
/// How long a host lives, in milliseconds.
const LIFE_MS: std::ops::Range<u64> = 50..1_200;
/// Providers that deliver at once.
const CLIENTS: usize = 4;

// ADM-3, ADM-5, CLM-3, CLM-5, TL-2, TL-3, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_comes_early_over_many_kills() -> anyhow::Result<()> {
    let seed = seed();
    println!("FOREBAY_SEED={seed}");
    let mut world = World::start_with(&["github", "hostile"], CHECKPOINTS).await?;
    let providers = Providers::start(CLIENTS, &[world.site.host.intake], seed);
    kill_again_and_again(&mut world, StdRng::seed_from_u64(seed)).await?;
    let acknowledged = providers.stop().await?;
    world.settle_to_the_last().await?;
    println!("{} deliveries over {KILLS} kills", acknowledged.len());
    audit::nothing_is_lost(&world, &acknowledged, &BTreeMap::new()).await?;
    assert!(world.stop().await?.success());
    Ok(())
}

async fn kill_again_and_again(world: &mut World, mut random: StdRng) -> anyhow::Result<()> {
    for kill in 1..=KILLS {
        // The point of this wait is that it means nothing: the host dies wherever it happens to be.
        env::sleep(Duration::from_millis(random.random_range(LIFE_MS))).await;
        world.kill().await?;
        if kill % KILLS_PER_LOST_TIMELINE == 0 {
            std::fs::remove_dir_all(world.site.host.data.join("timeline")).context("deleting the timeline")?;
        }
        world.restart().await?;
    }
    Ok(())
}
