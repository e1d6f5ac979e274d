//! The engine's settings and the bounds on every instance, each with its reason. The ahead-of-time compiler uses the very
//! same settings: compiled code is only accepted by an engine that agrees with it.

use std::time::Duration;

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result};

/// The memory limit of an instance that holds no policy. A full batch is 1,024 items of at most 300 bytes in and out, a few
/// copies of it at most, and dozens of batches in flight: 64 MiB leaves a factor of three.
pub const MEMORY_LIMIT_BYTES: usize = 64 << 20;

/// How often the engine's epoch advances, which interrupts running instances for a check.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

/// How many ticks an instance may compute without yielding: a quarter of a second, where a full batch takes about one
/// millisecond.
pub const MAX_TICKS: u32 = 25;

/// The memory limit of `restriction-check`, which holds policy: what 32 bits address.
const ADDRESSABLE_BYTES: usize = 4 << 30;

/// Instances in the whole process: six functions on each of at most 64 workers, with as many being replaced.
const MAX_INSTANCES: u32 = 1024;

/// The engine of this process.
pub fn engine() -> Result<Engine> {
    let mut config = Config::new();
    config.epoch_interruption(true);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(MAX_INSTANCES)
        .total_core_instances(MAX_INSTANCES * 4)
        .total_memories(MAX_INSTANCES)
        .total_tables(MAX_INSTANCES * 4)
        .total_stacks(MAX_INSTANCES * 4)
        .max_memory_size(ADDRESSABLE_BYTES);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    // Address space is free, and with all 32 bits reserved no access needs a bounds check. The limiter decides how much of it
    // an instance may use.
    config.memory_reservation(ADDRESSABLE_BYTES as u64);
    config.memory_guard_size(32 << 20);
    Engine::new(&config)
}

/// Advances the engine's epoch on a thread, until the engine is dropped. Call once per engine. Not a supervised job: it must
/// run while every worker computes, and its loop cannot panic.
pub fn tick(engine: &Engine) -> std::io::Result<()> {
    let engine = engine.weak();
    std::thread::Builder::new().name("rollcall-epoch".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(EPOCH_TICK);
        }
    })?;
    Ok(())
}
