//! `forebay bench guest`: the cost of a flow compared with the bare component, the cost of a start from the cache, and
//! the effect of an endless guest on its neighbours.
//!
//! All parts run in this process, without store and HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use tokio::runtime::{Builder, Handle};

use super::report::Machine;
use crate::env::{self, Env};
use crate::guest::{Bare, Ceilings, GuestHost, GuestOptions, LoadedGeneration, PackFile, Prepared, long_calls_max};
use crate::model::event::{Event, Header};
use crate::model::ids::{EventId, ReceiptId};
use crate::model::pack::GenerationNumber;
use crate::model::reading::RecordedReads;
use crate::model::time::Timestamp;
use crate::rig::github::push_body;

/// The bodies that are measured, in bytes.
const BODIES: [usize; 2] = [1_000, 6_900];
/// Flows that are run before any is measured.
const WARM_UP: usize = 200;
/// Turns of the two sides: they alternate, so that other load of the machine affects both.
const TURNS: usize = 10;
/// Packs of a start from the cache.
const PACKS: u32 = 20;
/// Deadline of a flow, which only the flows of the attack reach.
const DEADLINE: Duration = Duration::from_secs(2);
/// Attackers at once.
const ATTACKERS: usize = 8;
/// Between two flows of the neighbour.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The github pack
    #[arg(long, value_name = "FILE")]
    pack: PathBuf,
    /// The hostile pack, for the attack
    #[arg(long, value_name = "FILE")]
    hostile: Option<PathBuf>,
    /// The js-hello pack, for comparison
    #[arg(long, value_name = "FILE")]
    js: Option<PathBuf>,
    /// Seconds of each part
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    flows: Vec<Flow>,
    start: Start,
    attack: Option<Attack>,
}

/// A fresh instance and `prepare`, a fresh instance and `run`.
#[derive(Debug, Serialize)]
struct Flow {
    pack: String,
    body_bytes: usize,
    component_bytes: usize,
    compile_ms: f64,
    fuel: u64,
    host_us: f64,
    bare_us: f64,
    overhead: f64,
    bare_instantiate_us: f64,
}

/// Packs that are all in the cache.
#[derive(Debug, Serialize)]
struct Start {
    packs: u32,
    compiled: u64,
    ms: f64,
}

/// Time of a neighbour's flow, alone and next to endless guests.
#[derive(Debug, Serialize)]
struct Attack {
    attackers: usize,
    alone_p50_us: f64,
    alone_p99_us: f64,
    attacked_p50_us: f64,
    attacked_p99_us: f64,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let part = Duration::from_secs(arguments.seconds);
    let cache = tempfile::tempdir()?;
    let options = options(cache.path().to_owned());
    let github = read(&arguments.pack)?;
    let mut flows = Vec::new();
    for bytes in BODIES {
        let event = event(&github, &[("x-github-event", "push")], push_body(1, bytes));
        flows.push(flow(&github, &event, &options, part, env).await?);
    }
    if let Some(file) = &arguments.js {
        let js = read(file)?;
        let event = event(&js, &[], br#"{"kind":"greeting","subject":"world"}"#.to_vec());
        flows.push(flow(&js, &event, &options, part, env).await?);
    }
    let start = start(&github, &options, env).await?;
    let attack = match &arguments.hostile {
        Some(file) => Some(attack(&github, &read(file)?, &options, part, env).await?),
        None => None,
    };
    let report = Report { machine: Machine::this(), flows, start, attack };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

fn options(cache: PathBuf) -> GuestOptions {
    GuestOptions {
        cache,
        instances_max: 64,
        long_calls_max: long_calls_max(),
        memory_bytes_max: 64 * 1024 * 1024,
        ceilings: Ceilings::NONE,
        compilations_max: 1,
        compilation_time_max: Duration::from_secs(600),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(file: &std::path::Path) -> anyhow::Result<PackFile> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    Ok(PackFile::parse(&bytes)?)
}

fn event(pack: &PackFile, headers: &[(&str, &str)], body: Vec<u8>) -> Event {
    let header = |(name, value): &(&str, &str)| Header {
        name: (*name).to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    Event {
        id: EventId::from_bytes([1; 16]),
        receipt_id: ReceiptId::from_bytes([2; 16]),
        namespace: "bench".parse().expect("it is a namespace's name"),
        pack: pack.manifest.name.clone(),
        generation: GenerationNumber(1),
        route: pack.manifest.routes[0].path.clone(),
        source_key: Some("octo-org/repository-1".to_owned()),
        delivery_key: "delivery-1".to_owned(),
        payload_digest: [0; 32],
        content_type: "application/json".to_owned(),
        headers: headers.iter().map(header).collect(),
        body: body.into(),
        received_at: Timestamp::from_millis(1_700_000_000_000),
    }
}

async fn host_flow(generation: &LoadedGeneration, event: &Event) -> anyhow::Result<()> {
    let deadline = env::deadline(DEADLINE);
    let failed = |failure: crate::model::failure::Failure| anyhow::anyhow!("{failure}");
    match generation.prepare(event, 1, deadline).await.map_err(failed)? {
        Prepared::Run { state, .. } => generation.run(event, 1, state, &[], deadline).await.map(drop).map_err(failed),
        Prepared::Ignore { .. } => Ok(()),
    }
}

/// Measures a flow in the host and bare, in turns.
async fn flow(
    pack: &PackFile,
    event: &Event,
    options: &GuestOptions,
    part: Duration,
    env: &Env,
) -> anyhow::Result<Flow> {
    let guests = GuestHost::start(options.clone(), env.clone())?;
    let begin = env.clock.monotonic();
    let manifest = Arc::new(pack.manifest.clone());
    let generation = guests.load(GenerationNumber(1), manifest, pack.component.clone()).await?;
    let compile_ms = (env.clock.monotonic() - begin).as_secs_f64() * 1_000.0;
    let bare = Bare::compile(pack, options)?;
    for _ in 0..WARM_UP {
        host_flow(&generation, event).await?;
        bare.flow(event).await?;
    }
    let turn = part / TURNS as u32;
    let (mut host, mut alone, mut instantiated) = (Rate::default(), Rate::default(), Rate::default());
    for _ in 0..TURNS {
        host.measure(turn, env, async || host_flow(&generation, event).await).await?;
        alone.measure(turn, env, async || Ok(bare.flow(event).await.map(drop)?)).await?;
        instantiated.measure(turn / 4, env, async || Ok(bare.instantiate(event).await?)).await?;
    }
    let rehearsal = generation.rehearse(event, 1, &RecordedReads::NONE, env::deadline(DEADLINE)).await;
    Ok(Flow {
        pack: pack.manifest.name.to_string(),
        body_bytes: event.body.len(),
        component_bytes: pack.component.len(),
        compile_ms,
        fuel: rehearsal.fuel,
        host_us: host.micros(),
        bare_us: alone.micros(),
        overhead: host.micros() / alone.micros(),
        bare_instantiate_us: instantiated.micros(),
    })
}

/// The time per operation over many.
#[derive(Default)]
struct Rate {
    count: u64,
    time: Duration,
}

impl Rate {
    async fn measure(
        &mut self,
        time: Duration,
        env: &Env,
        mut one: impl AsyncFnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let begin = env.clock.monotonic();
        loop {
            one().await?;
            self.count += 1;
            let passed = env.clock.monotonic() - begin;
            if passed >= time {
                self.time += passed;
                return Ok(());
            }
        }
    }

    fn micros(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }
}

/// A start with many packs, of which each was compiled before: each has a component of its own.
async fn start(pack: &PackFile, options: &GuestOptions, env: &Env) -> anyhow::Result<Start> {
    let components: Vec<Bytes> = (0..PACKS).map(|number| distinct(&pack.component, number)).collect();
    let load_all = async |guests: &GuestHost| -> anyhow::Result<Vec<Arc<LoadedGeneration>>> {
        let mut loaded = Vec::new();
        for (number, component) in (1..).zip(&components) {
            let manifest = Arc::new(pack.manifest.clone());
            loaded.push(guests.load(GenerationNumber(number), manifest, component.clone()).await?);
        }
        Ok(loaded)
    };
    load_all(&GuestHost::start(options.clone(), env.clone())?).await?;
    let begin = env.clock.monotonic();
    let guests = GuestHost::start(options.clone(), env.clone())?;
    let loaded = load_all(&guests).await?;
    let ms = (env.clock.monotonic() - begin).as_secs_f64() * 1_000.0;
    Ok(Start { packs: u32::try_from(loaded.len())?, compiled: guests.compiled(), ms })
}

/// The component with a custom section of its own at its end: another file that does the same.
fn distinct(component: &[u8], number: u32) -> Bytes {
    let mut bytes = component.to_vec();
    // Section id 0, ten bytes: a name of five, and five of content.
    bytes.extend_from_slice(&[0, 10, 5]);
    bytes.extend_from_slice(b"bench");
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.into()
}

/// The attack, on as many threads as a host has for guests.
async fn attack(
    neighbour: &PackFile,
    hostile: &PackFile,
    options: &GuestOptions,
    part: Duration,
    env: &Env,
) -> anyhow::Result<Attack> {
    let threads = Builder::new_multi_thread().worker_threads(cores() + 1).thread_name("guest").enable_all().build()?;
    let attack = attacked(threads.handle(), neighbour, hostile, options, part, env).await;
    // A runtime must not be dropped where it could block.
    threads.shutdown_background();
    attack
}

/// Measures a neighbour's flows alone and next to endless guests.
async fn attacked(
    runtime: &Handle,
    neighbour: &PackFile,
    hostile: &PackFile,
    options: &GuestOptions,
    part: Duration,
    env: &Env,
) -> anyhow::Result<Attack> {
    let guests = GuestHost::start(options.clone(), env.clone())?;
    let load = async |pack: &PackFile, fuel: Option<u64>| {
        let mut manifest = pack.manifest.clone();
        manifest.limits.fuel = fuel.unwrap_or(manifest.limits.fuel);
        guests.load(GenerationNumber(1), Arc::new(manifest), pack.component.clone()).await
    };
    let (quiet, endless) = (load(neighbour, None).await?, load(hostile, Some(u64::MAX / 2)).await?);
    let push = Arc::new(event(neighbour, &[("x-github-event", "push")], push_body(1, BODIES[1])));
    let alone = latencies(runtime, &quiet, &push, part, env).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let looping = Arc::new(event(hostile, &[], br#"{"do":"loop"}"#.to_vec()));
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|_| {
            let (stop, endless, looping) = (stop.clone(), endless.clone(), looping.clone());
            env::spawn_on(runtime, "attacker", async move {
                while !stop.load(Ordering::Relaxed) {
                    // It ends at its deadline, as intended.
                    let _ = host_flow(&endless, &looping).await;
                }
            })
        })
        .collect();
    let attacked = latencies(runtime, &quiet, &push, part, env).await?;
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.await?;
    }
    Ok(Attack {
        attackers: ATTACKERS,
        alone_p50_us: share(&alone, 0.5),
        alone_p99_us: share(&alone, 0.99),
        attacked_p50_us: share(&attacked, 0.5),
        attacked_p99_us: share(&attacked, 0.99),
    })
}

/// Times of sequential flows in microseconds, sorted; each runs on its own task, as in a worker.
async fn latencies(
    runtime: &Handle,
    generation: &Arc<LoadedGeneration>,
    event: &Arc<Event>,
    part: Duration,
    env: &Env,
) -> anyhow::Result<Vec<f64>> {
    let begin = env.clock.monotonic();
    let mut latencies = Vec::new();
    while env.clock.monotonic() - begin < part {
        let (generation, event) = (generation.clone(), event.clone());
        let asked = env.clock.monotonic();
        env::spawn_on(runtime, "neighbour", async move { host_flow(&generation, &event).await }).await??;
        latencies.push((env.clock.monotonic() - asked).as_secs_f64() * 1e6);
        env::sleep(PAUSE).await;
    }
    latencies.sort_by(f64::total_cmp);
    Ok(latencies)
}

/// The quantile of sorted latencies.
fn share(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    sorted[(last as f64 * share).round() as usize]
}

fn print(report: &Report) {
    println!("guest: a fresh instance and `prepare`, a fresh instance and `run`");
    println!("  on       {}", report.machine.describe());
    for flow in &report.flows {
        println!(
            "  {:<8} {:>6} B body: {:>8.1} us   bare {:>8.1} us   overhead {:.2}x   instantiate {:.1} us   fuel {}",
            flow.pack, flow.body_bytes, flow.host_us, flow.bare_us, flow.overhead, flow.bare_instantiate_us, flow.fuel
        );
        println!(
            "           component {} bytes, compiled and loaded in {:.0} ms",
            flow.component_bytes, flow.compile_ms
        );
    }
    let Start { packs, compiled, ms } = report.start;
    println!("  start    {packs} packs from the cache in {ms:.0} ms, {compiled} of them compiled");
    if let Some(attack) = &report.attack {
        println!(
            "  attack   a neighbour's flow, alone: p50 {:.0} us, p99 {:.0} us; beside {} guests that never end: p50 {:.0} us, \
             p99 {:.0} us",
            attack.alone_p50_us, attack.alone_p99_us, attack.attackers, attack.attacked_p50_us, attack.attacked_p99_us
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distinct_component_is_valid_still() {
        let component = wat::parse_str("(component)").unwrap();
        let (one, two) = (distinct(&component, 1), distinct(&component, 2));
        assert_ne!(one, two);
        wasmparser::Validator::new().validate_all(&one).unwrap();
    }
}
