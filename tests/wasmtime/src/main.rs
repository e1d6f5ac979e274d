//! `wasmtime serve`, for the tests: a host that is not ours, which runs what is in `dist/wasi`.
//!
//! It is wasmtime's own command line, compiled here and not installed, because most of what is below it is there already.

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
