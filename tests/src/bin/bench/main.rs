//! `cargo xtask bench [names]`: measures the promised ratios, side by side in one run, and reports them.
//!
//! A name selects a benchmark, or a chapter: `host`, `redis`, `reads`, `gateway`, `policy` or `hosts`; without names all run. A chapter's
//! page in `docs/bench/` is written only if the whole chapter was measured. A wrong answer stops the run; slowness never does,
//! because machines are shared and noisy.

mod empty_server;
mod functions;
mod gateway;
mod hosts;
mod http;
mod lag;
mod load;
mod mget_server;
mod policy;
mod process;
mod query;
mod reads;
mod redis;
mod report;
mod sample;
mod start;
mod users;
mod wasm_and_native;

use anyhow::{Result, bail};

use report::{Machine, Section};

/// A name and its benchmark.
type Benchmark = (&'static str, fn() -> Result<Section>);

/// Every benchmark by its chapter, in the order of the reports.
const CHAPTERS: [(&str, &[Benchmark]); 6] = [
    (
        "host",
        &[
            ("functions", functions::run),
            ("http", http::run),
            ("query", query::run),
            ("lag", lag::run),
            ("start", start::run),
        ],
    ),
    (
        "redis",
        &[
            ("redis-beats", redis::beats),
            ("redis-http", redis::over_http),
            ("redis-hosts", redis::hosts),
            ("redis-lag", redis::lag),
        ],
    ),
    ("reads", &[("reads-mget", reads::against_mget), ("reads-stores", reads::stores)]),
    (
        "gateway",
        &[
            ("push", gateway::push),
            ("fan-out", gateway::fan_out),
            ("idle", gateway::idle),
            ("opening", gateway::opening),
        ],
    ),
    (
        "policy",
        &[
            ("policy-checks", policy::checks),
            ("policy-memory", policy::memory),
            ("policy-loading", policy::loading),
            ("policy-pairs", policy::pairs),
            ("policy-enforced", policy::enforced),
            ("policy-queries", policy::queries),
            ("policy-starts", policy::starts),
        ],
    ),
    (
        "hosts",
        &[
            ("hosts-beats", hosts::beats),
            ("hosts-queries", hosts::queries),
            ("hosts-push", hosts::push),
            ("hosts-starts", hosts::starts),
            ("hosts-languages", hosts::languages),
        ],
    ),
];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.iter().any(|name| name == empty_server::FLAG) {
        return empty_server::serve();
    }
    if names.iter().any(|name| name == mget_server::FLAG) {
        return mget_server::serve();
    }
    let known: Vec<&str> = CHAPTERS
        .iter()
        .flat_map(|(chapter, benchmarks)| [*chapter].into_iter().chain(benchmarks.iter().map(|(name, _)| *name)))
        .collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("unknown benchmark `{unknown}`; there are {}", known.join(", "));
    }
    if cfg!(debug_assertions) {
        eprintln!("a debug build: the figures mean nothing; use `cargo xtask bench`");
    }
    let machine = Machine::look();
    let is_wanted = |wanted: &str| names.iter().any(|name| name == wanted);
    for (chapter, benchmarks) in CHAPTERS {
        let whole = names.is_empty() || is_wanted(chapter);
        let mut sections = Vec::new();
        for (name, run) in benchmarks.iter().filter(|(name, _)| whole || is_wanted(name)) {
            eprintln!("bench: {name} …");
            let section = run()?;
            println!("{}", section.markdown());
            sections.push(section);
        }
        if whole {
            report::write(chapter, &machine, &sections)?;
        }
    }
    println!("{}", machine.markdown());
    Ok(())
}
