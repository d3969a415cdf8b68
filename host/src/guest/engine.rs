//! The one engine of the process: what wasm may use here, and the pool that instances come from.
//!
//! Invariants:
//! - What would let two runs of one call differ is off or pinned: threads, relaxed SIMD, NaN bits.
//! - What a connector has no use for is off: 64-bit memories, several memories in a module, garbage collection,
//!   concurrency.
//! - An instance finds nothing of the one that had its place before. wasmtime can ask the kernel which pages were
//!   written to (`pagemap_scan`), but passes over those that are swapped out or being moved at that moment: it stays
//!   off.
//! - The pool holds as many instances as calls are admitted, so that it cannot run out.

use std::num::NonZeroUsize;

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::{GuestOptions, LoadError};

/// Frames of a guest's stack that are kept of a trap.
const BACKTRACE_FRAMES_MAX: usize = 32;
/// The deepest that a guest's own stack may grow.
const WASM_STACK_BYTES: usize = 512 * 1024;
/// The stack that a call runs on: the guest's, and what the host's functions need beneath.
const CALL_STACK_BYTES: usize = 1024 * 1024;

/// What one component may consist of. A component made by `wit-component` has three core modules, one memory and two
/// tables.
const CORE_INSTANCES_PER_CALL: u32 = 8;
pub(super) const MEMORIES_PER_CALL: u32 = 2;
pub(super) const TABLES_PER_CALL: u32 = 4;
/// Entries of one table: one for each function that is called by reference.
pub(super) const TABLE_ELEMENTS_MAX: usize = 20_000;
/// What an instance's place keeps of memory and tables for the next instance: it is written back to what it was at
/// first. Giving it back to the system instead makes every core forget its addresses, after each call. A connector that
/// the SDK's way built (`build::STACK_BYTES`) and that needs little memory has all of its own in here.
const MEMORY_KEPT_BYTES: usize = 512 * 1024;
const TABLE_KEPT_BYTES: usize = 64 * 1024;
/// The host's own record of an instance.
const INSTANCE_BYTES_MAX: usize = 1024 * 1024;

/// Starts the engine with a pool of instances, or without one where the address space is too short for it.
pub(super) fn start(options: &GuestOptions) -> Result<Engine, LoadError> {
    let pool = pool(options)?;
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).or_else(|error| {
        tracing::warn!(
            error = format!("{error:#}"),
            "no room for a pool of guest instances: each is allocated on its own"
        );
        on_demand()
    })
}

/// An engine with the same pool that neither meters nor interrupts, for comparison.
pub(super) fn bare(options: &GuestOptions) -> Result<Engine, LoadError> {
    let mut config = config();
    config.consume_fuel(false).epoch_interruption(false);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options)?));
    Engine::new(&config).map_err(does_not_start)
}

/// An engine without a pool that compiles on every core: for checking a pack, while nothing is served.
pub(super) fn for_checking() -> Result<Engine, LoadError> {
    let mut config = config();
    config.parallel_compilation(true);
    Engine::new(&config).map_err(does_not_start)
}

fn on_demand() -> Result<Engine, LoadError> {
    Engine::new(&config()).map_err(does_not_start)
}

fn does_not_start(error: wasmtime::Error) -> LoadError {
    LoadError(format!("the WebAssembly engine does not start: {error:#}"))
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .concurrency_support(false)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .memory_init_cow(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(CALL_STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        // Compiling uses no more cores than `compilations_max`: the others keep answering.
        .parallel_compilation(false);
    config
}

fn pool(options: &GuestOptions) -> Result<PoolingAllocationConfig, LoadError> {
    // Each compilation ends with an instance that is made to see whether it can be made.
    let trials = u32::try_from(options.compilations_max).unwrap_or(u32::MAX);
    let instances = options.instances_max.saturating_add(trials);
    let memory_bytes = usize::try_from(options.memory_bytes_max)
        .map_err(|_| LoadError(format!("{} bytes of guest memory cannot be addressed", options.memory_bytes_max)))?;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_CALL))
        .total_memories(instances.saturating_mul(MEMORIES_PER_CALL))
        .total_tables(instances.saturating_mul(TABLES_PER_CALL))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_CALL)
        .max_memories_per_component(MEMORIES_PER_CALL)
        .max_tables_per_component(TABLES_PER_CALL)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(memory_bytes)
        .linear_memory_keep_resident(MEMORY_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        .pagemap_scan(Enabled::No);
    Ok(pool)
}
