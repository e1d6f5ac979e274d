//! `wasmtime serve` for the tests: another host, which runs the files in `dist/wasi`.
//!
//! It is wasmtime's own command line, compiled here instead of installed, because most of its dependencies are compiled anyway.

use clap::Parser;
use wasmtime_cli::commands::ServeCommand;

/// The part of `wasmtime` that the tests need.
#[derive(Parser)]
#[command(name = "wasmtime")]
enum Wasmtime {
    /// Serve a component over HTTP
    Serve(ServeCommand),
}

fn main() -> wasmtime::Result<()> {
    let Wasmtime::Serve(serve) = Wasmtime::parse();
    serve.execute()
}
