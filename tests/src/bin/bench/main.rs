//! `cargo xtask bench [names]`: measures what is promised in ratios, side by side in one run, and says how it went.
//!
//! Names choose among `functions`, `http`, `query`, `lag` and `start`; none means all of them, and only then is
//! `docs/bench/host.md` written, so that a part never replaces the whole. A wrong answer stops the run. Slowness never
//! does: machines are shared and noisy, so this reports and does not judge.

mod empty;
mod functions;
mod ground;
mod http;
mod lag;
mod load;
mod people;
mod process;
mod query;
mod report;
mod sample;
mod start;

use anyhow::{Result, bail};

use report::{Machine, Section};

/// A benchmark by its name.
type Benchmark = (&'static str, fn() -> Result<Section>);

/// Every benchmark, in the order of the report.
const BENCHMARKS: [Benchmark; 5] = [
    ("functions", functions::run),
    ("http", http::run),
    ("query", query::run),
    ("lag", lag::run),
    ("start", start::run),
];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.iter().any(|name| name == empty::FLAG) {
        return empty::serve();
    }
    if let Some(stranger) = names.iter().find(|name| !BENCHMARKS.iter().any(|(known, _)| known == name)) {
        let known: Vec<_> = BENCHMARKS.iter().map(|(name, _)| *name).collect();
        bail!("there is no benchmark `{stranger}` among {}", known.join(", "));
    }
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean nothing; use `cargo xtask bench`");
    }
    let machine = Machine::look();
    let mut sections = Vec::new();
    for (name, run) in BENCHMARKS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            eprintln!("bench: {name} …");
            let section = run()?;
            println!("{}", section.markdown());
            sections.push(section);
        }
    }
    println!("{}", machine.markdown());
    if names.is_empty() {
        report::write(&machine, &sections)?;
    }
    Ok(())
}
