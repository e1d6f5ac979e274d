//! How long a restart takes with a local copy of the policy: from opening the copy until every change is applied.
//!
//! `cargo run --release -p rollcall-store --example policy_restart [restricted] [blocks] [changes]`
//!
//! The store behind the copy is a SQLite database in memory. *changes* are made and followed after the first load, one at
//! a time, so that they are in the copy as a log. The page cache is warm; the best of five restarts is printed.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PAGE_BYTES, PAGE_NUMBERS, PolicyChange};
use rollcall_functions::capabilities::{ChangesSince, Cursor};
use rollcall_policy::PolicyIndex;
use rollcall_store::{LocalCopy, PolicyStore, SqliteArchive};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}

async fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let restricted = arguments.next().transpose()?.unwrap_or(1_000_000);
    let blocks = arguments.next().transpose()?.unwrap_or(200_000);
    let changes = arguments.next().transpose()?.unwrap_or(2000);
    let store: Arc<dyn PolicyStore> = Arc::new(SqliteArchive::in_memory()?.policies());
    fill(&*store, restricted, blocks).await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("policy");

    let (first, mut cursor, _, loaded) = restart(&store, &path).await?;
    println!("first load, copy written:  {:>8.1} ms", millis(loaded));
    let started = Instant::now();
    for number in 0..changes {
        first.apply_many(vec![PolicyChange::Block(user(number)?, user(number + 7)?)]).await?;
        if let ChangesSince::Changes(_, after) = first.since(cursor.clone(), 1024).await? {
            cursor = after;
        }
    }
    println!("one change, followed:      {:>8.3} ms", millis(started.elapsed()) / f64::from(changes.max(1)));
    drop(first);
    println!("size of the copy:          {:>8.1} MB", std::fs::metadata(&path)?.len() as f64 / 1e6);

    let (mut opened, mut served) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        let (again, _, open, all) = restart(&store, &path).await?;
        // One probe, one last question: no page came from the store.
        if again.store_reads() > 2 {
            return Err(format!("the copy was not used: {} reads", again.store_reads()).into());
        }
        (opened, served) = (opened.min(open), served.min(all));
    }
    println!("restart, copy opened:      {:>8.1} ms", millis(opened));
    println!("restart, all applied:      {:>8.1} ms", millis(served));
    Ok(())
}

/// Opens the copy and loads everything into an index; the times until it was open and until all was applied.
async fn restart(store: &Arc<dyn PolicyStore>, path: &Path) -> Outcome<(LocalCopy, Cursor, Duration, Duration)> {
    let started = Instant::now();
    let copied = LocalCopy::open(Arc::clone(store), path, "benchmark");
    let opened = started.elapsed();
    let (mut number, mut index, mut cursor) = (Some(0), PolicyIndex::new(1), None);
    while let Some(page) = number {
        let page = copied.snapshot(page).await?;
        page.changes.iter().for_each(|change| index.apply(change));
        number = page.next;
        cursor.get_or_insert(page.cursor);
    }
    let mut cursor = cursor.unwrap_or_default();
    while let ChangesSince::Changes(changes, after) = copied.since(cursor.clone(), 1024).await? {
        changes.iter().for_each(|change| index.apply(change));
        cursor = after;
        if changes.is_empty() {
            break;
        }
    }
    Ok((copied, cursor, opened, started.elapsed()))
}

/// Every eighth number is restricted, from 0 on; users block others at random.
async fn fill(store: &dyn PolicyStore, restricted: u32, blocks: u32) -> Outcome<()> {
    let pages = (0..restricted.div_ceil(PAGE_NUMBERS / 8)).map(|page| Numbers::new(page, vec![0x01; PAGE_BYTES]));
    let mut changes = pages.map(|numbers| numbers.map(PolicyChange::RestrictMany)).collect::<Result<Vec<_>, _>>()?;
    let other = |number: u32| number.wrapping_mul(2_654_435_761) % blocks.max(1);
    for number in 0..blocks {
        changes.push(PolicyChange::Block(user(number)?, user(other(number))?));
    }
    for batch in changes.chunks(1024) {
        store.apply_many(batch.to_vec()).await?;
    }
    Ok(())
}

fn user(number: u32) -> Outcome<UserId> {
    Ok(UserId::parse(format!("user-{number:011}"))?)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
