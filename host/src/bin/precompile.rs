//! Compiles components ahead of time for the `rollcall` binary of the same build: `precompile IN.wasm OUT.cwasm …`.
//!
//! A separate program, because `rollcall` embeds its output.

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let pairs = paths.as_chunks::<2>();
    if pairs.0.is_empty() || !pairs.1.is_empty() {
        bail!("usage: precompile IN.wasm OUT.cwasm [IN.wasm OUT.cwasm …]");
    }
    let engine = rollcall_host::runtime::engine()?;
    for [from, to] in pairs.0 {
        let wasm = std::fs::read(from).with_context(|| format!("reading {from}"))?;
        let compiled = engine.precompile_component(&wasm).map_err(anyhow::Error::from);
        let compiled = compiled.with_context(|| format!("compiling {from}"))?;
        std::fs::write(to, compiled).with_context(|| format!("writing {to}"))?;
    }
    Ok(())
}
