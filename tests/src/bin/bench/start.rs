//! The time from process start to the first answered heartbeat, and file sizes.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use rollcall_tests::{Host, binary, component};
use tokio::runtime::Runtime;

use crate::empty_server::EmptyServer;
use crate::load::Connection;
use crate::report::{Goal, Section, number};
use crate::sample::Spread;
use crate::users;

/// Starts of each, in turn.
const RUNS: usize = 20;

/// The functions in the binary.
const FUNCTIONS: [&str; 5] = ["heartbeat", "query", "subscribe", "typing", "offline-sweep"];

/// Starts the host and the empty server in turn.
pub(crate) fn run() -> Result<Section> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut ours_ms, mut theirs_ms) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let data = tempfile::tempdir()?;
        let began = Instant::now();
        let host = Host::start_in(data.path(), &[]);
        first_answer(&runtime, host.address())?;
        ours_ms.push(began.elapsed().as_secs_f64() * 1000.0);
        drop(host);
        let began = Instant::now();
        let empty = EmptyServer::start()?;
        first_answer(&runtime, empty.address())?;
        theirs_ms.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let mut section = Section::new("start: from the process to its first answer, and sizes", &["figure", "value"]);
    let (ours, theirs) = (Spread::of(&ours_ms), Spread::of(&theirs_ms));
    let goal = Goal::AtMost(150.0);
    section.row(["rollcall, median, ms".to_owned(), number(ours.median)], goal, ours.median);
    section.row(["rollcall, max, ms".to_owned(), number(ours.high)], goal, ours.high);
    section.row(["empty server, median, ms".to_owned(), number(theirs.median)], Goal::None, 0.0);
    section.row(["`rollcall` binary, MB".to_owned(), megabytes(&binary())?], Goal::None, 0.0);
    for function in FUNCTIONS {
        let wasm = component(function);
        let sizes = format!("{} / {}", kilobytes(&wasm)?, kilobytes(&wasm.with_extension("cwasm"))?);
        section.row([format!("`{function}` .wasm / .cwasm, KB"), sizes], Goal::None, 0.0);
    }
    section.note(&format!(
        "{RUNS} runs of each in turn, on a free port, the host with a fresh data directory, until a heartbeat is answered \
         with 200. The empty server shows the cost of starting any such process here."
    ));
    Ok(section)
}

fn first_answer(runtime: &Runtime, address: &str) -> Result<()> {
    runtime.block_on(async {
        Connection::open(address).await?.ask(&users::heartbeat(1)).await?;
        Ok(())
    })
}

fn bytes(path: &Path) -> Result<f64> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(metadata.len() as f64)
}

fn megabytes(path: &Path) -> Result<String> {
    Ok(number(bytes(path)? / 1e6))
}

fn kilobytes(path: &Path) -> Result<String> {
    Ok(number(bytes(path)? / 1e3))
}
