//! What the kernel knows about a server process: how much processor time and memory it used.

use std::path::Path;

use anyhow::{Context, Result};

/// The processor time that all threads of a process used so far, in microseconds.
pub(crate) fn cpu_us(pid: u32) -> Result<f64> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut ns = 0;
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot read {}", tasks.display()))? {
        // A thread may end between being listed and being read; ours do not while they are measured.
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let used = text.split_whitespace().next().context("an empty schedstat")?;
        ns += used.parse::<u64>()?;
    }
    Ok(ns as f64 / 1000.0)
}

/// The memory of a process that is in use, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
