//! The `rollcall` program: reads the command line and the configuration, starts logging, and runs the command.

mod embedded;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use rollcall_host::cli::{Cli, Command, RestrictionsCommand, TokenArgs};
use rollcall_host::config::{self, Config, Flags, Loaded, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rollcall: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        None => Ok(Cli::command().print_help()?),
        Some(Command::Serve { settings }) => serve(&settings.0),
        Some(Command::Token(args)) => token(&args),
        Some(Command::Restrictions(command)) => restrictions(&command),
        Some(Command::Watch(args)) => block_on(rollcall_host::cli::watch(&args)),
        Some(Command::Top(args)) => block_on(rollcall_host::cli::top(&args)),
        Some(Command::Config { example: true, .. }) => print(&config::example()),
        Some(Command::Config { settings, .. }) => print(&load(&settings.0)?.to_toml()),
    }
}

fn serve(flags: &Flags) -> Result<()> {
    let config = load(flags)?.config;
    start_logging(&config)?;
    rollcall_host::http::serve::run(&config, &embedded::component, embedded::CONSOLE)
}

fn token(args: &TokenArgs) -> Result<()> {
    let config = load(&args.settings.0)?.config;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    print(&format!("{}\n", args.mint(&config, now)?))
}

/// Messages go to standard error: an export may go to standard output.
fn restrictions(command: &RestrictionsCommand) -> Result<()> {
    let config = load(&command.settings().0)?.config;
    start_logging(&config)?;
    let message = rollcall_host::cli::restrictions(command, &config)?;
    std::io::stderr().write_all(message.as_bytes()).context("cannot write to standard error")
}

/// Runs a command that only talks to a host.
fn block_on(command: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

fn load(flags: &Flags) -> Result<Loaded> {
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    Ok(Loaded::read(flags, &variables)?)
}

/// Prints without the panic of `println!` when the reader has gone.
fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn start_logging(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(config.log.as_str())?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    let started = match config.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
