//! `cargo xtask`: the commands of this repository.
//!
//! It parses the command line and calls the module of the same name. Each command first does what it depends on: it adds a
//! missing target, builds a stale component. So no command has to be run before another.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::build::Profile;
use crate::workspace::Workspace;

mod bench;
mod build;
mod ci;
mod compatibility;
mod compose;
mod dist;
mod infra;
mod process;
mod publish;
mod python;
mod reference;
mod serve;
mod servers;
mod setup;
mod sync_contract;
mod test;
mod tidy;
mod web;
mod workspace;

/// Printed below the list of commands.
const AFTER_HELP: &str = "\
Start here:
  cargo xtask serve                build what is missing, then run `rollcall serve`
  cargo xtask test                 build what is missing, then run every test
  cargo xtask test second_device   only the tests whose name contains `second_device`
  cargo xtask test --spin          also the tests on Spin; `spin` must be on the PATH, or give `--spin=PATH`, several times
  cargo xtask test --wasmtime      also the tests under `wasmtime serve`, which is compiled first
  cargo xtask ci                   everything that must pass before a change is merged

The first build takes about ten minutes on 2 cores: it compiles wasmtime.";

/// Build, run, measure and check Rollcall.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Add missing Rust targets and check that there is a C compiler
    Setup,
    /// Build the functions and the `rollcall` binary that embeds them
    Build {
        /// Build with optimisations, for deployment
        #[arg(long)]
        release: bool,
    },
    /// Build only what is deployed to Spin and other hosts, into `dist/`
    Dist,
    /// Build, then run `rollcall serve` with these arguments
    Serve {
        /// Arguments of `rollcall serve`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build, then run the tests
    Test {
        /// Arguments of `cargo test`: part of a test name, `-p rollcall-core`, `-- --nocapture`; `-j` limits how many test
        /// binaries run at once
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build for release, then run the benchmarks
    Bench {
        /// Names of benchmarks, all by default; `--spin=PATH` for each Spin to measure, `--wasmtime` for `wasmtime serve`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check infra/ with promtool, systemd-analyze and schema checkers
    Infra,
    /// Build, then write the contract and all components as an OCI image layout
    Publish {
        /// Write and check the layout, list its contents, and stop
        #[arg(long)]
        dry_run: bool,
        /// Push to this registry, with an optional path
        #[arg(long, value_name = "REGISTRY", conflicts_with = "dry_run")]
        to: Option<String>,
    },
    /// Write docs/API.md from the OpenAPI document, the table of dependencies in docs/ARCHITECTURE.md, wit-sync/ from wit/,
    /// and the table of hosts in the README from the last run of the tests
    Reference,
    /// Check the house rules that neither the compiler nor clippy checks
    Tidy,
    /// Run every check: format, tidy, build, clippy, infra, publish, tests
    Ci,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let workspace = Workspace::load()?;
    match task {
        Task::Setup => setup::run(&workspace),
        Task::Build { release } => {
            setup::run(&workspace)?;
            build::run(&workspace, if release { Profile::Release } else { Profile::Dev })?;
            dist::run(&workspace)
        }
        Task::Dist => {
            setup::run(&workspace)?;
            build::functions(&workspace)?;
            dist::run(&workspace)
        }
        Task::Serve { args } => serve::run(&workspace, &args),
        Task::Test { .. } => test::run(&workspace, &after_subcommand()),
        Task::Bench { args } => bench::run(&workspace, &args),
        Task::Infra => infra::run(&workspace),
        Task::Publish { dry_run, to } => {
            setup::run(&workspace)?;
            build::run(&workspace, Profile::Dev)?;
            dist::run(&workspace)?;
            publish::run(&workspace, dry_run, to.as_deref())
        }
        Task::Reference => {
            sync_contract::write(&workspace.root)?;
            reference::write(&workspace.root)?;
            compatibility::write(&workspace.root)?;
            tidy::dependencies::write(&workspace)
        }
        Task::Tidy => tidy::run(&workspace),
        Task::Ci => ci::run(&workspace),
    }
}

/// The arguments after the subcommand, unparsed: clap drops a leading `--`, which `test` needs.
fn after_subcommand() -> Vec<String> {
    std::env::args().skip(2).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_passes_flags_to_program() -> Result<()> {
        let cli = Cli::try_parse_from(["cargo xtask", "serve", "--listen", "127.0.0.1:0"])?;
        assert!(matches!(cli.task, Task::Serve { args } if args == ["--listen", "127.0.0.1:0"]));
        Ok(())
    }
}
