//! `cargo xtask`: everything one does with this repository, one command each.
//!
//! A thin front: it reads the command line and hands over to the module of the same name. Each command does first what
//! it needs — a missing target is added, a stale component is built — so none has to be run before another.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::build::Profile;
use crate::workspace::Workspace;

mod bench;
mod build;
mod ci;
mod compose;
mod dist;
mod infra;
mod process;
mod publish;
mod reference;
mod serve;
mod servers;
mod setup;
mod test;
mod tidy;
mod web;
mod workspace;

/// What stands below the list of commands.
const AFTER_HELP: &str = "\
Start here:
  cargo xtask serve                build what is missing, then run `rollcall serve`
  cargo xtask test                 build what is missing, then run every test
  cargo xtask test second_device   only the tests whose name contains that
  cargo xtask test --spin          on Spin too, if there is a `spin` on the PATH
  cargo xtask test --wasmtime      under `wasmtime serve` too, which is compiled first
  cargo xtask ci                   all that must be green before a change goes in

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
    /// Add the Rust targets that are missing and look for a C compiler
    Setup,
    /// Build the functions and the `rollcall` binary that embeds them
    Build {
        /// Optimised, as it is shipped
        #[arg(long)]
        release: bool,
    },
    /// Build what is deployed to Spin and to other hosts into `dist/`, and not the `rollcall` binary
    Dist,
    /// Build, then run `rollcall serve` with these arguments
    Serve {
        /// Given to `rollcall serve` as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build, then run the tests
    Test {
        /// Given to `cargo test` as they are: part of a name, `-p rollcall-core`, `-- --nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build for release, then measure
    Bench {
        /// Given to the bench as they are: the names of what to measure; all by default
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check what is in infra/ with the tools that it is meant for
    Infra,
    /// Build, then make the contract and all components ready to be published
    Publish {
        /// Build and check everything, say what there is, and stop
        #[arg(long)]
        dry_run: bool,
        /// Send it there: a registry, and perhaps a path in it
        #[arg(long, value_name = "REGISTRY", conflicts_with = "dry_run")]
        to: Option<String>,
    },
    /// Write docs/API.md from the OpenAPI document
    Reference,
    /// Check the house rules that neither the compiler nor clippy knows
    Tidy,
    /// Format, tidy, build, clippy, infra, publishing and tests, the cheap ones first
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
        Task::Reference => reference::write(&workspace.root),
        Task::Tidy => tidy::run(&workspace),
        Task::Ci => ci::run(&workspace),
    }
}

/// The arguments after the subcommand, untouched: clap swallows a leading `--`, which `cargo test` needs to see.
fn after_subcommand() -> Vec<String> {
    std::env::args().skip(2).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_the_program_pass_through_serve() -> Result<()> {
        let cli = Cli::try_parse_from(["cargo xtask", "serve", "--listen", "127.0.0.1:0"])?;
        assert!(matches!(cli.task, Task::Serve { args } if args == ["--listen", "127.0.0.1:0"]));
        Ok(())
    }
}
