//! What the sandbox costs: `beat-many` through the component against the same function linked natively, on the same
//! store, in the steady state: everybody is online already, so a beat is one touch.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use rollcall_functions::heartbeat;

use crate::report::{Goal, Section, number, ratio};
use crate::sample::Comparison;
use crate::users::{self, Random};
use crate::wasm_and_native::{SLICE, WasmAndNative, in_turn, on_a_worker};

/// How many are online: a store that fits the caches of a large machine, and one that fits none.
const PEOPLE: [u64; 2] = [100_000, 1_000_000];

/// Beats in one call.
const BATCHES: [usize; 4] = [1, 16, 64, 256];

/// The batch for which there is a target.
const TARGET_BATCH: usize = 64;

/// Beats that are made ready, and then timed, at once: enough to hide what asking the time costs, few enough to be in
/// the near caches still, as a request that was just read is.
const READY: usize = 256;

/// Measures every batch size with few and with many people.
pub(crate) fn run() -> Result<Section> {
    let mut section = Section::new(
        "functions: `beat-many` through the component against linked natively",
        &["people online", "batch", "wasm ns/beat", "native ns/beat", "wasm/native", "min–max", "wasm beats/s"],
    );
    for people in PEOPLE {
        let comparisons = on_a_worker(people, async |ground| measure(&ground, people).await)?;
        for (batch, comparison) in BATCHES.into_iter().zip(comparisons) {
            let goal = if batch == TARGET_BATCH { Goal::AtMost(1.5) } else { Goal::None };
            let (median, range) = ratio(comparison.ratio());
            let per_second = number(1e9 / comparison.ours());
            let cells = [
                number(people as f64),
                batch.to_string(),
                number(comparison.ours()),
                number(comparison.theirs()),
                median,
                range,
                per_second,
            ];
            section.row(cells, goal, comparison.ratio().median);
        }
    }
    section.note(
        "One thread, one call in flight, random people who are online already, ids of 36 bytes, the system's clock. \
         Both sides take beats that were made ready beforehand and share one store. The wasm side is all that the host \
         does between the edge and the store: queue, instance_queue, component, both crossings, metrics.",
    );
    Ok(section)
}

async fn measure(ground: &WasmAndNative, people: u64) -> Result<Vec<Comparison>> {
    let (mut ours, mut theirs) = (Random::new(people), Random::new(people + 1));
    let mut comparisons = Vec::new();
    for batch in BATCHES {
        let wasm = async || through_wasm(ground, batch, || ours.below(people)).await;
        let native = async || natively(ground, batch, || theirs.below(people)).await;
        comparisons.push(in_turn(wasm, native).await?);
    }
    Ok(comparisons)
}

/// Nanoseconds per beat in one slice.
async fn through_wasm(ground: &WasmAndNative, batch: usize, mut anybody: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut beaten) = (Duration::ZERO, 0);
    while spent < SLICE {
        let batches = ready(batch, || Ok(users::beat(anybody())?))?;
        let began = Instant::now();
        for beats in batches {
            beaten += beats.len();
            for answer in ground.functions.beat_many(beats).await? {
                black_box(answer?);
            }
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / beaten as f64)
}

/// Nanoseconds per beat in one slice.
async fn natively(ground: &WasmAndNative, batch: usize, mut anybody: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut beaten) = (Duration::ZERO, 0);
    while spent < SLICE {
        let batches = ready(batch, || Ok(users::beat(anybody())?))?;
        let began = Instant::now();
        for beats in batches {
            beaten += beats.len();
            for answer in heartbeat::beat_many(&ground.native, &ground.rules, beats.into_iter().collect()).await? {
                black_box(answer?);
            }
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / beaten as f64)
}

/// Batches of items, made ready.
fn ready<T>(batch: usize, mut item: impl FnMut() -> Result<T>) -> Result<Vec<Vec<T>>> {
    (0..READY.div_ceil(batch)).map(|_| (0..batch).map(|_| item()).collect()).collect()
}
