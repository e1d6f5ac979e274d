//! How long a cold instance takes to load all policy, and the memory of the process afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_servers::redis::Redis as Server;
use rollcall_store::{PolicyStore, SqliteArchive};

use super::{instance, population};
use crate::process::resident_bytes;
use crate::report::{Goal, Section, number};

/// Restricted numbers, consecutive.
const RESTRICTED: [u64; 3] = [1_000_000, 100_000_000, BILLION];
const BILLION: u64 = 1_000_000_000;

/// Target for a billion.
const TARGET_MB: f64 = 130.0;

/// Measures from SQLite and from Redis.
pub(crate) fn run() -> Result<Section> {
    let columns = ["restricted, in a row", "from", "s", "instance says, MB", "host grows by, MB"];
    let mut section = Section::new("policy-loading: a cold instance loads everything", &columns);
    // The store keeps its connection in a thread, as in the host.
    let store_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let empty = resident(&Server::start()?)?;
    for count in RESTRICTED {
        let goal = if count == BILLION { Goal::AtMost(TARGET_MB) } else { Goal::None };
        let mut row = |from: &str, (took_s, bytes): (f64, f64), grown: String| {
            let cells = [number(count as f64), from.to_owned(), number(took_s), number(bytes / 1e6), grown];
            section.row(cells, goal, bytes / 1e6);
        };
        let folder = tempfile::tempdir()?;
        let archive = SqliteArchive::open(folder.path().join("rollcall.sqlite"))?;
        row("SQLite", measure(count, Arc::new(archive.policies()))?, "—".to_owned());
        let server = Server::start()?;
        let store = store_runtime.block_on(NativeRedis::open(&server.url(), Options::default()))?;
        let measured = measure(count, Arc::new(store))?;
        row("Redis", measured, number((resident(&server)? - empty) / 1e6));
    }
    section.note(
        "Through the component, page by page, like a starting host; the SQLite file is in the page cache, and Redis and \
        the instance share the cores. The growth of a host is its resident memory with all of them minus that of a host \
        on an empty Redis, one instance each; it includes what loading leaves in the allocators.",
    );
    Ok(section)
}

/// Resident bytes of a host with one warm instance on this Redis.
fn resident(server: &Server) -> Result<f64> {
    let host = super::host(Path::new("none"), &server.url(), 1)?;
    Ok(resident_bytes(host.pid())? as f64)
}

/// Loads this many; returns the time and the memory.
fn measure(count: u64, policies: Arc<dyn PolicyStore>) -> Result<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        instance::apply(&*policies, population::in_a_row(count)).await?;
        let checker = instance::cold(policies).await?;
        let began = Instant::now();
        let freshness = instance::load(&checker).await?;
        let took_s = began.elapsed().as_secs_f64();
        ensure!(freshness.restricted == count, "{} are restricted instead of {count}", freshness.restricted);
        anyhow::Ok((took_s, freshness.bytes as f64))
    })
}
