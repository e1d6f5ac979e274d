//! What a touch of the embedded store costs: a million users with one device each, touched at random in batches of 64.
//!
//! `cargo run --release -p rollcall-store --example touch [user_count] [batch]`
//!
//! Building the batch is the caller's cost and not counted; dropping it is counted, since the store takes it over.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_core::{DeviceId, DeviceKind, Invalid, Span, UserId};
use rollcall_functions::capabilities::{DeviceEvent, Touch, Touches};
use rollcall_store::memory::{Memory, Options};

/// Touches per measurement: a second or so.
const TOUCHES: usize = 4_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let user_count: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let batch: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let store = Arc::new(Memory::new(Options::default()));

    let started = Instant::now();
    for index in 0..user_count {
        store.touch(&[touch(index)?].into_iter().collect())?;
    }
    report("first touches (build included)", started.elapsed(), user_count as usize);
    for round in 1..=3 {
        report(&format!("steady touches, one thread, round {round}"), steady(&store, user_count, batch, round)?, batch);
    }
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || steady(&store, user_count, batch, 100 + seed).map_err(|error| error.to_string()))
        })
        .collect();
    for thread in threads {
        let elapsed = thread.join().map_err(|_| "a thread panicked")??;
        report("steady touches, one of two threads", elapsed, batch);
    }
    println!("{} sessions", store.sessions());
    Ok(())
}

/// Touches users at random, and returns how long the store took: by the median batch, which another program that
/// takes the processor away for a while does not change.
fn steady(store: &Memory, user_count: u64, batch: usize, seed: u64) -> Result<Duration, Box<dyn Error>> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut spent = Vec::with_capacity(TOUCHES.div_ceil(batch));
    for _ in 0..TOUCHES.div_ceil(batch) {
        let touches = (0..batch).map(|_| touch(next(&mut random) % user_count)).collect::<Result<Touches, _>>()?;
        let started = Instant::now();
        black_box(store.touch(&touches)?);
        drop(touches);
        spent.push(started.elapsed());
    }
    spent.sort_unstable();
    Ok(spent.get(spent.len() / 2).copied().unwrap_or_default())
}

/// Ids as long as a UUID, as most are.
fn touch(index: u64) -> Result<Touch, Invalid> {
    Ok(Touch {
        user: UserId::parse(format!("6f9619ff-8b86-d011-b42d-{index:012}"))?,
        device: DeviceId::parse("web-1")?,
        event: DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: Span::seconds(45) },
    })
}

/// Xorshift: the order of users must not be one that a cache can guess.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn report(what: &str, elapsed: Duration, touches: usize) {
    println!("{what}: {:.0} ns each", elapsed.as_nanos() as f64 / touches as f64);
}
