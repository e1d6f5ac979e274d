//! The cost of the sandbox: `beat-many` through the component compared with the same function linked natively, on the same store,
//! in the steady state: all users are online, so a beat is one touch.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use rollcall_functions::heartbeat;

use crate::report::{Goal, Section, number, ratio};
use crate::sample::Comparison;
use crate::users::{self, Random};
use crate::wasm_and_native::{SLICE, WasmAndNative, in_turn, on_a_worker};

/// Users online: a store that fits into the caches of a large machine, and one that does not.
const USERS: [u64; 2] = [100_000, 1_000_000];

/// Beats per call.
const BATCHES: [usize; 4] = [1, 16, 64, 256];

/// The batch size with a target.
const TARGET_BATCH: usize = 64;

/// Beats prepared and then timed at once: enough to hide the cost of reading the clock, few enough to stay in the near caches, like
/// a request that was just read.
const READY: usize = 256;

/// Measures every batch size with few and with many users.
pub(crate) fn run() -> Result<Section> {
    let mut section = Section::new(
        "functions: `beat-many` through the component against linked natively",
        &["users online", "batch", "wasm ns/beat", "native ns/beat", "wasm/native", "min–max", "wasm beats/s"],
    );
    for user_count in USERS {
        let comparisons = on_a_worker(user_count, async |functions| measure(&functions, user_count).await)?;
        for (batch, comparison) in BATCHES.into_iter().zip(comparisons) {
            let goal = if batch == TARGET_BATCH { Goal::AtMost(1.5) } else { Goal::None };
            let (median, range) = ratio(comparison.ratio());
            let per_second = number(1e9 / comparison.ours());
            let cells = [
                number(user_count as f64),
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
        "One thread, one call in flight, random users who are online already, ids of 36 bytes, the system clock. Both sides \
         take beats prepared beforehand and share one store. The wasm side is everything the host does between HTTP and the \
         store: instance queue, component, both boundary crossings, metrics.",
    );
    Ok(section)
}

async fn measure(functions: &WasmAndNative, user_count: u64) -> Result<Vec<Comparison>> {
    let (mut ours, mut theirs) = (Random::new(user_count), Random::new(user_count + 1));
    let mut comparisons = Vec::new();
    for batch in BATCHES {
        let wasm = async || through_wasm(functions, batch, || ours.below(user_count)).await;
        let native = async || natively(functions, batch, || theirs.below(user_count)).await;
        comparisons.push(in_turn(wasm, native).await?);
    }
    Ok(comparisons)
}

/// Nanoseconds per beat in one slice.
async fn through_wasm(functions: &WasmAndNative, batch: usize, mut random_user: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut beaten) = (Duration::ZERO, 0);
    while spent < SLICE {
        let batches = ready(batch, || Ok(users::beat(random_user())?))?;
        let began = Instant::now();
        for beats in batches {
            beaten += beats.len();
            for answer in functions.wasm.beat_many(beats).await? {
                black_box(answer?);
            }
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / beaten as f64)
}

/// Nanoseconds per beat in one slice.
async fn natively(functions: &WasmAndNative, batch: usize, mut random_user: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut beaten) = (Duration::ZERO, 0);
    while spent < SLICE {
        let batches = ready(batch, || Ok(users::beat(random_user())?))?;
        let began = Instant::now();
        for beats in batches {
            beaten += beats.len();
            for answer in heartbeat::beat_many(&functions.native, &functions.rules, beats.into_iter().collect()).await?
            {
                black_box(answer?);
            }
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / beaten as f64)
}

/// Prepared batches.
fn ready<T>(batch: usize, mut item: impl FnMut() -> Result<T>) -> Result<Vec<Vec<T>>> {
    (0..READY.div_ceil(batch)).map(|_| (0..batch).map(|_| item()).collect()).collect()
}
